"""Lines of the audit log: counted, bounded, and safe to print whatever names clients choose."""

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from zhumq.security.audit import EVENTS_MAX, NAME_CHARACTERS_MAX, AuditBuffer, AuditEvent

EVENT = AuditEvent(
    principal="User:alice",
    host="127.0.0.1",
    listener="SASL_SSL",
    action="Produce",
    operation="WRITE",
    resource="topic:orders",
    allowed=False,
)


@given(st.text(max_size=2 * NAME_CHARACTERS_MAX))
def test_a_name_never_leaves_its_string_and_its_line(name: str) -> None:
    buffer = AuditBuffer()
    buffer.add(replace(EVENT, principal=f"User:{name}", resource=name))
    (line,) = buffer.take_lines("t")
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["resource"] == name[:NAME_CHARACTERS_MAX]


def test_equal_events_are_one_line_with_their_count() -> None:
    buffer = AuditBuffer()
    assert [buffer.add(EVENT) for _ in range(3)] == [True, False, False]
    buffer.add(replace(EVENT, allowed=True))
    lines = [json.loads(line) for line in buffer.take_lines("now")]
    assert [(line["allowed"], line["count"]) for line in lines] == [(False, 3), (True, 1)]
    assert lines[0]["time"] == "now"
    assert buffer.take_lines("later") == []
    assert buffer.add(EVENT)


def test_events_beyond_the_bound_are_counted_and_not_written() -> None:
    buffer = AuditBuffer()
    for index in range(EVENTS_MAX + 7):
        buffer.add(replace(EVENT, resource=f"topic:{index}"))
    buffer.add(replace(EVENT, resource="topic:0"))
    *written, last = map(json.loads, buffer.take_lines("now"))
    assert len(written) == EVENTS_MAX
    assert written[0]["count"] == 2
    assert last == {"time": "now", "dropped": 7}

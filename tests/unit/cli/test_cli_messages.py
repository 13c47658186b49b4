"""Messages as lines of text and of JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zhumq.cli.messages import OutgoingMessage, format_json_line, parse_json_line, parse_line
from zhumq.cli.options import CommandFailed

contents = st.none() | st.binary(max_size=30)
header_lists = st.lists(st.tuples(st.text(max_size=8), contents), max_size=3)


@given(
    key=contents,
    value=contents,
    headers=header_lists,
    partition=st.integers(0, 2**31 - 1),
    timestamp_ms=st.none() | st.integers(0, 2**62),
)
def test_what_consume_prints_produce_takes(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    partition: int,
    timestamp_ms: int | None,
) -> None:
    line = format_json_line(
        topic="t",
        partition=partition,
        offset=7,
        timestamp_ms=timestamp_ms,
        key=key,
        value=value,
        headers=headers,
    )
    assert line.count(b"\n") == 1
    assert parse_json_line(line, 1) == OutgoingMessage(
        key=key,
        value=value,
        headers=tuple(headers),
        partition=partition,
        timestamp_ms=timestamp_ms,
    )


def test_headers_may_be_an_object() -> None:
    line = json.dumps({"value": "v", "headers": {"a": "1", "b": None}}).encode()
    assert parse_json_line(line, 1).headers == (("a", b"1"), ("b", None))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("nonsense", "line 3 is not JSON"),
        ('"text"', "line 3 must be an object"),
        ('{"vlaue": "x"}', "unknown field 'vlaue'"),
        ('{"value": 5}', "line 3: value must be a string"),
        ('{"value": {"base64": "%"}}', "line 3: value is not base64"),
        ('{"value": {"base64": "YQ==", "more": 1}}', "line 3: value must be a string"),
        ('{"value": "\\ud800"}', "line 3: value is not text"),
        ('{"value": "v", "headers": ["a"]}', "line 3: headers must be an object"),
        ('{"value": "v", "headers": [[1, "a"]]}', "a name must be a string"),
        ('{"value": "v", "partition": -1}', "line 3: partition must be a whole number"),
        ('{"value": "v", "timestamp": true}', "line 3: timestamp must be a whole number"),
        ('{"value": "v", "timestamp": 1.5}', "line 3: timestamp must be a whole number"),
    ],
)
def test_a_bad_line_is_named_with_what_is_wrong(line: str, expected: str) -> None:
    with pytest.raises(CommandFailed, match=expected.replace("[", r"\[")):
        parse_json_line(line.encode(), 3)


def test_a_line_is_the_value() -> None:
    assert parse_line(b"a:b", None, 1) == OutgoingMessage(value=b"a:b")


def test_the_first_separator_ends_the_key() -> None:
    assert parse_line(b"a:b:c", b":", 1) == OutgoingMessage(key=b"a", value=b"b:c")


def test_a_line_without_the_separator_is_refused() -> None:
    with pytest.raises(CommandFailed, match="line 9 has no key separator ':'"):
        parse_line(b"abc", b":", 9)

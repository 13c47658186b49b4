"""Logs of topics whose messages need registered schemas: what is looked at, and what is refused."""

from collections.abc import Mapping

import pytest
from storage_support import NOW_MS, open_log, read_batches

from zhumq.model.errors import BrokerError, InvalidRecord, NotEnoughReplicas
from zhumq.records.batch import Record, RecordHeader
from zhumq.records.builder import build_batch
from zhumq.records.codecs import Compression
from zhumq.storage.log_config import SchemaRule
from zhumq.storage.schema_ids import UsedIds
from zhumq.storage.segmented_log import SegmentedLog
from zhumq.storage.validator import AppendOrigin
from zhumq.testing.disk import MemoryDisk

VALUES = SchemaRule(keys=False, values=True, any_subject=False)
BOTH = SchemaRule(keys=True, values=True, any_subject=True)


class Registered:
    """Takes these ids, and notes what it is asked."""

    def __init__(self, *ids: int) -> None:
        self._ids = ids
        self.asked: list[tuple[str, Mapping[int, int], Mapping[int, int], bool]] = []

    def check(self, topic: str, used: UsedIds, *, any_subject: bool) -> None:
        self.asked.append((topic, used.of_keys, used.of_values, any_subject))
        if not {*used.of_keys, *used.of_values} <= {*self._ids}:
            raise InvalidRecord("not registered")


def framed(id_: int, data: bytes = b"data") -> bytes:
    return b"\0" + id_.to_bytes(4, "big") + data


def batch(*records: tuple[bytes | None, bytes | None], **header: object) -> bytes:
    made = [
        Record(timestamp=NOW_MS, key=key, value=value, headers=(RecordHeader("h", b"\0"),))
        for key, value in records
    ]
    return build_batch(made, **header)  # type: ignore[arg-type]


def checked_log(rule: SchemaRule, known: Registered | None, **settings: object) -> SegmentedLog:
    log = open_log(MemoryDisk(), schema_rule=rule, **settings)
    log.known_schemas = known
    return log


def append(log: SegmentedLog, data: bytes) -> None:
    log.append(data, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.PLAIN_CLIENT)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_the_ids_of_a_batch_are_looked_up_once(compression: Compression) -> None:
    known = Registered(7, 8)
    log = checked_log(VALUES, known)
    data = batch((b"key", framed(7)), (None, framed(8)), (b"k", framed(7)), compression=compression)
    append(log, data)
    assert known.asked == [(log.topic_partition.topic, {}, {7: 0, 8: 1}, False)]
    assert log.log_end_offset == 3


def test_keys_and_values_may_have_other_schemas() -> None:
    known = Registered(1, 2)
    log = checked_log(BOTH, known)
    append(log, batch((framed(1), framed(2)), (framed(1), framed(1, b""))))
    assert known.asked == [(log.topic_partition.topic, {1: 0}, {2: 0, 1: 1}, True)]


def test_what_is_null_needs_no_schema() -> None:
    log = checked_log(BOTH, Registered(1))
    append(log, batch((framed(1), None), (None, framed(1)), (None, None)))
    assert log.log_end_offset == 3


@pytest.mark.parametrize("value", [b"", b"\0\0\0\1", b"\1\0\0\0\7data", b'{"a": 1}'])
def test_a_value_without_an_id_is_refused_and_named(value: bytes) -> None:
    known = Registered(7)
    log = checked_log(VALUES, known)
    with pytest.raises(InvalidRecord, match="the value of record 1 does not begin") as refused:
        append(log, batch((b"k", framed(7)), (b"k", value), (b"k", value)))
    assert refused.value.record_indexes == (1, 2)
    assert log.log_end_offset == 0


def test_a_key_that_ends_within_the_id_is_refused() -> None:
    log = checked_log(SchemaRule(keys=True, values=False, any_subject=False), Registered(0))
    with pytest.raises(InvalidRecord, match="the key of record 0"):
        append(log, batch((b"\0\0\0", b"\0\0\0\0")))


def test_nothing_is_taken_before_anybody_knows_the_schemas() -> None:
    log = checked_log(VALUES, None)
    with pytest.raises(NotEnoughReplicas):
        append(log, batch((b"k", framed(7))))


def test_each_request_of_a_run_is_checked() -> None:
    log = checked_log(VALUES, Registered(7))
    good, bad = (memoryview(batch((b"k", framed(each)))) for each in (7, 9))
    run = log.append_each([good, bad], leader_epoch=0, now_ms=NOW_MS)
    assert isinstance(run.last, tuple)
    assert run.last.base_offset == 0
    refused = log.append_each([bad], leader_epoch=0, now_ms=NOW_MS)
    assert isinstance(refused.last, BrokerError)
    assert log.log_end_offset == 1


def test_each_batch_of_a_request_is_checked() -> None:
    log = checked_log(VALUES, Registered(7))
    append(log, batch((b"k", framed(7))) + batch((b"k", framed(7))))
    with pytest.raises(InvalidRecord):
        append(log, batch((b"k", framed(7))) + batch((b"k", framed(9))))
    assert log.log_end_offset == 2


def test_coordinators_and_messages_that_were_checked_before_pass() -> None:
    log = checked_log(VALUES, Registered())
    for origin in (AppendOrigin.COORDINATOR, AppendOrigin.MOVER):
        log.append(batch((b"k", b"v")), leader_epoch=0, now_ms=NOW_MS, origin=origin)
    assert log.log_end_offset == 2


def test_delayed_messages_are_checked_when_they_are_sent() -> None:
    log = checked_log(VALUES, Registered(7), delay_max_ms=60_000)
    log.accepts_deferred = True
    delayed = [
        build_batch(
            [
                Record(
                    timestamp=NOW_MS,
                    key=b"k",
                    value=framed(id_),
                    headers=(RecordHeader("zhumq-delay-ms", b"1000"),),
                )
            ]
        )
        for id_ in (7, 9)
    ]
    append(log, delayed[0])
    hidden = [each for each in read_batches(log) if each.header.is_control]
    assert hidden, "the delayed message waits"
    end = log.log_end_offset
    with pytest.raises(InvalidRecord):
        append(log, delayed[1])
    assert log.log_end_offset == end


def test_a_rule_holds_from_the_next_append_on() -> None:
    log = open_log(MemoryDisk())
    append(log, batch((b"k", b"plain")))
    log.update_config(checked_log(VALUES, None).config)
    log.known_schemas = Registered(7)
    with pytest.raises(InvalidRecord):
        append(log, batch((b"k", b"plain")))
    append(log, batch((b"k", framed(7))))
    log.update_config(open_log(MemoryDisk()).config)
    append(log, batch((b"k", b"plain")))
    assert log.log_end_offset == 3

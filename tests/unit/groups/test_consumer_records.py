"""Records of consumer groups, byte by byte as Kafka writes them."""

import struct
import uuid

import pytest

from zhumq.groups.consumer import ClassicSide, ConsumerGroup, ConsumerMember, MemberState
from zhumq.groups.consumer_records import (
    RecordedGroup,
    current_record,
    group_epoch_record,
    member_record,
    records_of,
    regex_record,
    target_epoch_record,
    target_record,
)
from zhumq.groups.persisted import ConsumerKey, ConsumerRecordKind, decode_key, encode_group_key
from zhumq.model.state_machine import StateRecord

TOPIC = uuid.UUID(int=5)


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def compact(value: str) -> bytes:
    return bytes([len(value) + 1]) + value.encode()


def partitions(*indexes: int) -> bytes:
    """One topic with these partitions, in an array of one."""
    return (
        b"\x02"
        + TOPIC.bytes
        + bytes([len(indexes) + 1])
        + struct.pack(f">{len(indexes)}i", *indexes)
        + b"\x00"
    )


def group() -> ConsumerGroup:
    made = ConsumerGroup("g", session_timeout_ms=45_000, default_assignor="uniform")
    made.epoch = 4
    made.assignment_epoch = 3
    made.metadata_hash = 9
    made.regexes = {"a.*": frozenset({"ab", "aa"})}
    made.put_member(
        ConsumerMember(
            member_id="m",
            instance_id="i",
            client_id="c",
            client_host="/h",
            rebalance_timeout_ms=7,
            server_assignor="range",
            subscribed_names=frozenset({"t2", "t1"}),
            subscribed_regex="a.*",
            epoch=3,
            previous_epoch=2,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned={TOPIC: frozenset({1, 0})},
            pending_revocation={TOPIC: frozenset({2})},
        )
    )
    made.put_member(
        ConsumerMember(
            member_id="old", classic=ClassicSide(session_timeout_ms=6, protocols=(("p", b"xy"),))
        )
    )
    made.targets = {"m": {TOPIC: frozenset({1})}, "old": {}}
    return made


def test_a_group_s_epoch() -> None:
    record = group_epoch_record(group())
    assert record.key == b"\x00\x03" + text("g")
    hash_field = b"\x01\x00\x08" + struct.pack(">q", 9)
    assert record.value == b"\x00\x00" + struct.pack(">i", 4) + hash_field


def test_what_a_member_asked_for() -> None:
    record = member_record("g", group().members["m"])
    assert record.key == b"\x00\x05" + text("g") + text("m")
    assert record.value == (
        b"\x00\x00" + compact("i") + b"\x00" + compact("c") + compact("/h")
        + b"\x03" + compact("t1") + compact("t2") + compact("a.*")
        + struct.pack(">i", 7) + compact("range") + b"\x00"
    )  # fmt: skip


def test_the_classic_side_of_a_member_is_a_tagged_field() -> None:
    record = member_record("g", group().members["old"])
    side = b"\x01" + struct.pack(">i", 6) + b"\x02" + compact("p") + b"\x03xy" + b"\x00" + b"\x00"
    assert record.value is not None
    assert record.value.endswith(b"\x01\x00" + bytes([len(side)]) + side)


def test_targets() -> None:
    assert target_epoch_record(group()) == StateRecord(
        key=b"\x00\x06" + text("g"), value=b"\x00\x00" + struct.pack(">i", 3) + b"\x00"
    )
    assert target_record("g", "m", group().targets["m"]) == StateRecord(
        key=b"\x00\x07" + text("g") + text("m"), value=b"\x00\x00" + partitions(1) + b"\x00"
    )


def test_what_a_member_has() -> None:
    record = current_record("g", group().members["m"])
    assert record.key == b"\x00\x08" + text("g") + text("m")
    assert record.value == (
        b"\x00\x00" + struct.pack(">iib", 3, 2, 1) + partitions(0, 1) + partitions(2) + b"\x00"
    )


def test_an_expression_with_its_topics() -> None:
    record = regex_record("g", "a.*", {"ab", "aa"})
    assert record.key == b"\x00\x10" + text("g") + text("a.*")
    assert record.value == (
        b"\x00\x00\x03" + compact("aa") + compact("ab") + struct.pack(">qq", 0, 0) + b"\x00"
    )


@pytest.mark.parametrize("kind", list(ConsumerRecordKind))
def test_every_key_reads_as_it_was_written(kind: ConsumerRecordKind) -> None:
    named = kind not in (ConsumerRecordKind.GROUP, ConsumerRecordKind.TARGET_EPOCH)
    key = ConsumerKey(kind, "grüppe", "m" if named else "")
    assert decode_key(encode_group_key(key)) == key
    assert decode_key(encode_group_key(key)[:-1]) is None


def test_kinds_of_records_of_other_brokers_are_passed_over() -> None:
    assert decode_key(b"\x00\x04" + text("g")) is None
    assert decode_key(b"\x00\x63" + text("g")) is None


def test_a_group_reads_as_it_was_written() -> None:
    written = group()
    recorded = RecordedGroup(group_id="g")
    for record in records_of(written):
        key = decode_key(record.key)
        assert isinstance(key, ConsumerKey)
        assert record.value is not None
        recorded.values[key] = record.value
    read = recorded.restore(session_timeout_ms=45_000, default_assignor="uniform")
    assert read is not None
    assert list(records_of(read)) == list(records_of(written))
    assert read.members == written.members
    assert read.owners == written.owners
    assert (read.epoch, read.assignment_epoch, read.regexes) == (4, 3, written.regexes)


def test_a_member_in_a_state_of_a_later_version_starts_over() -> None:
    written = group()
    recorded = RecordedGroup(group_id="g")
    for record in records_of(written):
        key = decode_key(record.key)
        assert isinstance(key, ConsumerKey)
        assert record.value is not None
        value = record.value
        if key.kind is ConsumerRecordKind.CURRENT:
            value = value[:10] + b"\x09" + value[11:]
        recorded.values[key] = value
    read = recorded.restore(session_timeout_ms=45_000, default_assignor="uniform")
    assert read is not None
    assert (read.members["m"].epoch, read.members["m"].assigned) == (0, {})

"""Structures inside of bytes fields, each after its own version."""

import struct

import pytest

from zhumq.model.errors import MalformedFrame
from zhumq.protocol.messages.coordinator_records import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartition,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_versioned,
    encode_versioned,
)


def test_an_offset_commit_key_is_laid_out_as_kafka_does() -> None:
    key = OffsetCommitKey(group="g", topic="top", partition=7)
    data = encode_versioned(key, 1)
    assert data == b"\x00\x01" + b"\x00\x01g" + b"\x00\x03top" + struct.pack(">i", 7)
    assert decode_versioned(OffsetCommitKey, data) == (1, key)


def test_an_offset_commit_value_is_laid_out_as_kafka_does() -> None:
    value = OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=99)
    data = encode_versioned(value, 3)
    assert data == b"\x00\x03" + struct.pack(">qi", 5, 2) + b"\x00\x01m" + struct.pack(">q", 99)
    assert decode_versioned(OffsetCommitValue, data) == (3, value)


def test_only_version_1_of_an_offset_commit_value_has_an_expiry() -> None:
    value = OffsetCommitValue(offset=5, expire_timestamp=77)
    assert decode_versioned(OffsetCommitValue, encode_versioned(value, 1))[1].expire_timestamp == 77
    assert decode_versioned(OffsetCommitValue, encode_versioned(value, 2))[1].expire_timestamp == -1


def test_a_group_is_laid_out_as_kafka_does() -> None:
    assert encode_versioned(GroupMetadataKey(group="g"), 2) == b"\x00\x02\x00\x01g"
    member = MemberMetadata(
        member_id="m",
        client_id="c",
        client_host="/h",
        rebalance_timeout=1,
        session_timeout=2,
        subscription=b"s",
        assignment=b"a",
    )
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader=None,
        current_state_timestamp=4,
        members=[member],
    )
    data = encode_versioned(value, 3)
    assert data == (
        b"\x00\x03\x00\x08consumer\x00\x00\x00\x03\x00\x05range\xff\xff"
        + struct.pack(">qi", 4, 1)
        + b"\x00\x01m\xff\xff\x00\x01c\x00\x02/h"
        + struct.pack(">ii", 1, 2)
        + b"\x00\x00\x00\x01s\x00\x00\x00\x01a"
    )
    assert decode_versioned(GroupMetadataValue, data) == (3, value)


def test_a_view_is_read_and_not_held_on_to() -> None:
    data = encode_versioned(GROUP, 3)
    buffer = bytearray(data)
    version, value = decode_versioned(GroupMetadataValue, memoryview(buffer))
    buffer.clear()  # would fail if a view of it were still held
    assert (version, value) == (3, GROUP)


GROUP = GroupMetadataValue(members=[MemberMetadata(subscription=b"sub")])


@pytest.mark.parametrize("version", [-1, 5, 0x7FFF])
def test_a_record_of_an_unknown_version_is_refused(version: int) -> None:
    with pytest.raises(MalformedFrame, match=f"version {version}"):
        decode_versioned(OffsetCommitValue, struct.pack(">h", version) + bytes(40))


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x01", b"\x00\x01\x00\x09g"])
def test_a_record_that_is_cut_off_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedFrame):
        decode_versioned(OffsetCommitKey, data)


def test_bytes_after_a_record_are_refused() -> None:
    data = encode_versioned(OffsetCommitKey(group="g"), 1)
    with pytest.raises(MalformedFrame):
        decode_versioned(OffsetCommitKey, data + b"\x00")


def test_a_version_that_does_not_exist_is_not_written() -> None:
    with pytest.raises(ValueError, match="version 9"):
        encode_versioned(OffsetCommitKey(), 9)


def test_a_subscription_newer_than_known_is_read_as_far_as_it_is_known() -> None:
    subscription = ConsumerProtocolSubscription(
        topics=["a", "b"],
        owned_partitions=[ConsumerProtocolTopicPartition(topic="a", partitions=[0, 1])],
        generation_id=4,
        rack_id="r",
    )
    data = encode_versioned(subscription, 3)
    newer = struct.pack(">h", 9) + data[2:] + b"what version 9 adds"
    assert decode_versioned(ConsumerProtocolSubscription, newer) == (9, subscription)


def test_a_subscription_with_an_impossible_version_is_refused() -> None:
    with pytest.raises(MalformedFrame):
        decode_versioned(ConsumerProtocolSubscription, b"\xff\xff" + bytes(20))


def test_a_subscription_that_is_cut_off_is_refused() -> None:
    data = encode_versioned(ConsumerProtocolSubscription(topics=["topic"]), 1)
    for size in range(len(data)):
        with pytest.raises(MalformedFrame):
            decode_versioned(ConsumerProtocolSubscription, data[:size])


def test_user_data_of_an_assignment_may_be_null_or_bytes() -> None:
    for user_data in (None, b"", b"x"):
        assignment = ConsumerProtocolAssignment(user_data=user_data)
        data = encode_versioned(assignment, 0)
        assert decode_versioned(ConsumerProtocolAssignment, data) == (0, assignment)

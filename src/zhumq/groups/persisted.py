"""The records of `__consumer_offsets`, in Kafka's formats: encoding and decoding."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple

from zhumq.model.errors import MalformedFrame
from zhumq.model.state_machine import StateRecord
from zhumq.protocol.messages.coordinator_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    decode_versioned,
    encode_versioned,
)
from zhumq.protocol.schema import Message

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
OFFSET_VALUE_VERSION = 3
# The only version with an expiry for each commit (OffsetCommit v2-v4 retention_time_ms).
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
GROUP_VALUE_VERSION = 3
NO_TIMESTAMP = -1
TEXT_BYTES_MAX = 32_767  # a string in these records has an int16 length


class GroupKey(NamedTuple):
    """Key of a classic group's metadata."""

    group_id: str


class OffsetKey(NamedTuple):
    """Key of a committed offset."""

    group_id: str
    topic: str
    partition: int


class ConsumerRecordKind(IntEnum):
    """Kind of a consumer group's record (KIP-848); the first number of its key."""

    GROUP = 3
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    REGEX = 16


class ConsumerKey(NamedTuple):
    """Key of a consumer group's record."""

    kind: ConsumerRecordKind
    group_id: str
    # Member id or, with REGEX, the expression; empty for records of the whole group.
    name: str = ""


class ShareRecordKind(IntEnum):
    """Kind of a share group's record (KIP-932); the first number of its key."""

    MEMBER = 10
    GROUP = 11


class ShareKey(NamedTuple):
    """Key of a share group's record."""

    kind: ShareRecordKind
    group_id: str
    # Member id; empty for the record of the whole group.
    name: str = ""


RecordKey = GroupKey | OffsetKey | ConsumerKey | ShareKey


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """The committed position of a group on a partition, with the consumer's metadata."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int
    # Set only by old clients that request a retention of their own.
    expire_timestamp_ms: int = NO_TIMESTAMP


def fits(text: str) -> bool:
    """Whether a text fits into a record. Newer requests can carry longer ones."""
    return len(text) * 4 <= TEXT_BYTES_MAX or len(text.encode()) <= TEXT_BYTES_MAX


def offset_record(key: OffsetKey, committed: CommittedOffset | None) -> StateRecord:
    """The record that commits an offset or, with None, deletes it."""
    return StateRecord(
        key=encode_versioned(
            OffsetCommitKey(group=key.group_id, topic=key.topic, partition=key.partition),
            OFFSET_KEY_VERSION,
        ),
        value=None if committed is None else _encode_offset(committed),
    )


def group_record(group_id: str, value: GroupMetadataValue | None) -> StateRecord:
    """The record that sets a classic group's state or, with None, deletes the group."""
    return StateRecord(
        key=encode_versioned(GroupMetadataKey(group=group_id), GROUP_KEY_VERSION),
        value=None if value is None else encode_versioned(value, GROUP_VALUE_VERSION),
    )


def decode_key(key: bytes) -> RecordKey | None:
    """The decoded key; None for kinds of records that this coordinator does not know."""
    version = int.from_bytes(key[:2], "big", signed=True)
    try:
        if version in (0, OFFSET_KEY_VERSION):
            _, offset = decode_versioned(OffsetCommitKey, key)
            return OffsetKey(offset.group, offset.topic, offset.partition)
        if version == GROUP_KEY_VERSION:
            _, group = decode_versioned(GroupMetadataKey, key)
            return GroupKey(group.group)
        return _decode_group_key(version, key)
    except MalformedFrame:
        return None


def encode_group_key(key: ConsumerKey | ShareKey) -> bytes:
    message, name_field = _GROUP_KEYS[key.kind]
    named = {name_field: key.name} if name_field else {}
    return encode_versioned(message(group_id=key.group_id, **named), key.kind)


def _decode_group_key(kind: int, key: bytes) -> ConsumerKey | ShareKey | None:
    if kind not in _GROUP_KEYS:
        return None
    message, name_field = _GROUP_KEYS[kind]
    decoded: Any = decode_versioned(message, key)[1]
    name = getattr(decoded, name_field) if name_field else ""
    if kind in set(ShareRecordKind):
        return ShareKey(ShareRecordKind(kind), decoded.group_id, name)
    return ConsumerKey(ConsumerRecordKind(kind), decoded.group_id, name)


# The message of each kind of key, and its field that holds the name; none in keys of the whole group.
_GROUP_KEYS: Final[dict[int, tuple[type[Message], str]]] = {
    ConsumerRecordKind.GROUP: (ConsumerGroupMetadataKey, ""),
    ConsumerRecordKind.MEMBER: (ConsumerGroupMemberMetadataKey, "member_id"),
    ConsumerRecordKind.TARGET_EPOCH: (ConsumerGroupTargetAssignmentMetadataKey, ""),
    ConsumerRecordKind.TARGET: (ConsumerGroupTargetAssignmentMemberKey, "member_id"),
    ConsumerRecordKind.CURRENT: (ConsumerGroupCurrentMemberAssignmentKey, "member_id"),
    ConsumerRecordKind.REGEX: (ConsumerGroupRegularExpressionKey, "regular_expression"),
    ShareRecordKind.GROUP: (ShareGroupMetadataKey, ""),
    ShareRecordKind.MEMBER: (ShareGroupMemberMetadataKey, "member_id"),
}


def decode_group(value: bytes) -> GroupMetadataValue | None:
    """A classic group's decoded state; None if it is unreadable."""
    try:
        _, decoded = decode_versioned(GroupMetadataValue, value)
    except MalformedFrame:
        return None
    return decoded


def decode_offset(value: bytes) -> CommittedOffset | None:
    """A decoded committed offset; None if it is unreadable."""
    try:
        _, decoded = decode_versioned(OffsetCommitValue, value)
    except MalformedFrame:
        return None
    return CommittedOffset(
        offset=decoded.offset,
        leader_epoch=decoded.leader_epoch,
        metadata=decoded.metadata,
        commit_timestamp_ms=decoded.commit_timestamp,
        expire_timestamp_ms=decoded.expire_timestamp,
    )


def _encode_offset(committed: CommittedOffset) -> bytes:
    expires = committed.expire_timestamp_ms != NO_TIMESTAMP
    return encode_versioned(
        OffsetCommitValue(
            offset=committed.offset,
            leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            commit_timestamp=committed.commit_timestamp_ms,
            expire_timestamp=committed.expire_timestamp_ms,
        ),
        OFFSET_VALUE_VERSION_WITH_EXPIRY if expires else OFFSET_VALUE_VERSION,
    )

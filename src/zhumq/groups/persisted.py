"""The records of `__consumer_offsets`, in Kafka's own formats: keys, values, and back."""

from dataclasses import dataclass
from typing import NamedTuple

from zhumq.model.errors import MalformedFrame
from zhumq.model.state_machine import StateRecord
from zhumq.protocol.messages.coordinator_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_versioned,
    encode_versioned,
)

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
OFFSET_VALUE_VERSION = 3
# Only this version carries an expiry of the commit's own (OffsetCommit v2-v4 retention_time_ms).
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
GROUP_VALUE_VERSION = 3
NO_TIMESTAMP = -1
TEXT_BYTES_MAX = 32_767  # a string in these records has an int16 length


class GroupKey(NamedTuple):
    """The key under which a classic group's metadata lies."""

    group_id: str


class OffsetKey(NamedTuple):
    """The key under which one committed offset lies."""

    group_id: str
    topic: str
    partition: int


RecordKey = GroupKey | OffsetKey


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """How far a group has read a partition, with the words its member left beside it."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int
    # Set only by old clients that asked for a retention of their own.
    expire_timestamp_ms: int = NO_TIMESTAMP


def fits(text: str) -> bool:
    """Whether a text can stand in a record. Newer requests can carry longer ones."""
    return len(text) * 4 <= TEXT_BYTES_MAX or len(text.encode()) <= TEXT_BYTES_MAX


def offset_record(key: OffsetKey, committed: CommittedOffset | None) -> StateRecord:
    """The record that commits an offset, or with None deletes it."""
    return StateRecord(
        key=encode_versioned(
            OffsetCommitKey(group=key.group_id, topic=key.topic, partition=key.partition),
            OFFSET_KEY_VERSION,
        ),
        value=None if committed is None else _encode_offset(committed),
    )


def group_record(group_id: str, value: GroupMetadataValue | None) -> StateRecord:
    """The record that is a classic group's state, or with None deletes the group."""
    return StateRecord(
        key=encode_versioned(GroupMetadataKey(group=group_id), GROUP_KEY_VERSION),
        value=None if value is None else encode_versioned(value, GROUP_VALUE_VERSION),
    )


def decode_key(key: bytes) -> RecordKey | None:
    """What a record is about; None for kinds of records this coordinator does not know."""
    version = int.from_bytes(key[:2], "big", signed=True)
    try:
        if version in (0, OFFSET_KEY_VERSION):
            _, offset = decode_versioned(OffsetCommitKey, key)
            return OffsetKey(offset.group, offset.topic, offset.partition)
        if version == GROUP_KEY_VERSION:
            _, group = decode_versioned(GroupMetadataKey, key)
            return GroupKey(group.group)
    except MalformedFrame:
        return None
    return None


def decode_group(value: bytes) -> GroupMetadataValue | None:
    """A classic group's state; None if the bytes are not one."""
    try:
        _, decoded = decode_versioned(GroupMetadataValue, value)
    except MalformedFrame:
        return None
    return decoded


def decode_offset(value: bytes) -> CommittedOffset | None:
    """A committed offset; None if the bytes are not one."""
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

"""The records of `__delayed_messages`: encoding and decoding. Unreadable bytes decode to None."""

import struct
import uuid
from collections.abc import Iterable
from typing import Final, NamedTuple

from zhumq.model.errors import MalformedFrame
from zhumq.model.state_machine import StateRecord
from zhumq.protocol.messages.coordinator_records import decode_versioned, encode_versioned
from zhumq.protocol.messages.delays import (
    DelayedHeader,
    DelayedRecord,
    DelayedValue,
    IntakeKey,
    IntakeValue,
)
from zhumq.protocol.primitives import INT16
from zhumq.records.batch import Record

MESSAGE: Final = 0
INTAKE: Final = 1
VALUE_VERSION: Final = 0
# | type i16 | due time i64 | serial i64 |
MESSAGE_KEY: Final = struct.Struct(">hqq")


class Source(NamedTuple):
    """A partition with delayed messages. By topic id: a topic that is created again begins anew."""

    topic_id: uuid.UUID
    partition: int


class Position(NamedTuple):
    """Up to where the deferred batches of a partition are staged."""

    offset: int
    skipped: int = 0  # records of the deferred batch at this offset


class MessageKey(NamedTuple):
    """A message in the log of its shard."""

    due_ms: int
    serial: int


def message_record(
    serial: int, topic: str, source: Source, staged_ms: int, delayed: DelayedRecord
) -> StateRecord:
    """The record that holds a message until it is due."""
    value = DelayedValue(
        topic=topic,
        topic_id=source.topic_id,
        partition=source.partition,
        offset=delayed.offset,
        staged_ms=staged_ms,
        key=delayed.key,
        value=delayed.value,
        headers=delayed.headers,
    )
    key = MESSAGE_KEY.pack(MESSAGE, delayed.due_ms, serial)
    return StateRecord(key=key, value=encode_versioned(value, VALUE_VERSION))


def ended_record(key: MessageKey) -> StateRecord:
    """The message is in its topic, or cancelled."""
    return StateRecord(key=MESSAGE_KEY.pack(MESSAGE, *key), value=None)


def intake_record(source: Source, position: Position) -> StateRecord:
    value = IntakeValue(next_offset=position.offset, skipped=position.skipped)
    key = IntakeKey(topic_id=source.topic_id, partition=source.partition)
    return StateRecord(
        key=encode_versioned(key, INTAKE), value=encode_versioned(value, VALUE_VERSION)
    )


def decode_key(key: bytes) -> MessageKey | Source | None:
    try:
        (kind,) = INT16.unpack_from(key)
        if kind == MESSAGE:
            _, due_ms, serial = MESSAGE_KEY.unpack(key)
            return MessageKey(due_ms, serial)
        if kind == INTAKE:
            decoded = decode_versioned(IntakeKey, key)[1]
            return Source(decoded.topic_id, decoded.partition)
    except (struct.error, MalformedFrame):
        return None
    return None


def decode_position(value: bytes) -> Position | None:
    try:
        decoded = decode_versioned(IntakeValue, value)[1]
    except MalformedFrame:
        return None
    return Position(decoded.next_offset, decoded.skipped)


def decode_message(value: bytes) -> DelayedValue | None:
    try:
        return decode_versioned(DelayedValue, value)[1]
    except MalformedFrame:
        return None


def headers_of(record: Record) -> list[DelayedHeader]:
    return [DelayedHeader(key=key, value=value) for key, value in record.headers]


def size_of(records: Iterable[DelayedRecord]) -> int:
    """About as many bytes as they take in a request."""
    return sum(
        len(each.key or b"")
        + len(each.value or b"")
        + sum(len(header.key) + len(header.value or b"") + 8 for header in each.headers)
        + 40
        for each in records
    )

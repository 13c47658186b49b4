"""Delayed messages: the records of `__delayed_messages`, staging between brokers, and the API that lists and cancels."""

import uuid

from zhumq.model.ids import ZERO_UUID
from zhumq.protocol.schema import Message, field, int8, int16, int32, int64

# The first number of a key is the type of the record: 0 for a message, whose key is of a fixed size, and this one.


class IntakeKey(Message, versions="1"):
    topic_id: uuid.UUID = ZERO_UUID
    partition: int32 = 0


class IntakeValue(Message, versions="0"):
    """Up to where the deferred batches of a partition are staged."""

    next_offset: int64 = 0
    skipped: int32 = 0  # records of the deferred batch at next_offset that are staged, too


class DelayedHeader(Message):
    key: str = ""
    value: bytes | None = None


class DelayedValue(Message, versions="0"):
    """A message until it is due."""

    topic: str = ""
    topic_id: uuid.UUID = ZERO_UUID
    partition: int32 = 0
    offset: int64 = 0  # in the answer to its producer
    staged_ms: int64 = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: list[DelayedHeader] = field()


class DelayedRecord(Message):
    due_ms: int64 = 0
    offset: int64 = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: list[DelayedHeader] = field()


class StageDelayedRequest(Message, versions="0"):
    """Between brokers: the leader of a topic's partition stages the deferred batches behind a position."""

    topic: str = ""
    topic_id: uuid.UUID = ZERO_UUID
    partition: int32 = 0
    # Where the last request ended; -1: not known, nothing is staged, and the answer says it.
    from_offset: int64 = -1
    from_skipped: int32 = 0
    next_offset: int64 = 0
    next_skipped: int32 = 0
    records: list[DelayedRecord] = field()


class StageDelayedResponse(Message, versions="0"):
    error_code: int16 = 0
    # Where the next request begins.
    next_offset: int64 = 0
    skipped: int32 = 0


class ScheduleRequest(Message, api_key=20001, versions="0", flexible="0+"):
    """List or cancel the delayed messages of a partition. Any broker takes it, and asks the coordinator of the partition."""

    topic: str = ""
    partition: int32 = 0
    action: int8 = 0  # 0: list, 1: cancel
    offset: int64 = -1  # only the message with this offset, which its producer got; -1: all
    # Only messages that are due at this time or later, and before this one; -1: all.
    from_ms: int64 = -1
    to_ms: int64 = -1
    # Where an earlier answer ended.
    after_ms: int64 = -1
    after_serial: int64 = -1
    limit: int32 = 100


class ScheduledMessage(Message):
    offset: int64 = 0
    due_ms: int64 = 0
    staged_ms: int64 = 0
    size_bytes: int32 = 0


class ScheduleResponse(Message, api_key=20001, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    messages: list[ScheduledMessage] = field()  # that were found, or cancelled
    # Where the next request continues, if there may be more; else -1.
    after_ms: int64 = -1
    after_serial: int64 = -1

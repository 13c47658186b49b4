"""The records of `__half_messages`: encoding and decoding. Unreadable bytes decode to None."""

from typing import Final, NamedTuple

from zhumq.half_messages.message import Body, HalfMessage, HalfState
from zhumq.model.errors import MalformedFrame
from zhumq.model.ids import TopicPartition
from zhumq.model.state_machine import StateRecord
from zhumq.protocol.messages.coordinator_records import decode_versioned, encode_versioned
from zhumq.protocol.messages.half_messages import (
    HalfStateKey,
    HalfStateValue,
    StagedHeader,
    StagedMessageKey,
    StagedMessageValue,
)
from zhumq.protocol.primitives import INT16

STAGED: Final = 0
STATE: Final = 1
VALUE_VERSION: Final = 0
STATUS_OF: Final = {
    HalfState.PENDING: 0,
    HalfState.COMMITTED: 1,
    HalfState.FAILED: 2,
    HalfState.GIVEN_UP: 3,
    HalfState.SENT: 4,
    HalfState.ROLLED_BACK: 5,
}
STATE_OF: Final = {status: state for state, status in STATUS_OF.items()}


class RecordKey(NamedTuple):
    """The type of a record, and the message it is about."""

    kind: int  # STAGED or STATE
    id: str


def staged_record(
    message_id: str, group: str, target: TopicPartition, prepared_ms: int, body: Body
) -> StateRecord:
    """The record that stores a half message."""
    value = StagedMessageValue(
        group=group,
        topic=target.topic,
        partition=target.partition,
        prepared_ms=prepared_ms,
        key=body.key,
        value=body.value,
        headers=[StagedHeader(key=key, value=each) for key, each in body.headers],
    )
    return StateRecord(key=_staged_key(message_id), value=encode_versioned(value, VALUE_VERSION))


def state_record(message: HalfMessage) -> StateRecord:
    """The record that sets the state of a half message."""
    value = HalfStateValue(
        state=STATUS_OF[message.state],
        group=message.group,
        prepared_ms=message.prepared_ms,
        checks=message.checks,
        changed_ms=message.changed_ms,
        reason=message.reason,
    )
    return StateRecord(key=_state_key(message.id), value=encode_versioned(value, VALUE_VERSION))


def staged_tombstone(message_id: str) -> StateRecord:
    """The body is needed no more."""
    return StateRecord(key=_staged_key(message_id), value=None)


def state_tombstone(message_id: str) -> StateRecord:
    """The message is forgotten."""
    return StateRecord(key=_state_key(message_id), value=None)


def decode_key(key: bytes) -> RecordKey | None:
    if len(key) < INT16.size:
        return None
    (kind,) = INT16.unpack_from(key)
    try:
        if kind == STAGED:
            return RecordKey(kind, decode_versioned(StagedMessageKey, key)[1].id)
        if kind == STATE:
            return RecordKey(kind, decode_versioned(HalfStateKey, key)[1].id)
    except MalformedFrame:
        return None
    return None


def decode_staged(value: bytes) -> StagedMessageValue | None:
    try:
        return decode_versioned(StagedMessageValue, value)[1]
    except MalformedFrame:
        return None


def decode_state(value: bytes) -> HalfStateValue | None:
    try:
        decoded = decode_versioned(HalfStateValue, value)[1]
    except MalformedFrame:
        return None
    return decoded if decoded.state in STATE_OF else None


def body_of(value: bytes) -> Body | None:
    """The body in the value of a staged record."""
    staged = decode_staged(value)
    if staged is None:
        return None
    headers = tuple((each.key, each.value) for each in staged.headers)
    return Body(key=staged.key, value=staged.value, headers=headers)


def _staged_key(message_id: str) -> bytes:
    return encode_versioned(StagedMessageKey(id=message_id), STAGED)


def _state_key(message_id: str) -> bytes:
    return encode_versioned(HalfStateKey(id=message_id), STATE)

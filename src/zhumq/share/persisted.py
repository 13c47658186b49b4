"""The records of `__share_group_state`: encoding and decoding. Unreadable bytes decode to None."""

import uuid
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from zhumq.model.errors import MalformedFrame
from zhumq.model.ids import ZERO_UUID
from zhumq.model.state_machine import StateRecord
from zhumq.protocol.messages.coordinator_records import decode_versioned, encode_versioned
from zhumq.protocol.messages.delivery_state import (
    DeliveryRun,
    GroupSettingsKey,
    PushSessionKey,
    PushSessionValue,
    SharePartitionSnapshotKey,
    SharePartitionUpdateKey,
    TopicClaimKey,
    TopicClaimValue,
)
from zhumq.protocol.schema import Message
from zhumq.share.partition_state import RecordState, StateRun
from zhumq.share.push_session import PushSession, SessionState
from zhumq.share.subscription import Claim, SubscriptionMode

SNAPSHOT_KIND = 0
UPDATE_KIND = 1
CLAIM_KIND = 2
SESSION_KIND = 3
SETTINGS_KIND = 4
VALUE_VERSION = 0
COUNT_MAX = 2**15 - 1  # of deliveries: the maximum of the int16 field

M = TypeVar("M", bound=Message)


class SharePartitionKey(NamedTuple):
    """Key of a share partition."""

    group_id: str
    topic_id: uuid.UUID
    partition: int


class SlotKey(NamedTuple):
    """Key of an update of a share partition."""

    share_partition: SharePartitionKey
    slot: int


class ClaimKey(NamedTuple):
    """Key of a topic's claim."""

    topic: str


class SessionKey(NamedTuple):
    """Key of a push session."""

    group_id: str
    consumer: str
    topic: str


class SettingsKey(NamedTuple):
    """Key of a group's settings."""

    group_id: str


RecordKey = SharePartitionKey | SlotKey | ClaimKey | SessionKey | SettingsKey


def encode_key(key: RecordKey) -> bytes:
    match key:
        case SharePartitionKey(group_id, topic_id, partition):
            return encode_versioned(
                SharePartitionSnapshotKey(
                    group_id=group_id, topic_id=topic_id, partition=partition
                ),
                SNAPSHOT_KIND,
            )
        case SlotKey((group_id, topic_id, partition), slot):
            return encode_versioned(
                SharePartitionUpdateKey(
                    group_id=group_id, topic_id=topic_id, partition=partition, slot=slot
                ),
                UPDATE_KIND,
            )
        case ClaimKey(topic):
            return encode_versioned(TopicClaimKey(topic=topic), CLAIM_KIND)
        case SessionKey(group_id, consumer, topic):
            return encode_versioned(
                PushSessionKey(group_id=group_id, consumer=consumer, topic=topic), SESSION_KIND
            )
        case SettingsKey(group_id):
            return encode_versioned(GroupSettingsKey(group_id=group_id), SETTINGS_KIND)


def decode_key(key: bytes) -> RecordKey | None:
    """The decoded key; None for kinds that this version does not know."""
    try:
        match int.from_bytes(key[:2], "big", signed=True):
            case 0:
                _, share_partition = decode_versioned(SharePartitionSnapshotKey, key)
                return SharePartitionKey(
                    share_partition.group_id, share_partition.topic_id, share_partition.partition
                )
            case 1:
                _, update = decode_versioned(SharePartitionUpdateKey, key)
                return SlotKey(
                    SharePartitionKey(update.group_id, update.topic_id, update.partition),
                    update.slot,
                )
            case 2:
                _, claim = decode_versioned(TopicClaimKey, key)
                return ClaimKey(claim.topic)
            case 3:
                _, session = decode_versioned(PushSessionKey, key)
                return SessionKey(session.group_id, session.consumer, session.topic)
            case 4:
                _, settings = decode_versioned(GroupSettingsKey, key)
                return SettingsKey(settings.group_id)
            case _:
                return None
    except MalformedFrame:
        return None


def record(key: RecordKey, value: Message | None) -> StateRecord:
    """The record that sets a key or, with None, deletes it."""
    return StateRecord(
        key=encode_key(key),
        value=None if value is None else encode_versioned(value, VALUE_VERSION),
    )


def read_value(cls: type[M], value: bytes | None) -> M | None:
    """The decoded value; None if there is none or it is unreadable."""
    if value is None:
        return None
    try:
        return decode_versioned(cls, value)[1]
    except MalformedFrame:
        return None


def written_runs(runs: Iterable[StateRun]) -> list[DeliveryRun]:
    return [
        DeliveryRun(
            first_offset=run.first_offset,
            last_offset=run.last_offset,
            state=run.state,
            delivery_count=min(run.delivery_count, COUNT_MAX),
            reason=run.reason or None,
        )
        for run in runs
    ]


def read_runs(runs: Iterable[DeliveryRun]) -> tuple[StateRun, ...]:
    """The valid runs: those that a later version or another program wrote are left out."""
    return tuple(
        StateRun(
            run.first_offset,
            run.last_offset,
            RecordState(run.state),
            run.delivery_count,
            run.reason or "",
        )
        for run in runs
        if run.state in _WRITTEN_STATES and 0 <= run.first_offset <= run.last_offset
    )


_WRITTEN_STATES = frozenset(RecordState) - {RecordState.ACQUIRED}


def claim_value(claim: Claim) -> TopicClaimValue:
    return TopicClaimValue(group_id=claim.group, mode=claim.mode.value, topic_id=claim.topic_id)


def read_claim(
    topic: str, group_id: str, mode: str, topic_id: uuid.UUID = ZERO_UUID
) -> Claim | None:
    """The decoded claim; None if there is none."""
    if not group_id or mode not in set(SubscriptionMode):
        return None
    return Claim(topic=topic, group=group_id, mode=SubscriptionMode(mode), topic_id=topic_id)


def session_value(session: PushSession) -> PushSessionValue:
    return PushSessionValue(
        mode=session.mode.value,
        partitions=None if session.partitions is None else list(session.partitions),
        client=session.client,
        state=session.state.value,
        state_since_ms=session.state_since_ms,
        retries=session.retries,
        retry_at_ms=session.retry_at_ms,
        reason=session.reason,
    )


def read_session(key: SessionKey, value: PushSessionValue) -> PushSession | None:
    """The decoded session; None if it is unreadable."""
    if value.mode not in set(SubscriptionMode) or value.state not in set(SessionState):
        return None
    return PushSession(
        group=key.group_id,
        consumer=key.consumer,
        topic=key.topic,
        mode=SubscriptionMode(value.mode),
        partitions=None if value.partitions is None else tuple(value.partitions),
        client=value.client,
        state=SessionState(value.state),
        state_since_ms=value.state_since_ms,
        retries=value.retries,
        retry_at_ms=value.retry_at_ms,
        reason=value.reason,
    )

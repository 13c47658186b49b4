"""Subscription rules of point-to-point and publish-subscribe. Pure."""

import uuid
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Self

from zhumq.model.errors import (
    BrokerError,
    ErrorCode,
    InvalidGroupId,
    InvalidRequest,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)
from zhumq.model.ids import ZERO_UUID

GROUP_ID_CHARACTERS_MAX = 1_000
CREDIT_MAX = 1_000_000  # messages a consumer may request in flight


class SubscriptionMode(StrEnum):
    """How a group reads a topic."""

    PTP_EXCLUSIVE = "ptp-exclusive"  # each partition to one member at a time, in order
    PTP_SHARED = "ptp-shared"  # each message to one member, acknowledged one by one
    PSB = "psb"  # every message to the group's only consumer

    @property
    def is_point_to_point(self) -> bool:
        return self is not SubscriptionMode.PSB

    @property
    def is_ordered(self) -> bool:
        return self is not SubscriptionMode.PTP_SHARED


class StartKind(StrEnum):
    """Start position of a subscription."""

    STORED = "stored"  # the group's committed position; without one, `otherwise`
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"  # the first record with this timestamp or a later one


@dataclass(frozen=True, slots=True)
class Start:
    """Start position of a subscription; the value is an offset or a timestamp in ms."""

    kind: StartKind = StartKind.STORED
    value: int = 0
    otherwise: StartKind = StartKind.EARLIEST  # EARLIEST or LATEST, for STORED

    @classmethod
    def offset(cls, offset: int) -> Self:
        return cls(StartKind.OFFSET, offset)

    @classmethod
    def time(cls, timestamp_ms: int) -> Self:
        return cls(StartKind.TIME, timestamp_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A consumer's subscription request."""

    topic: str
    group: str
    mode: SubscriptionMode
    # None: all partitions.
    partitions: tuple[int, ...] | None = None
    start: Start = Start()
    # How many messages may be in flight to the consumer.
    credit: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The one point-to-point group of a topic."""

    topic: str
    group: str
    mode: SubscriptionMode
    # Of the claimed topic; ZERO_UUID in claims that were written without one.
    topic_id: uuid.UUID = ZERO_UUID

    def is_of(self, topic_id: uuid.UUID) -> bool:
        """Whether the claim is for this topic, and not for a deleted one of the same name."""
        return topic_id == self.topic_id or ZERO_UUID in (topic_id, self.topic_id)


class PartitionTaken(BrokerError):
    """Another consumer of the point-to-point group has chosen this partition or is assigned it."""

    code: ClassVar[ErrorCode] = ErrorCode.POLICY_VIOLATION


class TopicTaken(BrokerError):
    """Another group reads this topic point-to-point, or the same group reads it in the other mode."""

    code: ClassVar[ErrorCode] = ErrorCode.POLICY_VIOLATION

    def __init__(self, message: str, claim: Claim) -> None:
        super().__init__(message)
        self.claim = claim


def check_subscription(subscription: Subscription, *, partition_count: int | None) -> None:
    """Refuse a subscription that can never be served. `partition_count` is None if the topic does not exist."""
    if not subscription.group.strip() or len(subscription.group) > GROUP_ID_CHARACTERS_MAX:
        raise InvalidGroupId(
            f"a subscription needs a group id of 1 to {GROUP_ID_CHARACTERS_MAX} characters"
        )
    if partition_count is None:
        raise UnknownTopicOrPartition(f"there is no topic {subscription.topic!r}")
    if subscription.credit <= 0:
        raise InvalidRequest(
            f"credit {subscription.credit} is not positive: no message could be delivered"
        )
    if subscription.credit > CREDIT_MAX:
        raise InvalidRequest(f"credit {subscription.credit} is above {CREDIT_MAX}")
    if subscription.partitions is not None:
        if not subscription.partitions:
            raise InvalidRequest("no partitions were named: leave them out to get all")
        for partition in subscription.partitions:
            if not 0 <= partition < partition_count:
                raise UnknownTopicOrPartition(
                    f"topic {subscription.topic!r} has partitions 0 to {partition_count - 1}, not {partition}"
                )
        if len(set(subscription.partitions)) != len(subscription.partitions):
            raise InvalidRequest("a partition was named twice")
    start = subscription.start
    if start.kind in (StartKind.OFFSET, StartKind.TIME) and start.value < 0:
        raise OffsetOutOfRange(f"{start.kind} {start.value} is negative")


def check_start(start: Start, *, log_start_offset: int, log_end_offset: int) -> None:
    """Refuse an offset that the partition does not have. The log end offset is accepted."""
    if start.kind is StartKind.OFFSET and not log_start_offset <= start.value <= log_end_offset:
        raise OffsetOutOfRange(
            f"offset {start.value} is outside of {log_start_offset} to {log_end_offset}"
        )


def check_claim(subscription: Subscription, claim: Claim | None) -> Claim | None:
    """The claim that a point-to-point subscription makes; None if it exists already. Raises TopicTaken."""
    if not subscription.mode.is_point_to_point:
        return None
    if claim is None:
        return Claim(topic=subscription.topic, group=subscription.group, mode=subscription.mode)
    if claim.group != subscription.group:
        raise TopicTaken(
            f"topic {subscription.topic!r} is read point-to-point by group {claim.group!r};"
            f" join that group, or subscribe with psb",
            claim,
        )
    if claim.mode is not subscription.mode:
        raise TopicTaken(
            f"group {claim.group!r} reads topic {subscription.topic!r} as {claim.mode}, not as {subscription.mode}",
            claim,
        )
    return None

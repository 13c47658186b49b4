"""Who may subscribe to what: the rules of point-to-point and publish-subscribe. Pure: facts in, a refusal or none out."""

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
CREDIT_MAX = 1_000_000  # messages a consumer may ask to hold at once


class SubscriptionMode(StrEnum):
    """How a group reads a topic."""

    PTP_EXCLUSIVE = "ptp-exclusive"  # every partition to one member at a time, in order
    PTP_SHARED = "ptp-shared"  # every message to one of the members, acknowledged one by one
    PSB = "psb"  # everything to the group's one consumer

    @property
    def is_point_to_point(self) -> bool:
        return self is not SubscriptionMode.PSB

    @property
    def is_ordered(self) -> bool:
        return self is not SubscriptionMode.PTP_SHARED


class StartKind(StrEnum):
    """Where a subscription begins."""

    STORED = "stored"  # where the group left off; where it never was, at `otherwise`
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"  # the first record that is not older


@dataclass(frozen=True, slots=True)
class Start:
    """Where a subscription begins; the value is an offset or a time in ms."""

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
    """What a consumer asks for."""

    topic: str
    group: str
    mode: SubscriptionMode
    # None: all of them.
    partitions: tuple[int, ...] | None = None
    start: Start = Start()
    # How many messages it can bear at once.
    credit: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The one point-to-point group of a topic."""

    topic: str
    group: str
    mode: SubscriptionMode
    # Of the topic that was claimed; ZERO_UUID where that was not written down yet.
    topic_id: uuid.UUID = ZERO_UUID

    def is_of(self, topic_id: uuid.UUID) -> bool:
        """Whether it is about this topic, and not one of the same name that was deleted."""
        return topic_id == self.topic_id or ZERO_UUID in (topic_id, self.topic_id)


class PartitionTaken(BrokerError):
    """Another consumer of the point-to-point group has chosen this partition, or was given it."""

    code: ClassVar[ErrorCode] = ErrorCode.POLICY_VIOLATION


class TopicTaken(BrokerError):
    """Another group reads this topic point-to-point, or the same one in the other way."""

    code: ClassVar[ErrorCode] = ErrorCode.POLICY_VIOLATION

    def __init__(self, message: str, claim: Claim) -> None:
        super().__init__(message)
        self.claim = claim


def check_subscription(subscription: Subscription, *, partition_count: int | None) -> None:
    """Refuse what can never be served. `partition_count` is None where the topic does not exist."""
    if not subscription.group.strip() or len(subscription.group) > GROUP_ID_CHARACTERS_MAX:
        raise InvalidGroupId("a subscription needs the name of a group")
    if partition_count is None:
        raise UnknownTopicOrPartition(f"there is no topic {subscription.topic!r}")
    if subscription.credit <= 0:
        raise InvalidRequest(
            f"credit {subscription.credit} is not positive: nothing could be delivered"
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
    """Refuse an offset that the partition does not have. Its end is fine: the next one written."""
    if start.kind is StartKind.OFFSET and not log_start_offset <= start.value <= log_end_offset:
        raise OffsetOutOfRange(
            f"offset {start.value} is outside of {log_start_offset} to {log_end_offset}"
        )


def check_claim(subscription: Subscription, claim: Claim | None) -> Claim | None:
    """The claim that a point-to-point subscription makes; None where it stands already. Raises TopicTaken."""
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

"""The interface of delivery: subscribe, open a share partition, acquire, acknowledge, watch."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from zhumq.filters.filter import Filter
from zhumq.model.errors import BrokerError
from zhumq.model.isolation import Isolation
from zhumq.share.acknowledgement import Acknowledgement, AcquiredRange, joined_ranges
from zhumq.share.push_session import PushSession
from zhumq.share.subscription import Claim, Start, Subscription, SubscriptionMode

NO_EPOCH: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """Record batches, and the offsets of them that a member has acquired.

    The batches are whole, as in the log: the first and the last may contain records that are not in `ranges`, because
    another member has acquired them or they are done. A member acknowledges all offsets in `ranges`, also those
    without a record (compaction removed it).
    """

    records: bytes
    ranges: tuple[AcquiredRange, ...]

    @property
    def record_count(self) -> int:
        return sum(each.last_offset - each.first_offset + 1 for each in self.ranges)

    @classmethod
    def joined(cls, parts: "Sequence[Delivered]") -> "Delivered":
        """Adjacent deliveries as one."""
        return cls(
            records=b"".join(each.records for each in parts),
            ranges=tuple(joined_ranges([each for part in parts for each in part.ranges])),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The only member that may acquire from an ordered share partition.

    PTP exclusive: the member and its member epoch in the consumer group (KIP-848). Its positions are committed
    under that epoch, which fences earlier owners. A PSB consumer, and a PTP consumer that chose its partitions, is
    not a group member: NO_EPOCH.
    """

    member: str
    epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPosition:
    """Position of a group on a partition, as one broker knows it."""

    group: str
    topic: str
    partition: int
    start_offset: int
    done_count: int  # done records above the start offset
    end_offset: int | None  # None: this broker has no replica of the partition
    in_flight: int = 0
    is_open: bool = False  # consumers read it through this broker
    consumers: tuple[str, ...] = ()


class Delivery(Protocol):
    """The open share partition of one group on one partition that this broker leads. All members share it.

    It closes when leadership changes, its state is lost or the topic is deleted. Then every call raises
    NotLeaderOrFollower or UnknownTopicOrPartition, and watchers are called one last time: open it again.
    """

    @property
    def group(self) -> str: ...

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def is_closed(self) -> bool: ...

    @property
    def start_offset(self) -> int:
        """Everything below is done: acknowledged or dead-lettered."""

    @property
    def lag(self) -> int:
        """Number of records up to the high watermark that are not done."""

    @property
    def in_flight(self) -> int:
        """Number of acquired records."""

    def acquire(
        self,
        member: str,
        *,
        records_max: int,
        bytes_max: int = 1 << 20,
        lock_ms: int | None = None,
        message_filter: Filter | None = None,
    ) -> list[Delivered]:
        """Acquire at most `records_max` records for a member, each under an acquisition lock; [] if there are none.

        Released records whose backoff is over come first, then new ones.
        `bytes_max` limits whole batches; at least one is returned if a record is available.
        `lock_ms`: lock duration of these records; None: the share partition's. Parts of one batch that are acquired
        one after the other come with the same `records` object. Messages that do not pass `message_filter` are skipped,
        for all members of the group.
        """

    async def acknowledge(
        self, member: str, acknowledgements: Sequence[Acknowledgement]
    ) -> list[BrokerError | None]:
        """For each: None once it is durable, or the error with which it was refused (and changed nothing).

        InvalidRecordState: the member has not acquired the offsets (never delivered, lock expired, acquired by another).
        RELEASE is a nack: the records are delivered again after the backoff; after the last delivery they become
        dead letters with the reason. RENEW restarts the lock (`extend`).
        """

    async def release_member(self, member: str, reason: str = "", *, counts: bool = True) -> None:
        """Make what the member has acquired available to others at once, because the member is gone.

        `counts=False`: this delivery does not count, for a member that left properly."""

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back (on the event loop, often more than needed) when records may be available and when the delivery
        closes. Returns the function that ends the watch."""


class Deliveries(Protocol):
    """The broker's delivery service."""

    async def subscribe(self, subscription: Subscription) -> Claim | None:
        """Check a subscription and, for PTP, claim the topic durably. Raises BrokerError with a clear text:
        UnknownTopicOrPartition, OffsetOutOfRange, InvalidRequest (credit, ...), TopicTaken (with .claim)."""

    async def claim_of(self, topic: str) -> Claim | None:
        """The topic's point-to-point group."""

    async def unclaim(self, topic: str, group: str) -> Claim | None:
        """Release the group's (empty: any group's) claim of the topic; returns the claim in force afterwards.

        The delivery state stays until the group is deleted."""

    async def claims(self, group: str) -> list[Claim]:
        """The topics that this group reads point-to-point."""

    async def local_claims(self) -> list[Claim]:
        """The claims in the shards of this broker."""

    async def open(
        self,
        *,
        group: str,
        topic: str,
        partition: int,
        mode: SubscriptionMode,
        start: Start = Start(),  # noqa: B008  frozen
        owner: Owner | None = None,
        max_deliveries: int | None = None,
        isolation: Isolation = Isolation.READ_COMMITTED,
        is_durable: bool = True,
    ) -> Delivery:
        """Load the share partition of this group on this partition; the same object for all members.

        Raises NotLeaderOrFollower if another broker leads the partition. PTP shared: all members share it.
        PTP exclusive and PSB need an `owner`. Opening it with another owner takes it from the previous one; the same
        member with a newer epoch keeps what it has acquired. `max_deliveries` replaces the current limit; None keeps
        it. `isolation` replaces the level of all members. A start other than STORED moves the position of a PSB group; all others ignore it once they have a
        position. Not durable (PSB without a name): nothing is persisted, and the state is lost when the last member
        is released.
        """

    async def positions(self, group: str) -> list[GroupPosition]:
        """Positions of a group, or of all (""), that this broker's shards keep or whose partitions it leads."""

    def opened(self) -> Iterable[Delivery]:
        """All share partitions open on this broker, for metrics and lists."""

    async def save_session(self, session: PushSession) -> None:
        """Durable when this returns. A session in state ENDED is deleted."""

    async def sessions(self, group: str | None = None) -> list[PushSession]:
        """The sessions of a group, or all sessions in the shards of this broker."""

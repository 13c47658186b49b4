"""What the doors see of delivery: subscribe, open a partition's window, acquire, acknowledge, be woken."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from zhumq.model.errors import BrokerError
from zhumq.share.acknowledgement import Acknowledgement, AcquiredRange
from zhumq.share.push_session import PushSession
from zhumq.share.subscription import Claim, Start, Subscription, SubscriptionMode

NO_EPOCH: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """Record batches with offsets of theirs that a member holds from now on.

    The batches are whole, as they are in the log, so that the first and the last may hold records that
    are not in `ranges`: those are somebody else's, or were done before. Offsets in `ranges` without a
    record (compaction took it) are acknowledged like all others.
    """

    records: bytes
    ranges: tuple[AcquiredRange, ...]

    @property
    def record_count(self) -> int:
        return sum(each.last_offset - each.first_offset + 1 for each in self.ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The one member that may take from an ordered window, and until when that is so.

    For PTP exclusive: the member and its epoch in the consumer group (KIP-848); its positions are
    committed under that epoch, so that an owner of the past is fenced. A PSB consumer, and a PTP consumer
    that chose its partitions, is no member: NO_EPOCH.
    """

    member: str
    epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPosition:
    """Where a group stands on a partition, as one broker knows it."""

    group: str
    topic: str
    partition: int
    start_offset: int
    done_count: int  # from the start on, done with already
    end_offset: int | None  # None: this broker does not have the partition
    in_flight: int = 0
    is_open: bool = False  # its consumers read it through this broker
    consumers: tuple[str, ...] = ()


class Delivery(Protocol):
    """The window of one group on one partition that this broker leads. All members share it.

    Once it is closed (leadership went elsewhere, the state was lost, the topic deleted) everything raises
    NotLeaderOrFollower or UnknownTopicOrPartition, and watchers are called one last time: open it anew.
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
        """Everything below is done with: acknowledged or dead-lettered."""

    @property
    def lag(self) -> int:
        """Records not done with, up to the high watermark."""

    @property
    def in_flight(self) -> int:
        """Records that members hold right now."""

    def acquire(
        self,
        member: str,
        *,
        records_max: int,
        bytes_max: int = 1 << 20,
        lock_ms: int | None = None,
    ) -> list[Delivered]:
        """Hand at most `records_max` records to a member, each under a lock. Nothing there: [].

        Released records whose backoff is over come first, then new ones. Never more than asked for.
        `bytes_max` is about whole batches, of which there is at least one if anything is available.
        `lock_ms`: of these records; None: the window's. Pieces of one batch handed out one after the
        other come with the same `records` object.
        """

    async def acknowledge(
        self, member: str, acknowledgements: Sequence[Acknowledgement]
    ) -> list[BrokerError | None]:
        """For each: None once it is durable, or why it was refused (nothing of that one is changed).

        What the member does not hold (never delivered, lock expired, another's now): InvalidRecordState.
        RELEASE is a nack: the records come again after the backoff, and past the most deliveries go
        to the dead letters with the reason. RENEW starts the lock anew (`extend`).
        """

    async def release_member(self, member: str, reason: str = "", *, counts: bool = True) -> None:
        """The member is gone: what it holds is there for others, at once.

        One that said goodbye has not failed: `counts=False` lets this delivery not count."""

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Be called (on the loop, often more than needed) when something may have become available,
        and when the delivery closes. Returns the function that ends it."""


class Deliveries(Protocol):
    """The broker's delivery service."""

    async def subscribe(self, subscription: Subscription) -> Claim | None:
        """Check a subscription and, for PTP, claim the topic durably. Raises BrokerError with a clear text:
        UnknownTopicOrPartition, OffsetOutOfRange, InvalidRequest (credit, ...), TopicTaken (with .claim)."""

    async def claim_of(self, topic: str) -> Claim | None:
        """The topic's point-to-point group."""

    async def unclaim(self, topic: str, group: str) -> Claim | None:
        """The group (empty: any) no longer reads the topic point-to-point. Its state stays until the group is
        deleted. Whose the topic is afterwards."""

    async def claims(self, group: str) -> list[Claim]:
        """The topics that this group reads point-to-point."""

    async def local_claims(self) -> list[Claim]:
        """The claims that are kept on this broker."""

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
        is_durable: bool = True,
    ) -> Delivery:
        """The window of this group on this partition, loaded; the same object for all members.

        Raises NotLeaderOrFollower where another broker leads the partition. PTP shared: one window for all.
        PTP exclusive and PSB need an `owner`; opening anew with another owner takes the window from the one
        before; the same member with a newer epoch keeps what it holds. `max_deliveries` replaces the limit in
        force; None leaves it. A start other than STORED moves the position of a PSB group; all others ignore it once
        they have a position. Not durable: nothing is written down of it, and nothing is left when its last
        member is released (PSB without a name).
        """

    async def positions(self, group: str) -> list[GroupPosition]:
        """Where a group stands, or all of them (""), as far as this broker keeps it or leads the partitions."""

    def opened(self) -> Iterable[Delivery]:
        """All windows open here, for metrics and lists."""

    async def save_session(self, session: PushSession) -> None:
        """Durable when this returns. A session in state ENDED is forgotten."""

    async def sessions(self, group: str | None = None) -> list[PushSession]:
        """The sessions of a group, or all that are kept on this broker's shards."""

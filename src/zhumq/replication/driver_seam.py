"""What a replica's driver needs of others, and what it hands to them."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from zhumq.consensus.contract import (
    FetchAnswered,
    FetchArrived,
    Input,
    Outgoing,
    QuorumState,
    RoleChange,
    asks_to_accept,
)
from zhumq.host.clock import Clock
from zhumq.model.errors import BrokerError, ErrorCode, StorageFailed
from zhumq.replication.controller_requests import ControllerRequests
from zhumq.replication.timers import Timers
from zhumq.storage.flusher import Flusher
from zhumq.storage.partition_log import PartitionLog

if TYPE_CHECKING:
    from zhumq.replication.driver import ReplicaDriver
    from zhumq.replication.inter_broker.follower_session import FollowerSession


class PartitionFace(Protocol):
    """What those who use a partition see of its replica."""

    def high_watermark_raised(self, high_watermark: int) -> None: ...

    def role_taken(self, change: RoleChange) -> None: ...

    def went_offline(self, reason: BrokerError) -> None: ...


class DriverHost(Protocol):
    """What a driver shares with all the others of its broker."""

    @property
    def clock(self) -> Clock: ...
    @property
    def flusher(self) -> Flusher: ...
    @property
    def timers(self) -> Timers: ...
    @property
    def controller_requests(self) -> ControllerRequests: ...

    def persist(
        self,
        driver: "ReplicaDriver",
        state: QuorumState,
        done: Callable[[BrokerError | None], None],
    ) -> None:
        """Write down what the replica promises, then call back on the loop."""

    def send(self, driver: "ReplicaDriver", outgoing: Outgoing) -> None:
        """To the broker of another replica: everything but answers to fetches."""

    def follow(self, driver: "ReplicaDriver", leader_id: int | None) -> None:
        """Whom this replica fetches from now on."""

    def leader_contact_ms(self, driver: "ReplicaDriver", leader_id: int) -> int:
        """When the leader was last heard of in a session that holds this replica's fetch."""


@dataclass(slots=True, kw_only=True)
class FollowerFetchState:
    """What a follower last said of a partition, in the session of its broker."""

    session: "FollowerSession"
    # None once it was answered with something that moves the follower.
    fetch: FetchArrived | None
    # What the follower knows of the high watermark; it says so with every fetch.
    sent_high_watermark: int = -1
    # Whether the last answer was that of a leader that serves, which ends the healing of a follower.
    sent_serving: bool = False
    # Whether this fetch was answered with the start of the epoch, which the follower has to accept.
    sent_epoch_start: bool = False

    def has_update(self, fetch: FetchArrived, answer: FetchAnswered) -> bool:
        """Whether a follower that has all records learns something from a plain answer."""
        return (
            answer.high_watermark > self.sent_high_watermark
            or (asks_to_accept(fetch, answer) and not self.sent_epoch_start)
            or (fetch.recovering and answer.serving and not self.sent_serving)
        )


@dataclass(slots=True, kw_only=True)
class DriverCounters:
    """What went wrong with one replica. Plain integers."""

    fetched_corrupt: int = 0
    disk_full: int = 0
    events_lost: int = 0


@dataclass(slots=True, kw_only=True)
class DriverWork:
    """What is under way: nothing is stepped meanwhile."""

    waiting: deque[Input] = field(default_factory=deque)
    is_busy: bool = False
    # The core was replaced while the disk was at work for the old one.
    must_persist: bool = False


class ConsensusStopped(StorageFailed):
    """The replicas contradict each other; this one stops before it makes it worse."""


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """The records of a fetch answer on their way into the log."""

    data: memoryview
    gaps_allowed: bool


def is_plain(answer: FetchAnswered) -> bool:
    """Whether records may go with the answer."""
    failed = answer.error.value != 0
    return not (failed or answer.diverging is not None or answer.start_over_at is not None)


def refusal_of(answer: FetchAnswered) -> FetchAnswered:
    """The same, of a replica that leads nothing."""
    return replace(
        answer,
        error=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        leader_id=None,
        diverging=None,
        start_over_at=None,
    )


def damage_of(log: PartitionLog, committed_offset: int = 0) -> int | None:
    """From where on the log is not what it was when it was flushed; None if it is whole."""
    damage = [bad.first_offset for bad in log.corrupt_ranges]
    suspect_offset = log.suspect_offset
    if suspect_offset is not None:
        damage.append(suspect_offset)
    if log.log_end_offset < committed_offset:
        # Corrupt is not short: this much was on the disk, and committed.
        damage.append(log.log_end_offset)
    return min(damage, default=None)

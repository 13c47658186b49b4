"""Interfaces and data types between a replica's driver and its partition, its sessions and its router."""

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
from zhumq.storage.log import Log

if TYPE_CHECKING:
    from zhumq.replication.driver import ReplicaDriver
    from zhumq.replication.inter_broker.follower_session import FollowerSession


class ReplicaCallbacks(Protocol):
    """Calls of a driver to its partition."""

    def on_flushed(self, flushed_offset: int) -> None: ...

    def on_high_watermark_raised(self, high_watermark: int) -> None: ...

    def on_role_changed(self, change: RoleChange) -> None: ...

    def on_offline(self, reason: BrokerError) -> None: ...


class DriverHost(Protocol):
    """What all drivers of a broker share."""

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
        """Persist the replica's quorum state, then call back on the event loop."""

    def send(self, driver: "ReplicaDriver", outgoing: Outgoing) -> None:
        """Send a message to another replica's broker: everything except answers to fetches."""

    def follow(self, driver: "ReplicaDriver", leader_id: int | None) -> None:
        """Set the leader that this replica fetches from; None: it fetches from no broker."""

    def leader_contact_ms(self, driver: "ReplicaDriver", leader_id: int) -> int:
        """The last contact with the leader in a session that has this replica's fetch."""


@dataclass(slots=True, kw_only=True)
class FollowerFetchState:
    """A follower's last fetch of a partition, in the session of its broker."""

    session: "FollowerSession"
    # None once an answer changes the follower's position.
    fetch: FetchArrived | None
    # The high watermark that the follower knows; every fetch carries it.
    sent_high_watermark: int = -1
    # Whether the last answer came from a serving leader, which ends a follower's recovery.
    sent_serving: bool = False
    # Whether an answer to this fetch carried the start of the epoch, which the follower has to accept.
    sent_epoch_start: bool = False

    def has_update(self, fetch: FetchArrived, answer: FetchAnswered) -> bool:
        """Whether a plain answer has something new for a follower that has all records."""
        return (
            answer.high_watermark > self.sent_high_watermark
            or (asks_to_accept(fetch, answer) and not self.sent_epoch_start)
            or (fetch.recovering and answer.serving and not self.sent_serving)
        )


@dataclass(slots=True, kw_only=True)
class DriverWork:
    """The work that is under way, and the events that wait until it is done."""

    waiting: deque[Input] = field(default_factory=deque)
    is_busy: bool = False


class ConsensusStopped(StorageFailed):
    """The replicas contradict each other: this one stops before it does more damage."""


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """The records of a fetch answer, which are not appended yet."""

    data: memoryview
    gaps_allowed: bool


def is_plain(answer: FetchAnswered) -> bool:
    """Whether the answer may carry records."""
    failed = answer.error.value != 0
    return not (failed or answer.diverging is not None or answer.start_over_at is not None)


def refusal_of(answer: FetchAnswered) -> FetchAnswered:
    """The same answer from a replica that does not lead."""
    return replace(
        answer,
        error=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        leader_id=None,
        diverging=None,
        start_over_at=None,
    )


def damage_of(log: Log, committed_offset: int = 0) -> int | None:
    """The first offset from which the log differs from what was flushed; None if it is intact."""
    damage = [bad.first_offset for bad in log.corrupt_ranges]
    suspect_offset = log.suspect_offset
    if suspect_offset is not None:
        damage.append(suspect_offset)
    if log.log_end_offset < committed_offset:
        # A short log is damaged too: the disk had everything up to the committed offset.
        damage.append(log.log_end_offset)
    return min(damage, default=None)

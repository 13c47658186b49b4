"""The replica seam: inputs in, one Ready out, whose fields state the order of duty."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, TypeAlias

from zhumq.model.errors import ErrorCode, ZhumqError
from zhumq.model.replication_mode import Mode as Mode  # noqa: PLC0414 (a part of the seam)

NO_EPOCH: Final = -1
# draw(low, high): an integer of this range, both ends included. The only chance a core has.
Draw: TypeAlias = Callable[[int, int], int]
# heard_ms(replica id): when the broker of that replica was last heard of in a fetch session that
# still holds this partition as the replica last spoke of it. So one beat between two brokers keeps
# all their idle partitions alive.
SessionContact: TypeAlias = Callable[[int], int]


class ConsensusBroken(ZhumqError):
    """Replicas contradict each other in a way that the protocol rules out. The replica must stop."""


class Role(StrEnum):
    """What a replica does. PROSPECTIVE asks whether it could win (KIP-996), CANDIDATE asks for votes."""

    UNATTACHED = "unattached"
    FOLLOWER = "follower"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"


TRANSITIONS: Final[dict[Role, frozenset[Role]]] = {
    Role.UNATTACHED: frozenset({Role.FOLLOWER, Role.PROSPECTIVE, Role.CANDIDATE, Role.LEADER}),
    Role.FOLLOWER: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE, Role.LEADER}),
    Role.PROSPECTIVE: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.CANDIDATE}),
    Role.CANDIDATE: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.PROSPECTIVE, Role.LEADER}),
    Role.LEADER: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.CANDIDATE}),
}


class LogPosition(NamedTuple):
    """How far a log reaches. Compared as a pair: a long tail of an old epoch is worth nothing.

    Log matching uses the epoch of the last record. A vote uses the newest epoch that the replica is
    known to hold, which has no record yet where its leader has written nothing.
    """

    last_epoch: int
    end_offset: int


class EpochEnd(NamedTuple):
    """The offset at which an epoch ends in somebody's log."""

    epoch: int
    end_offset: int


class LogView(Protocol):
    """What a replica has to know of its log. It never changes the log: Ready says what to do."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def flushed_offset(self) -> int:
        """Everything below it is on the disk."""

    def epoch_of(self, offset: int) -> int:
        """The epoch in which this offset was written; NO_EPOCH if that is not known."""

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest known epoch not above this one, and where it ends; (-1, -1) if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """Times of one partition's replication."""

    # A follower that hears nothing for this long (up to twice as long, drawn) campaigns; a leader
    # that hears no majority for this long resigns.
    election_timeout_ms: int = 1_000
    # After news that the leader is gone, the first of the others campaigns within this time, drawn,
    # the second one so much later.
    campaign_jitter_ms: int = 100
    # An unanswered fetch is sent again after this long.
    fetch_retry_ms: int = 700
    # A leader tells voters that do not fetch yet about itself this often.
    announce_interval_ms: int = 300
    # A follower that has not caught up for this long is proposed out of the in-sync set.
    replica_lag_max_ms: int = 3_000
    proposal_retry_ms: int = 500
    min_in_sync_replicas: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumState:
    """What a replica must remember across a crash, next to its log."""

    epoch: int = 0
    # Invariant: at most one vote per epoch; None in an epoch in which it has not voted.
    voted_for: int | None = None
    leader_id: int | None = None
    mode: Mode = Mode.RAFT
    # Flushed data was lost: no vote, no candidacy, and the leader does not count this replica.
    recovering: bool = False
    # The disk was replaced, and with it went what this replica has voted for.
    votes_unknown: bool = False
    # The newest epoch whose leader's log this replica has on its disk up to where the epoch starts,
    # and that offset. It stands for the no-op entry of Raft 8, without an entry in the log.
    # Invariant: never goes down while the disk is the same.
    accepted_epoch: int = NO_EPOCH
    accepted_offset: int = 0


# Inputs. A message carries the name of what its receiver sees.


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchArrived:
    """A follower asks for what follows its log, and so says how far it is."""

    replica_id: int
    epoch: int
    fetch_offset: int
    # The epoch of the record before fetch_offset; NO_EPOCH for an empty log.
    last_fetched_epoch: int
    # What the follower has on its disk. Only this counts for the high watermark.
    flushed_offset: int
    mode: Mode
    recovering: bool
    # Grows with every fetch of a replica, also across restarts: an older one says nothing new.
    sequence: int
    # See QuorumState. A leader counts only followers that have accepted its epoch.
    accepted_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAnswered:
    """The answer to a fetch. It echoes the position it answers, so a late one does no harm."""

    responder_id: int
    epoch: int
    # The leader of `epoch` if the responder knows it.
    leader_id: int | None
    error: ErrorCode
    fetch_offset: int
    last_fetched_epoch: int
    sequence: int
    high_watermark: int
    # The high watermark has reached the start of the leader's epoch, so it is up to date.
    serving: bool
    # Where the leader's epoch starts in its log.
    epoch_start_offset: int
    # KIP-595: the follower's log is not a prefix of the leader's; truncate by this.
    diverging: EpochEnd | None = None
    # The leader no longer holds what follows the follower's log: empty it and go on here.
    start_over_at: int | None = None
    # Whole batches from fetch_offset on; filled in by who sends it, never looked into by the core.
    records: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteAsked:
    """A replica asks for a vote, or (pre_vote) whether it would get one. KIP-595, KIP-996."""

    candidate_id: int
    epoch: int
    position: LogPosition
    pre_vote: bool
    mode: Mode
    # Of whom the candidate needs a majority. Majorities of other voters need not meet in anybody, so
    # a vote is given only among those who know of the same ones.
    voters: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteAnswered:
    """The answer to a vote request, with what the voter knows of the epoch."""

    voter_id: int
    # The epoch the request was for; a vote counts in no other.
    asked_epoch: int
    epoch: int
    leader_id: int | None
    granted: bool
    pre_vote: bool
    position: LogPosition


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAnnounced:
    """A replica has won the election of an epoch. KIP-595 calls it BeginQuorumEpoch."""

    leader_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAssigned:
    """The coordinator's word on a partition. A lower version than the last one is old news."""

    version: int
    epoch: int
    leader_id: int | None
    in_sync: frozenset[int]
    # The partition comes from raft and no in-sync set of a majority has been accepted yet: the
    # leader has to win the votes of the replicas for this epoch before it leads.
    changing_mode: bool = False
    # The last epoch whose leader was named out of the in-sync set; what is older may have been
    # committed and is lost all the same.
    unclean_epoch: int = -1
    # Who has a replica, old and new ones together while the partition moves; none: as before.
    replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLost:
    """The coordinator's news that a broker is gone: no need to wait for a timeout."""

    broker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """The end of the log moved: something was appended or, on this replica's wish, truncated."""

    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flushed:
    """Everything below the offset is on the disk."""

    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDamaged:
    """What was flushed cannot be read from this offset on."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlinePassed:
    """The time of next_deadline_ms has come."""


Message: TypeAlias = FetchArrived | FetchAnswered | VoteAsked | VoteAnswered | LeaderAnnounced
Input: TypeAlias = (
    Message | LeaderAssigned | BrokerLost | Appended | Flushed | LogDamaged | DeadlinePassed
)


# Decisions.


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendFetched:
    """Append the batches of a fetch answer as they are."""

    records: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message and the replica it is for."""

    to: int
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class InSyncProposal:
    """The leader's wish for another in-sync set; valid only on top of `version` (KIP-497)."""

    leader_id: int
    epoch: int
    version: int
    in_sync: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipDeclined:
    """This replica cannot lead in the epoch it was named for; the coordinator must name anew."""

    replica_id: int
    # The new epoch must be above this one.
    epoch: int
    version: int
    # It has lost data, or its votes, and must not be named until it has healed; one that lacks
    # only its votes may be named where there is no handover.
    damaged: bool


Proposal: TypeAlias = InSyncProposal | LeadershipDeclined


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleChange:
    """What the replica is now."""

    role: Role
    epoch: int
    leader_id: int | None
    # Only a serving leader lets consumers read and state machines run (elected is not ready).
    serving: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """What to do now, from top to bottom. A crash between any two duties is harmless."""

    # 1. On the disk before anything below happens: it holds the vote, the epoch just promised and the
    #    epoch just accepted, which the leader counts as soon as the next fetch says so.
    persist_quorum_state: QuorumState | None = None
    # 2. The log was written over elsewhere: cut it here. What was flushed above no longer counts.
    truncate_to: int | None = None
    #    Or drop all of it, and let the next record have this offset.
    start_over_at: int | None = None
    # 3. Append in order, then step Appended; flush what was appended, then step Flushed.
    append: tuple[AppendFetched, ...] = ()
    # 4. Messages to other replicas, fetches among them. A FetchAnswered without error, divergence
    #    or start_over_at gets the records now; it may be held back while there is nothing to tell.
    #    One that asks the follower to accept the epoch tells something.
    send: tuple[Outgoing, ...] = ()
    # 5. To the coordinator, which decides.
    propose: Proposal | None = None
    # 6. Consumers may see everything below, and acks=-1 up to it may be answered. What is written
    #    down of it for the next start is at most the flushed offset.
    high_watermark: int | None = None
    # 7. Parked requests of a former leader are refused; a new one starts to accept.
    role: RoleChange | None = None


NOTHING: Final = Ready()


class Replica(Protocol):
    """One replica of one partition: decides, never does."""

    @property
    def role(self) -> Role: ...

    @property
    def epoch(self) -> int: ...

    @property
    def leader_id(self) -> int | None: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def serving(self) -> bool: ...

    @property
    def admits_clients(self) -> bool:
        """Whether clients may read what is committed and write with acks=0 or 1: a leader that
        serves, or (KIP-966) a named one with fewer than min.insync.replicas in sync."""

    @property
    def accepts_all_acks(self) -> bool:
        """Whether acks=-1 may be accepted: a leader with enough replicas in sync."""

    @property
    def next_deadline_ms(self) -> int | None:
        """When DeadlinePassed has to be stepped; None while nothing is waited for."""

    def step(self, event: Input, now_ms: int) -> None:
        """Take in one event. What follows from it is in the next Ready."""

    def take_ready(self) -> Ready:
        """What to do now; taking it means to do it. NOTHING if there is nothing."""

    def fetch_answer(self, fetch: FetchArrived) -> FetchAnswered:
        """The answer to a fetch as of now; asked again for one that was held back."""


def asks_to_accept(fetch: FetchArrived, answer: FetchAnswered) -> bool:
    """Whether a follower learns from a plain answer where the epoch starts that it must accept."""
    return fetch.accepted_epoch != answer.epoch

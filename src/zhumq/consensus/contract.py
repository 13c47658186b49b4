"""The replica seam: a replica takes inputs and returns one Ready, whose fields are in the order of execution."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, TypeAlias

from zhumq.model.errors import ErrorCode, ZhumqError
from zhumq.model.replication_mode import Mode as Mode  # noqa: PLC0414 (a part of the seam)

NO_EPOCH: Final = -1
# draw(low, high): a random integer of this range, both ends included. A core has no other randomness.
Draw: TypeAlias = Callable[[int, int], int]
# session_contact_ms(replica id): the last contact with that replica's broker in a fetch session that
# still holds the replica's last fetch of this partition. So one heartbeat between two brokers keeps
# all their idle partitions alive.
SessionContact: TypeAlias = Callable[[int], int]


class ConsensusBroken(ZhumqError):
    """Replicas contradict each other in a way that the protocol excludes. The replica must stop."""


class Role(StrEnum):
    """Role of a replica. PROSPECTIVE asks for pre-votes (KIP-996), CANDIDATE asks for votes."""

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
    """Last epoch and end offset of a log. Compared as a pair: a newer epoch beats a longer log.

    Log matching uses the epoch of the last record. A vote uses the newest epoch that the replica has
    accepted; that epoch has no record until its leader writes one.
    """

    last_epoch: int
    end_offset: int


class EpochEnd(NamedTuple):
    """The offset at which an epoch ends in a replica's log."""

    epoch: int
    end_offset: int


class LogView(Protocol):
    """Read-only view of a replica's log. A replica changes its log only through Ready."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def flushed_offset(self) -> int:
        """Everything below it is on disk."""

    def epoch_of(self, offset: int) -> int:
        """The epoch in which this offset was written; NO_EPOCH if unknown."""

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest known epoch not above this one, and where it ends; (-1, -1) if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """Replication timeouts and limits of one partition."""

    # A follower without contact to its leader for this long (randomized up to twice as long)
    # campaigns. A leader without contact to a majority for this long resigns.
    election_timeout_ms: int = 1_000
    # After a BrokerLost of the leader, the first of the other voters campaigns within a random part
    # of this time, the second one this much later, and so on.
    campaign_jitter_ms: int = 100
    # A follower repeats an unanswered fetch after this long.
    fetch_retry_ms: int = 700
    # A leader repeats LeaderAnnounced to voters that do not fetch yet this often.
    announce_interval_ms: int = 300
    # A leader proposes to remove a follower from the in-sync set that has not caught up for this long.
    replica_lag_max_ms: int = 3_000
    proposal_retry_ms: int = 500
    min_in_sync_replicas: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumState:
    """What a replica persists next to its log."""

    epoch: int = 0
    # Invariant: at most one vote per epoch; None if the replica has not voted in this epoch.
    voted_for: int | None = None
    leader_id: int | None = None
    mode: Mode = Mode.RAFT
    # The replica lost flushed data: it neither votes nor campaigns, and the leader does not count it.
    recovering: bool = False
    # The disk was replaced: this replica does not know how it voted before.
    votes_unknown: bool = False
    # The newest epoch whose leader's log this replica has on disk up to where the epoch starts,
    # and that offset. It replaces the no-op entry of Raft 8: the log gets no entry.
    # Invariant: never decreases while the disk is the same.
    accepted_epoch: int = NO_EPOCH
    accepted_offset: int = 0


# Inputs. A message is named after the event at its receiver.


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchArrived:
    """A follower's fetch. It requests the records after its log and reports its position."""

    replica_id: int
    epoch: int
    fetch_offset: int
    # The epoch of the record before fetch_offset; NO_EPOCH for an empty log.
    last_fetched_epoch: int
    # What the follower has on disk. Only this counts for the high watermark.
    flushed_offset: int
    mode: Mode
    recovering: bool
    # Grows with every fetch of a replica, also across restarts. An older fetch is ignored.
    sequence: int
    # See QuorumState. A leader counts only followers that have accepted its epoch.
    accepted_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAnswered:
    """The answer to a fetch. It echoes the position it answers, so a follower can drop a late one."""

    responder_id: int
    epoch: int
    # The leader of `epoch` if the responder knows it.
    leader_id: int | None
    error: ErrorCode
    fetch_offset: int
    last_fetched_epoch: int
    sequence: int
    high_watermark: int
    # The high watermark has reached the start of the leader's epoch, so it is current.
    serving: bool
    # Where the leader's epoch starts in its log.
    epoch_start_offset: int
    # KIP-595: the follower's log is not a prefix of the leader's; truncate by this.
    diverging: EpochEnd | None = None
    # The leader no longer holds what follows the follower's log: the follower drops its log and
    # continues at this offset.
    start_over_at: int | None = None
    # Whole batches from fetch_offset on. The sender fills them in; the core never reads them.
    records: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteAsked:
    """A vote request, or with pre_vote a pre-vote request. KIP-595, KIP-996."""

    candidate_id: int
    epoch: int
    position: LogPosition
    pre_vote: bool
    mode: Mode
    # The voters of which the candidate needs a majority. Majorities of different voter sets need not
    # overlap, so a voter grants its vote only if it has the same voter set.
    voters: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteAnswered:
    """The answer to a vote request, with the epoch and leader that the voter knows."""

    voter_id: int
    # The epoch of the request. The vote counts only in this epoch.
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
    """The controller's state of a partition. A replica ignores versions below the last one."""

    version: int
    epoch: int
    leader_id: int | None
    in_sync: frozenset[int]
    # The partition changes from raft to fetch mode, and the controller has not accepted an in-sync
    # set of a majority yet. The named leader must win the votes of a majority before it leads.
    changing_mode: bool = False
    # The epoch of the last unclean election. Records of older epochs may be lost although they were
    # committed.
    unclean_epoch: int = -1
    # The brokers with a replica, old and new ones during a reassignment. Empty: unchanged.
    replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLost:
    """The controller reports that a broker's session has ended. It saves the wait for a timeout."""

    broker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """The end of the log moved: records were appended, or Ready.truncate_to was carried out."""

    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flushed:
    """Everything below the offset is on disk."""

    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDamaged:
    """Flushed data is unreadable from this offset on."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlinePassed:
    """next_deadline_ms has passed."""


Message: TypeAlias = FetchArrived | FetchAnswered | VoteAsked | VoteAnswered | LeaderAnnounced
Input: TypeAlias = (
    Message | LeaderAssigned | BrokerLost | Appended | Flushed | LogDamaged | DeadlinePassed
)


# Decisions.


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendFetched:
    """Append the batches of a fetch answer unchanged."""

    records: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message and its receiver."""

    to: int
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class InSyncProposal:
    """The leader's AlterPartition proposal: a new in-sync set, valid only on top of `version` (KIP-497)."""

    leader_id: int
    epoch: int
    version: int
    in_sync: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipDeclined:
    """This replica cannot lead in the epoch it was named for. The controller must name a leader again."""

    replica_id: int
    # The new epoch must be above this one.
    epoch: int
    version: int
    # The replica lost data or its quorum state and must not be named until it has recovered. A
    # replica that lacks only its votes may be named outside of a mode change.
    damaged: bool


Proposal: TypeAlias = InSyncProposal | LeadershipDeclined


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleChange:
    """The replica's new role."""

    role: Role
    epoch: int
    leader_id: int | None
    # Only a serving leader lets consumers read and state machines run. A leader that is only elected
    # does not serve yet.
    serving: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Actions to carry out from top to bottom. A crash between any two of them is safe."""

    # 1. On disk before any action below: it holds the vote, the current epoch and the accepted epoch.
    #    The leader counts the accepted epoch as soon as the next fetch reports it.
    persist_quorum_state: QuorumState | None = None
    # 2. The log diverges from the leader's: truncate it here. What was flushed above no longer counts.
    truncate_to: int | None = None
    #    Or drop the whole log; the next record gets this offset.
    start_over_at: int | None = None
    # 3. Append in order, then step Appended; flush the appended batches, then step Flushed.
    append: tuple[AppendFetched, ...] = ()
    # 4. Messages to other replicas, including fetches. The sender fills the records into a
    #    FetchAnswered without error, divergence or start_over_at, and may hold it back while it has
    #    no new content. An answer that asks the follower to accept the epoch has new content.
    send: tuple[Outgoing, ...] = ()
    # 5. Request to the controller, which decides.
    propose: Proposal | None = None
    # 6. Consumers may see everything below, and acks=-1 up to it may be answered. The checkpoint for
    #    the next start holds at most the flushed offset.
    high_watermark: int | None = None
    # 7. A former leader refuses its parked requests; a new leader starts to accept requests.
    role: RoleChange | None = None


NOTHING: Final = Ready()


def asks_to_accept(fetch: FetchArrived, answer: FetchAnswered) -> bool:
    """Whether the answer asks the follower to accept the leader's epoch."""
    return fetch.accepted_epoch != answer.epoch

"""The part that raft and assigned replicas share: following a leader, answering fetches, recovery."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from zhumq.consensus.contract import (
    NO_EPOCH,
    NOTHING,
    TRANSITIONS,
    AppendFetched,
    ConsensusBroken,
    Draw,
    EpochEnd,
    FetchAnswered,
    FetchArrived,
    Input,
    LogPosition,
    LogView,
    Message,
    Outgoing,
    Proposal,
    QuorumState,
    Ready,
    ReplicaSettings,
    Role,
    RoleChange,
    SessionContact,
    VoteAnswered,
    VoteAsked,
)
from zhumq.consensus.log_matching import divergence, is_prefix
from zhumq.consensus.progress import NEVER_MS, NOT_COUNTED, ProgressTable
from zhumq.consensus.voters import Voters
from zhumq.model.errors import ErrorCode

# Fetch sequences of one start of the broker stay below those of the next start.
FETCHES_PER_INCARNATION_MAX: Final = 2**40


def _never(_: int) -> int:
    return NEVER_MS


class ReplicaCore(ABC):
    """One replica of one partition. It decides; the driver carries out its Ready.

    Here are the state and behaviour that do not depend on how the leader is chosen.
    """

    def __init__(
        self,
        replica_id: int,
        voters: Voters,
        log: LogView,
        settings: ReplicaSettings,
        state: QuorumState,
        *,
        high_watermark: int,
        incarnation: int,
        draw: Draw,
        now_ms: int,
        session_contact_ms: SessionContact | None = None,
    ) -> None:
        self.replica_id = replica_id
        self.voters = voters
        self.log = log
        self.settings = settings
        self.role = Role.UNATTACHED
        # Invariant: everything below it is committed; it never decreases while the log is undamaged.
        self.high_watermark = min(high_watermark, log.flushed_offset)
        self.serving = False
        # Whether clients may read what is committed and write with acks=0 or 1: a serving leader, and
        # (KIP-966) a named leader below min.insync.replicas.
        self.admits_clients = False
        self._state = state
        self._draw = draw
        self._session_contact_ms = session_contact_ms or _never
        self._sequence = incarnation * FETCHES_PER_INCARNATION_MAX
        # Leading.
        self._progress = ProgressTable((), now_ms)
        self._epoch_start_offset = 0
        # Following.
        self._leader_contact_ms = NEVER_MS
        self._leader_high_watermark = 0
        self._following_since = 0
        self._fetch_due_ms: int | None = None
        self._last_request: tuple[LogPosition, int] | None = None
        # Where the leader's epoch starts; known once this log has matched a prefix of the leader's.
        self._leader_epoch_start: int | None = None
        # Recovery: the log is undamaged only below this offset. The rest is kept until a leader
        # sends it again.
        self._damaged_from: int | None = None
        self._recovering_since = self._sequence
        self._recovered_at_offset: int | None = None
        self._begin_ready()
        self._start(now_ms)

    @abstractmethod
    def _start(self, now_ms: int) -> None:
        """Set up the state of this mode. A partition that comes from the other mode keeps its epoch and log."""

    def _begin_ready(self) -> None:
        self._persist = False
        self._truncate_to: int | None = None
        self._start_over_at: int | None = None
        self._append: list[AppendFetched] = []
        self._send: list[Outgoing] = []
        self._propose: Proposal | None = None
        self._raised = False
        self._role_changed = False

    @property
    def epoch(self) -> int:
        return self._state.epoch

    @property
    def quorum_state(self) -> QuorumState:
        return self._state

    @property
    def leader_id(self) -> int | None:
        """The leader of this epoch if it is known and taken to be alive."""
        known = self.role in (Role.FOLLOWER, Role.LEADER)
        return self._state.leader_id if known else None

    @property
    def log_position(self) -> LogPosition:
        """End and last epoch of the undamaged part of this log."""
        end = self.log.log_end_offset if self._damaged_from is None else self._damaged_from
        epoch = self.log.epoch_of(end - 1) if end > self.log.log_start_offset else NO_EPOCH
        return LogPosition(epoch, end)

    @property
    def vote_position(self) -> LogPosition:
        """The log position in an election: an accepted epoch counts like a record of that epoch."""
        position = self.log_position
        state = self._state
        if state.accepted_epoch <= position.last_epoch:
            return position
        end_offset = position.end_offset
        if position.last_epoch != NO_EPOCH:
            # Records at or above the start of the accepted epoch belong to that epoch. Older records
            # there are a truncated tail that a crash has brought back.
            end_offset = min(end_offset, state.accepted_offset)
        return LogPosition(state.accepted_epoch, end_offset)

    @property
    @abstractmethod
    def accepts_all_acks(self) -> bool:
        """Whether acks=-1 may be accepted: a leader with enough replicas in sync."""

    @property
    @abstractmethod
    def next_deadline_ms(self) -> int | None:
        """When DeadlinePassed has to be stepped; None without a pending deadline."""

    @abstractmethod
    def step(self, event: Input, now_ms: int) -> None:
        """Process one event. Its effects are in the next Ready."""

    @abstractmethod
    def campaign_soon(self, now_ms: int) -> None:
        """The partition has no leader: campaign without waiting for the election timeout."""

    @property
    def known_high_watermark(self) -> int:
        """The leader's high watermark as last reported; it may be ahead of this replica's disk."""
        return max(self.high_watermark, self._leader_high_watermark)

    def take_ready(self) -> Ready:
        """The pending actions; the caller must carry them out. NOTHING if there are none."""
        if not (
            self._persist
            or self._send
            or self._append
            or self._raised
            or self._role_changed
            or self._truncate_to is not None
            or self._start_over_at is not None
            or self._propose is not None
        ):
            return NOTHING
        ready = Ready(
            persist_quorum_state=self._state if self._persist else None,
            truncate_to=self._truncate_to,
            start_over_at=self._start_over_at,
            append=tuple(self._append),
            send=tuple(self._send),
            propose=self._propose,
            high_watermark=self.high_watermark if self._raised else None,
            role=self._role_change() if self._role_changed else None,
        )
        self._begin_ready()
        return ready

    def _role_change(self) -> RoleChange:
        return RoleChange(
            role=self.role, epoch=self.epoch, leader_id=self.leader_id, serving=self.serving
        )

    # Changes of state

    def _remember(self, state: QuorumState) -> None:
        if state != self._state:
            self._state = state
            self._persist = True

    def _become(self, role: Role) -> None:
        assert role is self.role or role in TRANSITIONS[self.role]
        self.role = role
        self.serving = self.admits_clients = False
        self._fetch_due_ms = None
        self._last_request = None
        self._leader_epoch_start = None
        self._leader_high_watermark = 0
        self._role_changed = True

    def _tell(self, to: int, message: Message) -> None:
        self._send.append(Outgoing(to=to, message=message))

    def _raise_high_watermark(self, offset: int) -> None:
        if offset > self.high_watermark:
            self.high_watermark = offset
            self._raised = True

    # Votes

    def _vote_request(self, *, pre_vote: bool) -> VoteAsked:
        return VoteAsked(
            candidate_id=self.replica_id,
            epoch=self.epoch,
            position=self.vote_position,
            pre_vote=pre_vote,
            mode=self._state.mode,
            voters=self.voters.ids,
        )

    def _answer_vote(self, question: VoteAsked, *, granted: bool) -> None:
        self._tell(
            question.candidate_id,
            VoteAnswered(
                voter_id=self.replica_id,
                asked_epoch=question.epoch,
                epoch=self.epoch,
                leader_id=self.leader_id,
                granted=granted,
                pre_vote=question.pre_vote,
                position=self.vote_position,
            ),
        )

    # Leading

    def _lead(self, follower_ids: Iterable[int], now_ms: int) -> None:
        """Become leader. The epoch starts at the end of the log."""
        self._remember(replace(self._state, leader_id=self.replica_id))
        self._become(Role.LEADER)
        self._progress = ProgressTable(follower_ids, now_ms)
        self._epoch_start_offset = self.log.log_end_offset
        self._on_log_moved(now_ms)

    @abstractmethod
    def _committed_offset(self) -> int:
        """The offset up to which enough replicas have the log on disk."""

    def _commit(self) -> None:
        """Raise the high watermark as far as the flushed logs of the replicas allow."""
        offset = self._committed_offset()
        # Raft 5.4.2, figure 8: entries of older epochs are committed only along with the start of
        # this leader's epoch. Counting replicas alone could commit what a later leader overwrites.
        if offset < self._epoch_start_offset:
            return
        self._raise_high_watermark(offset)
        if not self.serving:
            self.serving = self.admits_clients = True
            self._role_changed = True

    def _on_fetch_arrived(self, fetch: FetchArrived, now_ms: int) -> None:
        """Record a follower's progress, then answer with the newest high watermark."""
        is_follower = fetch.epoch == self.epoch and fetch.replica_id in self._progress
        if self.role is Role.LEADER and is_follower:
            self._progress.note_contact(fetch.replica_id, now_ms)
            if not is_prefix(self.log, fetch):
                self._progress.unmatched(fetch)
            elif self._progress.matched(fetch, self.log.log_end_offset, now_ms):
                self._commit()
        self._tell(fetch.replica_id, self.fetch_answer(fetch))

    def note_last_contact(self, replica_id: int, time_ms: int) -> None:
        """A follower's fetch session has ended; its last contact was at this time."""
        if self.role is Role.LEADER and replica_id in self._progress:
            self._progress.note_past_contact(replica_id, time_ms)

    def fetch_answer(self, fetch: FetchArrived) -> FetchAnswered:
        """The current answer to a fetch. The caller asks again for a fetch that it held back."""
        error = ErrorCode.NONE
        diverging = start_over_at = None
        if fetch.epoch < self.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif fetch.epoch > self.epoch:
            error = ErrorCode.UNKNOWN_LEADER_EPOCH
        elif self.role is not Role.LEADER:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif not is_prefix(self.log, fetch):
            diverging, start_over_at = divergence(self.log, self.log_position, fetch)
        return FetchAnswered(
            responder_id=self.replica_id,
            epoch=self.epoch,
            leader_id=self.leader_id,
            error=error,
            fetch_offset=fetch.fetch_offset,
            last_fetched_epoch=fetch.last_fetched_epoch,
            sequence=fetch.sequence,
            high_watermark=self.high_watermark,
            serving=self.serving,
            epoch_start_offset=self._epoch_start_offset,
            diverging=diverging,
            start_over_at=start_over_at,
        )

    # Following

    def _follow(self, leader_id: int, now_ms: int) -> None:
        self._become(Role.FOLLOWER)
        self._following_since = self._sequence
        self._leader_contact_ms = now_ms
        self._fetch_from(leader_id, now_ms)

    def _fetch_from(self, replica_id: int, now_ms: int) -> None:
        self._fetch_due_ms = now_ms + self.settings.fetch_retry_ms
        self._last_request = self._ask(replica_id)

    def _repeat_fetch_if_overdue(self, now_ms: int) -> None:
        """Send an unanswered fetch again. A live fetch session keeps it pending."""
        if self._fetch_due_ms is None or now_ms < self._fetch_due_ms:
            return
        leader_id = self.leader_id
        if leader_id is not None:
            due_ms = self._session_contact_ms(leader_id) + self.settings.fetch_retry_ms
            if due_ms > now_ms:
                self._fetch_due_ms = due_ms
                return
        self._fetch_due_ms = None
        if self.role is Role.FOLLOWER and leader_id is not None:
            self._fetch_from(leader_id, now_ms)

    def _while_leader_is_alive(self, due_ms: int, silence_ms: int) -> int:
        """A follower's deadline, extended by contact in the leader's fetch session.

        So an idle partition needs no work while its leader's broker is alive.
        """
        leader_id = self._state.leader_id
        if self.role is not Role.FOLLOWER or leader_id is None:
            return due_ms
        session_contact_ms = self._session_contact_ms(leader_id)
        return max(due_ms, session_contact_ms + min(silence_ms, self.settings.fetch_retry_ms))

    def _ask(self, replica_id: int) -> tuple[LogPosition, int]:
        """Send a fetch and return the log position and flushed offset that it reports."""
        position = self.log_position
        flushed_offset = min(self.log.flushed_offset, position.end_offset)
        self._sequence += 1
        self._tell(
            replica_id,
            FetchArrived(
                replica_id=self.replica_id,
                epoch=self.epoch,
                fetch_offset=position.end_offset,
                last_fetched_epoch=position.last_epoch,
                flushed_offset=flushed_offset,
                mode=self._state.mode,
                recovering=self._state.recovering,
                sequence=self._sequence,
                accepted_epoch=self._state.accepted_epoch,
            ),
        )
        return position, flushed_offset

    def _on_leader_answer(self, answer: FetchAnswered, now_ms: int) -> None:
        """Process an answer of the leader without an error."""
        self._leader_contact_ms = now_ms
        if self._append or self._truncate_to is not None or self._start_over_at is not None:
            # The log is about to move: this answer is for a position that is no longer the end.
            return
        if (answer.last_fetched_epoch, answer.fetch_offset) != self.log_position:
            # The log has moved since that fetch; the fetch for the new position is in flight.
            return
        if answer.start_over_at is not None:
            self._damaged_from = None
            self._last_request = None
            self._start_over_at = answer.start_over_at
            # Everything below is committed and expired at the leader; nothing is above it yet.
            self.high_watermark = answer.start_over_at
            return
        if answer.diverging is not None:
            self._cut(self._divergence_point(answer.diverging))
            return
        if self._damaged_from is not None:
            self._cut(self._damaged_from)
        if answer.records is not None:
            self._append.append(AppendFetched(records=answer.records))
        self._leader_epoch_start = answer.epoch_start_offset
        self._leader_high_watermark = max(self._leader_high_watermark, answer.high_watermark)
        if self._state.recovering and answer.serving and answer.sequence > self._recovering_since:
            # The leader knew that this replica is recovering, so it counts none of the lost data above this.
            self._recovered_at_offset = answer.high_watermark
        if not (self._append or self._truncate_to is not None):
            self._maybe_accept()
            self._learn_high_watermark()
            self._maybe_recover()
            self._fetch_from(answer.responder_id, now_ms)

    def _divergence_point(self, diverging: EpochEnd) -> int:
        """KIP-595: truncate where the epoch ends in the shorter of the two logs."""
        epoch, end_offset = self.log.end_offset_for_epoch(diverging.epoch)
        if epoch == NO_EPOCH:
            return diverging.end_offset
        return min(end_offset, diverging.end_offset, self.log_position.end_offset)

    def _cut(self, offset: int) -> None:
        if offset < self.high_watermark and not self._may_cut_committed():
            raise ConsensusBroken(
                f"replica {self.replica_id} in epoch {self.epoch} must truncate to {offset},"
                f" below its high watermark {self.high_watermark}"
            )
        self.high_watermark = min(self.high_watermark, offset)
        self._damaged_from = None
        self._last_request = None
        self._truncate_to = max(offset, self.log.log_start_offset)

    def _may_cut_committed(self) -> bool:
        return self._state.recovering

    def _learn_high_watermark(self) -> None:
        # Only what is on this disk: a crash could bring back a truncated tail.
        end = self.log.log_end_offset if self._damaged_from is None else self._damaged_from
        self._raise_high_watermark(min(self._leader_high_watermark, self.log.flushed_offset, end))

    def _on_log_moved(self, now_ms: int) -> None:
        """The log end or the flushed offset moved: a follower reports it to the leader."""
        if self.role is Role.LEADER:
            self._maybe_accept()
            self._commit()
        elif self.role is Role.FOLLOWER and self._state.leader_id is not None:
            self._maybe_accept()
            self._learn_high_watermark()
            self._maybe_recover()
            position = self.log_position
            if self._last_request != (position, min(self.log.flushed_offset, position.end_offset)):
                self._fetch_from(self._state.leader_id, now_ms)

    def _maybe_accept(self) -> None:
        """Accept the leader's epoch once the log before it is flushed.

        Raft 5.4.2 and 8 require an entry of the leader's epoch on a majority of disks. Here each
        replica persists the accepted epoch instead, so that no topic holds records of leaders.
        Only flushed data counts: a crash must not leave an accepted epoch without the log before it.
        """
        start = self._epoch_start_offset if self.role is Role.LEADER else self._leader_epoch_start
        if start is None or self._state.accepted_epoch == self.epoch:
            return
        if self._damaged_from is None and self.log.flushed_offset >= start:
            self._remember(replace(self._state, accepted_epoch=self.epoch, accepted_offset=start))
            self._last_request = None

    def _flushed_of(self, replica_id: int) -> int:
        """The flushed offset of a replica that counts in this leader's epoch."""
        if replica_id != self.replica_id:
            return self._progress.flushed_in(self.epoch, replica_id)
        accepted = self._state.accepted_epoch == self.epoch
        return self.log.flushed_offset if accepted else NOT_COUNTED

    # Recovery

    def _begin_recovery(self, offset: int) -> None:
        self._damaged_from = max(min(offset, self.log.log_end_offset), self.log.log_start_offset)
        self._recovering_since = self._sequence
        self._recovered_at_offset = None
        self.high_watermark = min(self.high_watermark, self._damaged_from)
        self._remember(replace(self._state, recovering=True))

    def _maybe_recover(self) -> None:
        """End recovery once everything committed is on disk again."""
        target = self._recovered_at_offset
        if target is None or not self._state.recovering or self._damaged_from is not None:
            return
        if self.log.flushed_offset >= target and self._may_recover():
            self._recovered_at_offset = None
            self._remember(self._recovered_state())
            self._last_request = None

    def _may_recover(self) -> bool:
        return True

    def _recovered_state(self) -> QuorumState:
        return replace(self._state, recovering=False)

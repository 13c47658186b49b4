"""Pull-based Raft for one partition (KIP-595, KIP-996): the replicas elect their leader."""

from dataclasses import replace
from typing import Final, assert_never

from zhumq.consensus.contract import (
    Appended,
    BrokerLost,
    ConsensusBroken,
    DeadlinePassed,
    Draw,
    FetchAnswered,
    FetchArrived,
    Flushed,
    Input,
    LeaderAnnounced,
    LeaderAssigned,
    LogDamaged,
    LogView,
    Mode,
    QuorumState,
    ReplicaSettings,
    Role,
    SessionContact,
    VoteAnswered,
    VoteAsked,
)
from zhumq.consensus.election import VoteTally, is_log_acceptable, may_vote_for
from zhumq.consensus.progress import NEVER_MS
from zhumq.consensus.replica import ReplicaCore
from zhumq.consensus.voters import Voters
from zhumq.model.errors import ErrorCode

ROUNDS_UNTIL_SPREAD: Final = 2


class RaftReplica(ReplicaCore):
    """A replica whose leader is elected by votes and whose commits are those of a majority.

    A restarted replica never resumes a candidacy or a leadership: what it had not flushed when it
    asked for votes may be gone.
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
        super().__init__(
            replica_id,
            voters,
            log,
            settings,
            state,
            high_watermark=high_watermark,
            incarnation=incarnation,
            draw=draw,
            now_ms=now_ms,
            session_contact_ms=session_contact_ms,
        )
        # A partition that comes from fetch mode goes on with its epoch and its log.
        # One that does not know its votes is not counted: it may have voted in a later epoch for
        # a candidate that lacks what it acknowledges now.
        recovering = state.recovering or state.votes_unknown
        self._remember(replace(state, mode=Mode.RAFT, recovering=recovering))
        # Voters whose epochs have to be known before votes are given again.
        self._unanswered = set(voters.others(replica_id)) if state.votes_unknown else set()
        self._tally: VoteTally | None = None
        self._announce_due_ms: int | None = None
        self._asked = replica_id
        # How often in a row this replica has asked for votes in vain.
        self._rounds = 0
        # Its leader has resigned, which is final: who still names it has not heard of that.
        self._ended_epoch = -1
        self._set_election_deadline(now_ms)
        self._ask_unanswered(now_ms)
        if state.leader_id is not None and state.leader_id != replica_id:
            self._follow(state.leader_id, now_ms)
            # It may be gone since: its word is not fresh enough to refuse another candidate.
            self._leader_contact_ms = NEVER_MS
        elif self.voters.ids == (replica_id,):
            self._election_due_ms = now_ms

    @property
    def accepts_all_acks(self) -> bool:
        return self.role is Role.LEADER

    @property
    def next_deadline_ms(self) -> int | None:
        if self.role is Role.LEADER:
            due_ms = self._resign_due_ms()
            if self._announce_due_ms is not None:
                return min(due_ms, self._announce_due_ms)
            return due_ms if self.voters.majority > 1 else None
        due_ms = self._election_due_ms
        if self._fetch_due_ms is not None:
            due_ms = min(due_ms, self._fetch_due_ms)
        due_ms = self._while_leader_is_alive(due_ms, self.settings.election_timeout_ms)
        return min(due_ms, self._unanswered_due_ms) if self._unanswered else due_ms

    def step(self, event: Input, now_ms: int) -> None:
        """Take in one event."""
        match event:
            case FetchArrived():
                if event.epoch > self.epoch:
                    self._adopt(event.epoch, None, now_ms)
                self._on_fetch_arrived(event, now_ms)
            case FetchAnswered():
                self._on_fetch_answered(event, now_ms)
            case VoteAsked():
                self._on_vote_asked(event, now_ms)
            case VoteAnswered():
                self._on_vote_answered(event, now_ms)
            case LeaderAnnounced():
                self._learn(event.epoch, event.leader_id, now_ms)
            case BrokerLost():
                self._on_broker_lost(event.broker_id, now_ms)
            case Appended() | Flushed():
                self._on_log_moved(now_ms)
            case LogDamaged():
                self._on_log_damaged(event.offset, now_ms)
            case DeadlinePassed():
                self._on_deadline(now_ms)
            case LeaderAssigned():
                # Of another mode's time: in this one nobody is named.
                pass
            case _:
                assert_never(event)

    # Epochs and leaders

    def _adopt(self, epoch: int, leader_id: int | None, now_ms: int) -> None:
        """A newer epoch exists: whatever this replica was, it is over."""
        self._remember(replace(self._state, epoch=epoch, voted_for=None, leader_id=leader_id))
        self._tally = None
        self._announce_due_ms = None
        self._set_election_deadline(now_ms)
        if leader_id is None:
            self._become(Role.UNATTACHED)
        else:
            self._follow(leader_id, now_ms)

    def _learn(self, epoch: int, leader_id: int | None, now_ms: int) -> None:
        """Somebody says which epoch it is and perhaps who leads it."""
        if leader_id == self.replica_id:
            # A leadership of our own that is over: a restart or a resignation ended it.
            leader_id = None
        if epoch > self.epoch:
            self._adopt(epoch, leader_id, now_ms)
            return
        if epoch < self.epoch or leader_id is None or self.role is Role.FOLLOWER:
            return
        if epoch == self._ended_epoch:
            return
        if self.role is Role.LEADER:
            raise ConsensusBroken(
                f"replicas {self.replica_id} and {leader_id} both lead epoch {epoch}"
            )
        self._remember(replace(self._state, leader_id=leader_id))
        self._tally = None
        self._set_election_deadline(now_ms)
        self._follow(leader_id, now_ms)

    def _detach(self, now_ms: int, *, soon: bool) -> None:
        """The leader is gone, or was this replica: the epoch has none any more."""
        gone = self._state.leader_id
        self._become(Role.UNATTACHED)
        self._tally = None
        self._announce_due_ms = None
        self._leader_contact_ms = NEVER_MS
        self._set_election_deadline(now_ms)
        if soon:
            # One after the other: those who campaign at the same time split the votes.
            jitter_ms = self.settings.campaign_jitter_ms
            rank = self.voters.rank(self.replica_id, gone)
            self._election_due_ms = now_ms + rank * jitter_ms + self._draw(0, jitter_ms)

    def campaign_soon(self, now_ms: int) -> None:
        if self.role is Role.UNATTACHED:
            self._election_due_ms = now_ms

    def _set_election_deadline(self, now_ms: int) -> None:
        timeout_ms = self.settings.election_timeout_ms
        # Where elections fail, those who try spread out: they may all be slow in the same way.
        spread = 2 if self._rounds < ROUNDS_UNTIL_SPREAD else 4
        self._election_due_ms = now_ms + self._draw(timeout_ms, spread * timeout_ms)

    # Elections

    @property
    def _may_campaign(self) -> bool:
        return self.replica_id in self.voters and not self._state.recovering

    def _campaign(self, now_ms: int) -> None:
        """Ask whether an election could be won before disturbing anybody with a new epoch."""
        self._rounds += 1
        self._set_election_deadline(now_ms)
        if not self._may_campaign:
            if self.role is not Role.UNATTACHED:
                self._become(Role.UNATTACHED)
            self._look_for_leader(now_ms)
            return
        self._become(Role.PROSPECTIVE)
        self._leader_contact_ms = NEVER_MS
        self._ask_for_votes(pre_vote=True)
        self._count_votes(now_ms)

    def _stand(self, now_ms: int) -> None:
        """Raise the epoch and vote for oneself; both are on the disk before anybody hears of it."""
        self._remember(
            replace(self._state, epoch=self.epoch + 1, voted_for=self.replica_id, leader_id=None)
        )
        self._become(Role.CANDIDATE)
        self._set_election_deadline(now_ms)
        self._ask_for_votes(pre_vote=False)
        self._count_votes(now_ms)

    def _ask_for_votes(self, *, pre_vote: bool) -> None:
        self._tally = VoteTally(self.voters, self.epoch, self.replica_id, pre_vote=pre_vote)
        question = VoteAsked(
            candidate_id=self.replica_id,
            epoch=self.epoch,
            position=self.vote_position,
            pre_vote=pre_vote,
            mode=Mode.RAFT,
            voters=self.voters.ids,
        )
        for voter in self.voters.others(self.replica_id):
            self._tell(voter, question)

    def _look_for_leader(self, now_ms: int) -> None:
        """One that cannot campaign asks the voters in turn; each names the leader it knows."""
        self._asked = self.voters.after(self._asked)
        if self._asked == self.replica_id:
            self._asked = self.voters.after(self._asked)
        self._fetch_from(self._asked, now_ms)

    def _on_vote_asked(self, question: VoteAsked, now_ms: int) -> None:
        # KIP-996: a prospective candidate's epoch exists already, so it is taken over as well.
        if question.epoch > self.epoch:
            self._adopt(question.epoch, None, now_ms)
        granted = self._would_vote(question, now_ms)
        if (
            not granted
            and question.position < self.vote_position
            and not self._hears_leader(now_ms)
        ):
            # The leader is missed by others as well, and of those who ask this one has more.
            jitter_ms = self.settings.campaign_jitter_ms
            soon_ms = now_ms + self._draw(0, jitter_ms)
            self._election_due_ms = min(self._election_due_ms, soon_ms)
        if granted and question.pre_vote:
            self._make_way_for(question, now_ms)
        if granted and not question.pre_vote:
            # KIP-595: a voter must persist its vote before answering.
            self._remember(replace(self._state, voted_for=question.candidate_id))
            self._set_election_deadline(now_ms)
            if self.role is Role.PROSPECTIVE:
                self._become(Role.UNATTACHED)
                self._tally = None
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

    def _make_way_for(self, question: VoteAsked, now_ms: int) -> None:
        """Two that ask for votes at the same time split them: who has more, or is the first in
        order, goes first."""
        if self.role is Role.PROSPECTIVE:
            rank = self.voters.rank(question.candidate_id, None)
            goes_first = question.position != self.vote_position or (
                rank < self.voters.rank(self.replica_id, None)
            )
            if not goes_first:
                return
            self._become(Role.UNATTACHED)
            self._tally = None
            self._election_due_ms = now_ms
        if self.role is Role.UNATTACHED:
            jitter_ms = self.settings.campaign_jitter_ms
            later_ms = now_ms + 4 * jitter_ms + self._draw(0, 2 * jitter_ms)
            self._election_due_ms = max(self._election_due_ms, later_ms)

    def _would_vote(self, question: VoteAsked, now_ms: int) -> bool:
        if question.epoch < self.epoch or self.replica_id not in self.voters:
            return False
        if question.voters != self.voters.ids or question.candidate_id not in self.voters:
            # One of the two has not heard of a move.
            return False
        if not is_log_acceptable(question.position, self.vote_position) or self._state.recovering:
            return False
        if question.pre_vote:
            return not self._hears_leader(now_ms)
        return may_vote_for(self._state, question.candidate_id)

    def _hears_leader(self, now_ms: int) -> bool:
        if self.role is Role.LEADER:
            return True
        if self.role is not Role.FOLLOWER or self._state.leader_id is None:
            return False
        contact_ms = max(self._leader_contact_ms, self._session_contact_ms(self._state.leader_id))
        return now_ms - contact_ms < self.settings.election_timeout_ms

    def _on_vote_answered(self, answer: VoteAnswered, now_ms: int) -> None:
        if answer.epoch > self.epoch:
            self._learn(answer.epoch, answer.leader_id, now_ms)
            return
        tally = self._tally
        if tally is None or answer.asked_epoch != self.epoch:
            return
        if answer.pre_vote == tally.pre_vote:
            tally.count(answer.voter_id, granted=answer.granted)
        if not answer.granted:
            self._learn(answer.epoch, answer.leader_id, now_ms)
        if tally is self._tally and not answer.granted and not tally.pre_vote:
            # The votes are split: try again before anybody would miss a leader, one by one.
            jitter_ms = self.settings.campaign_jitter_ms
            first_ms = now_ms + (1 + 2 * self.voters.rank(self.replica_id, None)) * jitter_ms
            self._election_due_ms = first_ms + self._draw(0, 2 * jitter_ms)
        self._count_votes(now_ms)

    def _count_votes(self, now_ms: int) -> None:
        tally = self._tally
        if tally is None or not tally.is_won:
            return
        self._tally = None
        if tally.pre_vote:
            self._stand(now_ms)
            return
        self._rounds = 0
        self._lead(self.voters.others(self.replica_id), now_ms)
        self._announce(now_ms)

    def _announce(self, now_ms: int) -> None:
        """Followers pull, so they must know whom to ask; told again until they do."""
        silent = self._progress.silent()
        for voter in silent:
            self._tell(voter, LeaderAnnounced(leader_id=self.replica_id, epoch=self.epoch))
        interval_ms = self.settings.announce_interval_ms
        self._announce_due_ms = now_ms + interval_ms if silent else None

    def _on_broker_lost(self, broker_id: int, now_ms: int) -> None:
        if self.role is Role.FOLLOWER and self._state.leader_id == broker_id:
            self._detach(now_ms, soon=True)
        elif self.role is Role.PROSPECTIVE and self._state.leader_id == broker_id:
            self._election_due_ms = now_ms + self._draw(0, self.settings.campaign_jitter_ms)

    # Leading

    def _committed_offset(self) -> int:
        """The point that a majority of the voters has on its disks; the own log is one of them."""
        return self.voters.reached_by_majority(map(self._flushed_of, self.voters.ids))

    def _resign_due_ms(self) -> int:
        """When a majority will have been silent for too long."""
        others = self.voters.others(self.replica_id)
        if not others:
            return 2**62
        needed = self.voters.majority - 1
        contact_ms = self._progress.majority_contact_ms(needed, others, self._session_contact_ms)
        return contact_ms + self.settings.election_timeout_ms

    def has_everything(self, replica_id: int) -> bool:
        """Whether a follower could lead at once: all of this leader's log is on its disk."""
        if self.role is not Role.LEADER or replica_id not in self._progress:
            return False
        one = self._progress[replica_id]
        return not one.recovering and one.flushed_offset >= self.log.log_end_offset

    def resign_for(self, replica_id: int, now_ms: int) -> bool:
        """Lead no more, so that another one may. Who that is the votes say, but this one would be
        the first to ask for them if it is the first in order. False if it would not win."""
        if not self.has_everything(replica_id):
            return False
        self._detach(now_ms, soon=False)
        return True

    # Following

    def _on_fetch_answered(self, answer: FetchAnswered, now_ms: int) -> None:
        if answer.sequence > self._recovering_since:
            self._unanswered.discard(answer.responder_id)
        self._take_answer(answer, now_ms)
        if self.role is Role.FOLLOWER and self.leader_id != answer.responder_id:
            # It may have been the last one to be heard, while the leader has nothing new to say.
            self._maybe_recover()

    def _take_answer(self, answer: FetchAnswered, now_ms: int) -> None:
        if answer.epoch != self.epoch:
            self._learn(answer.epoch, answer.leader_id, now_ms)
            return
        if answer.error is not ErrorCode.NONE:
            # An answer from before it was elected says nothing about it as the leader.
            is_leader = (
                self.leader_id == answer.responder_id and answer.sequence > self._following_since
            )
            if is_leader and answer.leader_id is None:
                # It leads no more and says so: no need to wait for silence.
                self._ended_epoch = self.epoch
                self._detach(now_ms, soon=True)
            else:
                self._learn(answer.epoch, answer.leader_id, now_ms)
            return
        if self.role in (Role.PROSPECTIVE, Role.UNATTACHED):
            self._learn(answer.epoch, answer.leader_id, now_ms)
        if self.role is Role.FOLLOWER and self._state.leader_id == answer.responder_id:
            self._rounds = 0
            self._set_election_deadline(now_ms)
            self._on_leader_answer(answer, now_ms)

    # Time and damage

    def _ask_unanswered(self, now_ms: int) -> None:
        """Whoever got an unknown vote was in that epoch when it asked for it, and still is in it
        or in a later one. So no vote of an epoch that nobody has reached is missing."""
        self._unanswered_due_ms = now_ms + self.settings.fetch_retry_ms
        for voter in sorted(self._unanswered):
            self._ask(voter)

    def _may_recover(self) -> bool:
        return not self._unanswered

    def _recovered_state(self) -> QuorumState:
        # In the epoch it is in it cannot vote: it follows that epoch's leader.
        return replace(self._state, recovering=False, votes_unknown=False)

    def _on_deadline(self, now_ms: int) -> None:
        if self._unanswered and now_ms >= self._unanswered_due_ms:
            self._ask_unanswered(now_ms)
        if self.role is Role.LEADER:
            if self.voters.majority > 1 and now_ms >= self._resign_due_ms():
                # Check-quorum: another leader may exist by now, and nothing can be committed here.
                self._detach(now_ms, soon=False)
            elif self._announce_due_ms is not None and now_ms >= self._announce_due_ms:
                self._announce(now_ms)
        elif now_ms >= self._election_due_ms and not self._is_leader_alive(now_ms):
            self._campaign(now_ms)
        elif self._is_fetch_overdue(now_ms):
            self._fetch_due_ms = None
            if self.role is Role.FOLLOWER and self._state.leader_id is not None:
                self._fetch_from(self._state.leader_id, now_ms)

    def _is_leader_alive(self, now_ms: int) -> bool:
        """Whether an idle leader's broker has been heard of; then there is time again."""
        if self.role is not Role.FOLLOWER or self._state.leader_id is None:
            return False
        self._leader_contact_ms = max(
            self._leader_contact_ms, self._session_contact_ms(self._state.leader_id)
        )
        if now_ms - self._leader_contact_ms >= self.settings.election_timeout_ms:
            return False
        self._set_election_deadline(self._leader_contact_ms)
        return True

    def _on_log_damaged(self, offset: int, now_ms: int) -> None:
        self._begin_recovery(offset)
        if self.role is not Role.FOLLOWER:
            self._detach(now_ms, soon=True)
        elif self._state.leader_id is not None:
            self._fetch_from(self._state.leader_id, now_ms)

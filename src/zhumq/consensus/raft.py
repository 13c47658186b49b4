"""Pull-based Raft for one partition (KIP-595, KIP-996): the voters elect their leader."""

from dataclasses import replace
from typing import Final, assert_never

from zhumq.consensus.contract import (
    Appended,
    BrokerLost,
    ConsensusBroken,
    DeadlinePassed,
    FetchAnswered,
    FetchArrived,
    Flushed,
    Input,
    LeaderAnnounced,
    LeaderAssigned,
    LogDamaged,
    Mode,
    QuorumState,
    Role,
    VoteAnswered,
    VoteAsked,
)
from zhumq.consensus.election import VoteTally, is_log_acceptable, may_vote_for
from zhumq.consensus.progress import NEVER_MS
from zhumq.consensus.replica import ReplicaCore
from zhumq.model.errors import ErrorCode

ROUNDS_UNTIL_SPREAD: Final = 2


class RaftReplica(ReplicaCore):
    """A replica of raft mode: a majority elects the leader, and a majority commits.

    A restarted replica never resumes a candidacy or a leadership: what it had not flushed when it
    asked for votes may be lost.
    """

    def _start(self, now_ms: int) -> None:
        state = self._state
        # A replica that does not know its votes does not count: it may have voted in a later epoch
        # for a candidate that lacks what the replica acknowledges now.
        recovering = state.recovering or state.votes_unknown
        self._remember(replace(state, mode=Mode.RAFT, recovering=recovering))
        # Voters whose epochs this replica has to learn before it votes again.
        self._unanswered = (
            set(self.voters.others(self.replica_id)) if state.votes_unknown else set()
        )
        self._tally: VoteTally | None = None
        self._announce_due_ms: int | None = None
        self._asked = self.replica_id
        # Consecutive rounds of vote requests without an election.
        self._rounds = 0
        # The epoch whose leader has resigned. A replica that still names that leader is out of date.
        self._ended_epoch = -1
        self._set_election_deadline(now_ms)
        self._ask_unanswered(now_ms)
        if state.leader_id is not None and state.leader_id != self.replica_id:
            self._follow(state.leader_id, now_ms)
            # The leader may be gone: this is no recent contact that would refuse another candidate.
            self._leader_contact_ms = NEVER_MS
        elif self.voters.ids == (self.replica_id,):
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
                # Sent in fetch mode; in raft mode no leader is named.
                pass
            case _:
                assert_never(event)

    # Epochs and leaders

    def _adopt(self, epoch: int, leader_id: int | None, now_ms: int) -> None:
        """Move to a newer epoch. This ends the replica's current role."""
        self._remember(replace(self._state, epoch=epoch, voted_for=None, leader_id=leader_id))
        self._tally = None
        self._announce_due_ms = None
        self._set_election_deadline(now_ms)
        if leader_id is None:
            self._become(Role.UNATTACHED)
        else:
            self._follow(leader_id, now_ms)

    def _learn(self, epoch: int, leader_id: int | None, now_ms: int) -> None:
        """Learn the epoch, and perhaps its leader, from another replica."""
        if leader_id == self.replica_id:
            # This replica led that epoch, and a restart or a resignation ended its leadership.
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
        """The epoch has no leader any more: the leader is gone, or this replica resigns."""
        gone = self._state.leader_id
        self._become(Role.UNATTACHED)
        self._tally = None
        self._announce_due_ms = None
        self._leader_contact_ms = NEVER_MS
        self._set_election_deadline(now_ms)
        if soon:
            # One after the other: candidates that campaign at the same time split the votes.
            jitter_ms = self.settings.campaign_jitter_ms
            rank = self.voters.rank(self.replica_id, gone)
            self._election_due_ms = now_ms + rank * jitter_ms + self._draw(0, jitter_ms)

    def campaign_soon(self, now_ms: int) -> None:
        if self.role is Role.UNATTACHED:
            self._election_due_ms = now_ms

    def _set_election_deadline(self, now_ms: int) -> None:
        timeout_ms = self.settings.election_timeout_ms
        # After failed elections the candidates spread out: they may all be slow in the same way.
        spread = 2 if self._rounds < ROUNDS_UNTIL_SPREAD else 4
        self._election_due_ms = now_ms + self._draw(timeout_ms, spread * timeout_ms)

    # Elections

    @property
    def _may_campaign(self) -> bool:
        return self.replica_id in self.voters and not self._state.recovering

    def _campaign(self, now_ms: int) -> None:
        """Ask for pre-votes before a new epoch disturbs the other voters."""
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

    def _become_candidate(self, now_ms: int) -> None:
        """Raise the epoch and vote for itself; both are on disk before the vote requests are sent."""
        self._remember(
            replace(self._state, epoch=self.epoch + 1, voted_for=self.replica_id, leader_id=None)
        )
        self._become(Role.CANDIDATE)
        self._set_election_deadline(now_ms)
        self._ask_for_votes(pre_vote=False)
        self._count_votes(now_ms)

    def _ask_for_votes(self, *, pre_vote: bool) -> None:
        self._tally = VoteTally(self.voters, self.epoch, self.replica_id, pre_vote=pre_vote)
        question = self._vote_request(pre_vote=pre_vote)
        for voter in self.voters.others(self.replica_id):
            self._tell(voter, question)

    def _look_for_leader(self, now_ms: int) -> None:
        """Fetch from the voters in turn when unable to campaign; each names the leader it knows."""
        self._asked = self.voters.after(self._asked)
        if self._asked == self.replica_id:
            self._asked = self.voters.after(self._asked)
        self._fetch_from(self._asked, now_ms)

    def _on_vote_asked(self, question: VoteAsked, now_ms: int) -> None:
        # KIP-996: a prospective candidate's epoch exists already, so this replica adopts it as well.
        if question.epoch > self.epoch:
            self._adopt(question.epoch, None, now_ms)
        granted = self._would_vote(question, now_ms)
        if (
            not granted
            and question.position < self.vote_position
            and not self._hears_leader(now_ms)
        ):
            # Another voter has lost the leader as well, and this replica has more than that voter.
            jitter_ms = self.settings.campaign_jitter_ms
            soon_ms = now_ms + self._draw(0, jitter_ms)
            self._election_due_ms = min(self._election_due_ms, soon_ms)
        if granted and question.pre_vote:
            self._give_precedence_to(question, now_ms)
        if granted and not question.pre_vote:
            # KIP-595: a voter must persist its vote before answering.
            self._remember(replace(self._state, voted_for=question.candidate_id))
            self._set_election_deadline(now_ms)
            if self.role is Role.PROSPECTIVE:
                self._become(Role.UNATTACHED)
                self._tally = None
        self._answer_vote(question, granted=granted)

    def _give_precedence_to(self, question: VoteAsked, now_ms: int) -> None:
        """Delay this replica's candidacy: two candidates at the same time split the votes.

        The candidate with more of the log goes first, then the one that is first in order.
        """
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
            # One of the two does not know of a reassignment yet.
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
            # The votes are split: the candidates try again one by one, before the election timeout.
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
            self._become_candidate(now_ms)
            return
        self._rounds = 0
        self._lead(self.voters.others(self.replica_id), now_ms)
        self._announce(now_ms)

    def _announce(self, now_ms: int) -> None:
        """Followers pull, so they must know their leader. Repeated until every voter fetches."""
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
        """The offset that a majority of the voters, this leader included, has on disk."""
        return self.voters.reached_by_majority(map(self._flushed_of, self.voters.ids))

    def _resign_due_ms(self) -> int:
        """When the contact with a majority times out (check-quorum)."""
        others = self.voters.others(self.replica_id)
        if not others:
            return 2**62
        needed = self.voters.majority - 1
        contact_ms = self._progress.majority_contact_ms(needed, others, self._session_contact_ms)
        return contact_ms + self.settings.election_timeout_ms

    def has_everything(self, replica_id: int) -> bool:
        """Whether a follower could lead at once: it has all of this leader's log on disk."""
        if self.role is not Role.LEADER or replica_id not in self._progress:
            return False
        one = self._progress[replica_id]
        return not one.recovering and one.flushed_offset >= self.log.log_end_offset

    def resign_for(self, replica_id: int, now_ms: int) -> bool:
        """Resign in favour of a follower. False if that follower is not caught up.

        The voters elect the next leader; the preferred leader is the first to campaign.
        """
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
            # This may have been the last missing answer, while the leader has nothing new to send.
            self._maybe_recover()

    def _take_answer(self, answer: FetchAnswered, now_ms: int) -> None:
        if answer.epoch != self.epoch:
            self._learn(answer.epoch, answer.leader_id, now_ms)
            return
        if answer.error is not ErrorCode.NONE:
            # Only an answer from after its election counts as the leader's.
            is_leader = (
                self.leader_id == answer.responder_id and answer.sequence > self._following_since
            )
            if is_leader and answer.leader_id is None:
                # The leader has resigned and reports it: no need to wait for the election timeout.
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
        """Ask the voters for their epochs, because this replica does not know its votes.

        A candidate that got an unknown vote was in that epoch when it asked, and is still in it or
        in a later one. So this replica cannot have voted in an epoch that no voter has reached.
        """
        self._unanswered_due_ms = now_ms + self.settings.fetch_retry_ms
        for voter in sorted(self._unanswered):
            self._ask(voter)

    def _may_recover(self) -> bool:
        return not self._unanswered

    def _recovered_state(self) -> QuorumState:
        # It cannot vote in its current epoch: it follows that epoch's leader.
        return replace(self._state, recovering=False, votes_unknown=False)

    def _on_deadline(self, now_ms: int) -> None:
        if self._unanswered and now_ms >= self._unanswered_due_ms:
            self._ask_unanswered(now_ms)
        if self.role is Role.LEADER:
            if self.voters.majority > 1 and now_ms >= self._resign_due_ms():
                # Check-quorum: another leader may exist, and this one can commit nothing.
                self._detach(now_ms, soon=False)
            elif self._announce_due_ms is not None and now_ms >= self._announce_due_ms:
                self._announce(now_ms)
        elif now_ms >= self._election_due_ms and not self._is_leader_alive(now_ms):
            self._campaign(now_ms)
        else:
            self._repeat_fetch_if_overdue(now_ms)

    def _is_leader_alive(self, now_ms: int) -> bool:
        """Whether the leader's broker made contact recently; if so, restart the election timeout."""
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

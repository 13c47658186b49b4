"""A replica of fetch mode: the controller names its leader, and the whole in-sync set commits."""

from dataclasses import replace
from typing import assert_never

from zhumq.consensus.contract import (
    Appended,
    BrokerLost,
    DeadlinePassed,
    FetchAnswered,
    FetchArrived,
    Flushed,
    Input,
    InSyncProposal,
    LeaderAnnounced,
    LeaderAssigned,
    LeadershipDeclined,
    LogDamaged,
    Mode,
    Role,
    VoteAnswered,
    VoteAsked,
)
from zhumq.consensus.election import VoteTally, is_log_acceptable, may_vote_for
from zhumq.consensus.replica import ReplicaCore
from zhumq.consensus.voters import Voters
from zhumq.model.errors import ErrorCode


class AssignedReplica(ReplicaCore):
    """A replica that leads or follows as the controller assigns it, fenced by epoch and version.

    It has no leader until the first LeaderAssigned after its start: the leader that it persisted
    before a crash may be out of date.
    """

    def _start(self, now_ms: int) -> None:  # noqa: ARG002  nothing is due before the first assignment
        state = self._state
        # From here on this replica votes only for the leader that the controller names.
        self._remember(replace(state, mode=Mode.FETCH))
        # An epoch this replica led before it crashed: it may have lost an unflushed tail that
        # followers hold. Leading again in the same epoch would write other records there.
        self._led_epoch = state.epoch if state.leader_id == self.replica_id else -1
        self.version = -1
        self.in_sync: frozenset[int] = frozenset()
        self._changing_mode = False
        self._unclean_epoch = -1
        # The proposal on top of `version`, which the controller may have accepted since.
        self._pending: InSyncProposal | LeadershipDeclined | None = None
        self._propose_due_ms: int | None = None
        self._lag_due_ms: int | None = None
        self._tally: VoteTally | None = None
        self._tally_due_ms: int | None = None
        # The last fetches of replicas that learned of a reassignment before this leader. An idle
        # replica reports its position once and then waits. A removed replica is fenced by an epoch,
        # so no fetch from before its removal counts.
        self._observers: dict[int, FetchArrived] = {}

    @property
    def accepts_all_acks(self) -> bool:
        enough = len(self.in_sync) >= self.settings.min_in_sync_replicas
        return self.role is Role.LEADER and enough

    def campaign_soon(self, now_ms: int) -> None:
        """No effect: the controller names the leader."""

    @property
    def leads_or_campaigns(self) -> bool:
        """Whether this replica is the named leader and leads, or still needs the votes."""
        return self.role in (Role.LEADER, Role.CANDIDATE)

    def in_sync_contact_ms(self) -> int | None:
        """When this leader last had contact with any in-sync follower.

        None without in-sync followers (no other replica can be named), or if it does not lead.
        """
        followers = [each for each in self.in_sync if each in self._progress]
        if self.role is not Role.LEADER or not followers:
            return None
        return self._progress.majority_contact_ms(1, followers, self._session_contact_ms)

    @property
    def next_deadline_ms(self) -> int | None:
        fetch_due_ms = self._fetch_due_ms
        if fetch_due_ms is not None:
            fetch_due_ms = self._while_leader_is_alive(fetch_due_ms, self.settings.fetch_retry_ms)
        dues = (fetch_due_ms, self._propose_due_ms, self._lag_due_ms, self._tally_due_ms)
        return min((due for due in dues if due is not None), default=None)

    def step(self, event: Input, now_ms: int) -> None:
        match event:
            case FetchArrived():
                self._on_follower_fetch(event, now_ms)
            case FetchAnswered():
                self._on_fetch_answered(event, now_ms)
            case LeaderAssigned():
                self._on_assigned(event, now_ms)
            case Appended() | Flushed():
                self._on_log_moved(now_ms)
            case BrokerLost():
                # A LeaderAssigned that names another replica reports the end of this broker's session.
                if self.role is Role.LEADER and event.broker_id != self.replica_id:
                    self._progress.mark_gone(event.broker_id)
                    self._propose_in_sync(self.in_sync - {event.broker_id}, now_ms)
            case LogDamaged():
                self._on_log_damaged(event.offset, now_ms)
            case VoteAsked():
                self._on_vote_asked(event)
            case VoteAnswered():
                self._on_vote_answered(event, now_ms)
            case DeadlinePassed():
                self._on_deadline(now_ms)
            case LeaderAnnounced():
                # Sent by a raft leader that does not know of the mode change yet.
                pass
            case _:
                assert_never(event)

    # Assignments of the controller

    def _on_assigned(self, assigned: LeaderAssigned, now_ms: int) -> None:
        if assigned.version <= self.version:
            # A stale watch: this replica has already processed a newer assignment.
            return
        self.version = assigned.version
        self._pending = None
        self._propose_due_ms = None
        if assigned.changing_mode and self._state.votes_unknown and not self._state.recovering:
            # The replica recovered in fetch mode. So raft has started and ended since, with all
            # replicas in sync at its start: the earlier votes no longer count.
            self._remember(replace(self._state, votes_unknown=False))
        if assigned.epoch < self.epoch:
            # The controller does not know the last epoch of raft mode.
            self._decline_leadership(now_ms)
            return
        if assigned.replicas:
            self._change_replicas(assigned.replicas, now_ms)
        self.in_sync = assigned.in_sync
        self._changing_mode = assigned.changing_mode
        self._unclean_epoch = assigned.unclean_epoch
        if assigned.epoch != self.epoch or not self._is_same_leader(assigned):
            self._take_role(assigned, now_ms)
        elif self.role is Role.LEADER:
            for known in sorted(self._observers.keys() & set(self.voters.ids)):
                self._on_fetch_arrived(self._observers.pop(known), now_ms)
            self._commit()
            self._admit_clients_below_minimum()
            self._check_followers(now_ms, shrink=False)
            if self._lag_due_ms is None:
                self._set_lag_deadline(now_ms)

    def _change_replicas(self, replicas: tuple[int, ...], now_ms: int) -> None:
        """Apply a reassignment. Only the in-sync set commits, so the other replicas may change at once."""
        if set(replicas) == set(self.voters.ids):
            return
        self.voters = Voters(replicas)
        if self.role is Role.LEADER:
            self._progress.change_followers(self.voters.others(self.replica_id), now_ms)

    def _is_same_leader(self, assigned: LeaderAssigned) -> bool:
        """Whether the assignment keeps the leader that this replica leads as or follows."""
        if self.role is Role.CANDIDATE:
            return assigned.leader_id == self.replica_id
        return self.leader_id is not None and assigned.leader_id == self.leader_id

    def _take_role(self, assigned: LeaderAssigned, now_ms: int) -> None:
        self._tally = None
        self._tally_due_ms = None
        self._lag_due_ms = None
        state = self._state
        if assigned.leader_id == self.replica_id:
            if self._must_not_lead(assigned):
                self._become(Role.UNATTACHED)
                self._decline_leadership(now_ms)
            elif assigned.changing_mode:
                self._become_candidate(assigned.epoch, now_ms)
            else:
                self._remember(replace(state, epoch=assigned.epoch, voted_for=None))
                self._lead_all(now_ms)
            return
        voted_for = state.voted_for if assigned.epoch == state.epoch else None
        self._remember(
            replace(state, epoch=assigned.epoch, leader_id=assigned.leader_id, voted_for=voted_for)
        )
        if assigned.leader_id is None:
            self._become(Role.UNATTACHED)
        else:
            self._follow(assigned.leader_id, now_ms)

    def _must_not_lead(self, assigned: LeaderAssigned) -> bool:
        state = self._state
        if state.recovering or assigned.epoch <= self._led_epoch:
            return True
        # This replica has voted in this epoch of raft, or knows its leader.
        taken = state.voted_for is not None or state.leader_id is not None
        return assigned.epoch == self.epoch and taken

    def _lead_all(self, now_ms: int) -> None:
        self._led_epoch = self.epoch
        self._observers.clear()
        self._lead(self.voters.others(self.replica_id), now_ms)
        self._admit_clients_below_minimum()
        self._set_lag_deadline(now_ms)

    def _admit_clients_below_minimum(self) -> None:
        """KIP-966: admit clients although too few replicas are in sync.

        The high watermark does not advance, and may be below what an earlier leader has shown. What
        is below it is committed, and acks=0 or 1 accept the risk. Only a serving leader may be
        relied on for anything else.
        """
        enough = len(self.in_sync) >= self.settings.min_in_sync_replicas
        if self.role is Role.LEADER and not self._changing_mode and not enough:
            self.admits_clients = True

    def _decline_leadership(self, now_ms: int) -> None:
        declined = LeadershipDeclined(
            replica_id=self.replica_id,
            epoch=max(self.epoch, self._led_epoch),
            version=self.version,
            damaged=self._state.recovering or self._state.votes_unknown,
        )
        self._send_proposal(declined, now_ms)

    # Change from raft mode: the controller names the first leader, which must win a majority of votes.

    def _become_candidate(self, epoch: int, now_ms: int) -> None:
        self._remember(replace(self._state, epoch=epoch, voted_for=self.replica_id, leader_id=None))
        self._become(Role.CANDIDATE)
        self._tally = VoteTally(self.voters, epoch, self.replica_id, pre_vote=False)
        self._ask_for_votes(now_ms)
        self._count_votes(now_ms)

    def _ask_for_votes(self, now_ms: int) -> None:
        assert self._tally is not None
        question = self._vote_request(pre_vote=False)
        for voter in self._tally.unanswered:
            self._tell(voter, question)
        self._tally_due_ms = now_ms + self.settings.proposal_retry_ms

    def _on_vote_asked(self, question: VoteAsked) -> None:
        # A majority of replicas refuses raft's candidates, so no epoch has both an elected and a
        # named leader.
        if question.mode is Mode.FETCH and question.epoch > self.epoch:
            self._remember(
                replace(self._state, epoch=question.epoch, voted_for=None, leader_id=None)
            )
            self._become(Role.UNATTACHED)
        granted = (
            question.mode is Mode.FETCH
            and not question.pre_vote
            and question.epoch == self.epoch
            and question.voters == self.voters.ids
            and is_log_acceptable(question.position, self.vote_position)
            and self._may_vote_for(question.candidate_id)
        )
        if granted:
            self._remember(replace(self._state, voted_for=question.candidate_id))
        self._answer_vote(question, granted=granted)

    def _may_vote_for(self, candidate_id: int) -> bool:
        # The named leader does not lead yet, so this replica may vote for it.
        state = self._state
        if state.leader_id == candidate_id:
            state = replace(state, leader_id=None)
        return may_vote_for(state, candidate_id)

    def _on_vote_answered(self, answer: VoteAnswered, now_ms: int) -> None:
        tally = self._tally
        if tally is None or answer.asked_epoch != self.epoch or answer.pre_vote:
            return
        tally.count(answer.voter_id, granted=answer.granted)
        if answer.epoch > self.epoch or tally.is_lost:
            # Others have more, or voted in a later epoch: the controller has to name a leader again.
            self._tally = None
            self._tally_due_ms = None
            if answer.epoch > self.epoch:
                self._remember(
                    replace(self._state, epoch=answer.epoch, voted_for=None, leader_id=None)
                )
            self._become(Role.UNATTACHED)
            self._decline_leadership(now_ms)
            return
        self._count_votes(now_ms)

    def _count_votes(self, now_ms: int) -> None:
        if self._tally is not None and self._tally.is_won:
            self._tally = None
            self._tally_due_ms = None
            self._lead_all(now_ms)

    # Leading

    @property
    def _counted(self) -> frozenset[int]:
        """The in-sync set together with the pending proposal (KIP-497: the larger of both)."""
        pending = self._pending
        return (
            self.in_sync | pending.in_sync if isinstance(pending, InSyncProposal) else self.in_sync
        )

    def _committed_offset(self) -> int:
        """The offset that every in-sync replica has on disk.

        KIP-966: it does not advance below min.insync.replicas, so that everything committed is on
        that many disks.
        """
        if self._changing_mode or len(self.in_sync) < self.settings.min_in_sync_replicas:
            return -1
        return min(map(self._flushed_of, self._counted | {self.replica_id}))

    def _on_follower_fetch(self, fetch: FetchArrived, now_ms: int) -> None:
        if fetch.epoch > self.epoch and self.role is Role.LEADER:
            # The controller has named another leader: records accepted from here on would be lost.
            self._become(Role.UNATTACHED)
            self._lag_due_ms = None
        self._on_fetch_arrived(fetch, now_ms)
        if self.role is Role.LEADER and fetch.epoch == self.epoch:
            if fetch.replica_id not in self._progress:
                self._observers[fetch.replica_id] = fetch
            self._check_followers(now_ms, shrink=fetch.recovering)

    def _is_caught_up(self, replica_id: int) -> bool:
        """Whether a follower has everything committed, in this epoch and before it."""
        one = self._progress[replica_id]
        enough = max(self.high_watermark, self._epoch_start_offset)
        return not one.recovering and one.mode is Mode.FETCH and one.flushed_offset >= enough

    def _has_fallen_behind(self, replica_id: int, now_ms: int) -> bool:
        one = self._progress[replica_id]
        caught_up_ms = one.caught_up_ms
        if one.fetch_offset >= self.log.log_end_offset:
            caught_up_ms = max(caught_up_ms, self._session_contact_ms(replica_id))
        late = now_ms - caught_up_ms > self.settings.replica_lag_max_ms
        return one.recovering or one.gone or late

    def _check_followers(self, now_ms: int, *, shrink: bool) -> None:
        """Propose the in-sync set that matches the followers' progress. The controller decides."""
        if self._changing_mode and self.log.flushed_offset < self._epoch_start_offset:
            # Raft committed on the disks of a majority, perhaps without this replica. An in-sync
            # replica has everything committed on its own disk.
            return
        others = self.voters.others(self.replica_id)
        in_sync = {self.replica_id}
        for each in others:
            behind = self._has_fallen_behind(each, now_ms)
            if each in self.in_sync:
                # Only the periodic check removes a follower: one that is slow for a moment stays.
                if not (behind and shrink):
                    in_sync.add(each)
            elif not behind and self._is_caught_up(each):
                in_sync.add(each)
        self._propose_in_sync(frozenset(in_sync), now_ms)

    def _propose_in_sync(self, in_sync: frozenset[int], now_ms: int) -> None:
        if in_sync == self.in_sync or self._pending is not None:
            return
        proposal = InSyncProposal(
            leader_id=self.replica_id, epoch=self.epoch, version=self.version, in_sync=in_sync
        )
        self._send_proposal(proposal, now_ms)

    def _send_proposal(self, proposal: InSyncProposal | LeadershipDeclined, now_ms: int) -> None:
        self._pending = proposal
        self._propose = proposal
        self._propose_due_ms = now_ms + self.settings.proposal_retry_ms

    def _set_lag_deadline(self, now_ms: int) -> None:
        is_alone = {self.replica_id}.issuperset(self.in_sync.union(self.voters.ids))
        # A broker may lead ten thousand partitions without another replica, which none can fall behind in.
        self._lag_due_ms = None if is_alone else now_ms + self.settings.replica_lag_max_ms // 2

    # Following

    def _on_fetch_answered(self, answer: FetchAnswered, now_ms: int) -> None:
        is_leader = self.role is Role.FOLLOWER and self.leader_id == answer.responder_id
        if is_leader and answer.epoch == self.epoch and answer.error is ErrorCode.NONE:
            self._on_leader_answer(answer, now_ms)

    def _may_cut_committed(self) -> bool:
        return self._state.recovering or self.log_position.last_epoch < self._unclean_epoch

    # Time and damage

    def _on_deadline(self, now_ms: int) -> None:
        if self._propose_due_ms is not None and now_ms >= self._propose_due_ms:
            self._propose_due_ms = None
            if self._pending is not None:
                self._send_proposal(self._pending, now_ms)
        if self._tally_due_ms is not None and now_ms >= self._tally_due_ms:
            self._ask_for_votes(now_ms)
        if self._lag_due_ms is not None and now_ms >= self._lag_due_ms:
            self._set_lag_deadline(now_ms)
            self._check_followers(now_ms, shrink=True)
        self._repeat_fetch_if_overdue(now_ms)

    def _on_log_damaged(self, offset: int, now_ms: int) -> None:
        self._begin_recovery(offset)
        if self.role in (Role.LEADER, Role.CANDIDATE):
            self._tally = None
            self._tally_due_ms = None
            self._lag_due_ms = None
            self._become(Role.UNATTACHED)
            self._decline_leadership(now_ms)
        elif self.role is Role.FOLLOWER and self.leader_id is not None:
            self._fetch_from(self.leader_id, now_ms)

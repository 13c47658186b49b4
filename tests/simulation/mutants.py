"""Bugs planted into the cores, each from a hazard that has broken a real system.

A mutant is a function that patches one rule away. The suite must find every mutant; a mutant that
survives shows that the invariants or the faults are too weak.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from simulation.simulated_broker import SimulatedBroker

from zhumq.consensus import raft, replica
from zhumq.consensus.contract import (
    FetchAnswered,
    FetchArrived,
    LogView,
    Mode,
    Outgoing,
    Role,
)
from zhumq.consensus.progress import ProgressTable
from zhumq.consensus.raft import RaftReplica
from zhumq.consensus.replica import ReplicaCore
from zhumq.consensus.voters import Voters

Patch = Callable[[object, str, Any], None]
# The mode, how many brokers, whether the mode changes, and how many replicas move among them.
Cluster = tuple[Mode, int, bool, int | None]
RAFT_3: Cluster = (Mode.RAFT, 3, False, None)
RAFT_5: Cluster = (Mode.RAFT, 5, False, None)
FETCH_3: Cluster = (Mode.FETCH, 3, False, None)
FETCH_5: Cluster = (Mode.FETCH, 5, False, None)
SWITCH_3: Cluster = (Mode.RAFT, 3, True, None)
SWITCH_5: Cluster = (Mode.RAFT, 5, True, None)
MOVE_RAFT: Cluster = (Mode.RAFT, 5, False, 3)
MOVE_FETCH: Cluster = (Mode.FETCH, 5, False, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A planted bug and the clusters in which it shows."""

    name: str
    plant: Callable[[Patch], None]
    clusters: tuple[Cluster, ...]


MUTANTS: list[Mutant] = []


def planted(*clusters: Cluster) -> Callable[[Callable[[Patch], None]], None]:
    def register(plant: Callable[[Patch], None]) -> None:
        MUTANTS.append(Mutant(name=plant.__name__, plant=plant, clusters=clusters))

    return register


# Elections


@planted(RAFT_3, RAFT_5)
def largest_end_offset_wins(patch: Patch) -> None:
    patch(raft, "is_log_acceptable", lambda candidate, own: candidate[1] >= own[1])


@planted(RAFT_3)
def any_log_wins(patch: Patch) -> None:
    patch(raft, "is_log_acceptable", lambda candidate, own: True)


@planted(RAFT_3)
def two_votes_in_one_epoch(patch: Patch) -> None:
    patch(raft, "may_vote_for", lambda state, candidate_id: True)


@planted(RAFT_3)
def a_vote_is_not_persisted(patch: Patch) -> None:
    def remember(self: ReplicaCore, state: Any) -> None:
        only_vote = state.epoch == self._state.epoch and state.voted_for != self._state.voted_for
        self._persist = self._persist or (state != self._state and not only_vote)
        self._state = state

    patch(ReplicaCore, "_remember", remember)


@planted(RAFT_3)
def a_newer_epoch_is_not_persisted(patch: Patch) -> None:
    def remember(self: ReplicaCore, state: Any) -> None:
        only_epoch = state.epoch > self._state.epoch and state.voted_for is None
        self._persist = self._persist or (state != self._state and not only_epoch)
        self._state = state

    patch(ReplicaCore, "_remember", remember)


@planted(RAFT_3)
def half_is_a_majority(patch: Patch) -> None:
    def start(self: Voters, ids: Any) -> None:
        self.ids = tuple(sorted(set(ids)))
        self.majority = max(len(self.ids) // 2, 1)

    patch(Voters, "__init__", start)


@planted(RAFT_3)
def a_pre_vote_counts_as_a_vote(patch: Patch) -> None:
    original = RaftReplica._on_vote_answered

    def on_vote_answered(self: RaftReplica, answer: Any, now_ms: int) -> None:
        if self._tally is not None and answer.pre_vote and not self._tally.pre_vote:
            answer = replace(answer, pre_vote=False, asked_epoch=self.epoch)
        original(self, answer, now_ms)

    patch(RaftReplica, "_on_vote_answered", on_vote_answered)


@planted(RAFT_3)
def votes_of_an_older_epoch_count(patch: Patch) -> None:
    original = RaftReplica._on_vote_answered

    def on_vote_answered(self: RaftReplica, answer: Any, now_ms: int) -> None:
        if answer.granted and answer.asked_epoch < self.epoch:
            answer = replace(answer, asked_epoch=self.epoch, epoch=self.epoch)
        original(self, answer, now_ms)

    patch(RaftReplica, "_on_vote_answered", on_vote_answered)


@planted(RAFT_3)
def a_candidate_does_not_raise_the_epoch(patch: Patch) -> None:
    original = RaftReplica._become_candidate

    def stand(self: RaftReplica, now_ms: int) -> None:
        self._state = replace(self._state, epoch=self.epoch - 1)
        original(self, now_ms)

    patch(RaftReplica, "_become_candidate", stand)


@planted(RAFT_3)
def a_restarted_leader_leads_on(patch: Patch) -> None:
    original = RaftReplica.__init__

    def start(self: RaftReplica, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        if self._state.leader_id == self.replica_id:
            self._lead(self.voters.others(self.replica_id), named["now_ms"])

    patch(RaftReplica, "__init__", start)


@planted(RAFT_3)
def a_deposed_leader_leads_on_in_the_new_epoch(patch: Patch) -> None:
    original = RaftReplica._adopt

    def adopt(self: RaftReplica, epoch: int, leader_id: int | None, now_ms: int) -> None:
        if self.role is Role.LEADER:
            self._remember(replace(self._state, epoch=epoch, voted_for=None))
            self._role_changed = True
        else:
            original(self, epoch, leader_id, now_ms)

    patch(RaftReplica, "_adopt", adopt)


@planted(RAFT_3)
def an_older_leader_is_believed(patch: Patch) -> None:
    original = RaftReplica._learn

    def learn(self: RaftReplica, epoch: int, leader_id: int | None, now_ms: int) -> None:
        if epoch < self.epoch and leader_id not in (None, self.replica_id):
            self._state = replace(self._state, epoch=epoch, leader_id=leader_id)
            self._persist = True
            self._follow(leader_id, now_ms)
        else:
            original(self, epoch, leader_id, now_ms)

    patch(RaftReplica, "_learn", learn)


# Committing


@planted(RAFT_3)
def the_leader_counts_what_it_has_not_flushed(patch: Patch) -> None:
    def committed_offset(self: RaftReplica) -> int:
        others = self.voters.others(self.replica_id)
        positions = [self._progress.flushed_in(self.epoch, each) for each in others]
        return self.voters.reached_by_majority([*positions, self.log.log_end_offset])

    patch(RaftReplica, "_committed_offset", committed_offset)


def _send_unflushed_as_flushed(self: ReplicaCore, to: int, message: Any) -> None:
    if isinstance(message, FetchArrived):
        message = replace(message, flushed_offset=message.fetch_offset)
    self._send.append(Outgoing(to=to, message=message))


@planted(RAFT_3, RAFT_5)
def a_follower_reports_unflushed_records_as_flushed(patch: Patch) -> None:
    patch(ReplicaCore, "_tell", _send_unflushed_as_flushed)


@planted(FETCH_3)
def a_follower_of_a_named_leader_reports_unflushed_records_as_flushed(patch: Patch) -> None:
    patch(ReplicaCore, "_tell", _send_unflushed_as_flushed)


@planted(RAFT_5)
def entries_of_older_epochs_are_committed_by_counting(patch: Patch) -> None:
    patch(ProgressTable, "flushed_in", lambda self, epoch, each: self[each].flushed_offset)

    def commit(self: ReplicaCore) -> None:
        self._raise_high_watermark(self._committed_offset())
        if not self.serving and self.high_watermark >= self._epoch_start_offset:
            self.serving = self.admits_clients = self._role_changed = True

    patch(ReplicaCore, "_commit", commit)


@planted(RAFT_3)
def the_high_watermark_runs_ahead_of_the_majority(patch: Patch) -> None:
    patch(Voters, "reached_by_majority", lambda self, positions: max(positions))


@planted(RAFT_3)
def a_follower_raises_its_high_watermark_past_its_log(patch: Patch) -> None:
    def learn(self: ReplicaCore) -> None:
        self._raise_high_watermark(self._leader_high_watermark)

    patch(ReplicaCore, "_learn_high_watermark", learn)


@planted(RAFT_3)
def a_leader_serves_as_soon_as_it_is_elected(patch: Patch) -> None:
    original = ReplicaCore._lead

    def lead(self: ReplicaCore, follower_ids: Any, now_ms: int) -> None:
        original(self, follower_ids, now_ms)
        self.serving = self.admits_clients = True

    patch(ReplicaCore, "_lead", lead)


@planted(RAFT_3)
def the_high_watermark_goes_back_after_a_restart(patch: Patch) -> None:
    original = ReplicaCore._lead

    def lead(self: ReplicaCore, follower_ids: Any, now_ms: int) -> None:
        original(self, follower_ids, now_ms)
        self.high_watermark = self.log.log_start_offset

    def commit(self: ReplicaCore) -> None:
        offset = self._committed_offset()
        if offset > self.log.log_start_offset:
            self._raise_high_watermark(min(offset, self.high_watermark + 1))
            self.serving = self.admits_clients = self._role_changed = True

    patch(ReplicaCore, "_lead", lead)
    patch(ReplicaCore, "_commit", commit)


# Following


def _is_within(log: LogView, fetch: FetchArrived) -> bool:
    return log.log_start_offset <= fetch.fetch_offset <= log.log_end_offset


@planted(RAFT_3)
def divergence_is_not_detected(patch: Patch) -> None:
    patch(replica, "is_prefix", _is_within)


@planted(RAFT_3)
def nothing_is_truncated(patch: Patch) -> None:
    def cut(self: ReplicaCore, offset: int) -> None:
        self._damaged_from = None

    patch(ReplicaCore, "_cut", cut)


@planted(RAFT_3, RAFT_5)
def truncation_ignores_the_own_epochs(patch: Patch) -> None:
    def point(self: ReplicaCore, diverging: Any) -> int:
        return min(diverging.end_offset, self.log.log_end_offset)

    patch(ReplicaCore, "_divergence_point", point)


@planted(RAFT_3, RAFT_5)
def a_follower_truncates_to_its_high_watermark(patch: Patch) -> None:
    original = ReplicaCore._follow

    def follow(self: ReplicaCore, leader_id: int, now_ms: int) -> None:
        original(self, leader_id, now_ms)
        if self.high_watermark < self.log.log_end_offset:
            self._truncate_to = self.high_watermark

    patch(ReplicaCore, "_follow", follow)


@planted(RAFT_3, RAFT_5)
def a_late_answer_is_taken_for_the_current_one(patch: Patch) -> None:
    original = ReplicaCore._on_leader_answer

    def on_leader_answer(self: ReplicaCore, answer: FetchAnswered, now_ms: int) -> None:
        position = self.log_position
        late = replace(
            answer, fetch_offset=position.end_offset, last_fetched_epoch=position.last_epoch
        )
        original(self, late, now_ms)

    patch(ReplicaCore, "_on_leader_answer", on_leader_answer)


@planted(RAFT_3, RAFT_5)
def fetches_of_older_epochs_count(patch: Patch) -> None:
    original = ReplicaCore._on_fetch_arrived

    def on_fetch_arrived(self: ReplicaCore, fetch: FetchArrived, now_ms: int) -> None:
        if fetch.epoch < self.epoch:
            fetch = replace(fetch, epoch=self.epoch)
        original(self, fetch, now_ms)

    patch(ReplicaCore, "_on_fetch_arrived", on_fetch_arrived)
    patch(replica, "is_prefix", _is_within)


# Damage


@planted(RAFT_3, RAFT_5)
def a_damaged_replica_goes_on_voting(patch: Patch) -> None:
    def begin_recovery(self: ReplicaCore, offset: int) -> None:
        self._damaged_from = None
        self.high_watermark = min(self.high_watermark, offset)
        self._truncate_to = offset

    patch(ReplicaCore, "_begin_recovery", begin_recovery)


@planted(RAFT_3, RAFT_5)
def recovered_before_it_has_everything(patch: Patch) -> None:
    def maybe_recover(self: ReplicaCore) -> None:
        if self._state.recovering and self._damaged_from is None:
            self._remember(replace(self._state, recovering=False))

    patch(ReplicaCore, "_maybe_recover", maybe_recover)


@planted(RAFT_5, RAFT_3)
def a_leader_counts_what_a_damaged_follower_had(patch: Patch) -> None:
    original = ProgressTable.matched

    def matched(self: ProgressTable, fetch: FetchArrived, log_end_offset: int, now_ms: int) -> bool:
        before = self[fetch.replica_id].flushed_offset
        done = original(self, fetch, log_end_offset, now_ms)
        one = self[fetch.replica_id]
        one.flushed_offset = max(before, one.flushed_offset)
        return done

    def unmatched(self: ProgressTable, fetch: FetchArrived) -> None:
        pass

    patch(ProgressTable, "matched", matched)
    patch(ProgressTable, "unmatched", unmatched)
    patch(ReplicaCore, "_maybe_recover", _recover_at_once)


def _recover_at_once(self: ReplicaCore) -> None:
    if (
        self._state.recovering
        and self._damaged_from is None
        and self._recovered_at_offset is not None
    ):
        self._remember(replace(self._state, recovering=False))


# The order of the driver's steps


@planted(RAFT_3)
def a_vote_is_sent_before_it_is_persisted(patch: Patch) -> None:
    original = SimulatedBroker._handle_ready

    def handle_ready(self: SimulatedBroker, ready: Any) -> bool:
        for outgoing in ready.send:
            self._send(outgoing)
        return original(self, replace(ready, send=()))

    patch(SimulatedBroker, "_handle_ready", handle_ready)


@planted(RAFT_3)
def acknowledged_when_appended(patch: Patch) -> None:
    def wait(self: SimulatedBroker, produce: Any, offset: int) -> None:
        self._acknowledge(produce, offset)

    patch(SimulatedBroker, "_wait", wait)


@planted(RAFT_3)
def consumers_read_to_the_end_of_the_log(patch: Patch) -> None:
    def read(self: SimulatedBroker, offset: int) -> Any:
        if self.replica is None or not self.replica.admits_clients:
            return None
        return self.log.read(offset, self.log.log_end_offset)

    patch(SimulatedBroker, "read", read)


@planted(RAFT_3)
def a_former_leader_acknowledges_what_it_still_waits_for(patch: Patch) -> None:
    def fail_waiting(self: SimulatedBroker) -> None:
        for each in self._waiting:
            self._acknowledge(each.produce, each.next_offset - 1)
        self._waiting = []

    patch(SimulatedBroker, "_fail_waiting", fail_waiting)

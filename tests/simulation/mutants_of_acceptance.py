"""Bugs planted into accepting an epoch, which replaces a leader's first entry in the log."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mutants import RAFT_3, RAFT_5, SWITCH_3, SWITCH_5, Patch, planted
from simulation.simulated_broker import SimulatedBroker

from zhumq.consensus.assigned import AssignedReplica
from zhumq.consensus.contract import NO_EPOCH, FetchArrived, LogPosition, Role
from zhumq.consensus.progress import ProgressTable
from zhumq.consensus.raft import RaftReplica
from zhumq.consensus.replica import ReplicaCore


def _accept_when(patch: Patch, holds: Callable[[ReplicaCore, int], bool]) -> None:
    """Replace the condition under which a replica accepts its leader's epoch."""

    def maybe_accept(self: ReplicaCore) -> None:
        start = self._epoch_start_offset if self.role is Role.LEADER else self._leader_epoch_start
        if start is None or self._state.accepted_epoch == self.epoch or not holds(self, start):
            return
        self._remember(replace(self._state, accepted_epoch=self.epoch, accepted_offset=start))
        self._last_request = None

    patch(ReplicaCore, "_maybe_accept", maybe_accept)


@planted(RAFT_5, RAFT_3)
def a_follower_counts_before_it_has_accepted_the_epoch(patch: Patch) -> None:
    patch(ProgressTable, "flushed_in", lambda self, epoch, each: self[each].flushed_offset)


@planted(RAFT_3, RAFT_5)
def an_epoch_is_accepted_below_its_start(patch: Patch) -> None:
    _accept_when(patch, lambda self, start: True)


@planted(RAFT_3, RAFT_5)
def an_epoch_is_accepted_before_the_log_below_it_is_flushed(patch: Patch) -> None:
    _accept_when(patch, lambda self, start: self.log.log_end_offset >= start)


@planted(RAFT_3, RAFT_5)
def an_accepted_epoch_is_not_persisted(patch: Patch) -> None:
    def remember(self: ReplicaCore, state: Any) -> None:
        known = replace(self._state, accepted_epoch=state.accepted_epoch)
        only_accepted = replace(known, accepted_offset=state.accepted_offset) == state
        self._persist = self._persist or (state != self._state and not only_accepted)
        self._state = state

    patch(ReplicaCore, "_remember", remember)


@planted(RAFT_3)
def an_accepted_epoch_is_sent_before_it_is_persisted(patch: Patch) -> None:
    original = SimulatedBroker._handle_ready

    def handle_ready(self: SimulatedBroker, ready: Any) -> bool:
        fetches = [each for each in ready.send if isinstance(each.message, FetchArrived)]
        for outgoing in fetches:
            self._send(outgoing)
        others = tuple(each for each in ready.send if each not in fetches)
        return original(self, replace(ready, send=others))

    patch(SimulatedBroker, "_handle_ready", handle_ready)


@planted(RAFT_3, RAFT_5)
def a_restart_forgets_the_accepted_epoch(patch: Patch) -> None:
    original = RaftReplica.__init__

    def start(self: RaftReplica, *arguments: Any, **named: Any) -> None:
        *others, state = arguments
        original(self, *others, replace(state, accepted_epoch=NO_EPOCH), **named)

    patch(RaftReplica, "__init__", start)


@planted(RAFT_3, RAFT_5)
def a_vote_looks_at_the_epochs_of_records_alone(patch: Patch) -> None:
    patch(ReplicaCore, "vote_position", property(lambda self: self.log_position))


@planted(RAFT_3, RAFT_5)
def a_tail_that_came_back_counts_for_the_accepted_epoch(patch: Patch) -> None:
    def vote_position(self: ReplicaCore) -> LogPosition:
        last_epoch, end_offset = self.log_position
        return LogPosition(max(last_epoch, self._state.accepted_epoch), end_offset)

    patch(ReplicaCore, "vote_position", property(vote_position))


@planted(RAFT_3, RAFT_5)
def logs_are_matched_by_the_accepted_epoch(patch: Patch) -> None:
    records = ReplicaCore.log_position

    def log_position(self: ReplicaCore) -> LogPosition:
        last_epoch, end_offset = records.__get__(self)
        return LogPosition(max(last_epoch, self._state.accepted_epoch), end_offset)

    patch(ReplicaCore, "log_position", property(log_position))


@planted(RAFT_3, RAFT_5)
def a_leader_counts_itself_before_it_has_accepted_its_epoch(patch: Patch) -> None:
    def flushed_of(self: ReplicaCore, replica_id: int) -> int:
        if replica_id == self.replica_id:
            return self.log.flushed_offset
        return self._progress.flushed_in(self.epoch, replica_id)

    def holds(self: ReplicaCore, start: int) -> bool:
        return self.role is not Role.LEADER and self.log.flushed_offset >= start

    _accept_when(patch, holds)
    patch(ReplicaCore, "_flushed_of", flushed_of)


@planted(SWITCH_3, SWITCH_5)
def a_named_leader_is_not_accepted(patch: Patch) -> None:
    def flushed_of(self: AssignedReplica, replica_id: int) -> int:
        if replica_id == self.replica_id:
            return self.log.flushed_offset
        return self._progress[replica_id].flushed_offset

    patch(AssignedReplica, "_maybe_accept", lambda self: None)
    patch(AssignedReplica, "_flushed_of", flushed_of)

"""Bugs planted into moves of replicas: what is counted too early, and what is left as it was."""

from dataclasses import replace
from typing import Any

from mutants import MOVE_FETCH, MOVE_RAFT, Patch, planted

from zhumq.consensus.assigned import AssignedReplica
from zhumq.consensus.contract import Mode, Role, VoteAsked
from zhumq.consensus.raft import RaftReplica
from zhumq.testing import simulated_moves
from zhumq.testing.simulated_coordinator import SimulatedCoordinator


@planted(MOVE_FETCH)
def who_came_early_is_counted_with_the_old_in_sync_set(patch: Patch) -> None:
    original = AssignedReplica._change_replicas

    def change_replicas(self: AssignedReplica, replicas: tuple[int, ...], now_ms: int) -> None:
        original(self, replicas, now_ms)
        if self.role is Role.LEADER:
            for known in sorted(self._strangers.keys() & set(replicas)):
                self._on_fetch_arrived(self._strangers.pop(known), now_ms)

    patch(AssignedReplica, "_change_replicas", change_replicas)


@planted(MOVE_FETCH, MOVE_RAFT)
def who_leaves_goes_on_in_the_same_epoch(patch: Patch) -> None:
    original = simulated_moves._led

    def led(record: Any, before: Any, is_alive: Any) -> Any:
        changed = original(record, before, is_alive)
        stays = changed.leader_id == before.leader_id
        return replace(changed, epoch=before.epoch) if stays else changed

    patch(simulated_moves, "_led", led)


@planted(MOVE_FETCH, MOVE_RAFT)
def a_move_ends_before_the_new_replicas_are_in_sync(patch: Patch) -> None:
    original = simulated_moves.end_if_done
    patch(
        simulated_moves,
        "end_if_done",
        lambda record: original(replace(record, adding=record.adding & record.in_sync)),
    )


@planted(MOVE_RAFT)
def whose_votes_a_candidate_counts_on_does_not_matter(patch: Patch) -> None:
    original = RaftReplica._would_vote

    def would_vote(self: RaftReplica, question: VoteAsked, now_ms: int) -> bool:
        if question.candidate_id in self.voters:
            question = replace(question, voters=self.voters.ids)
        return original(self, question, now_ms)

    patch(RaftReplica, "_would_vote", would_vote)


@planted(MOVE_RAFT)
def voters_are_exchanged_in_one_step(patch: Patch) -> None:
    original = SimulatedCoordinator.move

    def move(self: SimulatedCoordinator, target: tuple[int, ...] | None) -> None:
        record = self.record
        if record.mode is Mode.RAFT and target is not None:
            self._write(replace(record, replicas=target, epoch=record.epoch + 1))
        else:
            original(self, target)

    patch(SimulatedCoordinator, "move", move)


@planted(MOVE_RAFT)
def a_move_begins_before_the_named_leader_has_won(patch: Patch) -> None:
    original = SimulatedCoordinator.move

    def move(self: SimulatedCoordinator, target: tuple[int, ...] | None) -> None:
        record = self.record
        if record.handover and record.mode is Mode.FETCH and target is not None:
            begun = simulated_moves.begin(record, target, self._is_registered)
            if begun is not None:
                self._write(begun)
        else:
            original(self, target)

    patch(SimulatedCoordinator, "move", move)

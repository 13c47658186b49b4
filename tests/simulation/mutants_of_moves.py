"""Bugs planted into reassignments: replicas counted too early, epochs and voters left unchanged."""

from dataclasses import replace
from typing import Any

from mutants import MOVE_FETCH, MOVE_RAFT, Patch, planted

from simulation import simulated_controller
from zhumq.consensus.assigned import AssignedReplica
from zhumq.consensus.contract import Mode, Role, VoteAsked
from zhumq.consensus.raft import RaftReplica
from zhumq.metadata import reassignment
from zhumq.metadata.leadership import changed_partition, existing_partition


@planted(MOVE_FETCH)
def an_early_fetch_of_a_new_replica_is_counted_with_the_old_in_sync_set(patch: Patch) -> None:
    original = AssignedReplica._change_replicas

    def change_replicas(self: AssignedReplica, replicas: tuple[int, ...], now_ms: int) -> None:
        original(self, replicas, now_ms)
        if self.role is Role.LEADER:
            for known in sorted(self._observers.keys() & set(replicas)):
                self._on_fetch_arrived(self._observers.pop(known), now_ms)

    patch(AssignedReplica, "_change_replicas", change_replicas)


@planted(MOVE_FETCH, MOVE_RAFT)
def the_leader_keeps_its_epoch_when_replicas_leave(patch: Patch) -> None:
    original = reassignment._led

    def led(image: Any, state: Any, before: Any) -> Any:
        changed = original(image, state, before)
        stays = changed.leader == before.leader
        return replace(changed, leader_epoch=before.leader_epoch) if stays else changed

    patch(reassignment, "_led", led)


@planted(MOVE_FETCH, MOVE_RAFT)
def a_move_ends_before_the_new_replicas_are_in_sync(patch: Patch) -> None:
    original = reassignment._settled

    def settled(state: Any) -> Any:
        arrived = tuple(each for each in state.adding if each in state.in_sync)
        return original(replace(state, adding=arrived))

    patch(reassignment, "_settled", settled)


@planted(MOVE_RAFT)
def a_voter_ignores_which_voters_the_candidate_counts(patch: Patch) -> None:
    original = RaftReplica._would_vote

    def would_vote(self: RaftReplica, question: VoteAsked, now_ms: int) -> bool:
        if question.candidate_id in self.voters:
            question = replace(question, voters=self.voters.ids)
        return original(self, question, now_ms)

    patch(RaftReplica, "_would_vote", would_vote)


@planted(MOVE_RAFT)
def voters_are_exchanged_in_one_step(patch: Patch) -> None:
    def begin_move(image: Any, name: Any, target: Any) -> Any:
        state = existing_partition(image, name)
        if state.mode is not Mode.RAFT:
            return reassignment.begin_move(image, name, target)
        exchanged = replace(
            state,
            replicas=target,
            in_sync=target,
            leader_epoch=state.leader_epoch + 1,
            partition_epoch=state.partition_epoch + 1,
        )
        return changed_partition(name, exchanged)

    patch(simulated_controller, "begin_move", begin_move)


@planted(MOVE_RAFT)
def a_move_begins_before_the_named_leader_has_won(patch: Patch) -> None:
    def begin_move(image: Any, name: Any, target: Any) -> Any:
        state = existing_partition(image, name)
        if not state.changing_mode:
            return reassignment.begin_move(image, name, target)
        return changed_partition(name, reassignment.move_begun(image, name, state, target))

    patch(simulated_controller, "begin_move", begin_move)

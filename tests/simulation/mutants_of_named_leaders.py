"""Bugs planted into named leaders, their in-sync sets, and the change between the modes."""

from dataclasses import replace
from typing import Any

from mutants import FETCH_3, FETCH_5, SWITCH_3, SWITCH_5, Patch, planted

from simulation import replica_bench, simulated_broker, simulated_controller
from zhumq.consensus import mode_change
from zhumq.consensus.assigned import AssignedReplica
from zhumq.consensus.contract import Role
from zhumq.metadata import alter_partition, leadership, modes
from zhumq.metadata.leadership import UNKNOWN_LOG_END

# Named leaders


@planted(FETCH_3)
def in_sync_before_it_has_caught_up(patch: Patch) -> None:
    patch(AssignedReplica, "_is_caught_up", lambda self, replica_id: True)


@planted(FETCH_3)
def in_sync_at_the_high_watermark_of_before_the_epoch(patch: Patch) -> None:
    def is_caught_up(self: AssignedReplica, replica_id: int) -> bool:
        return self._progress[replica_id].flushed_offset >= self.high_watermark

    patch(AssignedReplica, "_is_caught_up", is_caught_up)


@planted(FETCH_3)
def the_high_watermark_ignores_the_in_sync_set(patch: Patch) -> None:
    patch(AssignedReplica, "_committed_offset", lambda self: self.log.flushed_offset)


@planted(FETCH_3)
def a_shrink_counts_before_it_is_accepted(patch: Patch) -> None:
    original = AssignedReplica._propose_in_sync

    def propose(self: AssignedReplica, in_sync: frozenset[int], now_ms: int) -> None:
        original(self, in_sync, now_ms)
        if self._pending is not None and in_sync < self.in_sync:
            self.in_sync = in_sync
            self._commit()

    patch(AssignedReplica, "_propose_in_sync", propose)
    patch(AssignedReplica, "_counted", property(lambda self: self.in_sync))


@planted(FETCH_3, FETCH_5)
def a_growth_counts_only_once_the_leader_learns_of_it(patch: Patch) -> None:
    patch(AssignedReplica, "_counted", property(lambda self: self.in_sync))


@planted(FETCH_3)
def committed_with_too_few_in_sync(patch: Patch) -> None:
    def committed_offset(self: AssignedReplica) -> int:
        return min(map(self._flushed_of, self._counted | {self.replica_id}))

    patch(AssignedReplica, "_committed_offset", committed_offset)


@planted(FETCH_3, FETCH_5)
def a_stale_watch_is_believed(patch: Patch) -> None:
    original = AssignedReplica._on_assigned

    def on_assigned(self: AssignedReplica, assigned: Any, now_ms: int) -> None:
        self.version = -1
        original(self, assigned, now_ms)

    patch(AssignedReplica, "_on_assigned", on_assigned)


@planted(FETCH_3)
def a_restarted_named_leader_leads_on(patch: Patch) -> None:
    patch(AssignedReplica, "_must_not_lead", lambda self, assigned: False)


@planted(FETCH_3)
def the_longest_live_log_leads_in_sync_or_not(patch: Patch) -> None:
    def choose(state: Any, alive: Any, _policy: Any, log_ends: Any, unfit: Any = ()) -> Any:
        living = [each for each in state.replicas if each in alive and each not in unfit]
        return max(living, key=lambda each: log_ends.get(each, UNKNOWN_LOG_END)[1], default=None)

    patch(leadership, "choose_leader", choose)


@planted(FETCH_3)
def a_deposed_named_leader_does_not_step_down(patch: Patch) -> None:
    original = AssignedReplica._take_role

    def take_role(self: AssignedReplica, assigned: Any, now_ms: int) -> None:
        if self.role is Role.LEADER and assigned.leader_id is not None:
            self._remember(replace(self._state, epoch=assigned.epoch))
            self._role_changed = True
        else:
            original(self, assigned, now_ms)

    patch(AssignedReplica, "_take_role", take_role)


# Changing the mode


@planted(SWITCH_3, SWITCH_5)
def the_first_named_leader_needs_no_votes(patch: Patch) -> None:
    def stand(self: AssignedReplica, epoch: int, now_ms: int) -> None:
        self._remember(replace(self._state, epoch=epoch, voted_for=None))
        self._lead_all(now_ms)

    patch(AssignedReplica, "_become_candidate", stand)


@planted(SWITCH_3, SWITCH_5)
def a_named_leader_is_in_sync_before_it_has_flushed(patch: Patch) -> None:
    original = AssignedReplica._check_followers

    def check(self: AssignedReplica, now_ms: int, *, shrink: bool) -> None:
        changing_mode, self._changing_mode = self._changing_mode, False
        original(self, now_ms, shrink=shrink)
        self._changing_mode = changing_mode

    patch(AssignedReplica, "_check_followers", check)


@planted(SWITCH_3, SWITCH_5)
def raft_begins_with_too_few_in_sync(patch: Patch) -> None:
    original = modes._to_raft
    patch(modes, "_to_raft", lambda state: original(replace(state, in_sync=state.replicas)))


@planted(SWITCH_3)
def votes_of_before_stay_unknown_in_raft(patch: Patch) -> None:
    def state_for_raft(state: Any, epoch: int) -> Any:
        return replace(mode_change.state_for_raft(state, epoch), votes_unknown=state.votes_unknown)

    patch(simulated_broker, "state_for_raft", state_for_raft)
    patch(replica_bench, "state_for_raft", state_for_raft)


@planted(SWITCH_3, SWITCH_5)
def raft_followers_count_as_in_sync(patch: Patch) -> None:
    def is_caught_up(self: AssignedReplica, replica_id: int) -> bool:
        one = self._progress[replica_id]
        enough = max(self.high_watermark, self._epoch_start_offset)
        return not one.recovering and one.flushed_offset >= enough

    patch(AssignedReplica, "_is_caught_up", is_caught_up)


@planted(FETCH_3, FETCH_5)
def a_replaced_controller_still_writes(patch: Patch) -> None:
    original = simulated_controller.SimulatedController._write_over

    def write_over(self: Any, _: int, changes: Any) -> None:
        original(self, self.image.version, changes)

    patch(simulated_controller.SimulatedController, "_write_over", write_over)


@planted(FETCH_3)
def a_named_leader_takes_over_the_set_but_not_that_it_is_deposed(patch: Patch) -> None:
    original = AssignedReplica._on_assigned

    def on_assigned(self: AssignedReplica, assigned: Any, now_ms: int) -> None:
        if self.role is Role.LEADER and assigned.epoch > self.epoch:
            assigned = replace(assigned, epoch=self.epoch, leader_id=self.replica_id)
        original(self, assigned, now_ms)

    patch(AssignedReplica, "_on_assigned", on_assigned)


# The controller


@planted(FETCH_3)
def a_leader_of_an_earlier_broker_epoch_is_well(patch: Patch) -> None:
    def is_well(state: Any, alive: Any) -> bool:
        return state.leader in alive and set(state.in_sync) <= set(alive)

    patch(leadership, "_needs_no_change", is_well)


@planted(SWITCH_3, SWITCH_5)
def a_leader_is_named_without_an_election_at_the_mode_change(patch: Patch) -> None:
    original = modes.name_leader

    def name_leader(state: Any, *arguments: Any, **named: Any) -> Any:
        return original(replace(state, changing_mode=False), *arguments, **named)

    patch(modes, "name_leader", name_leader)


@planted(FETCH_3, FETCH_5)
def a_replica_that_left_a_small_set_is_eligible_for_good(patch: Patch) -> None:
    original = leadership.with_in_sync

    def with_in_sync(state: Any, in_sync: Any, min_in_sync: int) -> Any:
        changed = original(state, in_sync, min_in_sync)
        good = {*state.eligible, *changed.eligible}.difference(in_sync)
        return replace(changed, eligible=tuple(good))

    patch(leadership, "with_in_sync", with_in_sync)


@planted(FETCH_3, FETCH_5)
def an_in_sync_set_of_an_earlier_version_counts(patch: Patch) -> None:
    original = alter_partition.change_in_sync

    def change_in_sync(image: Any, name: Any, request: Any, min_in_sync: int) -> Any:
        state = leadership.existing_partition(image, name)
        now = replace(request, partition_epoch=state.partition_epoch)
        return original(image, name, now, min_in_sync)

    patch(alter_partition, "change_in_sync", change_in_sync)


@planted(SWITCH_3, SWITCH_5)
def a_named_leader_takes_over_the_in_sync_set_of_raft(patch: Patch) -> None:
    original = modes.name_leader

    def name_leader(state: Any, *arguments: Any, **named: Any) -> Any:
        changed = original(state, *arguments, **named)
        return replace(changed, in_sync=state.in_sync, changing_mode=False)

    patch(modes, "name_leader", name_leader)


@planted(FETCH_3, FETCH_5)
def an_empty_disk_is_taken_for_a_new_partition(patch: Patch) -> None:
    patch(simulated_broker, "state_after_loss", lambda known, *_: known)

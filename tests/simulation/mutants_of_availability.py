"""Bugs planted into leaders that admit clients although too few replicas are in sync (KIP-966)."""

from dataclasses import replace
from typing import Any

from mutants import FETCH_3, FETCH_5, Patch, planted

from zhumq.consensus.assigned import AssignedReplica
from zhumq.consensus.contract import FetchAnswered
from zhumq.consensus.replica import ReplicaCore


@planted(FETCH_3, FETCH_5)
def a_leader_with_too_few_in_sync_serves_as_if_it_knew_everything_committed(
    patch: Patch,
) -> None:
    original = AssignedReplica._admit_clients_below_minimum

    def admit(self: AssignedReplica) -> None:
        original(self)
        if self.admits_clients and not self.serving:
            self.serving = self._role_changed = True

    patch(AssignedReplica, "_admit_clients_below_minimum", admit)


@planted(FETCH_3, FETCH_5)
def a_damaged_replica_recovers_from_a_leader_with_too_few_in_sync(
    patch: Patch,
) -> None:
    original = ReplicaCore.fetch_answer

    def fetch_answer(self: ReplicaCore, fetch: Any) -> FetchAnswered:
        return replace(original(self, fetch), serving=self.admits_clients)

    patch(ReplicaCore, "fetch_answer", fetch_answer)


@planted(FETCH_3, FETCH_5)
def a_leader_with_too_few_in_sync_commits_what_it_has_flushed(patch: Patch) -> None:
    original = AssignedReplica._committed_offset

    def committed_offset(self: AssignedReplica) -> int:
        if self.admits_clients and len(self.in_sync) < self.settings.min_in_sync_replicas:
            return self._flushed_of(self.replica_id)
        return original(self)

    patch(AssignedReplica, "_committed_offset", committed_offset)


@planted(FETCH_3, FETCH_5)
def a_restarted_leader_with_too_few_in_sync_takes_its_log_for_committed(patch: Patch) -> None:
    original = AssignedReplica._admit_clients_below_minimum

    def admit(self: AssignedReplica) -> None:
        original(self)
        if self.admits_clients and not self.serving:
            self._raise_high_watermark(self.log.flushed_offset)

    patch(AssignedReplica, "_admit_clients_below_minimum", admit)

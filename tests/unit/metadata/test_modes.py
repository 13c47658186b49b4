"""Mode changes between raft and fetch, and reassignments of raft partitions."""

from dataclasses import replace

import pytest
from leadership_support import T0, cluster, ids, partition, request

from zhumq.metadata.changes import apply_changes, change_from_json, change_to_json
from zhumq.metadata.image import NO_BROKER, ClusterImage, PartitionState
from zhumq.metadata.leadership import (
    ElectionResult,
    LeaderPolicy,
    elect_preferred,
    name_leader,
    plan_election_results,
    plan_membership,
    plan_preferred_leaders,
)
from zhumq.metadata.modes import plan_steps
from zhumq.metadata.reassignment import begin_move, cancel_move, change_in_sync
from zhumq.model.cluster_errors import NoReassignmentInProgress
from zhumq.model.errors import InvalidRequest
from zhumq.model.ids import LeaderEpoch
from zhumq.model.replication_mode import Mode

RAFT = LeaderPolicy(mode=Mode.RAFT)
FETCH = LeaderPolicy(mode=Mode.FETCH)


def step(image: ClusterImage, policy: LeaderPolicy) -> ClusterImage:
    """The metadata image after the next steps of the controller."""
    return apply_changes(image, list(plan_steps(image, image.topics["t"], policy)))


def first(image: ClusterImage) -> PartitionState:
    return image.topics["t"].partitions[0]


def test_a_partition_in_its_target_mode_is_not_changed() -> None:
    for mode, policy in ((Mode.RAFT, RAFT), (Mode.FETCH, FETCH)):
        image = cluster(partition([1, 2, 3], mode=mode))
        assert list(plan_steps(image, image.topics["t"], policy)) == []


def test_to_fetch_the_leader_is_named_and_has_to_win_the_votes() -> None:
    image = cluster(partition([1, 2, 3], leader=2, mode=Mode.RAFT))
    state = first(step(image, FETCH))
    assert (state.mode, state.leader, state.leader_epoch) == (Mode.FETCH, 2, 6)
    assert (state.changing_mode, state.in_sync, state.partition_epoch) == (True, ids(2), 21)
    again = step(step(image, FETCH), FETCH)
    assert first(again) == state


def test_to_fetch_another_replica_is_named_where_the_leader_is_gone() -> None:
    image = cluster(partition([9, 2, 3], leader=9, mode=Mode.RAFT))
    assert first(step(image, FETCH)).leader == 2
    none_alive = cluster(partition([8, 9], leader=9, mode=Mode.RAFT))
    assert first(step(none_alive, FETCH)).mode is Mode.RAFT


def test_the_mode_change_ends_once_a_majority_is_in_sync() -> None:
    image = step(cluster(partition([1, 2, 3], mode=Mode.RAFT)), FETCH)
    state = first(image)
    image = apply_changes(image, [change_in_sync(image, T0, request(state, 1, 3))])
    assert (first(image).changing_mode, first(image).in_sync) == (False, ids(1, 3))


def test_during_a_mode_change_any_live_replica_may_be_named() -> None:
    image = step(cluster(partition([1, 2, 3], mode=Mode.RAFT)), FETCH)
    changes = list(plan_membership(image, ids(2, 3), lambda _: FETCH))
    state = first(apply_changes(image, changes))
    assert (state.leader, state.in_sync, state.changing_mode) == (2, ids(2), True)


def test_a_partition_with_one_replica_changes_its_mode_without_votes() -> None:
    state = first(step(cluster(partition([1], mode=Mode.RAFT)), FETCH))
    assert (state.mode, state.changing_mode, state.leader) == (Mode.FETCH, False, 1)


def test_to_raft_only_while_all_replicas_are_in_sync() -> None:
    for behind in ([1], [1, 2]):
        waiting = first(step(cluster(partition([1, 2, 3], in_sync=behind)), RAFT))
        assert waiting.mode is Mode.FETCH
    state = first(step(cluster(partition([1, 2, 3])), RAFT))
    assert (state.mode, state.leader, state.leader_epoch) == (Mode.RAFT, NO_BROKER, 6)
    assert state.in_sync == ids(1, 2, 3)


def test_to_raft_after_an_unclean_leader_only_when_all_replicas_are_in_sync() -> None:
    behind = replace(partition([1, 2, 3], in_sync=[1, 2]), unclean_epoch=4)
    assert first(step(cluster(behind), RAFT)).mode is Mode.FETCH
    together = replace(partition([1, 2, 3]), unclean_epoch=4)
    state = first(step(cluster(together), RAFT))
    assert (state.mode, state.unclean_epoch) == (Mode.RAFT, -1)


def test_to_raft_waits_for_a_mode_change_and_for_a_move() -> None:
    for state in (
        partition([1, 2, 3], in_sync=[1], changing_mode=True),
        partition([2, 3, 1], adding=[2], removing=[1], leader=1),
    ):
        assert first(step(cluster(state), RAFT)).mode is Mode.FETCH


def test_a_raft_partition_moves_through_fetch_mode() -> None:
    """Each step on its own, as the controller, the leader and the voters make it."""
    image = cluster(partition([1, 2], mode=Mode.RAFT), epochs={1: 1, 2: 1, 3: 1, 4: 1})
    image = apply_changes(image, [begin_move(image, T0, ids(3, 4))])
    noted = first(image)
    assert (noted.mode, noted.replicas, noted.planned_replicas) == (Mode.RAFT, ids(1, 2), ids(3, 4))
    image = step(image, RAFT)
    assert (first(image).mode, first(image).changing_mode) == (Mode.FETCH, True)
    assert first(image).replicas == ids(1, 2)
    assert first(step(image, RAFT)) == first(image)
    image = apply_changes(image, [change_in_sync(image, T0, request(first(image), 1, 2))])
    image = step(image, RAFT)
    moving = first(image)
    assert (moving.adding, moving.removing) == (ids(3, 4), ids(1, 2))
    assert moving.planned_replicas == ()
    assert first(step(image, RAFT)) == moving
    image = apply_changes(image, [change_in_sync(image, T0, request(moving, 1, 2, 3, 4))])
    moved = first(image)
    assert (moved.replicas, moved.adding, moved.removing) == (ids(3, 4), (), ())
    assert moved.leader == 3
    image = step(image, RAFT)
    assert (first(image).mode, first(image).leader) == (Mode.RAFT, NO_BROKER)
    vote = ElectionResult(leader=ids(4)[0], leader_epoch=LeaderEpoch(first(image).leader_epoch + 1))
    image = apply_changes(image, plan_election_results(image, {T0: vote}))
    assert image.leader_of(first(image)) == 4


def test_a_move_requested_in_a_mode_change_waits_for_its_end() -> None:
    """The named leader must win the votes of the replicas it was named for, and no others."""
    image = cluster(
        partition([1, 2, 3], in_sync=[1], changing_mode=True), epochs=dict.fromkeys((1, 2, 3, 4), 1)
    )
    image = apply_changes(image, [begin_move(image, T0, ids(1, 2, 4))])
    noted = first(image)
    assert (noted.replicas, noted.adding) == (ids(1, 2, 3), ())
    assert noted.planned_replicas == ids(1, 2, 4)
    assert first(step(image, FETCH)) == noted
    image = apply_changes(image, [change_in_sync(image, T0, request(noted, 1, 2))])
    for policy in (RAFT, FETCH):
        moving = first(step(image, policy))
        assert (moving.adding, moving.removing) == (ids(4), ids(3))


def test_a_move_that_only_changes_the_order_keeps_the_voters() -> None:
    image = cluster(partition([1, 2, 3], mode=Mode.RAFT))
    state = first(apply_changes(image, [begin_move(image, T0, ids(3, 1, 2))]))
    assert (state.mode, state.replicas, state.leader) == (Mode.RAFT, ids(3, 1, 2), 1)
    assert (state.leader_epoch, state.planned_replicas) == (5, ())


def test_the_preferred_replica_leads_at_the_end_of_fetch_mode() -> None:
    image = step(cluster(partition([1, 2, 3], leader=2)), RAFT)
    assert (first(image).mode, first(image).leader) == (Mode.FETCH, 1)
    assert first(step(image, RAFT)).mode is Mode.RAFT
    gone = cluster(partition([9, 2, 3], leader=2))
    assert first(step(gone, RAFT)).mode is Mode.RAFT, (
        "a dead preferred leader does not delay the change"
    )


def test_the_controller_names_no_leader_for_voters() -> None:
    image = cluster(partition([1, 2, 3], leader=2, mode=Mode.RAFT))
    assert list(plan_preferred_leaders(image)) == []
    with pytest.raises(InvalidRequest):
        elect_preferred(image, T0)


def test_a_planned_move_can_be_cancelled_and_waits_for_dead_brokers() -> None:
    image = cluster(partition([1, 2], mode=Mode.RAFT))
    image = apply_changes(image, [begin_move(image, T0, ids(2, 3))])
    image = step(image, RAFT)
    image = apply_changes(image, [change_in_sync(image, T0, request(first(image), 1, 2))])
    without = replace(image, brokers={k: v for k, v in image.brokers.items() if k != 3})
    assert first(step(without, RAFT)) == first(image)
    back = apply_changes(image, [cancel_move(image, T0)])
    assert first(back).planned_replicas == ()
    assert first(step(back, RAFT)).mode is Mode.RAFT
    with pytest.raises(NoReassignmentInProgress):
        cancel_move(back, T0)


def test_replicas_that_left_a_too_small_in_sync_set_stay_eligible() -> None:
    policy = LeaderPolicy(min_in_sync=2)
    image = cluster(partition([1, 2, 3], in_sync=[1, 2]))
    state = first(apply_changes(image, list(plan_membership(image, ids(1, 3), lambda _: policy))))
    assert (state.in_sync, state.eligible) == (ids(1), ids(2))
    led = name_leader(state, {k: v for k, v in image.brokers.items() if k != 1}, policy, {})
    assert (led.leader, led.in_sync, led.unclean_epoch) == (2, ids(2), -1)
    assert led.eligible == ids(1)
    grown = change_in_sync(
        apply_changes(image, list(plan_membership(image, ids(1, 3), lambda _: policy))),
        T0,
        request(state, 1, 3),
        min_in_sync=2,
    ).state
    assert (grown.in_sync, grown.eligible) == (ids(1, 3), ())


def test_the_epoch_of_an_unclean_leader_is_recorded() -> None:
    image = cluster(partition([1, 2, 3], in_sync=[1]))
    policy = LeaderPolicy(unclean=True)
    state = first(apply_changes(image, list(plan_membership(image, ids(2, 3), lambda _: policy))))
    assert (state.leader, state.unclean_epoch) == (2, state.leader_epoch)


def test_a_leader_is_named_above_an_epoch_that_the_controller_has_not_seen() -> None:
    image = cluster(partition([1, 2, 3], in_sync=[1], changing_mode=True))
    named = name_leader(first(image), image.brokers, FETCH, {}, above_epoch=40, unfit=ids(1))
    assert (named.leader, named.leader_epoch, named.partition_epoch) == (2, 41, 21)


def test_every_field_of_a_partition_round_trips_through_json() -> None:
    state = replace(
        partition([1, 2, 3], changing_mode=True, eligible=[2]),
        planned_replicas=ids(2, 3),
        unclean_epoch=4,
    )
    (change,) = plan_election_results(
        cluster(partition([1], mode=Mode.RAFT, epoch=1)),
        {T0: ElectionResult(leader=ids(1)[0], leader_epoch=LeaderEpoch(2))},
    )
    for kept in (replace(change, state=state), change):
        assert change_from_json(change_to_json(kept)) == kept

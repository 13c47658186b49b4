"""Reassignments: previewed, begun, completed, cancelled, never with too few replicas."""

from dataclasses import replace

import pytest
from leadership_support import T0, brokers, cluster, ids, partition, request

from zhumq.metadata.changes import apply_changes
from zhumq.metadata.image import ClusterImage, PartitionState
from zhumq.metadata.placement import place
from zhumq.metadata.reassignment import (
    begin_move,
    cancel_move,
    change_in_sync,
    plan_more_copies,
    plan_moves,
)
from zhumq.model.cluster_errors import EligibleLeadersNotAvailable, NoReassignmentInProgress
from zhumq.model.errors import InvalidReplicaAssignment, InvalidReplicationFactor
from zhumq.model.replication_mode import Mode

FIVE = {1: 1, 2: 1, 3: 1, 4: 1, 5: 1}


def begun(image: ClusterImage, *target: int) -> tuple[ClusterImage, PartitionState]:
    change = begin_move(image, T0, ids(*target))
    return apply_changes(image, [change]), change.state


def test_a_move_keeps_the_old_replicas_until_the_new_ones_are_in_sync() -> None:
    image, state = begun(cluster(partition([1, 2, 3]), epochs=FIVE), 4, 5, 1)
    assert state.replicas == ids(4, 5, 1, 2, 3)
    assert (state.adding, state.removing) == (ids(4, 5), ids(2, 3))
    assert (state.leader, state.leader_epoch, state.in_sync) == (1, 5, ids(1, 2, 3))
    change = change_in_sync(image, T0, request(state, 1, 2, 3, 4))
    assert change.state.removing == ids(2, 3)
    image = apply_changes(image, [change])
    done = change_in_sync(image, T0, request(change.state, 1, 2, 3, 4, 5)).state
    assert done.replicas == ids(4, 5, 1)
    assert (done.adding, done.removing, done.in_sync) == ((), (), ids(4, 5, 1))
    # The same leader in a new epoch, so that the removed replicas are fenced.
    assert (done.leader, done.leader_epoch) == (1, 6)


def test_a_leader_that_moves_away_is_replaced_at_the_end() -> None:
    image, state = begun(cluster(partition([1]), epochs=FIVE), 4)
    assert (state.replicas, state.leader) == (ids(4, 1), 1)
    done = change_in_sync(image, T0, request(state, 1, 4)).state
    assert (done.replicas, done.in_sync) == (ids(4), ids(4))
    assert (done.leader, done.leader_epoch, done.leader_broker_epoch) == (4, 6, 1)


def test_another_order_or_fewer_replicas_need_no_copies() -> None:
    image = cluster(partition([1, 2, 3]), epochs=FIVE)
    _, state = begun(image, 3, 1, 2)
    assert (state.replicas, state.adding, state.removing) == (ids(3, 1, 2), (), ())
    assert state.leader == 1
    _, state = begun(image, 2)
    assert (state.replicas, state.in_sync, state.leader) == (ids(2), ids(2), 2)
    assert state.leader_epoch == 6


def test_a_cancelled_move_returns_to_the_original_replicas() -> None:
    image, state = begun(cluster(partition([1, 2, 3]), epochs=FIVE), 4, 5)
    change = change_in_sync(image, T0, request(state, 1, 2, 3, 4))
    image = apply_changes(image, [change])
    back = cancel_move(image, T0).state
    assert set(back.replicas) == {1, 2, 3}
    assert (back.adding, back.removing, back.in_sync) == ((), (), ids(1, 2, 3))
    assert (back.leader, back.leader_epoch) == (1, 6)
    with pytest.raises(NoReassignmentInProgress):
        cancel_move(apply_changes(image, [cancel_move(image, T0)]), T0)


def test_a_move_may_get_another_target() -> None:
    image, _ = begun(cluster(partition([1, 2]), epochs=FIVE), 3, 4)
    _, state = begun(image, 5, 2)
    assert state.replicas == ids(5, 2, 1)
    assert (state.adding, state.removing) == (ids(5), ids(1))


def test_a_partition_is_never_left_without_an_in_sync_replica() -> None:
    moving = partition([4, 1], leader=4, in_sync=[4], adding=[4], removing=[1])
    image = cluster(moving, epochs=FIVE)
    with pytest.raises(EligibleLeadersNotAvailable):
        cancel_move(image, T0)
    with pytest.raises(EligibleLeadersNotAvailable):
        begin_move(image, T0, ids(2))


@pytest.mark.parametrize("target", [(), (4, 4), (9,)])
def test_an_impossible_target_is_refused(target: tuple[int, ...]) -> None:
    with pytest.raises(InvalidReplicaAssignment):
        begin_move(cluster(partition([1, 2, 3])), T0, ids(*target))


def placed_cluster(count: int) -> ClusterImage:
    members = brokers(dict.fromkeys(range(1, count + 1), 1))
    placed = place(members.values(), "t", 200, 3)
    image = cluster(*(partition(replicas) for replicas in placed))
    return replace(image, brokers=members)


def test_a_preview_for_a_joining_broker_moves_about_its_share() -> None:
    image = placed_cluster(4)
    members = brokers(dict.fromkeys(range(1, 6), 1))
    assert plan_moves(image, image.brokers.values()) == []
    moves = plan_moves(image, members.values())
    copies = sum(move.copies for move in moves)
    assert 0.12 * 600 < copies < 0.3 * 600
    to_the_new_one = sum(5 in move.after for move in moves)
    assert to_the_new_one > 0.8 * copies


def test_a_preview_for_a_leaving_broker_empties_it() -> None:
    image = placed_cluster(5)
    staying = [each for each in image.brokers.values() if each.broker_id != 2]
    moves = plan_moves(image, staying)
    held = {
        index for index, state in enumerate(image.topics["t"].partitions) if 2 in state.replicas
    }
    assert held <= {move.topic_partition.partition for move in moves}
    assert all(2 not in move.after for move in moves)


def test_too_few_brokers_for_the_replicas_are_a_clear_error() -> None:
    image = placed_cluster(3)
    staying = [each for each in image.brokers.values() if each.broker_id != 2]
    with pytest.raises(
        InvalidReplicationFactor, match="3 replicas, but only 2 brokers would be left"
    ):
        plan_moves(image, staying)


def test_a_topic_created_with_too_few_brokers_gets_its_other_replicas() -> None:
    image = cluster(partition([1]), partition([2]), partition([1, 2, 3]))
    changes = list(plan_more_copies(image, image.topics["t"], 3))
    assert [change.partition for change in changes] == [0, 1]
    for change in changes:
        assert set(change.state.replicas) == {1, 2, 3}
        assert change.state.leader == image.topics["t"].partitions[change.partition].leader
        assert len(change.state.adding) == 2
    moving = apply_changes(image, changes)
    assert list(plan_more_copies(moving, moving.topics["t"], 3)) == []


def test_replicas_are_added_up_to_the_number_of_brokers_and_not_beside_dead_ones() -> None:
    image = cluster(partition([1]), partition([9]), epochs={1: 1, 2: 1})
    (change,) = plan_more_copies(image, image.topics["t"], 3)
    assert (change.partition, set(change.state.replicas)) == (0, {1, 2})


def test_a_raft_topic_gets_its_other_replicas_through_fetch_mode() -> None:
    image = cluster(partition([1], mode=Mode.RAFT))
    (change,) = plan_more_copies(image, image.topics["t"], 3)
    assert change.state.replicas == ids(1)
    assert set(change.state.planned_replicas) == {1, 2, 3}
    noted = apply_changes(image, [change])
    assert list(plan_more_copies(noted, noted.topics["t"], 3)) == []

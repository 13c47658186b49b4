"""Requests of replicas on the newest metadata image: another leader, never at the cost of data."""

from leadership_support import T0, cluster, ends, ids, partition, request, unclean

from zhumq.metadata.alter_partition import (
    OtherLeaderRequest,
    plan_in_sync,
    plan_other_leader,
    plan_replacements,
)
from zhumq.metadata.image import NO_BROKER, PartitionState
from zhumq.metadata.leadership import LeaderPolicy
from zhumq.model.ids import BrokerId, LeaderEpoch
from zhumq.model.replication_mode import Mode

CLEAN = LeaderPolicy()
NO_ENDS = ends()[T0]


def of_broker(
    number: int, state: PartitionState, *, epoch: int = 5, damaged: bool = False
) -> OtherLeaderRequest:
    return OtherLeaderRequest(
        broker_id=BrokerId(number),
        leader_epoch=LeaderEpoch(epoch),
        partition_epoch=state.partition_epoch,
        damaged=damaged,
    )


def test_a_replica_that_knows_a_later_epoch_is_named_above_it() -> None:
    state = partition([1, 2, 3])
    change = plan_other_leader(cluster(state), T0, of_broker(1, state, epoch=9), CLEAN, NO_ENDS)
    assert change is not None
    assert change.state.leader_epoch == 10


def test_after_a_lost_election_in_a_mode_change_another_replica_is_named() -> None:
    state = partition([1, 2, 3], in_sync=[1], changing_mode=True)
    asked = of_broker(1, state)
    change = plan_other_leader(cluster(state), T0, asked, CLEAN, NO_ENDS)
    assert change is not None
    assert change.state.leader == 2
    # With known log ends the longest log decides, and it may belong to the same replica.
    known = ends(b1=(5, 9), b2=(5, 7))[T0]
    change = plan_other_leader(cluster(state), T0, asked, CLEAN, known)
    assert change is not None
    assert change.state.leader == 1


def test_a_request_for_an_earlier_version_is_ignored() -> None:
    state = partition([1, 2, 3])
    earlier = partition([1, 2, 3], mode=Mode.RAFT)
    late = OtherLeaderRequest(
        broker_id=BrokerId(1), leader_epoch=LeaderEpoch(5), partition_epoch=19, damaged=True
    )
    assert plan_other_leader(cluster(state), T0, late, CLEAN, NO_ENDS) is None
    assert plan_other_leader(cluster(earlier), T0, of_broker(1, earlier), CLEAN, NO_ENDS) is None
    assert plan_in_sync(cluster(earlier), T0, request(earlier, 1, 2), CLEAN) is None


def test_a_partition_without_a_leader_is_not_changed_again() -> None:
    state = partition([1, 2, 3], leader=NO_BROKER, in_sync=[3])
    only_others = cluster(state, epochs={1: 1, 2: 1})
    assert plan_other_leader(only_others, T0, of_broker(1, state), CLEAN, NO_ENDS) is None


def test_an_unreachable_broker_is_replaced_by_an_in_sync_replica_or_not_at_all() -> None:
    led = partition([1, 2, 3], in_sync=[1, 2])
    alone = partition([1, 2, 3], in_sync=[1])
    others = partition([2, 1, 3])
    image = cluster(led, alone, others)
    # Even if the topic permits unclean leaders: the broker may be alive and the only one with the data.
    changes = list(plan_replacements(image, BrokerId(1), 1, unclean, {}))
    assert [(each.partition, each.state.leader) for each in changes] == [(0, 2)]
    assert changes[0].state.in_sync == ids(2)
    # The broker has registered again since.
    assert list(plan_replacements(image, BrokerId(1), 0, unclean, {})) == []

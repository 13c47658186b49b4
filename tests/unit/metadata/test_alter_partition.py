"""What replicas ask for on the newest picture: another leader, without a guess that loses anything."""

from leadership_support import NOBODY, T0, cluster, ends, ids, partition, request, unclean

from zhumq.metadata.alter_partition import (
    OtherLeaderRequest,
    plan_in_sync,
    plan_other_leader,
    plan_replacements,
)
from zhumq.metadata.image import PartitionState
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


def test_who_knows_a_later_epoch_is_named_above_it() -> None:
    state = partition([1, 2, 3])
    change = plan_other_leader(cluster(state), T0, of_broker(1, state, epoch=9), CLEAN, NO_ENDS)
    assert change is not None
    assert change.state.leader_epoch == 10


def test_who_lost_the_vote_in_a_handover_lets_another_one_try() -> None:
    state = partition([1, 2, 3], in_sync=[1], changing_mode=True)
    asked = of_broker(1, state)
    change = plan_other_leader(cluster(state), T0, asked, CLEAN, NO_ENDS)
    assert change is not None
    assert change.state.leader == 2
    # Where the replicas could be asked, the longest log decides, and it may be the same one's.
    known = ends(b1=(5, 9), b2=(5, 7))[T0]
    change = plan_other_leader(cluster(state), T0, asked, CLEAN, known)
    assert change is not None
    assert change.state.leader == 1


def test_what_was_asked_for_on_an_earlier_picture_is_not_done() -> None:
    state = partition([1, 2, 3])
    earlier = partition([1, 2, 3], mode=Mode.RAFT)
    late = OtherLeaderRequest(
        broker_id=BrokerId(1), leader_epoch=LeaderEpoch(5), partition_epoch=19, damaged=True
    )
    assert plan_other_leader(cluster(state), T0, late, CLEAN, NO_ENDS) is None
    assert plan_other_leader(cluster(earlier), T0, of_broker(1, earlier), CLEAN, NO_ENDS) is None
    assert plan_in_sync(cluster(earlier), T0, request(earlier, 1, 2), CLEAN) is None


def test_nobody_is_named_a_second_time() -> None:
    state = partition([1, 2, 3], leader=NOBODY, in_sync=[3])
    only_others = cluster(state, epochs={1: 1, 2: 1})
    assert plan_other_leader(only_others, T0, of_broker(1, state), CLEAN, NO_ENDS) is None


def test_a_broker_that_cannot_be_reached_is_replaced_by_one_in_sync_or_not_at_all() -> None:
    led = partition([1, 2, 3], in_sync=[1, 2])
    alone = partition([1, 2, 3], in_sync=[1])
    others = partition([2, 1, 3])
    image = cluster(led, alone, others)
    # Even where the topic allows it: the broker may live, and have what nobody else has.
    changes = list(plan_replacements(image, BrokerId(1), 1, unclean, {}))
    assert [(each.partition, each.state.leader) for each in changes] == [(0, 2)]
    assert changes[0].state.in_sync == ids(2)
    # It has registered again since.
    assert list(plan_replacements(image, BrokerId(1), 0, unclean, {})) == []

"""Choice of leaders: which replica, in which epoch, and when none may lead."""

from dataclasses import replace

import pytest
from leadership_support import (
    T0,
    clean,
    cluster,
    ends,
    ids,
    partition,
    request,
    unclean,
)

from zhumq.metadata.changes import (
    BrokerGone,
    Change,
    PartitionChanged,
    apply_changes,
    change_from_json,
    change_to_json,
)
from zhumq.metadata.image import NO_BROKER, ClusterImage, PartitionState
from zhumq.metadata.leadership import (
    CHANGES_PER_PROPOSAL_MAX,
    ElectionResult,
    LogEnds,
    PolicyOf,
    Resignation,
    elect_preferred,
    elect_unclean,
    in_batches,
    partitions_without_leader,
    plan_election_results,
    plan_membership,
    plan_preferred_leaders,
    plan_resignations,
)
from zhumq.metadata.reassignment import change_in_sync
from zhumq.model.cluster_errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    IneligibleReplica,
    InvalidUpdateVersion,
    NotController,
    PreferredLeaderNotAvailable,
    StaleBrokerEpoch,
)
from zhumq.model.errors import FencedLeaderEpoch, InvalidRequest, UnknownTopicOrPartition
from zhumq.model.ids import BrokerId, LeaderEpoch, TopicPartition
from zhumq.model.replication_mode import Mode


def decide(
    image: ClusterImage,
    live: tuple[BrokerId, ...],
    policy: PolicyOf,
    log_ends: LogEnds | None = None,
) -> list[Change]:
    return list(plan_membership(image, live, policy, log_ends or {}))


def after_loss(
    image: ClusterImage, live: set[int], policy: PolicyOf = clean, log_ends: LogEnds | None = None
) -> PartitionState:
    """The first partition once the controller has acted."""
    changes = decide(image, ids(*live), policy, log_ends or {})
    return apply_changes(image, changes).topics["t"].partitions[0]


def test_nothing_changes_while_all_brokers_are_alive() -> None:
    assert decide(cluster(partition([1, 2, 3])), ids(1, 2, 3), clean) == []


def test_a_dead_leader_is_replaced_by_an_in_sync_replica_in_a_new_epoch() -> None:
    image = cluster(partition([1, 2, 3], in_sync=[1, 3]))
    state = after_loss(image, {2, 3})
    assert (state.leader, state.leader_epoch, state.in_sync) == (3, 6, ids(3))
    assert state.partition_epoch == 21
    assert state.leader_broker_epoch == 1


def test_a_dead_broker_is_declared_gone_in_the_same_proposal() -> None:
    changes = decide(cluster(partition([1, 2])), ids(2, 3), clean)
    assert changes[0] == BrokerGone(broker_id=BrokerId(1))
    assert len(changes) == 2


def test_a_dead_follower_leaves_the_in_sync_set_and_the_leader_keeps_its_epoch() -> None:
    state = after_loss(cluster(partition([1, 2, 3])), {1, 2})
    assert (state.leader, state.leader_epoch, state.in_sync) == (1, 5, ids(1, 2))
    assert state.partition_epoch == 21


def test_the_largest_epoch_counts_for_more_than_the_largest_offset() -> None:
    image = cluster(partition([1, 2, 3]))
    state = after_loss(image, {2, 3}, log_ends=ends(b2=(4, 900), b3=(5, 100)))
    assert state.leader == 3
    state = after_loss(image, {2, 3}, log_ends=ends(b2=(5, 101), b3=(5, 100)))
    assert state.leader == 2


def test_a_replica_that_is_not_in_sync_does_not_lead_however_long_its_log() -> None:
    image = cluster(partition([1, 2, 3], in_sync=[1, 3]))
    assert after_loss(image, {2, 3}, log_ends=ends(b2=(9, 900), b3=(5, 1))).leader == 3


def test_without_a_live_in_sync_replica_there_is_no_leader_and_the_in_sync_set_stays() -> None:
    image = cluster(partition([1, 2, 3], in_sync=[1]))
    state = after_loss(image, {2, 3})
    assert (state.leader, state.leader_epoch, state.in_sync) == (NO_BROKER, 6, ids(1))
    leaderless = apply_changes(image, decide(image, ids(2, 3), clean))
    assert decide(leaderless, ids(2, 3), clean) == []
    back = replace(leaderless, brokers=cluster(epochs={1: 9, 2: 1, 3: 1}).brokers)
    state = after_loss(back, {1, 2, 3})
    assert (state.leader, state.leader_epoch, state.leader_broker_epoch) == (1, 7, 9)


def test_an_unclean_leader_is_alone_in_sync_and_only_where_allowed() -> None:
    image = cluster(partition([1, 2, 3], in_sync=[1]))
    state = after_loss(image, {2, 3}, unclean, ends(b2=(4, 10), b3=(5, 3)))
    assert (state.leader, state.leader_epoch, state.in_sync) == (3, 6, ids(3))


def test_an_in_sync_replica_leads_even_where_an_unclean_leader_is_allowed() -> None:
    image = cluster(partition([1, 2, 3], in_sync=[1, 3]))
    state = after_loss(image, {2, 3}, unclean, ends(b2=(9, 900), b3=(5, 3)))
    assert (state.leader, state.in_sync) == (3, ids(3))


def test_a_leader_that_registered_again_leads_in_a_new_epoch() -> None:
    image = cluster(partition([1, 2, 3]), epochs={1: 8, 2: 1, 3: 1})
    assert image.leader_of(image.topics["t"].partitions[0]) == NO_BROKER
    assert partitions_without_leader(image, ids(1, 2, 3)) == [T0]
    state = after_loss(image, {1, 2, 3})
    assert (state.leader, state.leader_epoch, state.leader_broker_epoch) == (1, 6, 8)


def test_raft_partitions_are_left_to_their_voters() -> None:
    image = cluster(partition([1, 2, 3], mode=Mode.RAFT))
    assert decide(image, ids(2, 3), clean) == [BrokerGone(broker_id=BrokerId(1))]
    assert partitions_without_leader(image, ids(2, 3)) == []


def test_election_results_are_recorded_in_the_order_of_their_epochs() -> None:
    image = cluster(partition([1, 2, 3], mode=Mode.RAFT))
    vote = ElectionResult(leader=BrokerId(2), leader_epoch=LeaderEpoch(7))
    (change,) = plan_election_results(image, {T0: vote})
    assert (change.state.leader, change.state.leader_epoch) == (2, 7)
    known = apply_changes(image, [change])
    for late in (
        ElectionResult(leader=BrokerId(3), leader_epoch=LeaderEpoch(7)),
        ElectionResult(leader=BrokerId(1), leader_epoch=LeaderEpoch(6)),
        ElectionResult(leader=BrokerId(9), leader_epoch=LeaderEpoch(8)),
    ):
        assert plan_election_results(known, {T0: late}) == []
    assert plan_election_results(known, {TopicPartition("gone", 0): vote}) == []
    assert plan_election_results(cluster(partition([1, 2, 3])), {T0: vote}) == []


def test_a_leader_that_has_resigned_is_replaced_by_none_until_the_next_election() -> None:
    image = cluster(partition([1, 2, 3], mode=Mode.RAFT))
    before = image.topics["t"].partitions[0]
    resigned = Resignation(leader=before.leader, leader_epoch=before.leader_epoch)
    (change,) = plan_resignations(image, {T0: resigned})
    known = apply_changes(image, [change])
    after = known.topics["t"].partitions[0]
    assert known.leader_of(after) == NO_BROKER
    assert (after.leader_epoch, after.in_sync) == (before.leader_epoch, before.in_sync)
    assert after.partition_epoch == before.partition_epoch + 1
    # A result that it had sent before it resigned changes nothing any more; the next one does.
    late = ElectionResult(leader=before.leader, leader_epoch=before.leader_epoch)
    assert plan_election_results(known, {T0: late}) == []
    again = ElectionResult(leader=before.leader, leader_epoch=LeaderEpoch(before.leader_epoch + 1))
    (change,) = plan_election_results(known, {T0: again})
    assert change.state.leader == before.leader


def test_a_resignation_that_an_election_has_overtaken_is_dropped() -> None:
    image = cluster(partition([1, 2, 3], mode=Mode.RAFT))
    state = image.topics["t"].partitions[0]
    resigned = Resignation(leader=state.leader, leader_epoch=state.leader_epoch)
    for leader, epoch in ((2, state.leader_epoch), (state.leader, state.leader_epoch - 1)):
        late = Resignation(leader=BrokerId(leader), leader_epoch=LeaderEpoch(epoch))
        assert plan_resignations(image, {T0: late}) == []
    assert plan_resignations(image, {TopicPartition("gone", 0): resigned}) == []
    assert plan_resignations(cluster(partition([1, 2, 3])), {T0: resigned}) == []


def test_an_elected_leader_that_registered_again_is_recorded_in_its_epoch() -> None:
    image = cluster(partition([1, 2, 3], mode=Mode.RAFT), epochs={1: 8, 2: 1, 3: 1})
    assert image.leader_of(image.topics["t"].partitions[0]) == NO_BROKER
    vote = ElectionResult(leader=BrokerId(1), leader_epoch=LeaderEpoch(5))
    (change,) = plan_election_results(image, {T0: vote})
    assert (change.state.leader_epoch, change.state.leader_broker_epoch) == (5, 8)
    assert plan_election_results(apply_changes(image, [change]), {T0: vote}) == []


def test_a_thousand_partitions_are_decided_in_few_proposals() -> None:
    image = cluster(*[partition([1, 2, 3])] * 5, topics=500)
    changes = decide(image, ids(2, 3), clean)
    batches = list(in_batches(changes))
    assert len(changes) == 2_501
    assert [len(batch) for batch in batches] == [CHANGES_PER_PROPOSAL_MAX] * 2 + [501]
    for batch in batches:
        image = apply_changes(image, batch)
    assert decide(image, ids(2, 3), clean) == []
    leaders = {state.leader for topic in image.topics.values() for state in topic.partitions}
    assert leaders == {2}


def test_a_new_controller_continues_where_the_last_one_stopped() -> None:
    image = cluster(*[partition([1, 2, 3])] * 5, topics=500)
    first, *_ = in_batches(decide(image, ids(2, 3), clean))
    halfway = apply_changes(image, first)
    rest = decide(halfway, ids(2, 3), clean)
    assert len(rest) == 2_501 - len(first)
    assert decide(apply_changes(halfway, rest), ids(2, 3), clean) == []


# Preferred leaders


def test_preferred_leaders_that_can_lead_are_elected() -> None:
    image = cluster(
        partition([1, 2], leader=2),
        partition([1, 2], leader=1),
        partition([3, 2], leader=2, in_sync=[2]),
    )
    (change,) = plan_preferred_leaders(image)
    assert (change.partition, change.state.leader, change.state.leader_epoch) == (0, 1, 6)
    assert change.state.in_sync == ids(1, 2)


def test_a_small_imbalance_of_a_broker_is_tolerated() -> None:
    lost, kept = partition([1, 2], leader=2), partition([1, 2])
    image = cluster(lost, *[kept] * 9)
    assert list(plan_preferred_leaders(image, tolerated_percent=10)) == []
    image = cluster(lost, *[kept] * 8)
    assert len(list(plan_preferred_leaders(image, tolerated_percent=10))) == 1


def test_a_refused_preferred_election_names_the_reason() -> None:
    image = cluster(partition([1, 2]), partition([3, 2], leader=2, in_sync=[2]))
    with pytest.raises(ElectionNotNeeded):
        elect_preferred(image, T0)
    with pytest.raises(PreferredLeaderNotAvailable):
        elect_preferred(image, TopicPartition("t", 1))
    with pytest.raises(UnknownTopicOrPartition):
        elect_preferred(image, TopicPartition("t", 2))


def test_an_operator_may_request_an_unclean_leader() -> None:
    image = cluster(partition([1, 2, 3], leader=-1, in_sync=[1]), epochs={2: 1, 3: 1})
    change = elect_unclean(image, T0, ends(b3=(5, 1))[T0])
    assert (change.state.leader, change.state.in_sync) == (3, ids(3))
    with pytest.raises(ElectionNotNeeded):
        elect_unclean(apply_changes(image, [change]), T0, {})
    with pytest.raises(EligibleLeadersNotAvailable):
        elect_unclean(replace(image, brokers={}), T0, {})


# In-sync sets


def test_a_leader_shrinks_and_grows_its_in_sync_set() -> None:
    image = cluster(partition([1, 2, 3]))
    state = image.topics["t"].partitions[0]
    change = change_in_sync(image, T0, request(state, 3, 1))
    assert change.state.in_sync == ids(1, 3)
    assert (change.state.leader_epoch, change.state.partition_epoch) == (5, 21)
    image = apply_changes(image, [change])
    grown = change_in_sync(image, T0, request(change.state, 1, 2, 3))
    assert grown.state.in_sync == ids(1, 2, 3)


def test_an_outdated_in_sync_request_is_refused_with_its_reason() -> None:
    state = partition([1, 2, 3])
    image = cluster(state, epochs={1: 1, 2: 1})
    good = request(state, 1, 2)
    for error, bad in (
        (FencedLeaderEpoch, replace(good, leader_epoch=LeaderEpoch(4))),
        (NotController, replace(good, leader_epoch=LeaderEpoch(6))),
        (InvalidUpdateVersion, replace(good, partition_epoch=19)),
        (NotController, replace(good, partition_epoch=21)),
        (StaleBrokerEpoch, replace(good, broker_epoch=0)),
        (StaleBrokerEpoch, replace(good, broker_id=BrokerId(3))),
        (InvalidRequest, replace(good, broker_id=BrokerId(2))),
        (InvalidRequest, replace(good, in_sync=ids(2))),
        (InvalidRequest, replace(good, in_sync=ids(1, 4))),
        (IneligibleReplica, replace(good, in_sync=ids(1, 3))),
    ):
        with pytest.raises(error):
            change_in_sync(image, T0, bad)
    with pytest.raises(UnknownTopicOrPartition):
        change_in_sync(image, TopicPartition("nope", 0), good)


def test_changes_of_brokers_and_partitions_round_trip_through_json() -> None:
    changes: list[Change] = [
        *decide(cluster(partition([1, 2, 3])), ids(2, 3), clean),
        PartitionChanged(
            name="t", partition=3, state=partition([1, 2, 3], adding=[3], removing=[1])
        ),
    ]
    assert [change_from_json(change_to_json(change)) for change in changes] == changes

import uuid

import pytest

from zhumq.metadata.changes import apply_changes, change_from_json, change_to_json
from zhumq.metadata.image import Broker, ClusterImage
from zhumq.metadata.topics import (
    NewTopic,
    TopicLimits,
    append_to_list_setting,
    plan_deletion,
    plan_more_partitions,
    plan_settings,
    plan_topic,
    subtract_from_list_setting,
)
from zhumq.model.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from zhumq.model.ids import BrokerId
from zhumq.model.replication_mode import Mode

LIMITS = TopicLimits(
    default_partitions=3,
    default_replication_factor=1,
    partitions_per_topic_max=10,
    partitions_in_all_max=15,
    default_mode=Mode.FETCH,
)
TOPIC_ID = uuid.UUID(int=7)


def cluster(*broker_ids: int) -> ClusterImage:
    return ClusterImage(
        version=1,
        cluster_id="test",
        controller_id=BrokerId(broker_ids[0]),
        brokers={
            BrokerId(each): Broker(broker_id=BrokerId(each), host="127.0.0.1", port=9000 + each)
            for each in broker_ids
        },
        topics={},
        topics_by_id={},
    )


def with_topic(image: ClusterImage, name: str, partitions: int = 2) -> ClusterImage:
    new_topic = NewTopic(name=name, partitions=partitions)
    return apply_changes(image, [plan_topic(image, new_topic, uuid.uuid5(TOPIC_ID, name), LIMITS)])


def test_a_topic_without_counts_gets_the_defaults() -> None:
    change = plan_topic(cluster(1), NewTopic(name="orders"), TOPIC_ID, LIMITS)
    assert len(change.topic.partitions) == 3
    assert {state.replicas for state in change.topic.partitions} == {(1,)}


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "é", "x" * 250, "a\n"])
def test_an_illegal_topic_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidTopic):
        plan_topic(cluster(1), NewTopic(name=name), TOPIC_ID, LIMITS)


def test_a_topic_exists_once() -> None:
    with pytest.raises(TopicAlreadyExists, match="orders"):
        plan_topic(with_topic(cluster(1), "orders"), NewTopic(name="orders"), TOPIC_ID, LIMITS)


@pytest.mark.parametrize("count", [0, -2])
def test_a_topic_needs_a_partition(count: int) -> None:
    with pytest.raises(InvalidPartitions):
        plan_topic(cluster(1), NewTopic(name="t", partitions=count), TOPIC_ID, LIMITS)


def test_the_cap_on_partitions_of_a_topic_is_named_in_the_error() -> None:
    with pytest.raises(InvalidPartitions, match=r"topic\.partitions\.max=10"):
        plan_topic(cluster(1), NewTopic(name="t", partitions=11), TOPIC_ID, LIMITS)


def test_the_cap_on_all_partitions_is_named_in_the_error() -> None:
    image = with_topic(cluster(1), "a", 10)
    with pytest.raises(PolicyViolation, match=r"cluster\.partitions\.max=15"):
        plan_topic(image, NewTopic(name="b", partitions=6), TOPIC_ID, LIMITS)


def test_replicas_need_as_many_brokers() -> None:
    with pytest.raises(InvalidReplicationFactor, match="1 are alive"):
        plan_topic(cluster(1), NewTopic(name="t", replication_factor=2), TOPIC_ID, LIMITS)
    with pytest.raises(InvalidReplicationFactor):
        plan_topic(cluster(1), NewTopic(name="t", replication_factor=0), TOPIC_ID, LIMITS)


def test_replicas_of_a_partition_are_on_distinct_brokers() -> None:
    new_topic = NewTopic(name="t", partitions=4, replication_factor=2)
    for state in plan_topic(cluster(1, 2, 3), new_topic, TOPIC_ID, LIMITS).topic.partitions:
        assert len(set(state.replicas)) == 2
        assert state.leader == state.replicas[0]


def test_an_assignment_is_taken_as_given() -> None:
    new_topic = NewTopic(name="t", assignment={0: [2], 1: [1]})
    topic = plan_topic(cluster(1, 2), new_topic, TOPIC_ID, LIMITS).topic
    assert [state.replicas for state in topic.partitions] == [(2,), (1,)]


@pytest.mark.parametrize(
    "assignment", [{0: [1], 2: [1]}, {0: []}, {0: [1, 1]}, {0: [9]}, {0: [1], 1: [1, 2]}]
)
def test_an_impossible_assignment_is_refused(assignment: dict[int, list[int]]) -> None:
    with pytest.raises(InvalidReplicaAssignment):
        plan_topic(cluster(1, 2), NewTopic(name="t", assignment=assignment), TOPIC_ID, LIMITS)


def test_an_assignment_and_a_count_contradict_each_other() -> None:
    new_topic = NewTopic(name="t", partitions=1, assignment={0: [1]})
    with pytest.raises(InvalidRequest):
        plan_topic(cluster(1), new_topic, TOPIC_ID, LIMITS)


@pytest.mark.parametrize(
    "settings",
    [
        {"no.such.setting": "1"},
        {"retention.ms": "soon"},
        {"retention.ms": "-2"},
        {"cleanup.policy": "shred"},
        {"min.cleanable.dirty.ratio": "2"},
        {"preallocate": "maybe"},
    ],
)
def test_an_unusable_setting_is_refused_by_name(settings: dict[str, str | None]) -> None:
    (name,) = settings
    with pytest.raises(InvalidConfig, match=name):
        plan_topic(cluster(1), NewTopic(name="t", settings=settings), TOPIC_ID, LIMITS)


def test_the_number_of_partitions_only_grows() -> None:
    image = with_topic(cluster(1), "t", 2)
    assert len(plan_more_partitions(image, "t", 5, None, LIMITS).partitions) == 3
    for count in (2, 1):
        with pytest.raises(InvalidPartitions):
            plan_more_partitions(image, "t", count, None, LIMITS)
    with pytest.raises(InvalidReplicaAssignment):
        plan_more_partitions(image, "t", 4, [[1]], LIMITS)
    with pytest.raises(UnknownTopicOrPartition):
        plan_more_partitions(image, "nope", 4, None, LIMITS)


def test_internal_topics_cannot_be_deleted() -> None:
    image = with_topic(cluster(1), "__consumer_offsets", 1)
    with pytest.raises(InvalidTopic):
        plan_deletion(image, "__consumer_offsets")


def test_list_settings_take_and_lose_elements() -> None:
    assert append_to_list_setting("cleanup.policy", "delete", "compact") == "delete,compact"
    assert append_to_list_setting("cleanup.policy", "delete", "delete") == "delete"
    assert subtract_from_list_setting("cleanup.policy", "delete,compact", "delete") == "compact"
    with pytest.raises(InvalidConfig):
        append_to_list_setting("retention.ms", "1", "2")


def test_every_change_round_trips_through_json() -> None:
    image = cluster(1)
    created = plan_topic(
        image, NewTopic(name="t", settings={"retention.ms": "5"}), TOPIC_ID, LIMITS
    )
    image = apply_changes(image, [created])
    changes = [
        created,
        plan_more_partitions(image, "t", 4, None, LIMITS),
        plan_settings(image, "t", {"retention.ms": "6"}),
        plan_deletion(image, "t"),
    ]
    for change in changes:
        assert change_from_json(change_to_json(change)) == change
    final = apply_changes(apply_changes(cluster(1), changes[:1]), changes[1:3])
    assert final.topics["t"] is final.topics_by_id[TOPIC_ID]
    assert len(final.topics["t"].partitions) == 4
    assert final.topics["t"].settings == {"retention.ms": "6"}

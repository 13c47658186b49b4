"""Reassignments under load, rebalancing to a fourth broker, and preferred-leader elections."""

import json

import pytest
from cluster_support import create_topic, output_of, traffic
from confluent_kafka import Producer
from confluent_kafka.admin import ConfigResource, ResourceType

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.reassignment import throttled
from zhumq.model.errors import ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.configs import DescribableLogDirTopic, DescribeLogDirsRequest
from zhumq.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from zhumq.replication.move_throttle import UNLIMITED
from zhumq.testing.cluster import ClusterProcesses, wait_for
from zhumq.testing.raw_client import RawClient

pytestmark = pytest.mark.slow

MOVE_SECONDS_MAX = 90.0
MODES = ("raft", "fetch")


def replicas_of(cluster: ClusterProcesses, topic: str) -> dict[int, set[int]]:
    metadata = cluster.admin().list_topics(topic, timeout=30)
    return {index: set(each.replicas) for index, each in metadata.topics[topic].partitions.items()}


def move(cluster: ClusterProcesses, topic: str, partition: int, *replicas: int) -> ErrorCode:
    """Request these replicas for a partition; -1 cancels its move."""
    asked = ReassignablePartition(
        partition_index=partition, replicas=None if replicas == (-1,) else list(replicas)
    )
    with RawClient(cluster.brokers[1].bootstrap) as client:
        answer = client.ask(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            AlterPartitionReassignmentsRequest(
                topics=[ReassignableTopic(name=topic, partitions=[asked])]
            ),
        )
    return ErrorCode(answer.responses[0].partitions[0].error_code)


def moving(cluster: ClusterProcesses) -> int:
    with RawClient(cluster.brokers[1].bootstrap) as client:
        answer = client.ask(
            ApiKey.LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest(topics=None)
        )
    return sum(len(topic.partitions) for topic in answer.topics)


def rate_of(cluster: ClusterProcesses, broker_id: int) -> str | None:
    resource = ConfigResource(ResourceType.BROKER, str(broker_id))
    admin = cluster.admin()
    described = admin.describe_configs([resource])[resource].result(MOVE_SECONDS_MAX)
    return described["leader.replication.throttled.rate"].value


def size_at(cluster: ClusterProcesses, broker_id: int, topic: str) -> int:
    request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic, partitions=[0])])
    with RawClient(cluster.brokers[broker_id].bootstrap) as client:
        (folder,) = client.ask(ApiKey.DESCRIBE_LOG_DIRS, request).results
    return sum(each.partition_size for found in folder.topics for each in found.partitions)


@pytest.fixture
def four(cluster: ClusterProcesses) -> ClusterProcesses:
    """The cluster with a fourth broker, which is empty at first."""
    if 4 not in cluster.brokers:
        cluster.add(4).start()
    cluster.wait_for_brokers({1, 2, 3, 4})
    return cluster


@pytest.mark.thorough
@pytest.mark.parametrize("mode", MODES)
def test_a_partition_moves_to_other_brokers_under_load(four: ClusterProcesses, mode: str) -> None:
    topic = f"moved-{mode}"
    create_topic(four, topic, replication_mode=mode)
    with traffic(four, topic) as running:
        (before,) = replicas_of(four, topic).values()
        (left_out,) = {1, 2, 3, 4} - before
        target = [*sorted(before)[1:], left_out]
        assert move(four, topic, 0, *target) is ErrorCode.NONE
        wait_for(
            lambda: replicas_of(four, topic)[0] == set(target) or None,
            f"{topic} on {target}",
            MOVE_SECONDS_MAX,
        )
        four.wait_for_leader(topic)
        running.wait_for_more()
        # The new replicas can lead as well.
        leader = four.wait_for_leader(topic)
        four.kill(leader)
        four.wait_for_leader(topic, other_than=leader)
        running.wait_for_more()
        four.restart(leader)


@pytest.mark.thorough
@pytest.mark.parametrize("mode", MODES)
def test_a_partition_gets_more_and_fewer_replicas_under_load(
    cluster: ClusterProcesses, mode: str
) -> None:
    topic = f"resized-{mode}"
    create_topic(cluster, topic, replicas=1, replication_mode=mode, min_insync_replicas="1")
    with traffic(cluster, topic) as running:
        ((first,),) = replicas_of(cluster, topic).values()
        second, third = sorted({1, 2, 3} - {first})
        for target in ([second], [second, third, first], [third], [first, third], [second]):
            assert move(cluster, topic, 0, *target) is ErrorCode.NONE
            wait_for(
                lambda target=target: replicas_of(cluster, topic)[0] == set(target) or None,
                f"{topic} on {target}",
                MOVE_SECONDS_MAX,
            )
            wait_for(lambda: moving(cluster) == 0 or None, "the move is over", MOVE_SECONDS_MAX)
            running.wait_for_more()


def test_a_move_that_makes_no_sense_is_refused(four: ClusterProcesses) -> None:
    create_topic(four, "refused")
    assert move(four, "refused", 0, 1, 1) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert move(four, "refused", 0, 1, 99) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert move(four, "refused", 0) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert move(four, "refused", 7, 1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(four, "refused", 0, -1) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


@pytest.mark.thorough
@pytest.mark.parametrize("mode", MODES)
def test_the_preferred_leader_is_elected_on_request(four: ClusterProcesses, mode: str) -> None:
    topic = f"preferred-{mode}"
    create_topic(four, topic, replication_mode=mode)
    first = four.admin().list_topics(topic, timeout=30).topics[topic].partitions[0].replicas[0]
    four.kill(first)
    four.wait_for_leader(topic, other_than=first)
    four.restart(first)
    request = ElectLeadersRequest(
        election_type=0, topic_partitions=[TopicPartitions(topic=topic, partitions=[0])]
    )

    def elected() -> bool | None:
        with RawClient(four.brokers[first].bootstrap) as client:
            answer = client.ask(ApiKey.ELECT_LEADERS, request)
        code = answer.replica_election_results[0].partition_result[0].error_code
        # A replica may not lead until it is in sync again.
        if code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE:
            return None
        assert code in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
        return True

    wait_for(elected, "the first replica in sync")
    with traffic(four, topic):
        wait_for(lambda: four.leader_of(topic) == first or None, "leadership back")


def test_an_interrupted_rebalancing_stays_throttled_until_the_throttle_is_removed(
    four: ClusterProcesses,
) -> None:
    create_topic(four, "slow")
    producer = Producer({"bootstrap.servers": four.bootstrap, "linger.ms": 0})

    def write(count: int, size: int) -> None:
        for _ in range(count):
            producer.produce("slow", bytes(size))
            assert producer.flush(MOVE_SECONDS_MAX) == 0

    write(30, 100_000)
    (before,) = replicas_of(four, "slow").values()
    (left_out,) = {1, 2, 3, 4} - before
    try:
        with (
            ClusterConnection(four.brokers[1].bootstrap) as connection,
            pytest.raises(KeyboardInterrupt),
            throttled(connection, 1),
        ):
            raise KeyboardInterrupt
        for broker_id in four.brokers:
            wait_for(lambda each=broker_id: rate_of(four, each) == "1" or None, "the rate there")
        assert move(four, "slow", 0, *sorted(before)[1:], left_out) is ErrorCode.NONE
        # The first read is sent at any rate, and there is more than one.
        wait_for(lambda: size_at(four, left_out, "slow") or None, "the first read")
        write(100, 10)
        assert moving(four) == 1
        assert size_at(four, left_out, "slow") < 3_000_000
    finally:
        lift = ("cluster", "rebalance", "--yes", "--throttle", "off")
        output_of(*lift, "--bootstrap", four.bootstrap)
    assert rate_of(four, 1) == str(UNLIMITED)
    wait_for(lambda: moving(four) == 0 or None, "the end of the move", MOVE_SECONDS_MAX)
    assert size_at(four, left_out, "slow") > 3_000_000


@pytest.mark.thorough
def test_rebalancing_gives_a_new_broker_its_share(four: ClusterProcesses) -> None:
    create_topic(four, "spread", partitions=12)
    bootstrap = four.brokers[2].bootstrap
    without = json.loads(
        output_of(
            "cluster",
            "rebalance",
            "--preview",
            "--json",
            "--without",
            "4",
            "--bootstrap",
            bootstrap,
        )
    )
    assert all(4 not in row["after"] for row in without)
    with traffic(four, "spread"):
        output_of("cluster", "rebalance", "--without", "4", "--yes", "--bootstrap", bootstrap)
        assert all(4 not in each for each in replicas_of(four, "spread").values())
        output_of("cluster", "rebalance", "--yes", "--throttle", "5M", "--bootstrap", bootstrap)
        assert rate_of(four, 1) == str(UNLIMITED)
        held = sum(4 in each for each in replicas_of(four, "spread").values())
        # A quarter of 36 replicas is 9.
        assert 5 <= held <= 12
        assert moving(four) == 0
    assert (
        json.loads(
            output_of("cluster", "rebalance", "--preview", "--json", "--bootstrap", bootstrap)
        )
        == []
    )
    status = json.loads(output_of("cluster", "status", "--json", "--bootstrap", bootstrap))
    assert [each["broker"] for each in status["brokers"]] == [1, 2, 3, 4]

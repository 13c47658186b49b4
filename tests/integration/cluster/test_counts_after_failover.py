"""Offsets count only client messages, from 0 and without gaps, after any change of leader, in both modes."""

import json
import time

import pytest
from cluster_support import create_topic, output_of
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from zhumq.testing.cluster import ClusterProcesses, wait_for

pytestmark = pytest.mark.slow

WAIT_SECONDS = 60.0
PARTITIONS = 2


def send(cluster: ClusterProcesses, topic: str, count: int) -> list[list[int]]:
    """Send so many messages to each partition; returns their offsets."""
    offsets: list[list[int]] = [[] for _ in range(PARTITIONS)]

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        offsets[partition].append(offset)

    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0}
    )
    for partition in range(PARTITIONS):
        for number in range(count):
            producer.produce(
                topic, str(number).encode(), partition=partition, on_delivery=delivered
            )
    assert producer.flush(WAIT_SECONDS) == 0
    return offsets


def read_to_the_end(cluster: ClusterProcesses, topic: str, group: str, count: int) -> list[int]:
    """Read so many messages as a group, commit, and return the lag that librdkafka computes."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + WAIT_SECONDS
        seen = 0
        while seen < count:
            assert time.monotonic() < deadline, f"{seen} of {count} messages of {topic}"
            message = consumer.poll(0.2)
            seen += message is not None and message.error() is None
        consumer.commit(asynchronous=False)
        places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        committed = consumer.committed(places, timeout=WAIT_SECONDS)
        return [
            consumer.get_watermark_offsets(place, WAIT_SECONDS)[1] - place.offset
            for place in committed
        ]
    finally:
        consumer.close()


def described(cluster: ClusterProcesses, topic: str) -> list[tuple[int, int, int]]:
    """The earliest offset, latest offset and message count of each partition, as `zhumq` prints them."""
    out = output_of("topic", "describe", topic, "--json", "--bootstrap", cluster.bootstrap)
    return [
        (each["earliest"], each["latest"], each["messages"])
        for each in json.loads(out)["partitions"]
    ]


def lags(cluster: ClusterProcesses, group: str) -> list[int]:
    out = output_of("group", "describe", group, "--json", "--bootstrap", cluster.bootstrap)
    return [each["lag"] for each in json.loads(out)["offsets"]]


def wait_for_leaders(cluster: ClusterProcesses, topic: str) -> None:
    for partition in range(PARTITIONS):
        cluster.wait_for_leader(topic, partition)


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["raft", "fetch"])
def test_counts_and_lag_are_those_of_messages_after_any_change_of_leader(
    cluster: ClusterProcesses, mode: str
) -> None:
    topic, group = f"counted-{mode}", f"counting-{mode}"
    create_topic(cluster, topic, PARTITIONS, replication_mode=mode)
    assert described(cluster, topic) == [(0, 0, 0)] * PARTITIONS
    assert send(cluster, topic, 10) == [list(range(10))] * PARTITIONS

    leader = cluster.wait_for_leader(topic)
    cluster.kill(leader)
    cluster.wait_for_leader(topic, other_than=leader)
    assert send(cluster, topic, 5) == [list(range(10, 15))] * PARTITIONS
    assert described(cluster, topic) == [(0, 15, 15)] * PARTITIONS
    assert read_to_the_end(cluster, topic, group, 15 * PARTITIONS) == [0] * PARTITIONS
    assert lags(cluster, group) == [0] * PARTITIONS
    cluster.restart(leader)
    cluster.wait_for_brokers(cluster.brokers)

    cluster.kill(*cluster.brokers)
    cluster.restart(*cluster.brokers)
    cluster.wait_for_brokers(cluster.brokers)
    wait_for_leaders(cluster, topic)
    assert described(cluster, topic) == [(0, 15, 15)] * PARTITIONS
    wait_for(lambda: lags(cluster, group) == [0] * PARTITIONS or None, f"no lag of {group}")
    assert send(cluster, topic, 1) == [[15]] * PARTITIONS
    assert lags(cluster, group) == [1] * PARTITIONS

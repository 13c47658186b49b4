"""A third-party consumer reads from the replica in its rack (KIP-392), and goes on elsewhere when that is gone."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_support import create_topic, output_of
from confluent_kafka import Consumer, Producer, TopicPartition

from zhumq.testing.cluster import ClusterProcesses

SECONDS_MAX = 60.0


@pytest.fixture
def racks(tmp_path: Path) -> Iterator[ClusterProcesses]:
    """Three brokers, each in a rack of its own."""
    cluster = ClusterProcesses(
        tmp_path,
        settings={"replica.selector.class": "rack"},
        settings_of=lambda broker_id: {"broker.rack": f"rack-{broker_id}"},
    )
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


class RackConsumer:
    """Reads a partition from the beginning, and knows from which broker."""

    def __init__(self, cluster: ClusterProcesses, topic: str, rack: str) -> None:
        self.broker_id = -1
        self.values: list[bytes] = []
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "near",
                "client.rack": rack,
                "enable.auto.commit": False,
                "statistics.interval.ms": 100,
                "stats_cb": self._on_statistics,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def _on_statistics(self, text: str) -> None:
        topic = json.loads(text)["topics"].get(self._topic, {})
        self.broker_id = topic.get("partitions", {}).get("0", {}).get("broker", -1)

    def read(self, count: int, broker_id: int | None = None) -> None:
        """Read until there are so many messages, and they come from this broker."""
        deadline = time.monotonic() + SECONDS_MAX
        while len(self.values) < count or broker_id not in (None, self.broker_id):
            assert time.monotonic() < deadline, (len(self.values), count, self.broker_id)
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.values.append(message.value())

    def wait_until_it_left(self, broker_id: int) -> None:
        """The statistics come some time after the messages."""
        deadline = time.monotonic() + SECONDS_MAX
        while self.broker_id == broker_id:
            assert time.monotonic() < deadline, self.broker_id
            self._consumer.poll(0.1)

    def close(self) -> None:
        self._consumer.close()


def send(cluster: ClusterProcesses, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for number in range(first, first + count):
        producer.produce(topic, value=b"%d" % number, partition=0)
    assert producer.flush(SECONDS_MAX) == 0


@pytest.mark.thorough
def test_a_consumer_reads_from_the_replica_in_its_rack_and_loses_nothing_when_it_dies(
    racks: ClusterProcesses,
) -> None:
    for mode in ("raft", "fetch"):
        topic = f"near-{mode}"
        create_topic(racks, topic, replication_mode=mode)
        leader = racks.wait_for_leader(topic, 0)
        follower = next(each for each in racks.brokers if each != leader)
        send(racks, topic, 0, 100)
        consumer = RackConsumer(racks, topic, f"rack-{follower}")
        consumer.read(100, broker_id=follower)
        # It waits at the follower for more.
        send(racks, topic, 100, 100)
        consumer.read(200, broker_id=follower)
        racks.kill(follower)
        send(racks, topic, 200, 100)
        consumer.read(300)
        consumer.wait_until_it_left(follower)
        assert consumer.values == [b"%d" % number for number in range(300)]
        consumer.close()
        racks.restart(follower)
        # Without a rack, or in the rack of the leader, a consumer reads from the leader.
        for rack in ("", f"rack-{racks.wait_for_leader(topic, 0)}"):
            other = RackConsumer(racks, topic, rack)
            other.read(300, broker_id=racks.wait_for_leader(topic, 0))
            assert other.values == consumer.values
            other.close()
        # Retention is explained by the broker that leads, whichever is asked.
        found = json.loads(
            output_of("topic", "retention", topic, "--json", "--bootstrap", racks.bootstrap)
        )
        assert found["unanswered"] == []
        assert [each["next_offset"] for each in found["segments"]] == [300]
        assert [each["broker"] for each in found["disks"]] == [racks.wait_for_leader(topic, 0)]

"""Brokers of a cluster are killed and paused: share partitions move with their leaders, nothing is lost."""

import contextlib
import os
import random
import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic
from share_member import ShareMember, produce
from share_workers import Verdict, Where, Worker, start_offsets

from zhumq.model.errors import ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from zhumq.testing.cluster import ClusterProcesses, cluster_processes, wait_for
from zhumq.testing.raw_client import RawClient

# `make delivery-chaos` sets more.
SEED = int(os.environ.get("ZHUMQ_DELIVERY_SEED", "20261115"))
FAULTS = int(os.environ.get("ZHUMQ_DELIVERY_FAULTS", "4"))
TOPIC = "t"
PARTITIONS = 2
MESSAGES = 100 * FAULTS  # of each partition
BATCH = 50
# Faults happen while this share of the messages is accepted; some of the others end as dead letters.
FAULTY_SHARE = 0.85
MEMBERS = 3
SECONDS_MAX = 60.0 + 12.0 * FAULTS
SETTINGS = {
    "group.share.auto.offset.reset": "earliest",
    "group.share.record.lock.duration.ms": "2000",
    "group.share.delivery.count.limit": "4",
    "share.coordinator.state.topic.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
}


class View:
    """The cluster as any broker that answers describes it."""

    def __init__(self, cluster: ClusterProcesses) -> None:
        self._cluster = cluster

    def leader_of(self, partition: int) -> str | None:
        answer = self._ask()
        if answer is None or answer.topics[0].error_code:
            return None
        brokers = {each.node_id: f"{each.host}:{each.port}" for each in answer.brokers}
        for each in answer.topics[0].partitions:
            if each.partition_index == partition:
                return brokers.get(each.leader_id)
        return None

    def topic_id(self) -> uuid.UUID | None:
        answer = self._ask()
        return None if answer is None or answer.topics[0].error_code else answer.topics[0].topic_id

    def _ask(self):
        for broker in self._cluster.brokers.values():
            with contextlib.suppress(OSError), RawClient(broker.bootstrap) as client:
                client._socket.settimeout(2.0)  # it may be paused
                topics = [MetadataRequestTopic(name=TOPIC)]
                return client.ask(ApiKey.METADATA, MetadataRequest(topics=topics))
        return None


@pytest.mark.thorough
def test_every_message_is_acknowledged_or_a_dead_letter_while_leaders_fall(
    tmp_path: Path,
) -> None:
    draw = random.Random(SEED)
    with cluster_processes(folder=tmp_path, settings=SETTINGS) as cluster:
        admin = cluster.admin()
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(60)
        view = View(cluster)
        topic_id = wait_for(view.topic_id, "the topic")
        # Elections append records of their own: use the offsets from the produce responses.
        written: set[Where] = set()
        for partition in range(PARTITIONS):
            for _ in range(0, MESSAGES, BATCH):
                leader = wait_for(lambda p=partition: view.leader_of(p), "a leader")
                first = produce(leader, topic_id, [b"x"] * BATCH, partition=partition)
                written.update((partition, first + index) for index in range(BATCH))
        _check_that_others_return_the_leader(cluster, topic_id)
        workers = [
            Worker(number, "g", topic_id, PARTITIONS, view.leader_of, seed=SEED)
            for number in range(MEMBERS)
        ]
        for worker in workers:
            worker.start(workers)
        deadline = time.monotonic() + SECONDS_MAX
        try:
            for fault in range(FAULTS):
                share = FAULTY_SHARE * (fault + draw.random()) / (FAULTS + 1)
                enough = share * MESSAGES * PARTITIONS
                while sum(len(worker.accepted) for worker in workers) < enough:
                    assert time.monotonic() < deadline
                    workers[0].thread.join(0.01)
                _break(cluster, 1 + fault % cluster.nodes, draw)
            while pending := _pending(cluster, written):
                assert time.monotonic() < deadline, f"pending: {sorted(pending)}"
                workers[0].thread.join(0.1)
        finally:
            for worker in workers:
                worker.stop()
        verdict = Verdict(workers, cluster.bootstrap, TOPIC, PARTITIONS)
        verdict.check(written)
        assert verdict.dead, "some were rejected"


def _check_that_others_return_the_leader(cluster: ClusterProcesses, topic_id: uuid.UUID) -> None:
    leader = cluster.wait_for_leader(TOPIC)
    other = next(each for number, each in cluster.brokers.items() if number != leader)
    with ShareMember(other.bootstrap, "outsider", topic_id) as member:
        response = member.fetch_raw()
        (answer,) = response.responses[0].partitions
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert answer.current_leader.leader_id == leader
        (endpoint,) = response.node_endpoints
        assert f"{endpoint.host}:{endpoint.port}" == cluster.brokers[leader].bootstrap


def _break(cluster: ClusterProcesses, broker_id: int, draw: random.Random) -> None:
    """Kill or pause a broker, and bring it back when the others have taken over."""
    broker = cluster.brokers[broker_id]
    if draw.random() < 0.5:
        broker.kill()
        broker.start()
        return
    led = [p for p in range(PARTITIONS) if cluster.leader_of(TOPIC, p) == broker_id]
    broker.pause()
    try:
        for partition in led:
            cluster.wait_for_leader(TOPIC, partition, other_than=broker_id)
    finally:
        broker.resume()


def _pending(cluster: ClusterProcesses, written: set[Where]) -> set[Where]:
    """The messages that the group is not done with, as any broker that answers describes it."""
    starts: dict[int, int] = {}
    for broker in cluster.brokers.values():
        with contextlib.suppress(OSError):
            starts = start_offsets(broker.bootstrap, "g")
            break
    return {where for where in written if where[1] >= starts.get(where[0], 0)}

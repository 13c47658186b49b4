"""Delayed messages in a cluster on ZooKeeper: brokers are killed, and shards and topics moved, while messages are pending."""

import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from delay_support import (
    SETTINGS,
    TOPIC,
    assert_in_due_order,
    create_topic,
    read_all,
    send_ahead,
    wait_for,
    wait_for_messages,
)

import zhumq
from zhumq.admin.reassignment import run_moves
from zhumq.metadata.reassignment import Move
from zhumq.model.ids import DELAYED_MESSAGES_TOPIC, BrokerId, TopicPartition
from zhumq.testing.cluster import cluster_processes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PARTITIONS = 3


class Load(threading.Thread):
    """Sends messages with delays of up to three seconds until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._brokers = bootstrap
        self._draw = random.Random(60)
        self.stopping = threading.Event()
        self.sent: Counter[bytes] = Counter()

    def run(self) -> None:
        producer = zhumq.Producer(self._brokers, settings={"message.timeout.ms": 200_000})
        while not self.stopping.is_set():
            value = b"%d" % len(self.sent)
            delay = None if len(self.sent) % 4 == 0 else self._draw.random() * 3
            producer.send(TOPIC, value, key=value, delay=delay)
            self.sent[value] += 1
            time.sleep(0.005)  # The pace of the load; nothing waits for it.
        producer.flush(200)

    def wait_for_progress(self, messages: int = 200) -> None:
        goal = len(self.sent) + messages
        wait_for(lambda: len(self.sent) >= goal, "messages are sent", 120)


@pytest.mark.long
def test_delayed_messages_survive_the_death_of_each_broker_of_three(tmp_path: Path) -> None:
    shards = {"delayed.message.topic.num.partitions": "1"}
    with cluster_processes(folder=tmp_path, settings=SETTINGS | shards) as cluster:
        create_topic(cluster.bootstrap, partitions=PARTITIONS, replicas=3)
        ahead = send_ahead(cluster.bootstrap, 8_000, 25_000)
        load = Load(cluster.bootstrap)
        load.start()
        load.wait_for_progress()
        coordinator = cluster.leader_of(DELAYED_MESSAGES_TOPIC)
        assert coordinator is not None
        for broker_id in (coordinator, *(each for each in cluster.brokers if each != coordinator)):
            cluster.kill(broker_id)
            load.wait_for_progress()
            cluster.restart(broker_id)
            load.wait_for_progress()
        check_all_arrive_once(cluster.bootstrap, load, ahead, PARTITIONS)


@pytest.mark.long
def test_delayed_messages_survive_moves_of_their_shard_and_of_their_topic(tmp_path: Path) -> None:
    shards = {
        "delayed.message.topic.num.partitions": "1",
        "delayed.message.topic.replication.factor": "1",
        "min.insync.replicas": "1",  # A raft partition is moved in fetch mode, where this counts.
    }
    with cluster_processes(nodes=2, folder=tmp_path, settings=SETTINGS | shards) as cluster:
        create_topic(cluster.bootstrap)
        ahead = send_ahead(cluster.bootstrap, 8_000, 25_000)
        load = Load(cluster.bootstrap)
        load.start()
        load.wait_for_progress()
        for name in (DELAYED_MESSAGES_TOPIC, TOPIC):
            before = cluster.leader_of(name)
            assert before is not None
            after = 3 - before  # the other one
            with zhumq.Admin(cluster.bootstrap) as admin:
                move = Move(
                    topic_partition=TopicPartition(name, 0),
                    before=(BrokerId(before),),
                    after=(BrokerId(after),),
                )
                run_moves(admin, [move], at_once=1)
            wait_for(lambda: cluster.leader_of(name) == after, f"{name} is moved")  # noqa: B023
            load.wait_for_progress()
        check_all_arrive_once(cluster.bootstrap, load, ahead, 1)


def check_all_arrive_once(
    bootstrap: str, load: Load, ahead: Counter[bytes], partitions: int
) -> None:
    load.stopping.set()
    load.join(200)
    sent = load.sent + ahead
    wait_for_messages(bootstrap, len(sent), partitions=partitions)
    with zhumq.Admin(bootstrap) as admin:
        wait_for(lambda: not admin.scheduled(TOPIC).messages, "nothing is pending")
    found = read_all(bootstrap, partitions=partitions)
    assert Counter(each.value for each in found) == sent
    assert_in_due_order(found)

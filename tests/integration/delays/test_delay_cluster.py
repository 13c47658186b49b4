"""Delayed messages in a cluster of three brokers on ZooKeeper: each of them is killed while messages are pending and moved."""

import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from delay_support import SETTINGS, TOPIC, create_topic, read_all, wait_for, wait_for_messages

import zhumq
from zhumq.model.ids import DELAYED_MESSAGES_TOPIC
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


def test_delayed_messages_survive_the_death_of_each_broker_of_three(tmp_path: Path) -> None:
    shards = {"delayed.message.topic.num.partitions": "1"}
    with cluster_processes(folder=tmp_path, settings=SETTINGS | shards) as cluster:
        create_topic(cluster.bootstrap, partitions=PARTITIONS, replicas=3)
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
        load.stopping.set()
        load.join(200)
        wait_for_messages(cluster.bootstrap, len(load.sent), partitions=PARTITIONS)
        with zhumq.Admin(cluster.bootstrap) as admin:
            wait_for(lambda: not admin.scheduled(TOPIC).messages, "nothing is pending")
        found = read_all(cluster.bootstrap, partitions=PARTITIONS)
        assert Counter(each.value for each in found) == load.sent

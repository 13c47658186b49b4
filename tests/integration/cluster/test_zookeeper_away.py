"""ZooKeeper is paused or killed for longer than all sessions: traffic continues, and brokers register again."""

import contextlib
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Self

import pytest
from cluster_support import Traffic, client_of, create_topic, traffic
from confluent_kafka import Consumer, KafkaException

from zhumq.cluster.dev_zookeeper import DevZookeeper
from zhumq.testing.cluster import ClusterProcesses, wait_for

pytestmark = pytest.mark.slow

AWAY_SECONDS = 12.0  # six sessions of a broker
MODES = ("raft", "fetch")
# A few messages at a time: the test checks that there are always more.
FEW = 20


def health_of(cluster: ClusterProcesses, broker_id: int) -> str:
    address = cluster.brokers[broker_id].http
    with urllib.request.urlopen(f"http://{address}/healthz", timeout=10) as page:
        return str(page.read().decode())


def wait_for_health(cluster: ClusterProcesses, is_expected: Callable[[str], bool]) -> None:
    for broker_id in cluster.brokers:
        wait_for(
            lambda each=broker_id: is_expected(health_of(cluster, each)) or None,  # type: ignore[misc]
            f"the expected health of broker {broker_id}",
        )


@contextlib.contextmanager
def paused(zookeeper: DevZookeeper) -> Iterator[None]:
    for node in zookeeper.nodes:
        node.pause()
    try:
        yield
    finally:
        for node in zookeeper.nodes:
            node.resume()


@contextlib.contextmanager
def killed(zookeeper: DevZookeeper) -> Iterator[None]:
    for node in zookeeper.nodes:
        node.kill()
    try:
        yield
    finally:
        for node in zookeeper.nodes:
            zookeeper.restart(node)


class Reader:
    """A member of a group that reads and commits for the length of the block."""

    def __init__(self, cluster: ClusterProcesses, group: str, topics: list[str]) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.subscribe(topics)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self.read: dict[str, int] = dict.fromkeys(topics, 0)
        self.commits = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def wait_for_more(self) -> None:
        """Wait for more records of every topic, and more commits."""
        before = {**self.read, "commits": self.commits}

        def more() -> bool | None:
            now = {**self.read, "commits": self.commits}
            return all(now[each] >= before[each] + 2 for each in before) or None

        wait_for(more, f"more than {before}")

    def _read(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(100, 0.2):
                if message.error() is None:
                    self.read[str(message.topic())] += 1
            with contextlib.suppress(KafkaException):
                self._consumer.commit(asynchronous=False)
                self.commits += 1


@pytest.mark.thorough
@pytest.mark.parametrize("away", [pytest.param(paused, marks=pytest.mark.long), killed])
def test_messages_and_groups_go_on_while_zookeeper_is_away(
    cluster: ClusterProcesses,
    away: Callable[[DevZookeeper], contextlib.AbstractContextManager[None]],
) -> None:
    topics = {mode: f"{away.__name__}-{mode}" for mode in MODES}
    for mode, topic in topics.items():
        create_topic(cluster, topic, partitions=3, replication_mode=mode)
    # A leader change may lose these, so the test checks only that they continue.
    others = [
        Traffic(client_of(cluster), topic, acks=acks)
        for topic in topics.values()
        for acks in (0, 1)
    ]
    names = {mode: f"{topic}-all" for mode, topic in topics.items()}
    for mode, name in names.items():
        create_topic(cluster, name, partitions=3, replication_mode=mode)
    with (
        contextlib.ExitStack() as stack,
        traffic(cluster, names["raft"]) as raft,
        traffic(cluster, names["fetch"]) as fetch,
        Reader(cluster, away.__name__, [*topics.values(), *names.values()]) as reader,
    ):
        for other in others:
            other.start()
            stack.callback(other.stop)
        producers = [raft, fetch, *others]
        # The first group creates `__consumer_offsets`, which needs ZooKeeper.
        reader.wait_for_more()
        with away(cluster.zookeeper):
            began = time.monotonic()
            wait_for_health(cluster, lambda page: "the session with ZooKeeper is lost" in page)
            while time.monotonic() < began + AWAY_SECONDS:
                for each in producers:
                    each.wait_for_more(FEW)
                reader.wait_for_more()
            gaps = [round(each.longest_gap_seconds, 1) for each in producers]
            print(f"longest gaps while ZooKeeper was {away.__name__}: {gaps} s")
        wait_for_health(cluster, lambda page: page == "ok\n")
        cluster.wait_for_brokers(cluster.brokers)
        for each in producers:
            each.wait_for_more()
        reader.wait_for_more()
        gaps = [round(each.longest_gap_seconds, 1) for each in producers]
        print(f"including its return: {gaps} s")

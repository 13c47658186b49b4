"""Transactions over the partitions of several brokers, some of which are killed: whole, or not at all."""

import contextlib
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import pytest
from cluster_support import create_topic
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from zhumq.testing.cluster import ClusterProcesses, wait_for

pytestmark = pytest.mark.slow

PARTITIONS = 3
WAIT_SECONDS = 60.0
WRITERS = 3


@dataclass
class Writer:
    """Writes one transaction after another, each with one record in every partition of two topics."""

    bootstrap: str
    topics: tuple[str, ...]
    name: str
    stop: threading.Event
    committed: set[str] = field(default_factory=set)
    aborted: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    failure: BaseException | None = None

    def run(self) -> None:
        try:
            producer, number = self._begin(), 0
            while not self.stop.is_set():
                number += 1
                if not self._write(producer, f"{self.name}-{number}", is_commit=number % 4 != 0):
                    producer = self._begin()
        except BaseException as failure:
            self.failure = failure
            raise

    def _begin(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": self.name,
                "log_level": 0,
                "transaction.timeout.ms": 30_000,
            }
        )
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                producer.init_transactions(WAIT_SECONDS)
            except KafkaException as refused:
                if not refused.args[0].retriable() or time.monotonic() > deadline:
                    raise
            else:
                return producer

    def _write(self, producer: Producer, value: str, *, is_commit: bool) -> bool:
        """False where a new instance has to go on."""
        try:
            producer.begin_transaction()
            for topic in self.topics:
                for partition in range(PARTITIONS):
                    producer.produce(topic, value.encode(), partition=partition)
            producer.flush(WAIT_SECONDS)
            if is_commit:
                self.unknown.add(value)
                producer.commit_transaction(WAIT_SECONDS)
                self.unknown.discard(value)
                self.committed.add(value)
            else:
                self.aborted.add(value)
                producer.abort_transaction(WAIT_SECONDS)
        except KafkaException as refused:
            reason = refused.args[0]
            if not reason.txn_requires_abort():
                return False
            with contextlib.suppress(KafkaException):
                producer.abort_transaction(WAIT_SECONDS)
                self.unknown.discard(value)
                self.aborted.add(value)
                return True
            return False
        return True


def read_committed(cluster: ClusterProcesses, topics: tuple[str, ...]) -> dict[str, Counter[str]]:
    """How often each value is in each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    places = [TopicPartition(topic, each, 0) for topic in topics for each in range(PARTITIONS)]
    consumer.assign(places)
    found: dict[str, Counter[str]] = {
        f"{each.topic}-{each.partition}": Counter() for each in places
    }
    ended = set[str]()
    while len(ended) < len(places):
        message = consumer.poll(WAIT_SECONDS)
        assert message is not None
        place = f"{message.topic()}-{message.partition()}"
        if message.error() is None:
            found[place][message.value().decode()] += 1
        else:
            assert message.error().name() == "_PARTITION_EOF", message.error()
            ended.add(place)
    consumer.close()
    return found


def last_stable_offsets_are_at_the_end(
    cluster: ClusterProcesses, topics: tuple[str, ...]
) -> bool | None:
    """Whether no transaction is open any more."""
    ends = []
    for isolation in ("read_committed", "read_uncommitted"):
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "reader",
                "isolation.level": isolation,
            }
        )
        with contextlib.closing(consumer):
            ends.append(
                [
                    consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=10)
                    for topic in topics
                    for each in range(PARTITIONS)
                ]
            )
    return ends[0] == ends[1] or None


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["raft", "fetch"])
def test_transactions_survive_the_death_of_brokers(cluster: ClusterProcesses, mode: str) -> None:
    topics = (f"left-{mode}", f"right-{mode}")
    for topic in topics:
        create_topic(cluster, topic, partitions=PARTITIONS, replication_mode=mode)
    stop = threading.Event()
    writers = [
        Writer(cluster.bootstrap, topics, f"{mode}-{number}", stop) for number in range(WRITERS)
    ]
    threads = [threading.Thread(target=each.run) for each in writers]
    for thread in threads:
        thread.start()

    def progress(beyond: int) -> bool | None:
        assert all(each.failure is None for each in writers), writers
        return sum(len(each.committed) for each in writers) > beyond or None

    for victim in (1, 2, 3):
        done = sum(len(each.committed) for each in writers)
        wait_for(lambda done=done: progress(done + 10), "transactions before the kill")
        cluster.kill(victim)
        done = sum(len(each.committed) for each in writers)
        wait_for(lambda done=done: progress(done + 5), "transactions without the broker")
        cluster.restart(victim)
    stop.set()
    for thread in threads:
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()
    wait_for(lambda: last_stable_offsets_are_at_the_end(cluster, topics), "the last markers")
    found = read_committed(cluster, topics)
    committed = {value for each in writers for value in each.committed}
    aborted = {value for each in writers for value in each.aborted}
    unknown = {value for each in writers for value in each.unknown}
    for place, values in found.items():
        assert max(values.values()) == 1, f"a record is in {place} twice"
        assert committed <= set(values), f"a committed record is not in {place}"
        assert not aborted & set(values), f"an aborted record is in {place}"
    seen = [unknown & set(values) for values in found.values()]
    assert all(each == seen[0] for each in seen), "a transaction is there in part"

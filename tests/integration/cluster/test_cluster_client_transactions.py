"""The Python client's transactions while brokers of a cluster are killed: leaders and coordinators move."""

import threading
from collections import Counter
from collections.abc import Iterator

import pytest
from cluster_support import create_topic
from confluent_kafka import Consumer, KafkaError, TopicPartition

from zhumq import PreparedState, TransactionalProducer
from zhumq.client.errors import OutcomeUnknown, TransactionAborted
from zhumq.client.transaction_core import Outcome
from zhumq.testing.cluster import ClusterProcesses, cluster_processes, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PARTITIONS = 3
MESSAGES = 20  # of a transaction
TOPICS = ("client-left", "client-right")


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[ClusterProcesses]:
    with cluster_processes(settings={"transaction.two.phase.commit.enable": "true"}) as running:
        yield running


class Load:
    """Transactions one after the other, with what became of each."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        self.failure: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def progress(self, beyond: int) -> bool | None:
        assert self.failure is None, self.failure
        return len(self.committed) > beyond or None

    def _run(self) -> None:
        number = 0
        try:
            with TransactionalProducer(self._bootstrap, transactional_id="client") as producer:
                while not self._stop.is_set():
                    number += 1
                    try:
                        self._transact(producer, b"%d" % number)
                    except TransactionAborted:
                        self.aborted.add(number)
                    except OutcomeUnknown:
                        pass
                    else:
                        self.committed.add(number)
        except BaseException as error:
            self.failure = error

    @staticmethod
    def _transact(producer: TransactionalProducer, value: bytes) -> None:
        with producer.transaction() as transaction:
            for topic in TOPICS:
                for partition in range(PARTITIONS):
                    transaction.send_many(topic, [value] * MESSAGES, partition=partition)


def read(bootstrap: str, topic: str, partition: int) -> Counter[int]:
    """How often each value is in a partition, for a reader of committed messages."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found: Counter[int] = Counter()
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while True:
            message = consumer.poll(60)
            assert message is not None, f"{topic}-{partition} has no end"
            error = message.error()
            if error is None:
                found[int(message.value())] += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
    finally:
        consumer.close()


@pytest.mark.thorough
def test_the_clients_transactions_survive_the_death_of_brokers(cluster: ClusterProcesses) -> None:
    for topic in TOPICS:
        create_topic(cluster, topic, partitions=PARTITIONS)
    load = Load(cluster.bootstrap)
    load.start()
    try:
        for victim in (1, 2, 3):
            done = len(load.committed)
            wait_for(lambda done=done: load.progress(done + 10), "transactions before the kill")
            cluster.kill(victim)
            done = len(load.committed)
            wait_for(lambda done=done: load.progress(done + 5), "transactions without the broker")
            cluster.restart(victim)
        done = len(load.committed)
        wait_for(lambda: load.progress(done + 5), "transactions after the last restart")
    finally:
        load.stop()
    everywhere = [
        read(cluster.bootstrap, topic, partition)
        for topic in TOPICS
        for partition in range(PARTITIONS)
    ]
    assert all(found == everywhere[0] for found in everywhere)
    assert set(everywhere[0].values()) == {MESSAGES}
    assert load.committed <= set(everywhere[0])
    assert not load.aborted & set(everywhere[0])


@pytest.mark.thorough
def test_a_prepared_transaction_is_completed_by_another_coordinator(
    cluster: ClusterProcesses,
) -> None:
    topic = "client-prepared"
    create_topic(cluster, topic, partitions=1)
    states: dict[str, str] = {}
    for name in ("one", "two", "three", "four"):
        with (
            TransactionalProducer(
                cluster.bootstrap, transactional_id=name, two_phase=True
            ) as producer,
            producer.transaction() as transaction,
        ):
            transaction.send(topic, b"%d" % len(states))
            states[name] = str(producer.prepare())
    cluster.kill(2)
    for name, text in states.items():
        with TransactionalProducer(
            cluster.bootstrap, transactional_id=name, two_phase=True
        ) as producer:
            is_commit = name in ("one", "three")
            state = PreparedState.parse(text) if is_commit else None
            expected = Outcome.COMMITTED if is_commit else Outcome.ABORTED
            assert producer.complete(state) is expected
    cluster.restart(2)
    assert set(read(cluster.bootstrap, topic, 0)) == {0, 2}

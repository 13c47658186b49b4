"""Transactions of the client while the broker is killed: whole or not at all, as the end of their block reports."""

import threading
from collections import Counter
from pathlib import Path

import pytest
from client_support import until
from committed_reads import new_topic, read

from zhumq import PreparedState, TransactionalProducer
from zhumq.client.errors import OutcomeUnknown, TransactionAborted
from zhumq.client.transaction_core import Outcome
from zhumq.testing.process import broker_process

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

KILLS = 4
MESSAGES = 50  # of a transaction, in each of two topics


class Load:
    """Transactions one after the other, with what became of each."""

    def __init__(self, bootstrap: str, topics: tuple[str, str]) -> None:
        self._bootstrap = bootstrap
        self._topics = topics
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.begun = 0
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        self.failures: list[BaseException] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with TransactionalProducer(self._bootstrap, transactional_id="load") as producer:
                while not self._stop.is_set():
                    self._transact(producer)
        except BaseException as error:
            self.failures.append(error)

    def _transact(self, producer: TransactionalProducer) -> None:
        number = self.begun
        self.begun += 1
        try:
            with producer.transaction() as transaction:
                for topic in self._topics:
                    transaction.send_many(topic, [b"%d" % number] * MESSAGES)
        except TransactionAborted:
            self.aborted.add(number)
        except OutcomeUnknown:
            pass
        else:
            self.committed.add(number)


@pytest.mark.thorough
def test_kill_9_of_the_broker_leaves_whole_transactions(tmp_path: Path) -> None:
    with broker_process(tmp_path) as running:
        first, second = new_topic(running.bootstrap, 2), new_topic(running.bootstrap)
        load = Load(running.bootstrap, (first, second))
        load.start()
        try:
            for _ in range(KILLS):
                goal = len(load.committed) + 20
                until(lambda goal=goal: len(load.committed) >= goal or load.failures)
                running.kill()
                running.start()
            goal = len(load.committed) + 20
            until(lambda: len(load.committed) >= goal or load.failures)
        finally:
            load.stop()
        assert load.failures == []
        seen = Counter(read(running.bootstrap, first, partitions=2))
        assert seen == Counter(read(running.bootstrap, second))
    assert set(seen.values()) == {MESSAGES}
    found = {int(value) for value in seen}
    assert load.committed <= found
    assert not load.aborted & found
    # Nothing was repeated or given up without need: the client sends again what a dead broker has not answered.
    assert len(found) >= load.begun - KILLS


@pytest.mark.thorough
@pytest.mark.parametrize("decision", [Outcome.COMMITTED, Outcome.ABORTED])
def test_a_prepared_transaction_survives_the_producer_and_the_broker(
    tmp_path: Path, decision: Outcome
) -> None:
    settings = {"transaction.two.phase.commit.enable": "true"}
    with broker_process(tmp_path, settings=settings) as running:
        topic = new_topic(running.bootstrap)
        with TransactionalProducer(
            running.bootstrap, transactional_id="orders", two_phase=True
        ) as producer:
            with producer.transaction() as transaction:
                transaction.send(topic, b"prepared")
                text = str(producer.prepare())
            running.kill()
        running.start()
        assert read(running.bootstrap, topic) == []
        state = PreparedState.parse(text) if decision is Outcome.COMMITTED else None
        with TransactionalProducer(
            running.bootstrap, transactional_id="orders", two_phase=True
        ) as producer:
            assert producer.complete(state) is decision
            running.kill()
            running.start()
            assert producer.complete(state) is Outcome.NOTHING
            with producer.transaction() as transaction:
                transaction.send(topic, b"next")
        expected = [b"prepared", b"next"] if decision is Outcome.COMMITTED else [b"next"]
        assert read(running.bootstrap, topic) == expected

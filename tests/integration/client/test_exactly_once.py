"""Consume, process and produce exactly once: aborts, rebalances, kill -9 of the programs and of the broker."""

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import confluent_kafka
import pytest
from client_support import until, working
from committed_reads import PEER, new_topic, read

from zhumq import Admin, Producer, TransactionalConsumer, TransactionalProducer, Worker
from zhumq.client.errors import HandlerFailed, TransactionAborted
from zhumq.client.group_metadata import GroupMetadata
from zhumq.client.outputs import Outputs
from zhumq.client.task import Task
from zhumq.model.ids import TopicPartition
from zhumq.testing.process import broker_process

SEED = 20261117
KILLS = 6
MESSAGES = 3_000
SECONDS_MAX = 240.0
# A member that was killed is out of its group soon.
SETTINGS = {
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
}
COPIER = Path(__file__).with_name("copier.py")


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if PEER:
        yield PEER
        return
    with broker_process(tmp_path_factory.mktemp("broker"), settings=SETTINGS) as running:
        yield running.bootstrap


def fill(bootstrap: str, count: int, partitions: int = 3) -> str:
    """A topic with so many numbers."""
    topic = new_topic(bootstrap, partitions)
    with Producer(bootstrap) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, key=b"%d" % number)
    return topic


def numbers(count: int) -> list[bytes]:
    return sorted(b"%d" % number for number in range(count))


def committed(bootstrap: str, group: str, topic: str, partitions: int = 3) -> int:
    """The sum of a group's offsets."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            # Not read_committed, which waits for the transaction of a process that was killed.
            "isolation.level": "read_uncommitted",
            "log_level": 0,
        }
    )
    try:
        places = [confluent_kafka.TopicPartition(topic, each) for each in range(partitions)]
        return sum(max(each.offset, 0) for each in consumer.committed(places, timeout=30))
    finally:
        consumer.close()


def test_a_loop_with_aborted_transactions_copies_each_message_once(bootstrap: str) -> None:
    source, target = fill(bootstrap, 1_000), new_topic(bootstrap)
    fails = [True, False, True, True]  # the first transactions

    def copy(messages: list[Task]) -> None:
        with producer.transaction(consumer) as transaction:
            for message in messages:
                transaction.send(target, message.value)
            if messages and fails and fails.pop():
                raise KeyError

    copied = 0
    with (
        TransactionalProducer(bootstrap, transactional_id=target) as producer,
        TransactionalConsumer(source, group=target, bootstrap=bootstrap) as consumer,
    ):
        while copied < 1_000:
            messages = consumer.poll(messages_max=100)
            try:
                copy(messages)
            except KeyError:
                continue
            copied += len(messages)
    assert fails == []
    assert sorted(read(bootstrap, target)) == numbers(1_000)
    assert committed(bootstrap, target, source) == 1_000


def copy_all(bootstrap: str, source: str, target: str, count: int) -> None:
    """A second member of the group copies the topic."""
    copied = 0
    with (
        TransactionalProducer(bootstrap, transactional_id=f"{target}-2") as producer,
        TransactionalConsumer(source, group=target, bootstrap=bootstrap) as consumer,
    ):
        while copied < count:
            messages = consumer.poll()
            with producer.transaction(consumer) as transaction:
                transaction.send_many(target, [message.value for message in messages])
            copied += len(messages)


def test_a_member_that_was_replaced_while_it_worked_commits_nothing(bootstrap: str) -> None:
    source, target = fill(bootstrap, 100, partitions=1), new_topic(bootstrap)
    first = TransactionalConsumer(source, group=target, bootstrap=bootstrap)
    messages = until(lambda: first.poll(0.1))
    positions, metadata = first.positions(), first.metadata()
    assert metadata.is_member

    def commit_late(producer: TransactionalProducer) -> None:
        with producer.transaction() as transaction:
            transaction.send_many(target, [message.value for message in messages])
            first.close()
            copy_all(bootstrap, source, target, 100)
            transaction.commit_offsets(positions, metadata)

    with (
        TransactionalProducer(bootstrap, transactional_id=f"{target}-1") as producer,
        pytest.raises(TransactionAborted, match=r"UNKNOWN_MEMBER_ID|ILLEGAL_GENERATION"),
    ):
        commit_late(producer)
    assert sorted(read(bootstrap, target)) == numbers(100)


def test_a_partition_with_an_open_transaction_begins_at_its_committed_position(
    bootstrap: str,
) -> None:
    source, late, group = fill(bootstrap, 100, partitions=1), f"late-{SEED}", f"group-{SEED}"
    place, anyone = TopicPartition(source, 0), GroupMetadata(group=group)
    with ExitStack() as opened:
        producer = opened.enter_context(TransactionalProducer(bootstrap, transactional_id=group))
        with producer.transaction() as transaction:
            transaction.commit_offsets({place: 50}, anyone)
        with suppress(KeyError), producer.transaction() as transaction:
            transaction.commit_offsets({place: 60}, anyone)
            reader = TransactionalConsumer([source, late], group=group, bootstrap=bootstrap)
            consumer = opened.enter_context(reader)
            until(lambda: consumer.poll() == [] and consumer.metadata().is_member)
            # Another partition is assigned meanwhile: librdkafka alone would begin at 0 now.
            with Admin(bootstrap) as admin:
                admin.create_topic(late)
            with Producer(bootstrap) as sender:
                sender.send(late, b"late")
            assert [message.topic for message in until(consumer.poll)] == [late]
            raise KeyError
        first = until(consumer.poll)
    assert (first[0].topic, first[0].offset) == (source, 50)


def test_a_group_whose_position_is_behind_the_log_reads_it_from_its_beginning(
    bootstrap: str,
) -> None:
    """As of a topic that was deleted and made again."""
    source, group = fill(bootstrap, 100, partitions=1), f"ahead-{SEED}"
    with (
        TransactionalProducer(bootstrap, transactional_id=group) as producer,
        producer.transaction() as transaction,
    ):
        ahead = {TopicPartition(source, 0): 500}
        transaction.commit_offsets(ahead, GroupMetadata(group=group))
    with TransactionalConsumer(source, group=group, bootstrap=bootstrap) as consumer:
        first = until(consumer.poll)
    assert (first[0].topic, first[0].offset) == (source, 0)


@pytest.mark.thorough
def test_what_librdkafka_goes_back_to_is_not_processed_again(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lookup of the group's position, which there was none of, may end when a transaction has committed one."""
    consumers: list[confluent_kafka.Consumer] = []

    class KnownConsumer(confluent_kafka.Consumer):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)
            consumers.append(self)

    monkeypatch.setattr(confluent_kafka, "Consumer", KnownConsumer)
    source, target = fill(bootstrap, 100, partitions=1), new_topic(bootstrap)
    with (
        TransactionalProducer(bootstrap, transactional_id=target) as producer,
        TransactionalConsumer(source, group=target, bootstrap=bootstrap) as consumer,
    ):
        for done in range(0, 100, 10):
            tasks = until(lambda: consumer.poll(1, messages_max=10))
            assert [each.offset for each in tasks] == list(range(done, done + 10))
            if done == 50:  # while a transaction is open, and before it is committed
                consumers[0].seek(confluent_kafka.TopicPartition(source, 0, 0))
            with producer.transaction(consumer) as transaction:
                for each in tasks:
                    transaction.send(target, each.value or b"")
            consumers[0].seek(confluent_kafka.TopicPartition(source, 0, 0))
    assert sorted(read(bootstrap, target)) == numbers(100)


def test_a_worker_sends_the_outputs_of_a_task_once_whatever_its_handler_raises(
    bootstrap: str,
) -> None:
    source, target = fill(bootstrap, 500), new_topic(bootstrap)
    attempts: Counter[bytes | None] = Counter()

    def handle(task: Task, outputs: Outputs) -> None:
        attempts[task.value] += 1
        outputs.send(target, task.value, headers={"attempt": b"%d" % attempts[task.value]})
        if attempts[task.value] == 1 and task.value in (b"7", b"300"):
            raise ValueError("not yet")

    worker = Worker(source, handle, group=target, bootstrap=bootstrap, exactly_once=True)
    worker.run(until=lambda: committed(bootstrap, target, source) == 500)
    assert sorted(read(bootstrap, target)) == numbers(500)


def test_a_worker_writes_dead_letters_in_the_same_transaction(bootstrap: str) -> None:
    source, target = fill(bootstrap, 100), new_topic(bootstrap)

    def handle(task: Task, outputs: Outputs) -> None:
        outputs.send(target, task.value)
        if task.value == b"13":
            raise ValueError("thirteen")

    worker = Worker(
        source,
        handle,
        group=target,
        bootstrap=bootstrap,
        exactly_once=True,
        retries=1,
        backoff_ms=1,
        on_failure="dead-letter",
    )
    worker.run(until=lambda: committed(bootstrap, target, source) == 100)
    assert len(read(bootstrap, target)) == 99
    assert read(bootstrap, f"{source}.dlq") == [b"13"]


def test_a_worker_that_stops_at_a_failure_commits_nothing_of_its_round(bootstrap: str) -> None:
    source, target = fill(bootstrap, 50, partitions=1), new_topic(bootstrap)

    def fail(task: Task, outputs: Outputs) -> None:
        outputs.send(target, task.value)
        if task.value == b"20":
            raise ValueError("twenty")

    worker = Worker(source, fail, group=target, bootstrap=bootstrap, exactly_once=True, retries=0)
    with pytest.raises(HandlerFailed, match="twenty"):
        worker.run()
    seen = read(bootstrap, target)
    assert committed(bootstrap, target, source, 1) == len(seen) <= 20

    def copy(task: Task, outputs: Outputs) -> None:
        outputs.send(target, task.value)

    again = Worker(source, copy, group=target, bootstrap=bootstrap, exactly_once=True)
    again.run(until=lambda: committed(bootstrap, target, source, 1) == 50)
    assert sorted(read(bootstrap, target)) == numbers(50)


def test_chosen_partitions_cannot_be_read_exactly_once() -> None:
    with pytest.raises(ValueError, match="exactly_once"):
        Worker("t", lambda task: None, group="g", partitions=[0], exactly_once=True)


@pytest.mark.thorough
def test_rebalances_repeat_and_lose_nothing(bootstrap: str) -> None:
    source, target = fill(bootstrap, 2_000, partitions=4), new_topic(bootstrap)
    pause = threading.Event()

    def copy(task: Task, outputs: Outputs) -> None:
        outputs.send(target, task.value)
        pause.wait(0.002)

    def worker() -> Worker:
        return Worker(
            source, copy, group=target, bootstrap=bootstrap, processors=2, exactly_once=True
        )

    with working(worker()) as raised:
        for _ in range(3):  # Members come and go.
            before = committed(bootstrap, target, source, 4)
            with working(worker()) as also_raised:
                until(lambda before=before: committed(bootstrap, target, source, 4) > before)
            assert also_raised == []
        until(lambda: committed(bootstrap, target, source, 4) == 2_000)
    assert raised == []
    assert sorted(read(bootstrap, target)) == numbers(2_000)


class Copiers:
    """Two processes that copy a topic; each is killed and started again."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._processes = [self._start(), self._start()]

    def kill_one(self, chosen: int) -> None:
        self._processes[chosen].kill()
        self._processes[chosen].wait()
        self._processes[chosen] = self._start()

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def _start(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, str(COPIER), *self._arguments])


@pytest.mark.slow
@pytest.mark.long
def test_kill_9_of_the_programs_and_of_the_broker_neither_loses_nor_repeats_an_output(
    tmp_path: Path,
) -> None:
    chance = random.Random(SEED)
    with broker_process(tmp_path, settings=SETTINGS) as running:
        bootstrap = running.bootstrap
        source, target = new_topic(bootstrap, 3), new_topic(bootstrap, 2)
        copiers = Copiers(bootstrap, source, target, "copiers")
        try:
            with Producer(bootstrap) as producer:
                for kill in range(KILLS):
                    for number in range(kill * MESSAGES // KILLS, (kill + 1) * MESSAGES // KILLS):
                        producer.send(source, b"%d" % number, key=b"%d" % number)
                    producer.flush(60)
                    copiers.kill_one(kill % 2)
                    if kill % 3 == 1:
                        running.kill()
                        running.start()
                    sent = (kill + 1) * MESSAGES // KILLS
                    target_offset = chance.randrange(committed(bootstrap, "copiers", source), sent)
                    until(
                        lambda target_offset=target_offset: (
                            committed(bootstrap, "copiers", source) >= target_offset
                        )
                    )
            deadline = time.monotonic() + SECONDS_MAX
            while committed(bootstrap, "copiers", source) < MESSAGES:
                assert time.monotonic() < deadline
        finally:
            copiers.stop()
        expected = [b"again %d" % number for number in range(MESSAGES)] + numbers(MESSAGES)
        assert sorted(read(bootstrap, target, partitions=2)) == sorted(expected)

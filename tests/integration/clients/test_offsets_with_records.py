"""librdkafka copies records from topic to topic and commits its offsets in the same transactions."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from zhumq.model.errors import ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.groups import FindCoordinatorRequest
from zhumq.protocol.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from zhumq.testing.process import BrokerProcess
from zhumq.testing.raw_client import RawClient

SECONDS_MAX = 60.0
SOURCE, TARGET = "source", "target"
GROUP = "copiers"
RECORDS = 300
KILLS = 4


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data")
    process.start()
    yield process
    process.stop()


def fill_source(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(SOURCE, b"%d" % number)
    assert producer.flush(SECONDS_MAX) == 0


def make_producer(bootstrap: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": "copier",
            # With the default, librdkafka 2.16 waits for ever in send_offsets_to_transaction after all brokers were
            # away: it forgets them and keeps the group's coordinator among those it remembers.
            "metadata.recovery.strategy": "none",
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
        }
    )
    producer.init_transactions(SECONDS_MAX)
    return producer


def make_consumer(bootstrap: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "session.timeout.ms": 6_000,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
        }
    )
    consumer.subscribe([SOURCE])
    return consumer


def read_some(consumer: Consumer, count: int) -> list[Message]:
    found: list[Message] = []
    deadline = time.monotonic() + SECONDS_MAX
    while not found:
        assert time.monotonic() < deadline
        found = [each for each in consumer.consume(count, 1.0) if each.error() is None]
    return found


def copy(consumer: Consumer, producer: Producer, count: int) -> None:
    """Copy some records in a transaction that stays open."""
    producer.begin_transaction()
    for message in read_some(consumer, count):
        producer.produce(TARGET, message.value())
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), SECONDS_MAX)


def committed(bootstrap: str, *, require_stable: bool) -> tuple[int, int]:
    """The committed offset and its error, as any consumer asks for it."""
    asked = OffsetFetchRequestTopic(name=SOURCE, partition_indexes=[0])
    request = OffsetFetchRequest(
        require_stable=require_stable,
        groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=[asked])],
    )
    deadline = time.monotonic() + SECONDS_MAX
    with RawClient(bootstrap) as client:
        while True:
            (answer,) = client.ask(ApiKey.OFFSET_FETCH, request, 9).groups
            if answer.error_code == ErrorCode.NONE:
                (found,) = answer.topics[0].partitions
                return found.committed_offset, found.error_code
            # The broker starts, and loads its groups.
            assert time.monotonic() < deadline
            client.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)


UNSTABLE = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)


def when_stable(bootstrap: str) -> int:
    """The committed offset, once the marker of the transaction is written."""
    deadline = time.monotonic() + SECONDS_MAX
    while (found := committed(bootstrap, require_stable=True)) == UNSTABLE:
        assert time.monotonic() < deadline
    offset, code = found
    assert code == ErrorCode.NONE
    return offset


@pytest.mark.thorough
@pytest.mark.parametrize("is_killed", [False, True])
def test_offsets_are_committed_with_the_transaction_and_not_with_an_aborted_one(
    process: BrokerProcess, is_killed: bool
) -> None:
    bootstrap = process.bootstrap
    fill_source(bootstrap)
    consumer, producer = make_consumer(bootstrap), make_producer(bootstrap)

    def kill() -> None:
        if is_killed:
            process.kill()
            process.start()

    copy(consumer, producer, 10)
    assert committed(bootstrap, require_stable=False) == (-1, ErrorCode.NONE)
    assert committed(bootstrap, require_stable=True) == UNSTABLE
    kill()
    producer.commit_transaction(SECONDS_MAX)
    reached = when_stable(bootstrap)
    assert reached > 0
    copy(consumer, producer, 10)
    assert committed(bootstrap, require_stable=False) == (reached, ErrorCode.NONE)
    assert committed(bootstrap, require_stable=True) == UNSTABLE
    kill()
    producer.abort_transaction(SECONDS_MAX)
    assert when_stable(bootstrap) == reached
    consumer.close()


def test_a_consumer_that_starts_waits_for_the_end_of_an_open_transaction(
    process: BrokerProcess,
) -> None:
    bootstrap = process.bootstrap
    fill_source(bootstrap)
    consumer, producer = make_consumer(bootstrap), make_producer(bootstrap)
    copy(consumer, producer, 10)
    (end,) = consumer.position(consumer.assignment())
    consumer.close()
    second = make_consumer(bootstrap)
    assert second.consume(1, 3.0) == [], "where to begin is not decided"
    producer.commit_transaction(SECONDS_MAX)
    assert read_some(second, 1)[0].offset() == end.offset
    second.close()


def test_a_member_of_an_older_generation_cannot_commit(process: BrokerProcess) -> None:
    bootstrap = process.bootstrap
    fill_source(bootstrap)
    consumer, producer = make_consumer(bootstrap), make_producer(bootstrap)
    copy(consumer, producer, 10)
    old = consumer.consumer_group_metadata()
    producer.commit_transaction(SECONDS_MAX)
    reached = when_stable(bootstrap)
    consumer.close()
    second = make_consumer(bootstrap)
    read_some(second, 1)
    producer.begin_transaction()
    with pytest.raises(KafkaException) as caught:
        producer.send_offsets_to_transaction([TopicPartition(SOURCE, 0, 1)], old, SECONDS_MAX)
    assert caught.value.args[0].txn_requires_abort()
    producer.abort_transaction(SECONDS_MAX)
    assert when_stable(bootstrap) == reached
    second.close()


def read_target(bootstrap: str) -> Counter[bytes]:
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition(TARGET, 0, 0)])
    seen: Counter[bytes] = Counter()
    while True:
        message = reader.poll(SECONDS_MAX)
        assert message is not None
        if message.error():
            break
        seen[message.value() or b""] += 1
    reader.close()
    return seen


@pytest.mark.thorough
def test_every_record_is_copied_once_although_copiers_and_broker_are_killed(
    process: BrokerProcess,
) -> None:
    bootstrap = process.bootstrap
    fill_source(bootstrap)
    kills = 0
    deadline = time.monotonic() + 3 * SECONDS_MAX
    copier: tuple[Consumer, Producer] | None = None
    while committed(bootstrap, require_stable=False)[0] < RECORDS:
        assert time.monotonic() < deadline
        if copier is None:
            # The new producer aborts the transaction of the one before it.
            copier = make_consumer(bootstrap), make_producer(bootstrap)
        consumer, producer = copier
        try:
            copy(consumer, producer, 20)
            if kills < KILLS:
                kills += 1
                process.kill()
                process.start()
            if kills % 2:
                consumer.close()  # the transaction stays open, as after a crash of the copier
                copier = None
                continue
            producer.commit_transaction(SECONDS_MAX)
        except KafkaException as failure:
            if failure.args[0].txn_requires_abort():
                producer.abort_transaction(SECONDS_MAX)
            elif not failure.args[0].retriable():
                raise
            consumer.close()
            copier = None
    if copier is not None:
        copier[0].close()
    assert kills == KILLS
    assert read_target(bootstrap) == Counter(b"%d" % number for number in range(RECORDS))

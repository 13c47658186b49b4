"""Consumers of other projects, and our own, skip deferred batches and get each message once."""

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer
from delay_support import SECONDS_MAX, SETTINGS, TOPIC, create_topic, read_all, wait_for_messages
from kafka import KafkaConsumer, TopicPartition

import zhumq
from zhumq.testing.broker import RunningBroker, broker

EXPECTED = [b"0", b"2", b"4", b"1", b"3", b"5"]


@pytest.fixture(scope="module")
def filled() -> Iterator[RunningBroker]:
    """A topic with deferred batches before, between and behind its messages."""
    with broker(settings=SETTINGS) as running:
        create_topic(running.bootstrap)
        with zhumq.Producer(running.bootstrap, settings={"linger.ms": 200}) as producer:
            producer.send(TOPIC, b"never", delay=3600)
            producer.flush()
            for number in range(6):
                delay = 2 + number * 0.1 if number % 2 else None
                producer.send(TOPIC, b"%d" % number, delay=delay)
            producer.flush()
            producer.send(TOPIC, b"never", delay=3600)
        wait_for_messages(running.bootstrap, len(EXPECTED))
        yield running


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_librdkafka_reads_up_to_the_end(filled: RunningBroker, isolation: str) -> None:
    seen = read_all(filled.bootstrap, isolation=isolation)
    assert [each.value for each in seen] == EXPECTED


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_kafka_python_reads_up_to_the_end(filled: RunningBroker, isolation: str) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=filled.bootstrap,
        auto_offset_reset="earliest",
        isolation_level=isolation,
        consumer_timeout_ms=SECONDS_MAX * 1000,
    )
    partition = TopicPartition(TOPIC, 0)
    consumer.assign([partition])
    (end,) = consumer.end_offsets([partition]).values()
    values: list[bytes] = []
    while consumer.position(partition) < end:
        for records in consumer.poll(timeout_ms=200).values():
            values += [record.value for record in records]
    consumer.close()
    assert values == EXPECTED


def test_aiokafka_reads_all_messages(filled: RunningBroker) -> None:
    async def read() -> list[bytes]:
        consumer = AIOKafkaConsumer(
            TOPIC,
            bootstrap_servers=filled.bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        await consumer.start()
        try:
            async with asyncio.timeout(SECONDS_MAX):
                return [(await consumer.getone()).value for _ in EXPECTED]
        finally:
            await consumer.stop()

    assert asyncio.run(read()) == EXPECTED


def test_a_subscription_gets_all_messages(filled: RunningBroker) -> None:
    with zhumq.Consumer(
        TOPIC, group="readers", mode="ptp", bootstrap=filled.bootstrap, start="earliest"
    ) as consumer:
        values: list[bytes | None] = []
        for message in consumer:
            values.append(message.value)
            message.ack()
            if len(values) == len(EXPECTED):
                break
    assert values == EXPECTED

"""Messages with a TTL: pulled, pushed and in a Kafka group; dropped or dead-lettered; read by other clients."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from zhumq import Admin, Consumer, Producer, PushConsumer
from zhumq.client.expiry import ExpiredCounts, OnExpired
from zhumq.testing.broker import RunningBroker, broker

SECONDS_MAX = 60.0
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker() as running_:
        yield running_


def send(running: RunningBroker, topic: str) -> None:
    """Four messages: expired, fresh, without a TTL, expired. Then the last one, which is fresh."""
    hour_ago = time.time_ns() // 1_000_000 - HOUR_MS
    with Producer(running.bootstrap) as producer:
        for value, ttl_ms in ((b"0", 1000), (b"1", 2 * HOUR_MS), (b"2", None), (b"3", 0)):
            producer.send(topic, value, partition=0, timestamp_ms=hour_ago, ttl_ms=ttl_ms)
        producer.send(topic, b"last", partition=0, ttl_ms=HOUR_MS)


def pulled(running: RunningBroker, topic: str, **options: Any) -> tuple[list[bytes], ExpiredCounts]:
    values = []
    with Consumer(topic, group=f"g-{topic}", bootstrap=running.bootstrap, **options) as consumer:
        for message in consumer:
            values.append(message.value or b"")
            if message.value == b"last":
                break
    return values, consumer.expired


async def pushed(running: RunningBroker, topic: str) -> tuple[list[bytes], ExpiredCounts]:
    values = []
    async with PushConsumer(topic, group=f"g-{topic}", bootstrap=running.bootstrap) as consumer:
        async for batch in consumer.batches():
            values += [message.value or b"" for message in batch]
            if values[-1:] == [b"last"]:
                batch.ack()
                await consumer.flush()
                break
    assert not consumer.refused_answers
    return values, consumer.expired


def is_done(running: RunningBroker, topic: str) -> bool:
    with Admin(running.bootstrap) as admin:
        group = admin.subscription_groups()[f"g-{topic}"]
        return sum(each.lag or 0 for each in group.partitions) == 0


def wait_until_done(running: RunningBroker, topic: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_done(running, topic):
        assert time.monotonic() < deadline, "messages are left"


@pytest.mark.parametrize("mode", ["ptp", "ptp-shared", "psb", None])
def test_expired_messages_are_dropped(running: RunningBroker, mode: Any) -> None:
    topic = f"dropped-{mode}"
    send(running, topic)
    values, counts = pulled(running, topic, mode=mode)
    assert values == [b"1", b"2", b"last"]
    assert counts == ExpiredCounts(dropped=2)
    if mode is not None:
        wait_until_done(running, topic)


@pytest.mark.parametrize("mode", ["ptp", "ptp-shared", None])
def test_expired_messages_become_dead_letters_by_choice(running: RunningBroker, mode: Any) -> None:
    topic = f"lettered-{mode}"
    send(running, topic)
    values, counts = pulled(running, topic, mode=mode, on_expired="dead-letter")
    assert values == [b"1", b"2", b"last"]
    assert (counts.dropped, counts.dead_lettered) == (0, 2)
    deadline = time.monotonic() + SECONDS_MAX
    with Admin(running.bootstrap) as admin:
        while admin.dead_letter_topics().get(f"{topic}.dlq") != 2:
            assert time.monotonic() < deadline, "no dead letters"
        found = admin.dead_letters(f"{topic}.dlq")
    assert {"expired: its zhumq-ttl-ms of" in each.story.reason for each in found} == {True}


def test_batches_of_a_push_consumer_have_no_expired_messages(running: RunningBroker) -> None:
    topic = "pushed"
    send(running, topic)
    values, counts = asyncio.run(asyncio.wait_for(pushed(running, topic), SECONDS_MAX))
    assert values == [b"1", b"2", b"last"]
    assert counts == ExpiredCounts(dropped=2)
    wait_until_done(running, topic)


@pytest.mark.parametrize("choice", ["deliver"])
def test_a_program_can_ask_for_all_of_them_and_other_clients_get_them(
    running: RunningBroker, choice: OnExpired
) -> None:
    send(running, "all")
    values, counts = pulled(running, "all", mode="ptp", on_expired=choice)
    assert values == [b"0", b"1", b"2", b"3", b"last"]
    assert counts == ExpiredCounts()
    plain = confluent_kafka.Consumer({"bootstrap.servers": running.bootstrap, "group.id": "plain"})
    plain.assign([confluent_kafka.TopicPartition("all", 0, 0)])
    read: list[bytes] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(read) < 5:
        assert time.monotonic() < deadline
        message = plain.poll(0.2)
        if message is not None and message.error() is None:
            read.append(message.value() or b"")
    plain.close()
    assert read == values

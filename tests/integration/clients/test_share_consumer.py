"""librdkafka's share consumer: shared point-to-point delivery through the Kafka listener."""

import contextlib
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from zhumq.testing.broker import RunningBroker, broker

SECONDS_MAX = 30.0


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(settings={"share.coordinator.state.topic.num.partitions": "2"}) as each:
        yield each


@pytest.fixture
def topic(running: RunningBroker) -> str:
    name = f"t-{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    admin.create_topics([NewTopic(name, 1)])[name].result(SECONDS_MAX)
    return name


def fill(running: RunningBroker, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": running.bootstrap, "log_level": 0})
    for number in range(count):
        producer.produce(topic, value=b"%d" % number)
    assert producer.flush(SECONDS_MAX) == 0


def earliest_group(running: RunningBroker) -> str:
    """A new group that starts at the earliest offset."""
    group = f"g-{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    entry = ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(SECONDS_MAX)
    return group


@contextlib.contextmanager
def consumer(
    running: RunningBroker, group: str, topic: str, **settings: object
) -> Iterator[ShareConsumer]:
    each = ShareConsumer(
        {
            "bootstrap.servers": running.bootstrap,
            "group.id": group,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    each.subscribe([topic])
    try:
        yield each
    finally:
        each.close()


def take(each: ShareConsumer, count: int) -> list:
    taken = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(taken) < count:
        assert time.monotonic() < deadline, f"{len(taken)} of {count}"
        for message in each.poll(0.5):
            assert message.error() is None
            taken.append(message)
    return taken


def test_everything_is_read_once(running: RunningBroker, topic: str) -> None:
    fill(running, topic, 500)
    with consumer(running, earliest_group(running), topic) as each:
        counts = Counter(message.offset() for message in take(each, 500))
    assert counts == dict.fromkeys(range(500), 1)


def test_two_consumers_share_one_partition_and_a_third_goes_on(
    running: RunningBroker, topic: str
) -> None:
    group = earliest_group(running)
    seen: Counter[int] = Counter()
    with (
        consumer(running, group, topic) as first,
        consumer(running, group, topic) as second,
    ):
        deadline = time.monotonic() + SECONDS_MAX
        counts = [0, 0]
        written = 0
        while not (all(counts) and len(seen) == written):
            assert time.monotonic() < deadline
            if written < 400:
                fill(running, topic, 100)
                written += 100
            for index, each in enumerate((first, second)):
                for message in each.poll(0.1):
                    seen[message.offset()] += 1
                    counts[index] += 1
                each.commit_sync(SECONDS_MAX)
    assert set(seen.values()) == {1}
    fill(running, topic, 10)
    with consumer(running, group, topic) as third:
        assert min(message.offset() for message in take(third, 10)) == written


def test_released_messages_come_again_and_rejected_ones_go_to_the_dead_letters(
    running: RunningBroker, topic: str
) -> None:
    fill(running, topic, 3)
    group = earliest_group(running)
    with consumer(running, group, topic, share_acknowledgement_mode="explicit") as each:
        kinds = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)
        for message in take(each, 3):
            each.acknowledge(message, kinds[message.offset()])
        assert set(each.commit_sync(SECONDS_MAX).values()) == {None}
        (again,) = take(each, 1)
        assert again.offset() == 1
        each.acknowledge(again, AcknowledgeType.ACCEPT)
        assert set(each.commit_sync(SECONDS_MAX).values()) == {None}
    with consumer(running, earliest_group(running), f"{topic}.dlq") as reader:
        (dead_letter,) = take(reader, 1)
        headers = dict(dead_letter.headers())
        assert (headers["zhumq.offset"], headers["zhumq.group"]) == (b"2", group.encode())
    metrics = urllib.request.urlopen(f"http://{running.http}/metrics").read().decode()
    labels = f'{{group="{group}",topic="{topic}"}}'
    assert f"zhumq_subscription_dead_letters_total{labels} 1" in metrics
    assert f"zhumq_subscription_redeliveries_total{labels} 1" in metrics
    assert f"zhumq_subscription_delivered_total{labels} 4" in metrics
    assert 'zhumq_push_sessions{state="parked"} 0' in metrics

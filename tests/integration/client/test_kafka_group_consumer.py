"""`zhumq.Consumer` without a mode: a Kafka group, whose delivery counts the client keeps."""

from collections.abc import Iterator

import pytest
from client_support import send, until

from zhumq import Admin, Consumer
from zhumq.client import kafka_source
from zhumq.testing.broker import RunningBroker, broker

COUNT = 10


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker() as broker_:
        yield broker_


def read(running: RunningBroker, topics: object, count: int, **options: object) -> list[int]:
    seen: list[int] = []
    with Consumer(topics, bootstrap=running.bootstrap, **options) as consumer:  # type: ignore[arg-type]
        for message in consumer:
            seen.append(message.offset)
            if len(seen) == count:
                break
    return seen


def filled(running: RunningBroker, topic: str, *, partitions: int = 1) -> str:
    with Admin(running.bootstrap) as admin:
        admin.create_topic(topic, partitions=partitions)
    send(running.bootstrap, topic, COUNT * partitions, partitions=partitions)
    return topic


@pytest.mark.thorough
def test_a_nacked_message_is_counted_and_at_the_limit_a_dead_letter(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_source, "BACKOFF_SECONDS", 0.01)
    monkeypatch.setattr(kafka_source, "BACKOFF_SECONDS_MAX", 0.05)
    topic = filled(running, "nacked")
    counts: list[int] = []
    seen: list[int] = []
    with Consumer(topic, group="nackers", bootstrap=running.bootstrap) as consumer:
        for message in consumer:
            seen.append(message.offset)
            if message.offset == 3:
                counts.append(message.delivery_count)
                message.nack("not today")
            elif message.offset == COUNT - 1:
                break
    assert counts == list(range(1, 17))
    assert seen == [0, 1, 2, *[3] * 16, *range(4, COUNT)]
    with Admin(running.bootstrap) as admin:
        (dead_letter,) = admin.dead_letters(topic)
    assert (dead_letter.value, dead_letter.story.deliveries, dead_letter.story.group) == (
        b"3",
        16,
        "nackers",
    )
    assert dead_letter.story.reason == "delivered 16 times without success: not today"


def test_a_nacked_message_waits_before_it_comes_again(running: RunningBroker) -> None:
    topic = filled(running, "waits", partitions=2)
    order: list[tuple[int, int]] = []
    with Consumer(topic, group="waiters", bootstrap=running.bootstrap) as consumer:
        for message in consumer:
            order.append((message.partition, message.delivery_count))
            if message.partition == 0 and message.offset == 0 and message.delivery_count == 1:
                message.nack()
            if order.count((0, 2)) == 1:
                break
    assert order.count((1, 1)) == COUNT, "the other partition is read meanwhile"


@pytest.mark.parametrize(
    "start", [{"start": 7}, {"start_time_ms": 1}], ids=["offset", "time of long ago"]
)
def test_a_group_without_a_position_begins_at_the_given_start(
    running: RunningBroker, start: dict[str, int], request: pytest.FixtureRequest
) -> None:
    topic = filled(running, f"starts-{abs(hash(request.node.name))}")
    first = start.get("start", 0)
    assert read(running, topic, 2, group=topic, **start) == [first, first + 1]
    assert read(running, topic, 1, group=topic, **start) == [first + 2], (
        "a position overrides the start"
    )


def test_chosen_partitions_are_read_and_their_position_kept(running: RunningBroker) -> None:
    topic = filled(running, "chosen", partitions=3)
    for first in (4, 6):
        with Consumer(
            {topic: [2]}, group="choosers", start=4, bootstrap=running.bootstrap
        ) as consumer:
            messages = until(lambda each=consumer: each.poll(1.0))[:2]  # type: ignore[misc]
            assert [(each.partition, each.offset) for each in messages] == [
                (2, first),
                (2, first + 1),
            ]
            for message in messages:
                message.ack()

"""The priority consumer on a real broker: turns by weight, overtaking, answers, positions."""

from collections import Counter
from collections.abc import Iterator

import pytest
from client_support import SECONDS_MAX, send

from zhumq import Admin, Consumer, PriorityConsumer, Producer
from zhumq.client.message import Message
from zhumq.testing.broker import RunningBroker, broker


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker() as running_:
        yield running_


def create(running: RunningBroker, *topics: str) -> None:
    with Admin(running.bootstrap) as admin:
        for topic in topics:
            admin.create_topic(topic, partitions=1)


def take(consumer: PriorityConsumer, count: int) -> list[Message]:
    found: list[Message] = []
    for message in consumer:
        found.append(message)
        if len(found) == count:
            message.ack()
            return found
    raise AssertionError("a consumer does not end")


def settle(consumer: PriorityConsumer) -> None:
    """Wait until the consumer has been assigned the partitions of all topics: one message of each."""
    assert len({message.topic for message in take(consumer, 2)}) == 2


def test_turns_are_taken_by_weight_and_no_topic_starves(running: RunningBroker) -> None:
    create(running, "urgent", "normal")
    weights = {"urgent": 8, "normal": 1}
    with PriorityConsumer(weights, group="w", bootstrap=running.bootstrap) as consumer:
        send(running.bootstrap, "urgent", 1)
        send(running.bootstrap, "normal", 1)
        settle(consumer)
        send(running.bootstrap, "normal", 300)
        # So that messages of both are here: the client has the normal ones before.
        take(consumer, 1)
        send(running.bootstrap, "urgent", 300)
        found = [message.topic for message in take(consumer, 599)]
    assert Counter(found) == {"urgent": 300, "normal": 299}
    first, last = found.index("urgent"), 599 - found[::-1].index("urgent")
    between = Counter(found[first:last])
    assert between["urgent"] == 300
    # One of nine, while both have messages; a fetch that is under way gives normal ones a few turns more.
    assert 25 <= between["normal"] <= 150


def test_an_urgent_message_overtakes_those_that_wait(running: RunningBroker) -> None:
    create(running, "fast", "bulk")
    weights = {"fast": 100, "bulk": 1}
    with PriorityConsumer(weights, group="o", bootstrap=running.bootstrap) as consumer:
        send(running.bootstrap, "fast", 1)
        send(running.bootstrap, "bulk", 1)
        settle(consumer)
        send(running.bootstrap, "bulk", 5_000)
        take(consumer, 10)
        send(running.bootstrap, "fast", 1)
        found = [message.topic for message in take(consumer, 4_991)]
    assert found.index("fast") < 4_000


def test_positions_are_kept_and_messages_after_the_break_come_again(
    running: RunningBroker,
) -> None:
    create(running, "p1", "p2")
    for topic in ("p1", "p2"):
        send(running.bootstrap, topic, 20)
    seen: Counter[tuple[str, bytes | None]] = Counter()
    for _ in range(4):
        with PriorityConsumer(
            {"p1": 3, "p2": 1}, group="k", bootstrap=running.bootstrap
        ) as consumer:
            for number, message in enumerate(consumer, start=1):
                seen[message.topic, message.value] += 1
                if number == 10:
                    break
    assert len(seen) == 40
    assert set(seen.values()) == {1}


def test_a_nack_delivers_again_in_order_and_then_dead_letters(running: RunningBroker) -> None:
    create(running, "n1", "n2")
    send(running.bootstrap, "n1", 3)
    values: list[tuple[bytes | None, int]] = []
    with PriorityConsumer(
        {"n1": 2, "n2": 1},
        group="n",
        bootstrap=running.bootstrap,
        auto_ack=False,
        max_deliveries=2,
    ) as consumer:
        for message in consumer:
            values.append((message.value, message.delivery_count))
            if message.value == b"1":
                message.nack("no", delay_ms=10)
            else:
                message.ack()
            if message.value == b"2":
                break
    assert values == [(b"0", 1), (b"1", 1), (b"1", 2), (b"2", 1)]
    with Consumer("n1.dlq", bootstrap=running.bootstrap) as consumer_:
        assert next(iter(consumer_)).value == b"1"


def test_expired_messages_are_counted_by_topic(running: RunningBroker) -> None:
    create(running, "e1", "e2")
    with Producer(running.bootstrap) as producer:
        producer.send("e1", b"old", timestamp_ms=1, ttl_ms=1)
        producer.send("e2", b"fresh")
    with PriorityConsumer({"e1": 1, "e2": 1}, group="e", bootstrap=running.bootstrap) as consumer:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None
        assert message.value == b"fresh"
        message.ack()
        while not consumer.expired["e1"].dropped:
            assert consumer.poll(0.1) is None
        assert consumer.expired["e2"].dropped == 0


def test_a_weight_that_is_none_opens_no_connection() -> None:
    with pytest.raises(ValueError, match="the weight of 'a' is a whole number"):
        PriorityConsumer({"a": 0}, group="g", bootstrap="127.0.0.1:1")

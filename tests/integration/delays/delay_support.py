"""Helpers of the tests of delayed messages: what a consumer sees and when, and waiting for facts."""

import random
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from confluent_kafka import Consumer, TopicPartition

import zhumq
from zhumq.model.delay_headers import DELIVER_AT_HEADER

SECONDS_MAX = 60.0
TOPIC = "orders"
AHEAD = 300  # messages that are pending before a test begins
SETTINGS = {
    "delayed.message.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
}
Fact = TypeVar("Fact")


class Seen(NamedTuple):
    """A message as a consumer gets it."""

    partition: int
    offset: int
    value: bytes
    timestamp_ms: int
    due_ms: int | None
    headers: dict[str, bytes]


def wait_for(look: Callable[[], Fact], what: str, seconds: float = SECONDS_MAX) -> Fact:
    """Wait until the condition is true, and return its result."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"timed out: {what}"
        time.sleep(0.05)
    return found


def create_topic(bootstrap: str, *, partitions: int = 1, replicas: int = 1) -> None:
    with zhumq.Admin(bootstrap) as admin:
        admin.create_topic(
            TOPIC, partitions=partitions, replicas=replicas, settings={"delay.enable": "true"}
        )


def send_ahead(bootstrap: str, first_ms: int, last_ms: int) -> Counter[bytes]:
    """Messages that are staged before they are due, at random times so far from now, while the test does its worst."""
    draw = random.Random(60)
    sent = [b"ahead %d" % number for number in range(AHEAD)]
    with zhumq.Producer(bootstrap) as producer:
        for value in sent:
            producer.send(
                TOPIC, value, key=value, deliver_at=now_ms() + draw.randrange(first_ms, last_ms)
            )
    with zhumq.Admin(bootstrap) as admin:
        wait_for(
            lambda: len(admin.scheduled(TOPIC, limit=AHEAD).messages) == AHEAD, "they are pending"
        )
    return Counter(sent)


def assert_in_due_order(found: list[Seen]) -> None:
    """Those that were sent ahead are in the order of their due times, in each partition."""
    for partition in {each.partition for each in found}:
        ahead = [
            each.due_ms or 0
            for each in found
            if each.partition == partition and each.value.startswith(b"ahead")
        ]
        assert ahead == sorted(ahead), f"partition {partition}"


def read_all(
    bootstrap: str,
    *,
    topic: str = TOPIC,
    partitions: int = 1,
    isolation: str = "read_committed",
) -> list[Seen]:
    """The messages that a consumer sees up to the end, in the order of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
    found: list[Seen] = []
    ended: set[int] = set()
    deadline = time.monotonic() + SECONDS_MAX
    while len(ended) < partitions:
        assert time.monotonic() < deadline, f"timed out: the end of {topic}"
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is None:
            headers = dict(message.headers() or ())
            due = headers.get(DELIVER_AT_HEADER)
            found.append(
                Seen(
                    message.partition(),
                    message.offset(),
                    message.value(),
                    message.timestamp()[1],
                    None if due is None else int(due),
                    headers,
                )
            )
        elif message.error().name() == "_PARTITION_EOF":
            ended.add(message.partition())
    consumer.close()
    return found


def wait_for_messages(bootstrap: str, count: int, *, partitions: int = 1) -> list[Seen]:
    """Wait until a consumer sees so many messages."""

    def enough() -> list[Seen] | None:
        found = read_all(bootstrap, partitions=partitions)
        return found if len(found) >= count else None

    return wait_for(enough, f"{count} messages in {TOPIC}")


def now_ms() -> int:
    return time.time_ns() // 1_000_000

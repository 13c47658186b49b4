"""The topics of `zhumq demo`: sends the sample, and reads topics back."""

import contextlib
import time
from collections import Counter
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message
from confluent_kafka import TopicPartition as Place

from zhumq.admin.errors import AlreadyExists, NotFound
from zhumq.admin.offsets import EARLIEST, LATEST, resolve_offsets
from zhumq.admin.topics import create_topic, delete_topic, topic_partitions
from zhumq.cli.client import client_settings, connect
from zhumq.cli.messages import OutgoingMessage
from zhumq.cli.options import CommandFailed
from zhumq.cli.produce import Outbox
from zhumq.cli.sample import LogLine

TOPIC = "shop-logs"
ALERTS = "shop-logs-alerts"
DEAD_LETTERS = "shop-logs.dlq"
GROUP = "shop-readers"
PARTITIONS = 3
READERS = 2
READ_TIMEOUT_SECONDS = 90.0
DELETE_TIMEOUT_SECONDS = 30.0
POLL_SECONDS = 0.1


def offsets_of(bootstrap: str, topic: str) -> dict[int, tuple[int, int]]:
    """The first and the next offset of each partition; empty if there is no such topic."""
    connection = connect(bootstrap)
    try:
        numbers = topic_partitions(connection, topic)
    except NotFound:
        return {}
    first = resolve_offsets(connection, topic, numbers, EARLIEST)
    ends = resolve_offsets(connection, topic, numbers, LATEST)
    return {number: (first[number], ends[number]) for number in numbers}


def count_of(bootstrap: str, topic: str) -> int:
    """How many messages a topic holds."""
    return sum(end - first for first, end in offsets_of(bootstrap, topic).values())


def recreate_topics(bootstrap: str) -> None:
    """Delete the demo's topics, and create the sample's topic again."""
    connection = connect(bootstrap)
    for name in (TOPIC, ALERTS, DEAD_LETTERS):
        with contextlib.suppress(NotFound):
            delete_topic(connection, name)
    deadline = time.monotonic() + DELETE_TIMEOUT_SECONDS
    while True:
        try:
            return create_topic(connection, TOPIC, partitions=PARTITIONS)
        except AlreadyExists:
            # A deleted topic disappears with a delay.
            if time.monotonic() > deadline:
                raise CommandFailed(
                    f"the topic {TOPIC!r} is still there after its deletion"
                ) from None
            time.sleep(POLL_SECONDS)


def send(bootstrap: str, lines: list[LogLine]) -> float:
    """Send the sample, each line with its service as the key. Returns the seconds it took."""
    settings = client_settings(bootstrap) | {"acks": "all", "enable.idempotence": True}
    outbox = Outbox(TOPIC, settings)
    began = time.monotonic()
    for line in lines:
        outbox.send(OutgoingMessage(key=line.service.encode(), value=line.text.encode()))
    outbox.flush()
    return time.monotonic() - began


def read_with_group(bootstrap: str, lines: list[LogLine]) -> list[int]:
    """Read the topic with a group of consumers, and check that every line arrives once and in order.

    Returns how many lines each consumer read.
    """
    offsets = offsets_of(bootstrap, TOPIC)
    settings = client_settings(bootstrap) | {
        "group.id": GROUP,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    consumers = [Consumer(settings) for _ in range(READERS)]
    arrived: dict[tuple[int, int], tuple[int, Message]] = {}
    deadline = time.monotonic() + READ_TIMEOUT_SECONDS
    try:
        for consumer in consumers:
            consumer.subscribe([TOPIC], on_assign=_from_the_beginning)
        total = sum(end - first for first, end in offsets.values())
        while len(arrived) < total:
            if time.monotonic() > deadline:
                raise CommandFailed(f"only {len(arrived)} of {total} messages were read")
            for number, consumer in enumerate(consumers):
                for message in consumer.consume(2_000, timeout=POLL_SECONDS):
                    if message.error() is None:
                        place = (message.partition() or 0, message.offset() or 0)
                        arrived.setdefault(place, (number, message))
        ends = [Place(TOPIC, number, end) for number, (_, end) in offsets.items()]
        _commit(consumers, ends)
    finally:
        for consumer in consumers:
            consumer.close()
    _compare(lines, [message for _, (_, message) in sorted(arrived.items())])
    shares = Counter(number for number, _ in arrived.values())
    return [shares[number] for number in range(READERS)]


def _from_the_beginning(consumer: Consumer, places: list[Place]) -> None:
    for place in places:
        place.offset = OFFSET_BEGINNING
    consumer.assign(places)


def _commit(consumers: list[Consumer], ends: list[Place]) -> None:
    """Let each consumer commit the end offsets of its own partitions."""
    for consumer in consumers:
        own = {place.partition for place in consumer.assignment()}
        mine = [place for place in ends if place.partition in own]
        if mine:
            try:
                consumer.commit(offsets=mine, asynchronous=False)
            except KafkaException as error:
                raise CommandFailed(f"cannot commit: {error.args[0].str()}") from None


def _compare(lines: list[LogLine], messages: list[Message]) -> None:
    arrived: dict[str, list[str]] = {}
    for message in messages:
        key = _text(message.key())
        arrived.setdefault(key, []).append(_text(message.value()))
    sent: dict[str, list[str]] = {}
    for line in lines:
        sent.setdefault(line.service, []).append(line.text)
    if arrived != sent:
        raise CommandFailed("the messages that were read differ from those that were sent")


def read_all(bootstrap: str, topic: str) -> list[Message]:
    """All messages of a small topic."""
    offsets = offsets_of(bootstrap, topic)
    total = sum(end - first for first, end in offsets.values())
    consumer = Consumer(
        client_settings(bootstrap) | {"group.id": GROUP, "enable.auto.commit": False}
    )
    found: list[Message] = []
    deadline = time.monotonic() + READ_TIMEOUT_SECONDS
    try:
        consumer.assign([Place(topic, number, first) for number, (first, _) in offsets.items()])
        while len(found) < total:
            if time.monotonic() > deadline:
                raise CommandFailed(f"only {len(found)} of {total} messages of {topic} were read")
            batch = consumer.consume(1_000, timeout=POLL_SECONDS)
            found += [message for message in batch if message.error() is None]
    finally:
        consumer.close()
    return found


def header(message: Message, name: str) -> str | None:
    """A header of a message as text."""
    headers: Any = message.headers() or []
    return next((_text(value) for key, value in headers if key == name), None)


def _text(value: str | bytes | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""

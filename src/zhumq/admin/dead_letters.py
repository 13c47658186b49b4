"""Dead letters: count, read and replay the messages that could not be delivered."""

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Final, Self

import confluent_kafka
from confluent_kafka import KafkaError, TopicPartition

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import NotFound, Unavailable, error_of, kafka_errors
from zhumq.admin.offsets import EARLIEST, LATEST, resolve_offsets
from zhumq.admin.replayed import Replayed
from zhumq.admin.topics import list_topics, topic_partitions
from zhumq.client.dead_letters import SUFFIX, Story, original_headers, read_story, topic_of
from zhumq.client.producer import Producer
from zhumq.client.routes import REQUEST_SECONDS_MAX, quiet_settings
from zhumq.client.waiting import Waiting
from zhumq.model.isolation import Isolation

READ_SECONDS_MAX: Final = 30.0  # without a message, though the end is not reached
REPLAY_GROUP: Final = "zhumq.dlq.replay"
REPLAYED_FROM: Final = "zhumq.replayed"  # header: the dead letter that this message was
REPLAY_BATCH: Final = 1_000  # sent, made durable, then committed as replayed


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message that could not be delivered, its position in the dead-letter topic, and why."""

    topic: str  # the dead-letter topic
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]  # the original headers
    story: Story
    replayed: bool  # sent back to its topic


@dataclass(frozen=True, slots=True, kw_only=True)
class EditedMessage:
    """What is sent back in place of a dead letter."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterCount:
    """How many dead letters a topic has: offsets, so that the marker of a transaction counts as one."""

    left: int  # to replay
    replayed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonCount:
    """How many dead letters of a group have the same reason."""

    group: str
    reason: str
    left: int  # to replay
    replayed: int


def count_dead_letters(connection: ClusterConnection) -> dict[str, DeadLetterCount]:
    """The dead-letter topics by name, each with its number of dead letters."""
    names = [each.topic for each in list_topics(connection)]
    with _DeadLetterReader(connection) as reader:
        return {name: reader.count(name) for name in names if name.endswith(SUFFIX)}


def count_reasons(connection: ClusterConnection, topic: str) -> list[ReasonCount]:
    """The number of a topic's dead letters by group and reason."""
    counts: dict[tuple[str, str], Counter[bool]] = {}
    for each in read_dead_letters(connection, topic):
        key = (each.story.group, each.story.reason)
        counts.setdefault(key, Counter())[each.replayed] += 1
    return [
        ReasonCount(group=group, reason=reason, left=count[False], replayed=count[True])
        for (group, reason), count in sorted(counts.items())
    ]


def read_dead_letters(
    connection: ClusterConnection,
    topic: str,
    *,
    group: str | None = None,
    limit: int | None = None,
    begin: Mapping[int, int] | None = None,
) -> Generator[DeadLetter, None, None]:
    """The dead letters of a topic (its own name, or that of the dead-letter topic), oldest first. `begin` is the offset
    to begin with in each partition."""
    name = _dead_letter_topic(topic)
    with _DeadLetterReader(connection) as reader:
        found = reader.read(name, reader.committed(name), begin)
        yield from islice((each for each in found if group in (None, each.story.group)), limit)


def replay_dead_letters(
    connection: ClusterConnection,
    topic: str,
    *,
    group: str | None = None,
    offsets: Mapping[int, set[int]] | None = None,
    edited: Mapping[tuple[int, int], EditedMessage] | None = None,
    again: bool = False,
    limit: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Send dead letters back to the topics they came from. Returns how many were sent.

    Replayed dead letters are committed, so that a second replay, or one after a crash, skips them. `again`
    and `offsets` replay them all the same. `edited` is what is sent for the dead letter of a partition and an
    offset. A crash between sending and committing repeats at most
    REPLAY_BATCH dead letters: a header of each names the dead letter it was. It ends after `limit` dead letters; another
    call goes on, unless it is one with `again`.
    """
    name = _dead_letter_topic(topic)
    chosen = group is not None or offsets is not None
    with (
        _DeadLetterReader(connection) as reader,
        Producer(connection.bootstrap, security=connection.security) as producer,
    ):
        committed = reader.committed(name)
        leave_out = not again and offsets is None
        begin = {each: known.position for each, known in committed.items()} if leave_out else {}
        total = reader.total(name, begin)
        replayed, is_cut = 0, False
        ends = reader.ends(name)
        for seen, dead_letter in enumerate(reader.read(name, committed, begin, ends), start=1):
            known = committed[dead_letter.partition]
            selected = group is None or dead_letter.story.group == group
            if offsets is not None and dead_letter.offset not in offsets.get(
                dead_letter.partition, ()
            ):
                selected = False
            if selected and not (leave_out and dead_letter.replayed):
                if replayed == limit:
                    is_cut = True
                    break
                mark = f"{dead_letter.topic}-{dead_letter.partition}@{dead_letter.offset}"
                place = (dead_letter.partition, dead_letter.offset)
                sent = (edited or {}).get(place, dead_letter)
                producer.send(
                    dead_letter.story.topic,
                    sent.value,
                    key=sent.key,
                    headers=[*sent.headers, (REPLAYED_FROM, mark.encode())],
                    partition=dead_letter.story.partition,
                )
                replayed += 1
                known.add(dead_letter.offset)
            if not chosen:
                known.advance(dead_letter.offset + 1)
            if seen % REPLAY_BATCH == 0:
                producer.flush()
                reader.commit(name, committed)
            if progress is not None:
                progress(seen, total)
        producer.flush()
        if not chosen and not is_cut:  # Markers of transactions may be behind the last dead letter.
            for partition, (_, end) in ends.items():
                committed[partition].advance(end)
        if replayed:
            reader.commit(name, committed)
    return replayed


class _DeadLetterReader:
    """Reads dead-letter topics from beginning to end, and commits which dead letters were replayed."""

    def __init__(self, connection: ClusterConnection) -> None:
        self._connection = connection
        self._waiting = Waiting(connection.bootstrap, connection.security)

    # Its threads are only started where there are dead letters to read or to count.
    @cached_property
    def _consumer(self) -> confluent_kafka.Consumer:
        connection = self._connection
        return confluent_kafka.Consumer(
            quiet_settings(
                connection.bootstrap, connection.security, error_cb=self._waiting.on_error
            )
            | {
                "group.id": REPLAY_GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "fetch.queue.backoff.ms": 5,
            }
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if "_consumer" in self.__dict__:
            self._consumer.close()

    def count(self, topic: str) -> DeadLetterCount:
        committed = self.committed(topic)
        total = replayed = 0
        for partition, (low, high) in self.ends(topic).items():
            total += high - low
            replayed += committed[partition].count(low, high)
        return DeadLetterCount(left=total - replayed, replayed=replayed)

    def total(self, topic: str, begin: Mapping[int, int]) -> int:
        """The number of messages from these offsets on."""
        ends = self.ends(topic).items()
        return sum(high - max(low, begin.get(partition, low)) for partition, (low, high) in ends)

    def read(
        self,
        topic: str,
        committed: Mapping[int, Replayed],
        begin: Mapping[int, int] | None = None,
        ends: Mapping[int, tuple[int, int]] | None = None,
    ) -> Iterator[DeadLetter]:
        """The dead letters up to the current end; messages without the dead-letter headers are left out."""
        places = []
        missing: dict[int, int] = {}
        for partition, (low, high) in (ends or self.ends(topic)).items():
            first = max(low, (begin or {}).get(partition, low))
            if first < high:
                places.append(TopicPartition(topic, partition, first))
                missing[partition] = high
        self._consumer.assign(places)
        while missing:
            message = self._consumer.poll(READ_SECONDS_MAX)
            if message is None:
                raise Unavailable(self._waiting.explain(f"{topic!r} could not be read to its end"))
            error = message.error()
            number, offset = message.partition(), message.offset()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                if offset is not None and number in missing and offset >= missing[number]:
                    del missing[number]  # Markers are behind the last message.
                continue
            if error is not None:
                if error.retriable() or error.code() == KafkaError._TRANSPORT:
                    continue
                raise error_of(f"read {topic!r}", error)
            assert number is not None
            assert offset is not None
            if number not in missing or offset >= missing[number]:
                continue
            if offset + 1 >= missing[number]:
                del missing[number]
            headers: Any = message.headers() or []
            story = read_story(headers)
            if story is not None:
                yield DeadLetter(
                    topic=topic,
                    partition=number,
                    offset=offset,
                    key=message.key(),
                    value=message.value(),
                    headers=tuple(original_headers(headers)),
                    story=story,
                    replayed=offset in committed[number],
                )

    def committed(self, topic: str) -> dict[int, Replayed]:
        """Which dead letters of each partition were replayed before."""
        places = [TopicPartition(topic, partition) for partition in self.ends(topic)]
        with kafka_errors(f"read the offsets of {REPLAY_GROUP!r}", self._waiting):
            found = self._consumer.committed(places, timeout=REQUEST_SECONDS_MAX)
        return {
            place.partition: Replayed.read(place.offset, place.metadata or "") for place in found
        }

    def commit(self, topic: str, replayed: Mapping[int, Replayed]) -> None:
        places = [
            TopicPartition(topic, partition, known.position, known.metadata)
            for partition, known in replayed.items()
        ]
        with kafka_errors(f"commit the offsets of {REPLAY_GROUP!r}", self._waiting):
            self._consumer.commit(offsets=places, asynchronous=False)

    def ends(self, topic: str) -> dict[int, tuple[int, int]]:
        """The first and the next offset of each partition; dead letters of open transactions are not counted."""
        try:
            numbers = topic_partitions(self._connection, topic)
        except NotFound:
            raise NotFound(f"there is no dead-letter topic {topic!r}") from None
        first = resolve_offsets(self._connection, topic, numbers, EARLIEST)
        ends = resolve_offsets(self._connection, topic, numbers, LATEST, Isolation.READ_COMMITTED)
        return {number: (first[number], ends[number]) for number in numbers}


def _dead_letter_topic(topic: str) -> str:
    return topic if topic.endswith(SUFFIX) else topic_of(topic)

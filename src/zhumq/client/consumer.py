"""Messages pulled from the broker: a plain iterator over a topic, alone, in a group, or sharing it."""

import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Protocol, Self

import confluent_kafka
from confluent_kafka import KafkaError, TopicPartition

from zhumq.client import dead_letters
from zhumq.client.errors import RequestFailed
from zhumq.client.message import Answer, AnswerKind, Cursor, Delivery, Message
from zhumq.client.prefix import Prefix
from zhumq.client.producer import Producer
from zhumq.client.routes import REQUEST_SECONDS_MAX, quiet_settings
from zhumq.client.waiting import Waiting

Mode = Literal["ptp", "ptp-shared", "psb"]

POLL_SECONDS: Final = 0.2
ANONYMOUS_GROUP: Final = (
    "zhumq-anonymous"  # librdkafka wants a name even where nothing is committed
)
_PASSING: Final = (
    KafkaError._PARTITION_EOF,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
)


class Source(Protocol):
    """Where messages are pulled from: a consumer group's partitions, or a share group."""

    def poll(self, seconds: float) -> list[Message]: ...

    def close(self) -> None: ...


class Consumer:
    """Pulls messages.

    `mode` is `"ptp"` (the topic's one point-to-point group, one consumer per partition, in order),
    `"ptp-shared"` (consumers compete for messages), `"psb"` (this group gets everything; partitions
    may be chosen), or None: an ordinary Kafka consumer group, of which a topic may have any number.
    Without a group it reads alone and keeps no position.

    A message counts as processed when the next one is asked for, or the block is left without an
    exception, unless it was answered before; with `auto_ack=False` every message has to be answered: `ack()`, `nack()` (again), `reject()` (to the
    dead letters).

    >>> import zhumq
    >>> with zhumq.Producer(bootstrap) as producer:
    ...     producer.send("letters", b"a", partition=0)
    ...     producer.send("letters", b"b", partition=0)
    >>> with zhumq.Consumer("letters", group="docs-readers", mode="ptp", bootstrap=bootstrap) as consumer:
    ...     for message in consumer:
    ...         print(message.offset, message.value)
    ...         if message.value == b"b":
    ...             break
    0 b'a'
    1 b'b'
    """

    def __init__(
        self,
        topics: str | Sequence[str] | Mapping[str, Sequence[int]],
        *,
        group: str | None = None,
        mode: Mode | None = None,
        bootstrap: str = "127.0.0.1:9092",
        push: str | None = None,
        start: Literal["earliest", "latest"] | int = "earliest",
        start_time_ms: int | None = None,
        auto_ack: bool = True,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`start` is where a group without a position begins; an offset or `start_time_ms` (no group, or
        psb) always applies. `settings` are librdkafka's."""
        choices = _choices(topics)
        if mode not in (None, "ptp", "ptp-shared", "psb"):
            raise ValueError(f"mode is ptp, ptp-shared or psb, not {mode!r}")
        if mode in ("ptp", "ptp-shared"):
            if group is None:
                raise ValueError("a point-to-point consumer names its group")
            if any(choices.values()):
                raise ValueError("members of a group are given partitions: only psb chooses")
            # Imported here: an ordinary consumer needs no grpcio.
            from zhumq.client.calls import claim  # noqa: PLC0415

            claim(list(choices), group, mode, bootstrap=bootstrap, push=push)
        own = dict(settings or {})
        edge = start if start in ("earliest", "latest") else "earliest"
        self._auto_ack = auto_ack
        self._current: Message | None = None
        self._source: Source
        if mode == "ptp-shared":
            assert group is not None
            self._source = _SharedSource(list(choices), group, bootstrap, own)
        else:
            self._source = _OrderedSource(
                choices,
                group,
                bootstrap,
                {"auto.offset.reset": edge} | own,
                joins=group is not None and mode != "psb",
                position=_position(start, start_time_ms),
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None and self._auto_ack and self._current is not None:
            self._current.ack()  # A `break` after the last one that was wanted.
        self.close()

    def __iter__(self) -> Iterator[Message]:
        while True:
            for message in self._source.poll(POLL_SECONDS):
                if message.is_stale:
                    continue
                self._current = message
                yield message
                self._current = None
                if self._auto_ack:
                    message.ack()

    def poll(self, seconds: float = POLL_SECONDS) -> list[Message]:
        """What is there, or comes within this time. Answer every one of them."""
        deadline = time.monotonic() + seconds
        while True:
            found = self._source.poll(max(min(deadline - time.monotonic(), POLL_SECONDS), 0))
            if found or time.monotonic() >= deadline:
                return found

    def close(self) -> None:
        """Commit what was processed, and leave."""
        self._source.close()


class _Place:
    """A partition of an ordered source: the origin of its messages."""

    cursor: Cursor | None = None

    def __init__(self, source: "_OrderedSource", topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.round = 0
        self._source = source
        self._prefix = Prefix()
        self._in_hand: dict[int, Message] = {}
        self._taken_back_from = -1

    def begin(self, message: Message) -> None:
        self._prefix.begin(message.offset)
        self._in_hand[message.offset] = message

    def is_stale(self, round_: int, offset: int) -> bool:
        return round_ < self.round and offset >= self._taken_back_from

    def answer(self, first_offset: int, last_offset: int, answer: Answer, round_: int) -> None:
        if self.is_stale(round_, first_offset):
            return
        match answer.kind:
            case AnswerKind.ACK:
                self._done(last_offset)
            case AnswerKind.REJECT:
                self._source.bury(self, self._in_hand[last_offset], answer.reason)
                self._done(last_offset)
            case AnswerKind.NACK | AnswerKind.RELEASE:
                self.round += 1
                self._taken_back_from = first_offset
                self._prefix = Prefix()
                self._in_hand.clear()
                self._source.rewind(self, first_offset)
            case AnswerKind.EXTEND:
                pass  # Nobody else is waiting for a pulled message.

    def _done(self, offset: int) -> None:
        next_offset = self._prefix.done(offset)
        self._in_hand.pop(offset, None)
        if next_offset is not None:
            self._source.store(self, next_offset)


class _OrderedSource:
    """A consumer group's partitions, or chosen ones."""

    def __init__(
        self,
        choices: Mapping[str, Sequence[int]],
        group: str | None,
        bootstrap: str,
        settings: Mapping[str, Any],
        *,
        joins: bool,
        position: int | None,
    ) -> None:
        self._group = group
        self._bootstrap = bootstrap
        self._waiting = Waiting(bootstrap)
        base = quiet_settings(bootstrap, error_cb=self._waiting.on_error) | {
            "group.id": group or ANONYMOUS_GROUP,
            "enable.auto.commit": group is not None,
            "enable.auto.offset.store": False,
            "auto.commit.interval.ms": 500,
            "fetch.queue.backoff.ms": 5,
        }
        if joins:
            base["group.protocol"] = "consumer"
        self._consumer = confluent_kafka.Consumer(base | dict(settings))
        self._places: dict[tuple[str, int], _Place] = {}
        try:
            if joins:
                self._consumer.subscribe(list(choices), on_revoke=self._revoked)
            else:
                self._consumer.assign(self._chosen(choices, position))
        except confluent_kafka.KafkaException as error:
            self._consumer.close()
            message = self._waiting.explain(f"cannot read: {error.args[0].str()}")
            raise RequestFailed(message) from error

    def poll(self, seconds: float) -> list[Message]:
        first = self._consumer.poll(seconds)
        if first is None:
            return []
        arrived = [first, *self._consumer.consume(999, timeout=0)]
        found = []
        for each in arrived:
            error = each.error()
            if error is None:
                found.append(self._message(each))
            elif not error.retriable() and error.code() not in _PASSING:
                raise RequestFailed(f"cannot read {each.topic()!r}: {error.str()}")
        return found

    def store(self, place: _Place, next_offset: int) -> None:
        if self._group is None:
            return
        try:
            self._consumer.store_offsets(
                offsets=[TopicPartition(place.topic, place.partition, next_offset)]
            )
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:  # It is another member's now.
                raise

    def rewind(self, place: _Place, offset: int) -> None:
        self._consumer.seek(TopicPartition(place.topic, place.partition, offset))

    def bury(self, place: _Place, message: Message, reason: str) -> None:
        story = dead_letters.Story(
            group=self._group or "",
            reason=reason,
            deliveries=message.delivery_count,
            topic=place.topic,
            partition=place.partition,
            offset=message.offset,
            time_ms=time.time_ns() // 1_000_000,
        )
        with Producer(self._bootstrap) as producer:
            producer.send(
                dead_letters.topic_of(place.topic),
                message.value,
                key=message.key,
                headers=[*message.headers, *story.headers()],
            )

    def close(self) -> None:
        self._consumer.close()

    def _message(self, pulled: Any) -> Message:
        key = (pulled.topic(), pulled.partition())
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = _Place(self, *key)
        message = message_of(pulled, place, place.round)
        place.begin(message)
        return message

    def _revoked(self, consumer: Any, places: list[Any]) -> None:
        del consumer
        for place in places:
            gone = self._places.pop((place.topic, place.partition), None)
            if gone is not None:
                gone.round += 1  # What was pulled of it is another member's now.

    def _chosen(
        self, choices: Mapping[str, Sequence[int]], position: int | None
    ) -> list[TopicPartition]:
        wanted = []
        for topic, partitions in choices.items():
            known = self._consumer.list_topics(topic, timeout=REQUEST_SECONDS_MAX).topics[topic]
            if known.error is not None:
                raise RequestFailed(f"cannot read {topic!r}: {known.error.str()}")
            for partition in partitions:
                if partition not in known.partitions:
                    raise RequestFailed(
                        f"{topic!r} has partitions 0 to {len(known.partitions) - 1}, not {partition}"
                    )
            wanted += [TopicPartition(topic, each) for each in partitions or known.partitions]
        if position is None:
            for place in wanted:
                place.offset = confluent_kafka.OFFSET_STORED
            return wanted
        if position < 0:  # a time
            for place in wanted:
                place.offset = -position
            return self._consumer.offsets_for_times(wanted, timeout=REQUEST_SECONDS_MAX)
        for place in wanted:
            low, high = self._consumer.get_watermark_offsets(place, timeout=REQUEST_SECONDS_MAX)
            if not low <= position <= high:
                raise RequestFailed(
                    f"{place.topic}-{place.partition} holds offsets {low} to {high}, not {position}"
                )
            place.offset = position
        return wanted


class _SharedPlace:
    """A partition of a share group: answers go one by one."""

    cursor: Cursor | None = None

    def __init__(self, source: "_SharedSource", topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self._source = source

    def is_stale(self, round_: int, offset: int) -> bool:
        del round_, offset
        return False

    def answer(self, first_offset: int, last_offset: int, answer: Answer, round_: int) -> None:
        del last_offset, round_
        self._source.answer(self.topic, self.partition, first_offset, answer.kind)


class _SharedSource:
    """A share group (KIP-932), through librdkafka's share consumer."""

    def __init__(
        self, topics: list[str], group: str, bootstrap: str, settings: Mapping[str, Any]
    ) -> None:
        base = quiet_settings(bootstrap, error_cb=Waiting(bootstrap).on_error) | {
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
        }
        self._consumer = confluent_kafka.ShareConsumer(base | dict(settings))
        self._consumer.subscribe(topics)
        self._unanswered: dict[tuple[str, int, int], Message] = {}

    def poll(self, seconds: float) -> list[Message]:
        # librdkafka wants every message of the poll before to be answered.
        for message in list(self._unanswered.values()):
            message.release()
        found = []
        for each in self._consumer.poll(seconds):
            error = each.error()
            if error is None:
                topic, partition, offset = each.topic(), each.partition(), each.offset()
                assert topic is not None
                assert partition is not None
                assert offset is not None
                message = message_of(each, _SharedPlace(self, topic, partition), 0)
                self._unanswered[topic, partition, offset] = message
                found.append(message)
            elif not error.retriable() and error.code() not in _PASSING:
                raise RequestFailed(f"cannot read {each.topic()!r}: {error.str()}")
        return found

    def answer(self, topic: str, partition: int, offset: int, kind: AnswerKind) -> None:
        if kind is AnswerKind.EXTEND:
            return  # librdkafka has no renewal yet.
        self._unanswered.pop((topic, partition, offset), None)
        kinds = {
            AnswerKind.ACK: confluent_kafka.AcknowledgeType.ACCEPT,
            AnswerKind.NACK: confluent_kafka.AcknowledgeType.RELEASE,
            AnswerKind.RELEASE: confluent_kafka.AcknowledgeType.RELEASE,
            AnswerKind.REJECT: confluent_kafka.AcknowledgeType.REJECT,
        }
        self._consumer.acknowledge_offset(topic, partition, offset, kinds[kind])

    def close(self) -> None:
        for message in list(self._unanswered.values()):
            message.release()
        self._consumer.close()


def message_of(pulled: Any, origin: Any, round_: int) -> Message:
    """A message of librdkafka's as one of ours."""
    kind, timestamp_ms = pulled.timestamp()
    message = Message()
    message.delivery = Delivery(origin, round_, 1)
    message.offset = pulled.offset()
    message.timestamp_ms = -1 if kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE else timestamp_ms
    message.key = pulled.key()
    message.value = pulled.value()
    message.headers = tuple(pulled.headers() or ())
    message.answered = False
    return message


def _choices(topics: str | Sequence[str] | Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    if isinstance(topics, str):
        return {topics: ()}
    if isinstance(topics, Mapping):
        return dict(topics)
    return dict.fromkeys(topics, ())


def _position(start: str | int, start_time_ms: int | None) -> int | None:
    """An offset; a time, negated; None: where the group is, or at an edge."""
    if start_time_ms is not None:
        return -start_time_ms
    if isinstance(start, int):
        return start
    if start not in ("earliest", "latest"):
        raise ValueError(f"start is earliest, latest or an offset, not {start!r}")
    return None

"""Messages of a topic, a bounded page at a time: from offsets on, filtered, without a group; and their sending."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import confluent_kafka
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, TopicPartition

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import Unavailable, error_of, kafka_errors
from zhumq.admin.lookup import FoundMessage
from zhumq.client.routes import quiet_settings
from zhumq.client.waiting import Waiting
from zhumq.model.isolation import Isolation

SCANNED_MAX: Final = 100_000  # messages that a page looks at for those that pass its filter
PAGE_BYTES_MAX: Final = (
    4 * 1024 * 1024
)  # of the page's keys and values; the last message may be larger
ANSWER_SECONDS_MAX: Final = 10.0  # without a message, though there are some
SEND_SECONDS_MAX: Final = 15.0
_POLL_SECONDS: Final = 0.1
# librdkafka needs a group id even if nothing is committed, and looks for the group's coordinator: that the user has no
# rights to the group does not matter.
_NO_GROUP: Final = "zhumq-reader"
_PASSING: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    }
)

MessageTest = Callable[[Any], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePage:
    """Messages in the order in which they were read, and where each partition goes on."""

    messages: tuple[FoundMessage, ...]
    next_offsets: dict[int, int]
    scanned: int  # messages that were looked at
    is_at_end: bool  # of every partition


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message to send. Without a partition its key chooses one."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SentMessage:
    """Where a message was written."""

    partition: int
    offset: int


def read_messages(
    connection: ClusterConnection,
    topic: str,
    *,
    begin: Mapping[int, int],
    ends: Mapping[int, int],
    limit: int,
    isolation: Isolation = Isolation.READ_COMMITTED,
    passes: MessageTest | None = None,
    scanned_max: int = SCANNED_MAX,
    bytes_max: int = PAGE_BYTES_MAX,
    seconds_max: float = ANSWER_SECONDS_MAX,
    is_tail: bool = False,
) -> MessagePage:
    """Read from the offsets of `begin` to below those of `ends`, until the page is full.

    A page is full at `limit` messages that pass, at `bytes_max`, and after `scanned_max` messages or `seconds_max`:
    a filter that nothing passes does not read a topic of any size. Raises Unavailable if nothing could be read.
    With `is_tail` there may be nothing yet: it waits for the first message, and does not wait for a second.
    """
    position = dict(begin)
    left = {number for number, offset in position.items() if offset < ends.get(number, 0)}
    found: list[FoundMessage] = []
    scanned, size = 0, 0
    if not left:
        return MessagePage(messages=(), next_offsets=position, scanned=0, is_at_end=True)
    waiting = Waiting(connection.bootstrap, connection.security)
    deadline = time.monotonic() + seconds_max
    with kafka_errors(f"read {topic!r}", waiting):
        consumer = confluent_kafka.Consumer(_settings(connection, waiting, isolation))
        try:
            places = [TopicPartition(topic, number, position[number]) for number in sorted(left)]
            consumer.assign(places)
            while left and len(found) < limit and size < bytes_max and scanned < scanned_max:
                if time.monotonic() >= deadline:
                    if not is_tail and not scanned and position == begin:
                        raise Unavailable(waiting.explain(f"{topic!r} could not be read in time"))
                    break
                message: Any = consumer.poll(0 if is_tail and found else _POLL_SECONDS)
                if message is None and is_tail and found:
                    break
                if message is None or not _advance(message, topic, position):
                    left = {each for each in left if position[each] < ends[each]}
                    continue
                number = message.partition()
                if position[number] > ends[number]:  # It came after the end was looked up.
                    position[number] = ends[number]
                    left.discard(number)
                    continue
                scanned += 1
                if position[number] == ends[number]:
                    left.discard(number)
                if passes is None or passes(message):
                    found.append(_found(message))
                    size += len(message.key() or b"") + len(message.value() or b"")
        finally:
            consumer.close()
    return MessagePage(
        messages=tuple(found), next_offsets=position, scanned=scanned, is_at_end=is_tail or not left
    )


class MessageSender:
    """Sends messages as the user of a connection. One caller uses it at a time."""

    def __init__(self, connection: ClusterConnection) -> None:
        self._waiting = Waiting(connection.bootstrap, connection.security)
        self._settings = quiet_settings(
            connection.bootstrap, connection.security, error_cb=self._waiting.on_error
        ) | {
            "enable.idempotence": True,
            "linger.ms": 2,
            "partitioner": "murmur2_random",
            "message.timeout.ms": int(SEND_SECONDS_MAX * 1000),
        }
        self._producer = confluent_kafka.Producer(self._settings)

    def send(self, topic: str, messages: Sequence[NewMessage]) -> list[SentMessage]:
        """Send messages to a topic that exists, and wait until they are durable.

        Raises the error of the first that was not sent, and names how many were.
        """
        doing = f"send to {topic!r}"
        results: dict[int, SentMessage | KafkaError] = {}
        is_sent = False
        try:
            with kafka_errors(doing, self._waiting):
                for index, each in enumerate(messages):
                    self._produce(topic, each, _keep(results, index))
                self._producer.flush(SEND_SECONDS_MAX + 1)
            is_sent = all(isinstance(each, SentMessage) for each in results.values())
        finally:
            if not is_sent:
                # An idempotent producer whose message was refused may send nothing more: the error is fatal to it.
                self._producer = confluent_kafka.Producer(self._settings)
        sent = [each for each in results.values() if isinstance(each, SentMessage)]
        if len(sent) == len(messages):
            return [
                result for _, result in sorted(results.items()) if isinstance(result, SentMessage)
            ]
        failure = next((each for each in results.values() if isinstance(each, KafkaError)), None)
        if failure is None:
            raise Unavailable(self._waiting.explain(f"cannot {doing}: the broker did not answer"))
        if len(messages) > 1:
            doing = f"send all to {topic!r}, only {len(sent)} of {len(messages)}"
        raise error_of(doing, failure, cause=self._waiting.cause)

    def _produce(self, topic: str, message: NewMessage, keep: Callable[[Any, Any], None]) -> None:
        optional: dict[str, Any] = {}
        if message.partition is not None:
            optional["partition"] = message.partition
        if message.timestamp_ms is not None:
            optional["timestamp"] = message.timestamp_ms
        self._producer.produce(
            topic,
            message.value,
            key=message.key,
            headers=list(message.headers),
            on_delivery=keep,
            **optional,
        )


def _keep(results: dict[int, SentMessage | KafkaError], index: int) -> Callable[[Any, Any], None]:
    def keep(error: Any, message: Any) -> None:
        results[index] = error or SentMessage(
            partition=message.partition(), offset=message.offset()
        )

    return keep


def _settings(
    connection: ClusterConnection, waiting: Waiting, isolation: Isolation
) -> dict[str, Any]:
    return quiet_settings(connection.bootstrap, connection.security, error_cb=waiting.on_error) | {
        "group.id": _NO_GROUP,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "isolation.level": isolation.name.lower(),
        "fetch.queue.backoff.ms": 5,
        # What is fetched ahead of the page is thrown away.
        "queued.max.messages.kbytes": 8 * 1024,
        "fetch.message.max.bytes": 1024 * 1024,
    }


def _advance(message: Any, topic: str, position: dict[int, int]) -> bool:
    """Move the position behind what was polled. False: it is no message."""
    error = message.error()
    if error is None:
        position[message.partition()] = message.offset() + 1
        return True
    if error.code() == KafkaError._PARTITION_EOF:
        # Markers of transactions may be behind the last message.
        number = message.partition()
        position[number] = max(position[number], message.offset())
        return False
    if error.retriable() or error.code() in _PASSING:
        return False
    raise error_of(f"read {topic!r}", error)


def _found(message: Any) -> FoundMessage:
    kind, timestamp_ms = message.timestamp()
    return FoundMessage(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp_ms=-1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
    )

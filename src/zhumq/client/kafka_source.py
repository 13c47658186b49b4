"""The messages of a Kafka consumer group, or of chosen partitions: positions, redelivery, dead letters."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import confluent_kafka
from confluent_kafka import KafkaError, TopicPartition

from zhumq.client import dead_letters
from zhumq.client.errors import RequestFailed
from zhumq.client.expiry import ExpiredCounts, Expiry
from zhumq.client.message import Answer, AnswerKind, Cursor, Delivery, Message
from zhumq.client.prefix import Prefix
from zhumq.client.producer import Producer
from zhumq.client.routes import REQUEST_SECONDS_MAX, quiet_settings
from zhumq.client.security import ClientSecurity
from zhumq.client.waiting import Waiting

if TYPE_CHECKING:
    from zhumq.client.filtering import MessageTest

# librdkafka needs a group id even if nothing is committed.
ANONYMOUS_GROUP: Final = "zhumq-anonymous"
BACKOFF_SECONDS: Final = 1.0  # doubled for each failure after the first
BACKOFF_SECONDS_MAX: Final = 10.0
_TRANSIENT: Final = (
    KafkaError._PARTITION_EOF,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
)


class Place:
    """A partition of a Kafka source: the origin of its messages."""

    cursor: Cursor | None = None

    def __init__(self, source: "KafkaSource", topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.round = 0
        self._source = source
        self._prefix = Prefix()
        self._unanswered: dict[int, Message] = {}
        self._released_from = -1
        # Nack counts of unfinished messages. Deliveries are ordered, so there is seldom more than one.
        self._nacks: dict[int, int] = {}

    def begin(self, message: Message) -> None:
        self._prefix.begin(message.offset)
        self._unanswered[message.offset] = message

    def delivery_count(self, offset: int) -> int:
        return self._nacks.get(offset, 0) + 1

    def is_stale(self, round_: int, offset: int) -> bool:
        return round_ < self.round and offset >= self._released_from

    def answer(self, first_offset: int, last_offset: int, answer: Answer, round_: int) -> None:
        if self.is_stale(round_, first_offset):
            return
        match answer.kind:
            case AnswerKind.ACK:
                self._done(last_offset)
            case AnswerKind.REJECT:
                self._dead_letter(last_offset, answer.reason)
            case AnswerKind.NACK if self.delivery_count(last_offset) >= self._source.deliveries_max:
                verdict = f"delivered {self._source.deliveries_max} times without success"
                reason = f"{verdict}: {answer.reason}" if answer.reason else verdict
                self._dead_letter(last_offset, reason)
            case AnswerKind.NACK:
                nacks = self._nacks[first_offset] = self.delivery_count(first_offset)
                seconds = min(BACKOFF_SECONDS * 2 ** (nacks - 1), BACKOFF_SECONDS_MAX)
                if answer.delay_ms is not None:
                    seconds = answer.delay_ms / 1000
                self._redeliver(first_offset, seconds)
            case AnswerKind.RELEASE:
                self._redeliver(first_offset, 0.0)
            case AnswerKind.EXTEND:
                pass  # Messages of a Kafka group have no ack deadline.

    def _redeliver(self, first_offset: int, seconds: float) -> None:
        """Read this message and those after it again, in order."""
        self.round += 1
        self._released_from = first_offset
        self._prefix = Prefix()
        self._unanswered.clear()
        self._source.rewind(self, first_offset, seconds)

    def _dead_letter(self, offset: int, reason: str) -> None:
        self._source.send_to_dead_letters(self, self._unanswered[offset], reason)
        self._done(offset)

    def _done(self, offset: int) -> None:
        next_offset = self._prefix.done(offset)
        self._unanswered.pop(offset, None)
        self._nacks.pop(offset, None)
        if next_offset is not None:
            self._source.store(self, next_offset)


class KafkaSource:
    """The partitions that a Kafka consumer group assigns to this member, or chosen ones."""

    def __init__(
        self,
        choices: Mapping[str, Sequence[int]],
        group: str | None,
        bootstrap: str,
        settings: Mapping[str, Any],
        *,
        position: int | None,
        deliveries_max: int,
        expiry: Expiry,
        security: ClientSecurity,
        passes: "MessageTest | None",
    ) -> None:
        self._passes = passes
        self._group = group
        self._bootstrap = bootstrap
        self._security = security
        self._position = position
        self.deliveries_max = deliveries_max
        self._expiry = expiry
        self._waiting = Waiting(bootstrap, security)
        joins = group is not None and not any(choices.values())
        base = quiet_settings(bootstrap, security, error_cb=self._waiting.on_error) | {
            "group.id": group or ANONYMOUS_GROUP,
            "enable.auto.commit": group is not None,
            "enable.auto.offset.store": False,
            "auto.commit.interval.ms": 500,
            "fetch.queue.backoff.ms": 5,
        }
        if joins:
            base["group.protocol"] = "consumer"
        self._consumer = confluent_kafka.Consumer(base | dict(settings))
        self._places: dict[tuple[str, int], Place] = {}
        # Partitions paused after a nack, with the time at which they resume.
        self._paused_until: dict[tuple[str, int], float] = {}
        try:
            if joins:
                self._consumer.subscribe(
                    list(choices), on_assign=self._assigned, on_revoke=self._revoked
                )
            else:
                self._consumer.assign(self._positioned(self._chosen(choices)))
        except confluent_kafka.KafkaException as error:
            self._consumer.close()
            message = self._waiting.explain(f"cannot read: {error.args[0].str()}")
            raise RequestFailed(message) from error
        except RequestFailed:
            self._consumer.close()
            raise

    def poll(self, seconds: float) -> list[Message]:
        if self._paused_until:
            seconds = self._resume_due(seconds)
        first = self._consumer.poll(seconds)
        if first is None:
            self._waiting.raise_if_refused()
            return []
        arrived = [first, *self._consumer.consume(999, timeout=0)]
        found = []
        for each in arrived:
            error = each.error()
            if error is None:
                message = self._message(each)
                if self._passes is None or self._passes(each):
                    found.append(message)
                else:
                    message.ack()
            elif not error.retriable() and error.code() not in _TRANSIENT:
                raise RequestFailed(f"cannot read {each.topic()!r}: {error.str()}")
        return self._expiry.unexpired(found)

    @property
    def expired(self) -> ExpiredCounts:
        return self._expiry.counts

    def on_reading(self, messages: Sequence[Message], index: int) -> None:
        """Nothing to do: a Kafka group's messages have no deadlines."""

    def store(self, place: Place, next_offset: int) -> None:
        if self._group is None:
            return
        try:
            self._consumer.store_offsets(
                offsets=[TopicPartition(place.topic, place.partition, next_offset)]
            )
        except confluent_kafka.KafkaException as error:
            if (
                error.args[0].code() != KafkaError._STATE
            ):  # The partition belongs to another member now.
                raise

    def rewind(self, place: Place, offset: int, seconds: float) -> None:
        """Read the partition again from this offset, after this many seconds."""
        where = TopicPartition(place.topic, place.partition, offset)
        if seconds:
            self._consumer.pause([where])
            self._paused_until[place.topic, place.partition] = time.monotonic() + seconds
        self._consumer.seek(where)

    def send_to_dead_letters(self, place: Place, message: Message, reason: str) -> None:
        story = dead_letters.Story(
            group=self._group or "",
            reason=reason,
            deliveries=message.delivery_count,
            topic=place.topic,
            partition=place.partition,
            offset=message.offset,
            time_ms=time.time_ns() // 1_000_000,
        )
        with Producer(self._bootstrap, security=self._security) as producer:
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
            place = self._places[key] = Place(self, *key)
        message = message_of(pulled, place, place.round, place.delivery_count(pulled.offset()))
        place.begin(message)
        return message

    def _resume_due(self, seconds: float) -> float:
        """Resume partitions whose pause is over. Returns the poll timeout until the next one."""
        now = time.monotonic()
        due = [key for key, at in self._paused_until.items() if at <= now]
        for key in due:
            del self._paused_until[key]
        self._consumer.resume([TopicPartition(*key) for key in due])
        return min([seconds, *(at - now for at in self._paused_until.values())])

    def _assigned(self, consumer: Any, places: list[Any]) -> None:
        consumer.incremental_assign(self._positioned(places))

    def _revoked(self, consumer: Any, places: list[Any]) -> None:
        del consumer
        for place in places:
            self._paused_until.pop((place.topic, place.partition), None)
            revoked = self._places.pop((place.topic, place.partition), None)
            if revoked is not None:
                revoked.round += 1  # Its pulled messages belong to another member now.

    def _chosen(self, choices: Mapping[str, Sequence[int]]) -> list[TopicPartition]:
        found = []
        for topic, partitions in choices.items():
            known = self._consumer.list_topics(topic, timeout=REQUEST_SECONDS_MAX).topics[topic]
            if known.error is not None:
                raise RequestFailed(f"cannot read {topic!r}: {known.error.str()}")
            for partition in partitions:
                if partition not in known.partitions:
                    raise RequestFailed(
                        f"{topic!r} has partitions 0 to {len(known.partitions) - 1}, not {partition}"
                    )
            found += [TopicPartition(topic, each) for each in partitions or known.partitions]
        return found

    def _positioned(self, places: list[Any]) -> list[Any]:
        """The partitions with their start offsets: the group's position, else the chosen start."""
        if self._position is None:
            for place in places:
                place.offset = confluent_kafka.OFFSET_STORED
            return places
        known: dict[tuple[str, int], int] = {}
        if self._group is not None:
            committed = self._consumer.committed(places, timeout=REQUEST_SECONDS_MAX)
            known = {
                (each.topic, each.partition): each.offset for each in committed if each.offset >= 0
            }
        fresh = [each for each in places if (each.topic, each.partition) not in known]
        self._start_at(fresh, self._position)
        for place in places:
            place.offset = known.get((place.topic, place.partition), place.offset)
        return places

    def _start_at(self, places: list[Any], position: int) -> None:
        """Set the start offsets of partitions without a position; a negative `position` is a negated time."""
        for place in places:
            if position < 0:
                place.offset = -position
                (found,) = self._consumer.offsets_for_times([place], timeout=REQUEST_SECONDS_MAX)
                place.offset = found.offset
                continue
            low, high = self._consumer.get_watermark_offsets(place, timeout=REQUEST_SECONDS_MAX)
            if not low <= position <= high:
                raise RequestFailed(
                    f"{place.topic}-{place.partition} holds offsets {low} to {high}, not {position}"
                )
            place.offset = position


def message_of(pulled: Any, origin: Any, round_: int, delivery_count: int = 1) -> Message:
    """Convert a message of librdkafka."""
    kind, timestamp_ms = pulled.timestamp()
    message = Message()
    message.delivery = Delivery(origin, round_, delivery_count)
    message.offset = pulled.offset()
    message.timestamp_ms = -1 if kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE else timestamp_ms
    message.key = pulled.key()
    message.value = pulled.value()
    message.headers = tuple(pulled.headers() or ())
    message.answered = False
    return message

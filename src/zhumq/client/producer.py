"""The producer: sends in the background, and raises for every message that could not be sent."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, Self

import confluent_kafka

from zhumq.client.codec import Codec
from zhumq.client.delays import Delay, DeliverAt, delay_header
from zhumq.client.errors import RequestFailed
from zhumq.client.expiry import TTL_HEADER
from zhumq.client.message import HeaderPairs, K, Typed, V, pairs_of
from zhumq.client.middleware import Middleware, OutgoingMessage, begin_send
from zhumq.client.round_robin import RoundRobin
from zhumq.client.routes import quiet_settings
from zhumq.client.security import Security, as_security
from zhumq.client.serializers import Serializer
from zhumq.client.waiting import Waiting
from zhumq.model.message_headers import TAGS_HEADER, format_tags

FLUSH_SECONDS_MAX: Final = 30.0
FLUSH_CHECK_SECONDS: Final = 0.5
QUEUE_FULL_POLL_SECONDS: Final = 0.1
METADATA_SECONDS_MAX: Final = 10.0
_UNKNOWN_PARTITION: Final = confluent_kafka.KafkaError._UNKNOWN_PARTITION

Sent = Callable[[int, int], None]  # partition and offset
Failed = Callable[[RequestFailed], None]


class Producer(Typed[V, K]):
    """Sends messages in the background; `flush()`, or the end of the block, waits for all of them.

    Safe by default: every message is on all in-sync replicas before it counts as sent, in order and
    once (idempotent). A message that could not be sent makes `flush()` raise.

    >>> import zhumq
    >>> with zhumq.Producer(bootstrap) as producer:
    ...     producer.send("orders", b"one order", key=b"customer-7", headers={"source": "docs"})
    ...     producer.send("orders", b"to a chosen partition", partition=0)
    """

    def __init__(
        self,
        bootstrap: str = "127.0.0.1:9092",
        *,
        keyless: Literal["random", "round_robin"] = "random",
        value: Serializer[V] | None = None,
        key: Serializer[K] | None = None,
        middleware: Sequence[Middleware] = (),
        security: Security = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`keyless` is how messages without a key are spread over the partitions: at random, or in turn.
        `security` is a ClientSecurity, or settings with Kafka's names: `{"security.protocol": "SSL", ...}`.
        `settings` are librdkafka's: `{"linger.ms": 20}`.
        `value` and `key` are serializers: `value=Json(Order)` makes it a `Producer[Order]`. `middleware` runs
        around every message, until it is acknowledged."""
        if keyless not in ("random", "round_robin"):
            raise ValueError(f"keyless={keyless!r} is neither 'random' nor 'round_robin'")
        self._codec = Codec(value, key)
        self._middleware = middleware
        secured = as_security(security)
        self._waiting = Waiting(bootstrap, secured)
        self._producer = confluent_kafka.Producer(
            quiet_settings(bootstrap, secured, error_cb=self._waiting.on_error)
            | {
                "enable.idempotence": True,
                "linger.ms": 2,
                # librdkafka's default sends a whole batch without keys to one partition.
                "partitioner": "murmur2_random",
            }
            | dict(settings or {})
        )
        self._turns = RoundRobin(self._partitions_of) if keyless == "round_robin" else None
        self._failures: list[str] = []
        self._failure_count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.flush()
        else:
            self._producer.flush(FLUSH_SECONDS_MAX)

    def send(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        headers: HeaderPairs | None = None,
        tags: str | Iterable[str] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        ttl_ms: int | None = None,
        delay: Delay | None = None,
        deliver_at: DeliverAt | None = None,
        on_sent: Sent | None = None,
        on_failed: Failed | None = None,
    ) -> None:
        """Queue a message. Its partition is the given one, else the key's, else as `keyless` says. Consumers filter by
        its `tags`, a header; those of this library do not get it once `ttl_ms` after its timestamp is over.
        `on_sent` is called with partition and offset, `on_failed` with the error, which `flush` then does not raise.

        On a topic with delay.enable=true, consumers get it after `delay`: seconds, a timedelta, or a name such as "10m";
        or at `deliver_at`: a datetime with a time zone, or milliseconds since 1970."""
        data, key_data = self._codec.encode(topic, value, key)
        pairs = pairs_of(headers)
        if tags:
            pairs.append((TAGS_HEADER, format_tags(tags)))
        if ttl_ms is not None:
            if ttl_ms < 0:
                raise ValueError(f"ttl_ms={ttl_ms} is below zero")
            pairs.append((TTL_HEADER, str(ttl_ms)))
        delayed = delay_header(delay, deliver_at)
        if delayed is not None:
            pairs.append(delayed)
        if partition is None and key is None and self._turns is not None:
            partition = self._turns.partition(topic)
        outgoing = OutgoingMessage(topic, data, key_data, pairs, partition)
        if not self._middleware:
            self._queue(outgoing, timestamp_ms, on_sent, on_failed)
            return
        end = begin_send(self._middleware, outgoing)

        def sent(partition: int, offset: int) -> None:
            outgoing.partition, outgoing.offset = partition, offset
            end(None)
            if on_sent is not None:
                on_sent(partition, offset)

        def failed(failure: RequestFailed) -> None:
            end(failure)
            if on_failed is not None:
                on_failed(failure)
            else:
                self._fail(str(failure))

        try:
            self._queue(outgoing, timestamp_ms, sent, failed)
        except BaseException as error:
            end(error)
            raise

    def _queue(
        self,
        outgoing: OutgoingMessage,
        timestamp_ms: int | None,
        on_sent: Sent | None,
        on_failed: Failed | None,
    ) -> None:
        topic, partition = outgoing.topic, outgoing.partition
        optional: dict[str, Any] = {}
        if partition is not None:
            optional["partition"] = partition
        if timestamp_ms is not None:
            optional["timestamp"] = timestamp_ms

        def delivered(error: Any, message: Any) -> None:
            if error is not None and on_failed is not None:
                reason = self._waiting.explain(_explain(error, topic, partition))
                on_failed(RequestFailed(f"{topic}: {reason}"))
            elif error is not None:
                self._fail(f"{topic}: {_explain(error, topic, partition)}")
            elif on_sent is not None:
                on_sent(message.partition(), message.offset())

        while True:
            try:
                self._producer.produce(
                    topic,
                    outgoing.value,
                    key=outgoing.key,
                    headers=outgoing.headers,
                    on_delivery=delivered,
                    **optional,
                )
            except BufferError:
                self._producer.poll(
                    QUEUE_FULL_POLL_SECONDS
                )  # The queue is full: wait until some messages are sent.
            except confluent_kafka.KafkaException as error:
                reason = _explain(error.args[0], topic, partition)
                raise RequestFailed(f"cannot send to {topic!r}: {reason}") from error
            else:
                self._producer.poll(0)
                return

    def flush(self, seconds_max: float = FLUSH_SECONDS_MAX) -> None:
        """Wait until every message so far is acknowledged. Raises RequestFailed if one is not, and
        SecurityFailed soon if the brokers refuse the security settings."""
        deadline = time.monotonic() + seconds_max
        while True:
            left = self._producer.flush(
                max(min(deadline - time.monotonic(), FLUSH_CHECK_SECONDS), 0)
            )
            if not left or time.monotonic() >= deadline:
                break
            self._waiting.raise_if_refused()
        failures, count = self._failures, self._failure_count
        self._failures, self._failure_count = [], 0
        if count:
            message = f"{count} messages were not sent: {failures[0]}"
            raise RequestFailed(self._waiting.explain(message))
        if left:
            message = f"{left} messages are still not sent after {seconds_max:g} s"
            raise RequestFailed(self._waiting.explain(message))

    def serve(self, seconds: float) -> int:
        """Take the acknowledgements that arrive within this time, for a program that does not flush. Returns how many
        messages are not acknowledged yet. Raises SecurityFailed if the brokers refuse the security settings."""
        self._producer.poll(seconds)
        left = len(self._producer)
        if left:
            self._waiting.raise_if_refused()
        return left

    def _partitions_of(self, topic: str) -> int:
        """How many partitions a topic has; 0 if the brokers do not say, or it is just being created."""
        try:
            found = self._producer.list_topics(topic, METADATA_SECONDS_MAX).topics[topic]
        except confluent_kafka.KafkaException:
            return 0
        return len(found.partitions)

    def _fail(self, reason: str) -> None:
        self._failure_count += 1
        if not self._failures:
            self._failures.append(reason)


def _explain(error: Any, topic: str, partition: int | None) -> str:
    """What librdkafka says of a failure, and what to do about it if the partition does not exist."""
    if error.code() == _UNKNOWN_PARTITION and partition is not None:
        return (
            f"there is no partition {partition}: to add partitions,"
            f" `zhumq topic alter {topic} --partitions {partition + 1}`"
        )
    return str(error.str())

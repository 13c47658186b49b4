"""The pulling consumer: an iterator over topics, alone, in a Kafka group, or with a subscription mode."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from zhumq.client.codec import Codec, OnUndecodable
from zhumq.client.expiry import ExpiredCounts, Expiry, OnExpired
from zhumq.client.handling import InHand
from zhumq.client.kafka_source import KafkaSource
from zhumq.client.message import K, Message, Typed, V
from zhumq.client.middleware import Middleware
from zhumq.client.reading import Reading, Source
from zhumq.client.security import Security, as_security
from zhumq.client.serializers import Serializer
from zhumq.model.isolation import Isolation, IsolationLevel

if TYPE_CHECKING:
    from zhumq.client.filtering import MessageTest

Mode = Literal["ptp", "ptp-shared", "psb"]

POLL_SECONDS: Final = 0.2
# In a Kafka group the client counts deliveries; the limit and the backoff are the broker's defaults.
DELIVERIES_MAX: Final = 16
DEFAULT_CREDITS: Final = 1_000


class Consumer(Typed[V, K]):
    """Pulls messages.

    `mode` is `"ptp"` (the topic's one point-to-point group, one consumer per partition, in order),
    `"ptp-shared"` (consumers compete for messages) or `"psb"` (this group of one consumer gets everything):
    the subscriptions of PushConsumer under the same rules, which the broker applies. None is an ordinary
    Kafka consumer group, of which a topic may have any number; without a group it reads alone and keeps
    no position.

    A message counts as processed when the next one is asked for, or the block is left without an
    exception, unless it was answered before; with `auto_ack=False` every message has to be answered:
    `ack()`, `nack()` (again), `reject()` (to the dead letters).

    >>> import zhumq
    >>> with zhumq.Producer(bootstrap) as producer:
    ...     producer.send("events", b"a", partition=0)
    ...     producer.send("events", b"b", partition=0)
    >>> with zhumq.Consumer("events", group="docs-readers", mode="ptp", bootstrap=bootstrap) as consumer:
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
        restart: bool = False,
        credits: int = DEFAULT_CREDITS,  # noqa: A002 (the protocol's word)
        ack_timeout_ms: int = 0,
        max_deliveries: int = 0,
        isolation: IsolationLevel = "read_committed",
        filter: str = "",  # noqa: A002 (the protocol's word)
        on_expired: OnExpired = "drop",
        consumer: str = "",
        resume: bool = False,
        value: Serializer[V] | None = None,
        key: Serializer[K] | None = None,
        on_undecodable: OnUndecodable = "raise",
        middleware: Sequence[Middleware] = (),
        security: Security = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`start` and `start_time_ms` are where a group without a position begins; psb always begins there
        if it is an offset or a time. `max_deliveries` is how often a message is delivered before it
        becomes a dead letter. `isolation`: read_uncommitted also returns messages of open and of aborted
        transactions. `filter`: only messages that pass are returned; with a mode the broker filters, without one this
        process does, since Kafka's Fetch returns whole batches. `on_expired` is what becomes of messages whose
        `zhumq-ttl-ms` is over: drop, dead-letter or deliver. The other options are those of PushConsumer and need a mode. `security` is a
        ClientSecurity, or settings with Kafka's names. `settings` are librdkafka's, and need no mode. `value` and `key` are serializers:
        `value=Json(Order)` makes it a `Consumer[Order]`. `on_undecodable` is what becomes of messages that they cannot
        decode: the iterator raises DecodeFailed, or they are dead-lettered, or skipped. `middleware` runs around every
        message that the iterator returns."""
        if mode not in (None, "ptp", "ptp-shared", "psb"):
            raise ValueError(f"mode is ptp, ptp-shared or psb, not {mode!r}")
        Isolation.named(isolation)
        codec = Codec(value, key, on_undecodable)
        in_hand: InHand[V, K] = InHand(middleware, auto_ack=auto_ack)
        self._source: Source
        if mode is None:
            if restart or resume or consumer or ack_timeout_ms:
                raise ValueError("restart, resume, consumer and ack_timeout_ms need a mode")
            self._source = KafkaSource(
                _choices(topics),
                group,
                bootstrap,
                {
                    "auto.offset.reset": start if start in ("earliest", "latest") else "earliest",
                    "isolation.level": isolation,
                }
                | dict(settings or {}),
                position=_position(start, start_time_ms),
                deliveries_max=max_deliveries or DELIVERIES_MAX,
                expiry=Expiry(on_expired),
                security=as_security(security),
                passes=_message_test(filter),
            )
            self._reading = Reading(self._source, codec, in_hand)
            return
        if settings:
            raise ValueError("settings are librdkafka's: a subscription with a mode has none")
        # Imported here: an ordinary consumer needs no grpcio.
        from zhumq.client.pulled import PulledSource  # noqa: PLC0415

        self._source = PulledSource(
            topics,
            group=group,
            mode=mode,
            bootstrap=bootstrap,
            push=push,
            start=start,
            start_time_ms=start_time_ms,
            restart=restart,
            credits=credits,
            ack_timeout_ms=ack_timeout_ms,
            max_deliveries=max_deliveries,
            isolation=isolation,
            filter=filter,
            on_expired=on_expired,
            consumer=consumer,
            resume=resume,
            security=security,
        )
        self._reading = Reading(self._source, codec, in_hand)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._reading.finish(error)  # The program left the loop with `break`, or an error.
        self.close()

    def __iter__(self) -> Iterator[Message[V, K]]:
        while True:
            self._reading.finish()
            message = self._reading.next()
            if message is None:
                self._reading.add(self._source.poll(POLL_SECONDS))
            else:
                yield message

    def poll(self, seconds: float = POLL_SECONDS) -> list[Message[V, K]]:
        """The messages that are there or arrive within this time. Answer every one of them."""
        deadline = time.monotonic() + seconds
        found = self._reading.rest()
        while not found:
            seconds_left = max(min(deadline - time.monotonic(), POLL_SECONDS), 0)
            self._reading.add(self._source.poll(seconds_left))
            found = self._reading.rest()
            if time.monotonic() >= deadline:
                break
        return found

    @property
    def expired(self) -> ExpiredCounts:
        """How many messages were expired, so that the program did not get them."""
        return self._source.expired

    @property
    def source(self) -> Source:
        """Where the messages come from."""
        return self._source

    def close(self) -> None:
        """Commit the processed messages and leave the group."""
        self._source.close()


def _message_test(text: str) -> "MessageTest | None":
    if not text:
        return None
    # Imported here: most consumers have no filter.
    from zhumq.client.filtering import message_test  # noqa: PLC0415

    return message_test(text)


def _choices(topics: str | Sequence[str] | Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    if isinstance(topics, str):
        return {topics: ()}
    if isinstance(topics, Mapping):
        return dict(topics)
    return dict.fromkeys(topics, ())


def _position(start: str | int, start_time_ms: int | None) -> int | None:
    """An offset, or a negated time. None: the group's position, else the earliest or latest offset."""
    if start_time_ms is not None:
        return -start_time_ms
    if isinstance(start, int):
        return start
    if start not in ("earliest", "latest"):
        raise ValueError(f"start is earliest, latest or an offset, not {start!r}")
    return None

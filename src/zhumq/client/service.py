"""Request-reply, the service's side: handles the requests of a topic, and sends the replies."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from confluent_kafka import KafkaException

from zhumq.client.call_headers import ReplyAddress, reply_address, reply_headers
from zhumq.client.errors import ClientError, RequestFailed
from zhumq.client.expiry import read_ttl_ms
from zhumq.client.producer import Producer
from zhumq.client.retrying_admin import RetryingAdmin
from zhumq.client.routes import quiet_settings
from zhumq.client.security import Security, as_security
from zhumq.client.task import Task
from zhumq.client.worker import Worker

logger = logging.getLogger(__name__)

# How long a reply topic is known to exist. A producer would create one that is gone, if the brokers allow it.
KNOWN_SECONDS: Final = 5.0
REPLY_SECONDS_MAX: Final = 30.0  # how long a reply waits for a broker

RequestHandler = Callable[[Task], bytes | None]


@dataclass(slots=True, kw_only=True)
class ServiceCounts:
    """What became of the requests of a service."""

    handled: int = 0
    failed: int = 0  # the handler raised
    expired: int = 0  # dropped, as their callers do not wait any more
    undelivered: int = 0  # replies that could not be sent, such as those to a topic that is gone


class Service:
    """Calls a handler for every request of a topic, and sends what it returns to the caller.

    It is a Worker: `consumers` read, `processors` threads handle, requests with the same key one after the other.
    What the handler raises is the caller's to see: the class and the text of the exception. A message without a reply
    address is handled without a reply, and becomes a dead letter if the handler raises. After a crash requests
    may be handled again.

    >>> import zhumq
    >>> service = zhumq.Service("jobs", lambda task: task.value.upper(), group="docs-upper", bootstrap=bootstrap)
    >>> service.stop()  # before run: it handles nothing
    >>> service.run()
    >>> service.counts.handled
    0
    """

    def __init__(
        self,
        topic: str,
        handler: RequestHandler,
        *,
        group: str,
        bootstrap: str = "127.0.0.1:9092",
        consumers: int = 1,
        processors: int = 8,
        security: Security = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`security` is a ClientSecurity, or settings with Kafka's names. `settings` are librdkafka's for the readers."""
        secured = as_security(security)
        self._handler = handler
        self._worker = Worker(
            topic,
            self._serve,
            group=group,
            bootstrap=bootstrap,
            consumers=consumers,
            processors=processors,
            retries=0,
            on_failure="dead-letter",
            security=secured,
            settings=settings,
        )
        self._replies = Producer(
            bootstrap,
            security=secured,
            settings={"message.timeout.ms": round(REPLY_SECONDS_MAX * 1000)},
        )
        self._topics = _KnownTopics(RetryingAdmin(quiet_settings(bootstrap, secured)))
        self._lock = threading.Lock()
        self.counts = ServiceCounts()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Serve until `stop()`, or until the condition holds."""
        try:
            self._worker.run(until)
        finally:
            try:
                self._replies.flush()
            except ClientError as error:
                logger.warning("the last replies are not sent: %s", error)

    def stop(self) -> None:
        """Begin no more requests; `run` finishes the begun ones, sends their replies, and returns."""
        self._worker.stop()

    # In the processors' threads

    def _serve(self, task: Task) -> None:
        if _is_expired(task, time.time_ns() // 1_000_000):
            self._count("expired")
            return
        address = reply_address(task.headers)
        value: bytes | None = None
        failure: Exception | None = None
        try:
            value = self._handler(task)
        except Exception as error:
            if address is None:
                raise  # The worker logs it, and makes the message a dead letter.
            logger.warning(
                "the handler failed for %s-%d@%d",
                task.topic,
                task.partition,
                task.offset,
                exc_info=error,
            )
            failure = error
        self._count("handled" if failure is None else "failed")
        if address is not None:
            self._reply(address, value, failure)

    def _reply(self, address: ReplyAddress, value: bytes | None, failure: Exception | None) -> None:
        try:
            self._topics.check(address.topic, address.partition)
            try:
                self._send(address, value, failure)
            except (ClientError, TypeError) as error:
                # Too large, or no bytes: the caller gets the reason instead.
                self._send(address, None, error)
        except (ClientError, KafkaException) as error:
            self._count("undelivered")
            logger.warning(
                "no reply to a call from %s-%d: %s", address.topic, address.partition, error
            )

    def _send(self, address: ReplyAddress, value: bytes | None, failure: Exception | None) -> None:
        self._replies.send(
            address.topic,
            value,
            key=address.call_id,
            headers=reply_headers(address.call_id, failure),
            partition=address.partition,
        )

    def _count(self, name: str) -> None:
        with self._lock:
            setattr(self.counts, name, getattr(self.counts, name) + 1)


class _KnownTopics:
    """Which partitions exist: asked for without creating topics, and remembered for a moment."""

    def __init__(self, admin: RetryingAdmin) -> None:
        self._admin = admin
        self._lock = threading.Lock()
        self._partitions: dict[str, int] = {}
        self._asked_at = -KNOWN_SECONDS

    def check(self, topic: str, partition: int) -> None:
        """Raise RequestFailed if there is no such partition."""
        with self._lock:
            is_fresh = time.monotonic() - self._asked_at < KNOWN_SECONDS
            if not is_fresh or partition >= self._partitions.get(topic, 0):
                topics = self._admin.metadata().topics
                self._partitions = {name: len(each.partitions) for name, each in topics.items()}
                self._asked_at = time.monotonic()
            if partition >= self._partitions.get(topic, 0):
                raise RequestFailed(f"there is no partition {partition} of {topic!r}")


def _is_expired(task: Task, now_ms: int) -> bool:
    """Whether the caller does not wait any more. A TTL that is none is ignored, as consumers do."""
    try:
        ttl_ms = read_ttl_ms(task.headers)
    except ValueError:
        return False
    if ttl_ms is None or task.timestamp_ms is None:
        return False
    return now_ms > task.timestamp_ms + ttl_ms

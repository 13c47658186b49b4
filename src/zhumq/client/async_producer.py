"""The async producer: the producer behind two threads of its own, so that the event loop never waits for a broker."""

import asyncio
import contextvars
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Literal, NamedTuple, Self

from zhumq.client import producer
from zhumq.client.delays import Delay, DeliverAt
from zhumq.client.errors import ClientError, RequestFailed, SecurityFailed
from zhumq.client.message import HeaderPairs, K, Typed, V
from zhumq.client.middleware import Middleware
from zhumq.client.producer import FLUSH_SECONDS_MAX
from zhumq.client.security import Security
from zhumq.client.serializers import Serializer

IN_FLIGHT_MAX: Final = 1_000
SERVE_SECONDS: Final = 0.1


class RecordMetadata(NamedTuple):
    """Where a message was appended."""

    topic: str
    partition: int
    offset: int


_Acknowledgement = asyncio.Future[RecordMetadata]


class Producer(Typed[V, K]):
    """Sends messages. `await send(...)` waits until the message is on all in-sync replicas.

    `await send_soon(...)` waits only for room among the `in_flight_max` messages that are not acknowledged yet, and
    returns a future of the acknowledgement; `flush()`, or the end of the block, waits for all and raises if one of
    them could not be sent. Messages are sent in the order of the calls, in order and once (idempotent).

    A call that is cancelled does not take its message back: it may be sent or not.

    >>> import asyncio, zhumq.aio
    >>> async def order() -> int:
    ...     async with zhumq.aio.Producer(bootstrap) as producer:
    ...         sent = await producer.send("orders", b"one order", key=b"customer-7")
    ...         for number in range(100):
    ...             await producer.send_soon("orders", b"order %d" % number)
    ...     return sent.partition
    >>> asyncio.run(order())
    0
    """

    def __init__(
        self,
        bootstrap: str = "127.0.0.1:9092",
        *,
        keyless: Literal["random", "round_robin"] = "random",
        in_flight_max: int = IN_FLIGHT_MAX,
        value: Serializer[V] | None = None,
        key: Serializer[K] | None = None,
        middleware: Sequence[Middleware] = (),
        security: Security = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """The options are those of `zhumq.Producer`. `in_flight_max` bounds the messages that this process holds."""
        if in_flight_max < 1:
            raise ValueError(f"in_flight_max={in_flight_max} is not at least 1")
        self._producer = producer.Producer(
            bootstrap,
            keyless=keyless,
            value=value,
            key=key,
            middleware=middleware,
            security=security,
            settings=settings,
        )
        self._room = asyncio.Semaphore(in_flight_max)
        self._in_flight: set[_Acknowledgement] = set()
        self._failures: list[BaseException] = []  # of `send_soon`, since the last flush: the first
        self._failure_count = 0
        self._threads: _Threads | None = None

    async def __aenter__(self) -> Self:
        self._threads = _Threads(self._producer, asyncio.get_running_loop(), self._finish)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            await self.close()
            return
        with suppress(ClientError):  # The error that ends the block says more.
            await self.close()

    async def send(
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
    ) -> RecordMetadata:
        """Send a message, and wait until it is acknowledged. Raises RequestFailed if it could not be sent."""
        acknowledgement = await self._submit(
            topic,
            value,
            key=key,
            headers=headers,
            tags=tags,
            partition=partition,
            timestamp_ms=timestamp_ms,
            ttl_ms=ttl_ms,
            delay=delay,
            deliver_at=deliver_at,
        )
        return await acknowledgement

    async def send_soon(
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
    ) -> "asyncio.Future[RecordMetadata]":
        """Queue a message, when there is room for it. The future that this returns may be awaited or dropped: the next
        `flush` raises for messages that could not be sent."""
        acknowledgement = await self._submit(
            topic,
            value,
            key=key,
            headers=headers,
            tags=tags,
            partition=partition,
            timestamp_ms=timestamp_ms,
            ttl_ms=ttl_ms,
            delay=delay,
            deliver_at=deliver_at,
        )
        acknowledgement.add_done_callback(self._note_failure)
        return acknowledgement

    async def flush(self, seconds_max: float = FLUSH_SECONDS_MAX) -> None:
        """Wait until every message so far is acknowledged. Raises RequestFailed if one of `send_soon` is not, and
        SecurityFailed soon if the brokers refuse the security settings."""
        threads = self._opened()
        # Without any, what librdkafka may still hold has been reported as refused.
        if in_flight := set(self._in_flight):
            flushed = asyncio.get_running_loop().create_future()
            threads.call(partial(self._producer.flush, seconds_max), flushed)
            await flushed
            await asyncio.wait(in_flight)  # Their acknowledgements are here, or about to be.
        await asyncio.sleep(0)  # `_note_failure` has been called for all that is acknowledged.
        count, failures = self._failure_count, self._failures
        self._failure_count, self._failures = 0, []
        if count:
            raise RequestFailed(f"{count} messages were not sent: {failures[0]}")

    async def close(self) -> None:
        """Flush, and end the threads of this producer."""
        if self._threads is None:
            return
        try:
            await self.flush()
        finally:
            threads, self._threads = self._threads, None
            if threads is not None:
                await threads.stop()

    def _opened(self) -> "_Threads":
        if self._threads is None:
            raise RequestFailed("this producer is not open: use `async with producer:`")
        return self._threads

    async def _submit(self, topic: str, value: V | None, **options: Any) -> _Acknowledgement:
        self._opened()
        await self._room.acquire()
        try:
            threads = self._opened()
        except RequestFailed:
            self._room.release()
            raise
        acknowledgement: _Acknowledgement = asyncio.get_running_loop().create_future()
        self._in_flight.add(acknowledgement)
        threads.send(acknowledgement, topic, value, options)
        return acknowledgement

    def _finish(
        self, acknowledgement: _Acknowledgement, result: RecordMetadata | BaseException
    ) -> None:
        if acknowledgement not in self._in_flight:
            return  # It failed before, because the brokers refuse the security settings.
        self._in_flight.discard(acknowledgement)
        self._room.release()
        _settle(acknowledgement, result)

    def _note_failure(self, acknowledgement: _Acknowledgement) -> None:
        if not acknowledgement.cancelled() and (error := acknowledgement.exception()) is not None:
            self._failure_count += 1
            if not self._failures:
                self._failures.append(error)


class _Threads:
    """The two threads of a producer: one sends, which waits while librdkafka's queue is full; the other takes the
    acknowledgements while there are messages without one. Neither wakes up while nothing happens."""

    def __init__(
        self,
        producer: "producer.Producer[Any, Any]",
        loop: asyncio.AbstractEventLoop,
        finish: Callable[[_Acknowledgement, RecordMetadata | BaseException], None],
    ) -> None:
        self._producer = producer
        self._loop = loop
        self._finish = finish
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._finished: deque[tuple[Callable[..., None], asyncio.Future[Any], Any]] = deque()
        self._is_waking = False
        self._unacknowledged: set[_Acknowledgement] = set()
        self._has_work = threading.Event()
        self._is_stopped = False
        self._ended: asyncio.Future[None] = loop.create_future()
        self._server = threading.Thread(target=self._serve, name="zhumq-aio-serve", daemon=True)
        self._server.start()
        threading.Thread(target=self._run_jobs, name="zhumq-aio-send", daemon=True).start()

    # Called in the event loop

    def send(
        self, acknowledgement: _Acknowledgement, topic: str, value: Any, options: dict[str, Any]
    ) -> None:
        # The caller's context is there for what runs around a send, such as its span.
        run = contextvars.copy_context().run
        self._jobs.put(partial(run, self._send, acknowledgement, topic, value, options))

    def call(self, work: Callable[[], None], done: "asyncio.Future[None]") -> None:
        """Call this in the sending thread, after the messages so far."""
        self._jobs.put(partial(self._call, work, done))

    def stop(self) -> "asyncio.Future[None]":
        """Done when both threads have ended: a broker that stops from then on is not reported any more."""
        self._jobs.put(None)
        return self._ended

    def _wake(self) -> None:
        self._is_waking = False
        while self._finished:
            finish, future, result = self._finished.popleft()
            finish(future, result)

    # Called in the threads

    def _run_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
        self._is_stopped = True
        self._has_work.set()
        self._server.join()
        self._report(_settle, self._ended, None)

    def _send(
        self, acknowledgement: _Acknowledgement, topic: str, value: Any, options: dict[str, Any]
    ) -> None:
        self._unacknowledged.add(acknowledgement)

        def sent(partition: int, offset: int) -> None:
            self._acknowledge(acknowledgement, RecordMetadata(topic, partition, offset))

        failed = partial(self._acknowledge, acknowledgement)
        try:
            self._producer.send(topic, value, on_sent=sent, on_failed=failed, **options)
        except Exception as error:  # whatever it is: raised where the program waits
            self._acknowledge(acknowledgement, error)
        else:
            self._has_work.set()

    def _call(self, work: Callable[[], None], done: "asyncio.Future[None]") -> None:
        try:
            work()
        except Exception as error:  # whatever it is: raised where the program waits
            self._report(_settle, done, error)
        else:
            self._report(_settle, done, None)

    def _serve(self) -> None:
        while True:
            self._has_work.wait()
            if self._is_stopped:
                return
            try:
                left = self._producer.serve(SERVE_SECONDS)
            except SecurityFailed as error:
                for each in tuple(self._unacknowledged):
                    self._acknowledge(each, error)
                continue
            if not left:
                self._has_work.clear()
                # A message that was sent in between, or the end, has set it too early.
                if self._unacknowledged or self._is_stopped:
                    self._has_work.set()

    def _acknowledge(
        self, acknowledgement: _Acknowledgement, result: RecordMetadata | BaseException
    ) -> None:
        self._unacknowledged.discard(acknowledgement)
        self._report(self._finish, acknowledgement, result)

    def _report(
        self, finish: Callable[..., None], future: "asyncio.Future[Any]", result: Any
    ) -> None:
        self._finished.append((finish, future, result))
        if not self._is_waking:
            self._is_waking = True  # One wake-up is enough for all that is finished by then.
            with suppress(RuntimeError):  # The loop is closed: no task waits any more.
                self._loop.call_soon_threadsafe(self._wake)


def _settle(future: "asyncio.Future[Any]", result: object) -> None:
    if future.done():
        return  # Its caller was cancelled.
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)

"""The async consumer: the pulling consumer in a thread of its own, read with `async for`."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Generic, Literal, NamedTuple, Self, TypeVar

from zhumq.client import consumer as pulling
from zhumq.client.codec import Codec, OnUndecodable
from zhumq.client.consumer import DEFAULT_CREDITS, POLL_SECONDS, Mode
from zhumq.client.errors import ClientError, RequestFailed
from zhumq.client.expiry import ExpiredCounts, OnExpired
from zhumq.client.handling import InHand
from zhumq.client.message import Answer, AnswerKind, Cursor, K, Message, Origin, Typed, V
from zhumq.client.middleware import Middleware
from zhumq.client.reading import Reading
from zhumq.client.security import Security
from zhumq.client.serializers import Serializer
from zhumq.model.isolation import IsolationLevel

# After these the messages behind are read on; after the others they may be stale.
_GOING_ON: Final = (AnswerKind.ACK, AnswerKind.EXTEND)
T = TypeVar("T")


class Consumer(Typed[V, K]):
    """Pulls messages: `async for message in consumer`.

    The options, the modes and the answers are those of `zhumq.Consumer`. `async with` connects; the end of the block
    commits what is processed and leaves the group, also if the task is cancelled: the message in hand then counts as
    not processed. An answer takes effect in the background; one that fails raises at the next message.

    >>> import asyncio, zhumq, zhumq.aio
    >>> with zhumq.Producer(bootstrap) as producer:
    ...     producer.send("events", b"a", partition=0)
    ...     producer.send("events", b"b", partition=0)
    >>> async def read() -> None:
    ...     async with zhumq.aio.Consumer("events", group="docs-async", bootstrap=bootstrap) as consumer:
    ...         async for message in consumer:
    ...             print(message.offset, message.value)
    ...             if message.value == b"b":
    ...                 break
    >>> asyncio.run(read())
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
        """Does not connect, and does not check all options: `async with` does that."""
        self._connect = partial(
            pulling.Consumer,
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
            settings=settings,
        )
        self._codec = Codec(value, key, on_undecodable)
        self._in_hand: InHand[V, K] = InHand(middleware, auto_ack=auto_ack)
        self._turn = asyncio.Lock()  # One task at a time takes the next message.
        self._opened: _Opened[V, K] | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        bridge = _Bridge()
        consumer = await bridge.open(self._connect)
        reading = Reading(consumer.source, self._codec, self._in_hand)
        self._opened = _Opened(consumer, bridge, reading)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._opened is not None:
            self._opened.reading.finish(
                error
            )  # The program left the loop with `break`, or an error.
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message[V, K]:
        async with self._turn:
            if self._is_closed:
                raise StopAsyncIteration
            opened = self._open()
            opened.reading.finish()
            while True:
                await opened.bridge.settled()
                message = opened.reading.next()
                if message is not None:
                    return message
                opened.reading.add(await opened.bridge.poll(opened.consumer, POLL_SECONDS))
                if self._is_closed:
                    raise StopAsyncIteration  # Another task has closed it.

    async def poll(self, seconds: float = POLL_SECONDS) -> list[Message[V, K]]:
        """The messages that are there or arrive within this time. Answer every one of them."""
        deadline = time.monotonic() + seconds
        async with self._turn:
            opened = self._open()
            await opened.bridge.settled()
            found = opened.reading.rest()
            while not found:
                left = max(min(deadline - time.monotonic(), POLL_SECONDS), 0)
                opened.reading.add(await opened.bridge.poll(opened.consumer, left))
                found = opened.reading.rest()
                if time.monotonic() >= deadline:
                    break
            return found

    @property
    def expired(self) -> ExpiredCounts:
        """How many messages were expired, so that the program did not get them."""
        return self._open().consumer.expired

    async def close(self) -> None:
        """Commit the processed messages and leave the group. Tasks that iterate over it end their loops."""
        opened, self._opened = self._opened, None
        self._is_closed = True
        if opened is not None:
            await opened.bridge.close(opened.consumer)

    def _open(self) -> "_Opened[V, K]":
        if self._opened is None:
            raise RequestFailed("this consumer is not open: use `async with consumer:`")
        return self._opened


class _Opened(NamedTuple, Generic[V, K]):
    """What an open consumer consists of."""

    consumer: pulling.Consumer
    bridge: "_Bridge"
    reading: Reading[V, K]


class _QueuedAnswer(NamedTuple):
    """An answer on its way to the consumer's thread."""

    origin: Origin
    first_offset: int
    last_offset: int
    answer: Answer
    round: int


class _Bridge:
    """Between the event loop and the one thread that uses a consumer: polls there, answers there, closes there."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="zhumq-aio-consumer")
        self._polling: asyncio.Future[list[Message]] | None = None
        self._origins: dict[tuple[str, int], _BridgedOrigin] = {}
        self._answers: deque[_QueuedAnswer] = deque()
        self._is_answering = False  # The thread is about to give the answers.
        self._is_closed = False
        self._is_in_doubt = False  # An answer may have made polled messages stale.
        self._failure: ClientError | None = None

    async def open(self, connect: Callable[[], pulling.Consumer]) -> pulling.Consumer:
        opening = self._thread.submit(connect)
        try:
            return await asyncio.shield(asyncio.wrap_future(opening))
        except asyncio.CancelledError:
            self._thread.submit(lambda: opening.result().close())
            self._thread.shutdown(wait=False)
            raise
        except BaseException:
            self._thread.shutdown(wait=False)
            raise

    async def poll(self, consumer: pulling.Consumer, seconds: float) -> list[Message]:
        """What the consumer polls. If the caller is cancelled, the next caller gets it."""
        if self._polling is None:
            self._polling = self._submit(partial(self._poll, consumer, seconds))
        try:
            found = await asyncio.shield(self._polling)
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._polling = None
            raise
        self._polling = None
        return found

    def answer(self, given: _QueuedAnswer) -> None:
        """Queue an answer for the thread. From any thread."""
        self._answers.append(given)
        if given.answer.kind not in _GOING_ON:
            self._is_in_doubt = True
        if not self._is_answering and not self._is_closed:
            self._is_answering = True
            self._thread.submit(self._give_answers)

    async def settled(self) -> None:
        """Raise what went wrong with an answer. Wait for those after which polled messages may be stale."""
        if self._is_in_doubt:
            await self._submit(self._give_answers)
            self._is_in_doubt = bool(self._answers)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    async def close(self, consumer: pulling.Consumer) -> None:
        """Give the answers, and close the consumer: to the end, also if the caller is cancelled."""
        self._is_closed = True
        closing = self._submit(partial(self._close, consumer))
        self._thread.shutdown(wait=False)
        await closing
        if self._failure is not None:
            raise self._failure

    def _submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        return asyncio.shield(asyncio.wrap_future(self._thread.submit(work)))

    # In the thread

    def _poll(self, consumer: pulling.Consumer, seconds: float) -> list[Message]:
        found = consumer.poll(seconds)
        for message in found:
            delivery = message.delivery
            if not isinstance(delivery.origin, _BridgedOrigin):
                delivery.origin = self._bridged(delivery.origin)
        return found

    def _bridged(self, origin: Origin) -> "_BridgedOrigin":
        key = (origin.topic, origin.partition)
        bridged = self._origins.get(key)
        if bridged is None or bridged.origin is not origin:
            bridged = self._origins[key] = _BridgedOrigin(self, origin)
        return bridged

    def _give_answers(self) -> None:
        self._is_answering = False
        while self._answers:
            origin, first_offset, last_offset, answer, round_ = self._answers.popleft()
            try:
                origin.answer(first_offset, last_offset, answer, round_)
            except ClientError as error:  # The message is delivered again.
                self._failure = self._failure or error

    def _close(self, consumer: pulling.Consumer) -> None:
        self._give_answers()
        consumer.close()


class _BridgedOrigin:
    """A partition as the program's event loop sees it: takes answers without waiting."""

    def __init__(self, bridge: _Bridge, origin: Origin) -> None:
        self._bridge = bridge
        self.origin = origin
        self.topic = origin.topic
        self.partition = origin.partition
        self.cursor: Cursor | None = None

    def is_stale(self, round_: int, offset: int) -> bool:
        return self.origin.is_stale(round_, offset)

    def answer(self, first_offset: int, last_offset: int, answer: Answer, round_: int) -> None:
        given = _QueuedAnswer(self.origin, first_offset, last_offset, answer, round_)
        self._bridge.answer(given)

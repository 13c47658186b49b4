"""A subscription read by polling: a push consumer in a thread, behind blocking calls."""

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeVar

from zhumq.client.expiry import ExpiredCounts
from zhumq.client.link import Place
from zhumq.client.message import Answer, AnswerKind, Cursor, Message, MessageBatch
from zhumq.client.push_consumer import PushConsumer

SUBSCRIBE_SECONDS_MAX: Final = 30.0
POLL_PAUSE_SECONDS_MAX: Final = 300.0  # Kafka's max.poll.interval.ms
EXTENSIONS_PER_DEADLINE: Final = 3

Start = Literal["earliest", "latest"] | int
T = TypeVar("T")


class _QueuedAnswer(NamedTuple):
    """An answer queued for the stream's thread."""

    place: Place
    first_offset: int
    last_offset: int
    answer: Answer
    round: int


class PulledSource:
    """Messages of a subscription, returned by `poll`.

    The broker treats it as a push consumer: one delivery service serves both. The source extends the
    deadlines of messages that wait in this process until the program polls them.
    """

    def __init__(
        self,
        topics: str | Sequence[str] | Mapping[str, Sequence[int]],
        **subscription: Any,
    ) -> None:
        """`subscription` is what PushConsumer takes. Raises SubscriptionRefused."""
        self._in_order = subscription["mode"] != "ptp-shared"
        self._answers: deque[_QueuedAnswer] = deque()
        self._is_sending = False
        self._origins: dict[tuple[str, int], _PulledPlace] = {}
        self._polled_at = self._extended_at = time.monotonic()
        self._is_paused = False
        self._is_closed = False
        self._loop = _stream_loop()
        self._call(self._open(topics, subscription))

    # Called by the program

    def poll(self, seconds: float) -> list[Message]:
        """The messages of one delivery, if one is there or arrives within this time."""
        batch = self._call(self._take(seconds))
        return [] if batch is None else batch.messages  # decoded in the program's thread

    def on_reading(self, messages: Sequence[Message], index: int) -> None:
        """The program works on `messages[index]`: extend its deadline and those of the rest."""
        self._consumer.set_current(messages[index])
        now = time.monotonic()
        if now - self._extended_at >= self._extend_seconds:
            self._extended_at = now
            for message in messages[index:]:
                message.extend()

    def answer(self, given: _QueuedAnswer) -> None:
        """Queue an answer for the stream's thread."""
        self._answers.append(given)
        if not self._is_sending and not self._is_closed:
            self._is_sending = True
            self._loop.call_soon_threadsafe(self._send_answers)

    @property
    def expired(self) -> ExpiredCounts:
        return self._consumer.expired

    def close(self) -> None:
        """Settle the answers given so far, release the other messages, and disconnect."""
        if not self._is_closed:
            self._is_closed = True
            self._call(self._close())

    # In the stream's thread

    async def _open(self, topics: Any, subscription: Mapping[str, Any]) -> None:
        self._consumer = PushConsumer(topics, auto_ack=False, **subscription)
        await self._consumer.__aenter__()
        try:
            await self._consumer.subscribed(SUBSCRIBE_SECONDS_MAX)
        except BaseException:
            await self._consumer.close()
            raise
        self._extender = asyncio.create_task(self._extend_waiting())

    async def _take(self, seconds: float) -> MessageBatch | None:
        if self._is_paused:
            self._is_paused = False
            self._consumer.resume()
        batch = await self._consumer.next_batch(seconds)
        self._polled_at = self._extended_at = time.monotonic()
        if batch is None:
            return None
        place = batch.origin
        assert isinstance(place, Place)
        key = (place.topic, place.partition)
        origin = self._origins.get(key)
        if origin is None or origin.place is not place:
            origin = self._origins[key] = _PulledPlace(self, place, in_order=self._in_order)
        return batch.with_origin(origin)

    def _send_answers(self) -> None:
        self._is_sending = False
        while self._answers:
            place, first_offset, last_offset, answer, round_ = self._answers.popleft()
            place.answer(first_offset, last_offset, answer, round_)

    @property
    def _extend_seconds(self) -> float:
        return self._consumer.ack_timeout_ms / 1000 / EXTENSIONS_PER_DEADLINE

    async def _extend_waiting(self) -> None:
        """Extend the messages that the program has not polled yet; release them when it stops polling."""
        while True:
            await asyncio.sleep(self._extend_seconds)
            is_polling = time.monotonic() - self._polled_at < POLL_PAUSE_SECONDS_MAX
            if not is_polling and not self._is_paused:
                self._is_paused = True
                self._consumer.pause()
            for batch in tuple(self._consumer.waiting):
                _answer_whole(batch, AnswerKind.EXTEND if is_polling else AnswerKind.RELEASE)
            if not is_polling:
                self._consumer.waiting.clear()  # Also what arrived before the broker processed the pause.

    async def _close(self) -> None:
        self._extender.cancel()
        self._send_answers()
        await self._consumer.close()

    # Between the threads

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C while waiting: the result is not needed any more.
            raise


_starting = threading.Lock()
_running: list[tuple[int, asyncio.AbstractEventLoop]] = []


def _stream_loop() -> asyncio.AbstractEventLoop:
    """The event loop of the thread that runs the streams of all pulling consumers of this process."""
    with _starting:
        for process_id, loop in _running:
            if process_id == os.getpid():
                return loop
        # A forked child has none of its parent's threads.
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, name="zhumq-streams", daemon=True).start()
        _running[:] = [(os.getpid(), loop)]
        return loop


class _PulledPlace:
    """A partition in the program's thread: the origin of its messages."""

    def __init__(self, source: PulledSource, place: Place, *, in_order: bool) -> None:
        self._source = source
        self.place = place
        self._in_order = in_order
        self.topic = place.topic
        self.partition = place.partition
        self.cursor: Cursor | None = None
        # As in Place, but visible at once to the thread that gave the answer.
        self._stale = (-1, 0)

    def is_stale(self, round_: int, offset: int) -> bool:
        released = round_ <= self._stale[0] and offset >= self._stale[1]
        return released or self.place.is_stale(round_, offset)

    def answer(self, first_offset: int, last_offset: int, answer: Answer, round_: int) -> None:
        if self._in_order and answer.kind in (AnswerKind.NACK, AnswerKind.RELEASE):
            self._stale = (round_, first_offset)
        self._source.answer(_QueuedAnswer(self.place, first_offset, last_offset, answer, round_))


def _answer_whole(batch: MessageBatch, kind: AnswerKind) -> None:
    for first_offset, last_offset, _ in batch.ranges:
        if not batch.origin.is_stale(batch.round, first_offset):
            batch.origin.answer(first_offset, last_offset, Answer(kind), batch.round)

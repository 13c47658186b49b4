"""Requests that wait: appends for the disk, fetches for bytes. Kafka calls this the purgatory."""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from zhumq.model.errors import BrokerError
from zhumq.model.ids import TopicPartition

logger = logging.getLogger(__name__)

# (the partition, whether this broker leads and serves it from now on, in which epoch)
LeadershipCallback = Callable[[TopicPartition, bool, int], None]


class Watcher(Protocol):
    """Waits for a partition. It may stop watching inside of these calls."""

    def on_bytes(self, count: int, source: "Watched") -> None:
        """So many more bytes of records of a partition are visible to consumers."""

    def on_retired(self) -> None:
        """This broker no longer serves the partition, or not as its leader."""


class Watched(Protocol):
    """Notifies its watchers of new bytes."""

    def watch(self, watcher: Watcher) -> None: ...

    def unwatch(self, watcher: Watcher) -> None: ...


class Watchers(set[Watcher]):
    """The watchers of one partition."""

    def on_bytes(self, count: int, source: Watched) -> None:
        for watcher in tuple(self):
            if watcher in self:  # Another one may have ended its watch.
                watcher.on_bytes(count, source)

    def on_retired(self) -> None:
        for watcher in tuple(self):
            if watcher in self:
                watcher.on_retired()


class ParkedFetch:
    """A fetch that waits until enough bytes have arrived on its partitions since it was created, or one
    is retired, or its time is up.

    `is_worthwhile` says whether the fetch would get any of the new bytes of a partition: those of an
    open transaction it may not get.
    """

    __slots__ = (
        "_is_worthwhile",
        "_missing_bytes",
        "_partitions",
        "_timer",
        "done",
    )

    def __init__(
        self,
        partitions: Sequence[Watched],
        missing_bytes: int,
        wait_ms: int,
        is_worthwhile: Callable[[Watched], bool] | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._partitions: Sequence[Watched] = partitions
        self._missing_bytes = missing_bytes
        self._is_worthwhile = is_worthwhile
        self.done: asyncio.Future[None] = loop.create_future()
        self._timer = loop.call_later(wait_ms / 1000, self.wake)
        for partition in partitions:
            partition.watch(self)

    def on_bytes(self, count: int, source: Watched) -> None:
        self._missing_bytes -= count
        if self._is_worthwhile is not None:
            if not self._is_worthwhile(source):
                return
            self._is_worthwhile = None  # One partition is enough.
        if self._missing_bytes <= 0:
            self.wake()

    def on_retired(self) -> None:
        self.wake()

    def wake(self) -> None:
        """Complete the wait, whatever has arrived: on enough bytes, on a timeout, or to give the fetch up."""
        self._timer.cancel()
        for partition in self._partitions:
            partition.unwatch(self)
        self._partitions = ()
        if not self.done.done():
            self.done.set_result(None)


# Called with None once the bytes are on the disk, or with the reason why they never will be.
DurableCallback = Callable[[BrokerError | None], None]


def future_of(register: Callable[[DurableCallback], None]) -> asyncio.Future[None]:
    """A future that the registered callback settles."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(failure: BrokerError | None) -> None:
        if future.done():
            return
        if failure is None:
            future.set_result(None)
        else:
            future.set_exception(failure)
            future.exception()  # Who waited for it may be gone; the event loop would log it as an error.

    register(settle)
    return future


class DurabilityWaiters:
    """Callbacks that wait until a log is on disk up to an offset, in the order of their offsets.

    One that fails is a bug. It is logged, and the others are called all the same: each answers another client.
    """

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: deque[tuple[int, DurableCallback, float]] = deque()

    def __len__(self) -> int:
        return len(self._waiters)

    def add(
        self, next_offset: int, callback: DurableCallback, give_up_at_ms: float = math.inf
    ) -> None:
        # Appends get ascending offsets, so the queue is sorted.
        self._waiters.append((next_offset, callback, give_up_at_ms))

    def reached(self, flushed_offset: int) -> None:
        waiters = self._waiters
        while waiters and waiters[0][0] <= flushed_offset:
            callback = waiters.popleft()[1]
            try:
                callback(None)
            except Exception:
                logger.exception(_FAILED)

    def is_any_overdue(self, now_ms: int) -> bool:
        return any(give_up_at_ms <= now_ms for _, _, give_up_at_ms in self._waiters)

    def failed_overdue(self, now_ms: int, reason: BrokerError) -> None:
        """Fail the callbacks whose deadline has passed. Deadlines are in no order."""
        waiters, self._waiters = self._waiters, deque()
        overdue: list[DurableCallback] = []
        for waiter in waiters:
            if waiter[2] <= now_ms:
                overdue.append(waiter[1])
            else:
                self._waiters.append(waiter)
        _fail_all(overdue, reason)

    def failed(self, reason: BrokerError) -> None:
        waiters, self._waiters = self._waiters, deque()
        _fail_all((callback for _, callback, _ in waiters), reason)


_FAILED: Final = "an append that is over could not be answered"


def _fail_all(callbacks: Iterable[DurableCallback], reason: BrokerError) -> None:
    for callback in callbacks:
        try:
            callback(reason)
        except Exception:
            logger.exception(_FAILED)

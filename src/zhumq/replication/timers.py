"""One timer for the deadlines of all replicas."""

import asyncio
import heapq
import logging
from itertools import count
from typing import Final, Protocol

from zhumq.host.clock import Clock

logger = logging.getLogger(__name__)

# Deadlines this close together are looked at in one turn of the loop.
TICK_MS: Final = 10
# A timer this late means that the whole process stood still. What others said meanwhile lies unread,
# so it is read before anybody is missed.
LATE_MS: Final = 250
CATCH_UP_MS: Final = 100


class Timed(Protocol):
    """Something with a deadline that moves."""

    # When it is looked at next, as this module has noted it; None: not at all.
    look_at_ms: int | None

    def deadline_passed(self, now_ms: int) -> int | None:
        """The time has come: act if need be, and say when to look again."""


class Timers:
    """Looks at each member when its deadline has come.

    A deadline that moves back is not moved here: it is looked at too early, and noted anew. So a
    busy partition costs no more than an idle one.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._heap: list[tuple[int, int, Timed]] = []
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._is_catching_up = False
        self._is_closed = False

    def set(self, member: Timed, due_ms: int | None) -> None:
        """Look at the member then, if that is before it would be looked at anyway."""
        if due_ms is None or self._is_closed:
            return
        noted_ms = member.look_at_ms
        if noted_ms is not None and noted_ms <= due_ms:
            return
        member.look_at_ms = due_ms
        heapq.heappush(self._heap, (due_ms, next(self._order), member))
        if self._timer is None or due_ms < self._timer_at_ms:
            self._arm()

    def close(self) -> None:
        self._is_closed = True
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._heap:
            return
        due_ms = self._heap[0][0]
        self._timer_at_ms = due_ms
        # A tick later than the first one: its neighbours are due by then as well.
        delay_ms = max(due_ms - self._clock.monotonic_ms(), 0) + TICK_MS
        self._timer = self._loop.call_later(delay_ms / 1000, self._look)

    def _look(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._timer_at_ms > LATE_MS and not self._is_catching_up:
            self._is_catching_up = True
            self._timer_at_ms = now_ms
            self._timer = self._loop.call_later(CATCH_UP_MS / 1000, self._look)
            return
        self._is_catching_up = False
        heap = self._heap
        again: list[tuple[Timed, int | None]] = []
        while heap and heap[0][0] <= now_ms:
            due_ms, _, member = heapq.heappop(heap)
            if member.look_at_ms != due_ms:
                continue  # It was moved forward, and has been looked at since.
            member.look_at_ms = None
            try:
                again.append((member, member.deadline_passed(now_ms)))
            except Exception:
                # One replica's failure must not take the time away from all the others.
                logger.exception("a replica failed at its deadline")
        for member, next_ms in again:
            if next_ms is not None:
                self.set(member, max(next_ms, now_ms + 1))
        if not self._is_closed and self._timer is None:
            self._arm()

"""One timer for the deadlines of all replicas."""

import heapq
import logging
from itertools import count
from typing import Final, Protocol

from zhumq.host.clock import Clock
from zhumq.host.deadline_timer import DeadlineTimer

logger = logging.getLogger(__name__)

# Deadlines this close together are checked in one turn of the event loop.
TICK_MS: Final = 10
# A timer this late means that the whole process was paused. Messages that arrived meanwhile are still
# unread, so the process reads them before a deadline declares a replica unreachable.
LATE_MS: Final = 250
CATCH_UP_MS: Final = 100


class Timed(Protocol):
    """A member with a deadline that moves."""

    # When Timers checks it next; None: never.
    check_at_ms: int | None

    def deadline_passed(self, now_ms: int) -> int | None:
        """Act if the deadline has passed. Returns the next deadline."""


class Timers:
    """Checks each member at its deadline.

    A deadline that moves to a later time is not moved here: the member is checked too early, and then
    set to its new deadline. So a busy partition costs no more than an idle one.
    """

    def __init__(self, clock: Clock) -> None:
        self._heap: list[tuple[int, int, Timed]] = []
        self._order = count()
        self._timer = DeadlineTimer(
            clock.monotonic_ms,
            self._on_timer,
            late_ms=LATE_MS,
            catch_up_ms=CATCH_UP_MS,
            slack_ms=TICK_MS,
        )
        self._is_closed = False

    def set(self, member: Timed, due_ms: int | None) -> None:
        """Check the member at `due_ms`, unless it is checked earlier anyway."""
        if due_ms is None or self._is_closed:
            return
        set_ms = member.check_at_ms
        if set_ms is not None and set_ms <= due_ms:
            return
        member.check_at_ms = due_ms
        heapq.heappush(self._heap, (due_ms, next(self._order), member))
        self._timer.set(due_ms)

    def close(self) -> None:
        self._is_closed = True
        self._heap.clear()
        self._timer.cancel()

    def _on_timer(self, now_ms: int) -> None:
        heap = self._heap
        again: list[tuple[Timed, int | None]] = []
        while heap and heap[0][0] <= now_ms:
            due_ms, _, member = heapq.heappop(heap)
            if member.check_at_ms != due_ms:
                continue  # It was set to an earlier time, and has been checked since.
            member.check_at_ms = None
            try:
                again.append((member, member.deadline_passed(now_ms)))
            except Exception:
                # One replica's failure must not stop the timers of the others.
                logger.exception("a replica failed at its deadline")
        for member, next_ms in again:
            if next_ms is not None:
                self.set(member, max(next_ms, now_ms + 1))
        if heap and not self._is_closed:
            self._timer.set(heap[0][0])

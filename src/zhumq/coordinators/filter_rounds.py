"""Rounds in which groups with filters look for new messages: with many groups, not at every batch."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from zhumq.host.clock import Clock

# Of all groups of a broker: each costs about as much as a small request, whether messages pass or not.
LOOKS_PER_SECOND: Final = 2_000
PAUSE_MS_MIN: Final = 5  # A few groups look at every batch.
PAUSE_MS_MAX: Final = 1_000
WOKEN_TOGETHER: Final = 32  # The event loop serves other clients before it wakes the next ones.
SECOND_MS: Final = 1_000


class Looker:
    """A group with a filter on one partition."""

    __slots__ = ("is_waiting", "second", "wake")

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        # It is woken when the next round begins; new messages need not do that.
        self.is_waiting = False
        self.second = -1  # in which it was counted last


class FilterPace:
    """How long the groups of a broker pause between two rounds: by how many of them have looked lately."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._second = 0
        # Groups that have looked in this second, and in the one before.
        self._lookers = 0
        self._lookers_before = 0

    def now_ms(self) -> int:
        return self._clock.monotonic_ms()

    def note(self, looker: Looker, now_ms: int) -> None:
        second = now_ms // SECOND_MS
        if second != self._second:
            self._lookers_before = self._lookers if second == self._second + 1 else 0
            self._second, self._lookers = second, 0
        if looker.second != second:
            looker.second = second
            self._lookers += 1

    def pause_ms(self) -> int:
        lookers = max(self._lookers, self._lookers_before)
        pause_ms = lookers * SECOND_MS // LOOKS_PER_SECOND
        return min(pause_ms, PAUSE_MS_MAX) if pause_ms >= PAUSE_MS_MIN else 0


class FilterRounds:
    """The rounds of one partition.

    The groups read up to the same offset in a round, so that all of them begin the next one at the same place and the
    first of them decodes for all.
    """

    def __init__(self, pace: FilterPace, log_end: Callable[[], int]) -> None:
        self._pace = pace
        self._log_end = log_end
        self._end_offset = -1
        self._next_ms = 0
        self._waiting: deque[Looker] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def end_for(self, looker: Looker, offset: int) -> int | None:
        """Up to where a group that is at this offset reads now. None: it is woken when the next round begins."""
        now_ms = self._pace.now_ms()
        if offset >= self._end_offset:
            if now_ms < self._next_ms:
                self._wait(looker, self._next_ms - now_ms)
                return None
            self._end_offset = self._log_end()
            self._next_ms = now_ms + self._pace.pause_ms()
        self._pace.note(looker, now_ms)
        return self._end_offset

    def _wait(self, looker: Looker, left_ms: int) -> None:
        if looker.is_waiting:
            return
        looker.is_waiting = True
        self._waiting.append(looker)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(left_ms / SECOND_MS, self._begin)

    def _begin(self) -> None:
        self._timer = None
        # Those that look and wait again while others are still to be woken are for the next round.
        due, self._waiting = self._waiting, deque()
        _wake_some(due)


def _wake_some(due: deque[Looker]) -> None:
    for _ in range(min(WOKEN_TOGETHER, len(due))):
        looker = due.popleft()
        looker.is_waiting = False
        looker.wake()
    if due:
        asyncio.get_running_loop().call_soon(_wake_some, due)

"""A timer for the next deadline of something, which a pause of the whole process does not make fire too soon."""

import asyncio
from collections.abc import Callable
from typing import Final

LATE_MS: Final = 1_000
CATCH_UP_MS: Final = 200


class DeadlineTimer:
    """Calls back once the deadline has passed. An earlier deadline replaces a later one.

    A timer that fires far too late means that the whole process stood still: it was paused, or had no CPU. What
    others sent meanwhile lies unread in the sockets, so the callback waits a moment for it. Otherwise a broker that
    was paused would expire the locks and sessions of clients that had answered in time.
    """

    __slots__ = (
        "_catch_up_ms",
        "_deadline_ms",
        "_handle",
        "_is_catching_up",
        "_late_ms",
        "_loop",
        "_now_ms",
        "_on_due",
        "_slack_ms",
    )

    def __init__(
        self,
        now_ms: Callable[[], int],
        on_due: Callable[[int], None],
        *,
        late_ms: int = LATE_MS,
        catch_up_ms: int = CATCH_UP_MS,
        slack_ms: int = 0,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._now_ms = now_ms
        self._on_due = on_due
        self._late_ms = late_ms
        self._catch_up_ms = catch_up_ms
        # How much later than the deadline it fires, so that one call serves several deadlines.
        self._slack_ms = slack_ms
        self._loop = loop or asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._deadline_ms = 0
        self._is_catching_up = False

    def set(self, deadline_ms: int | None) -> None:
        """Fire by this deadline; None leaves the timer as it is.

        A deadline later than the one that is set does not move it. The timer then fires early, and its owner sets it
        again: that is cheaper than moving it with every change. While it waits after a pause it is not moved either.
        """
        if deadline_ms is None or self._is_catching_up:
            return
        if self._handle is not None:
            if self._deadline_ms <= deadline_ms:
                return
            self._handle.cancel()
        self._deadline_ms = deadline_ms
        delay_ms = max(deadline_ms - self._now_ms(), 0) + self._slack_ms
        self._handle = self._loop.call_later(delay_ms / 1000, self._fire)

    def cancel(self) -> None:
        self._is_catching_up = False
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        now_ms = self._now_ms()
        if now_ms < self._deadline_ms:
            # libuv's timers may fire a millisecond early.
            self.set(self._deadline_ms)
            return
        if now_ms - self._deadline_ms > self._late_ms and not self._is_catching_up:
            self._is_catching_up = True
            self._handle = self._loop.call_later(self._catch_up_ms / 1000, self._fire)
            return
        self._is_catching_up = False
        self._on_due(now_ms)

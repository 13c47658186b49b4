"""Mutes a connection for a time: it reads and serves nothing while its client is throttled."""

import asyncio
from collections.abc import Callable


class Mute:
    """Off, until the service throttles the client of a connection."""

    __slots__ = ("_loop", "_on_end", "_timer", "is_on")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_end: Callable[[], None]) -> None:
        self._loop = loop
        self._on_end = on_end
        self._timer: asyncio.TimerHandle | None = None
        self.is_on = False

    def extend(self, milliseconds: int) -> None:
        """On for at least this long from now."""
        end = self._loop.time() + milliseconds / 1_000
        if self._timer is not None:
            end = max(end, self._timer.when())
        self.cancel()
        self._timer = self._loop.call_at(end, self._end)
        self.is_on = True

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.is_on = False

    def _end(self) -> None:
        self.cancel()
        self._on_end()

"""Serves connections with slow requests one request at a time, and other connections in between."""

import asyncio
import time
from typing import Final, Protocol

# A request that holds the event loop for longer than this puts its connection here.
SLOW_SECONDS: Final = 0.003
# After a request that took longer than this, other connections have the loop for as long.
LONG_SECONDS: Final = 0.02
# The lane counts as busy for this long after its last request.
BUSY_SECONDS: Final = 0.1
# How long the requests of a connection take, as far as known.
QUICK, NEW, SUSPECT, SLOW = range(4)


def next_pace(pace: int, seconds: float) -> int:
    """The pace of a connection after a request that took `seconds`.

    The monotonic clock measures QUICK connections. The clock of this thread alone measures the
    others: it is right on a busy machine, and it costs more.
    """
    if seconds <= SLOW_SECONDS:
        return QUICK
    return SUSPECT if pace == QUICK else SLOW


class SlowConnection(Protocol):
    """A connection with a request to be served."""

    def serve_one(self) -> None:
        """Serves its next request; enters the lane again if there are more."""


class SlowLane:
    """Serves one slow request in a turn of the event loop; long ones take at most half of its time.

    Connections that have not been served yet go first, the newest before the others. They may be slow
    too, but a new client waits neither for slow ones nor for a crowd that connected before it.
    """

    __slots__ = ("_free_at", "_is_serving", "_known", "_loop", "_new", "_served_at", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._new: dict[SlowConnection, None] = {}
        self._known: dict[SlowConnection, None] = {}
        self._timer: asyncio.Handle | None = None
        self._free_at = self._served_at = 0.0
        self._is_serving = False

    @property
    def is_busy(self) -> bool:
        return self._timer is not None or time.monotonic() - self._served_at < BUSY_SECONDS

    def next_pace(self, pace: int, seconds: float) -> int:
        """As the function of this name; also counts slow requests served outside of the lane."""
        pace = next_pace(pace, seconds)
        if pace == SLOW:
            self._served_at = time.monotonic()
        return pace

    def enter(self, connection: SlowConnection, *, is_new: bool) -> None:
        (self._new if is_new else self._known)[connection] = None
        if not self._is_serving:
            self._schedule()

    def leave(self, connection: SlowConnection) -> None:
        self._new.pop(connection, None)
        self._known.pop(connection, None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        if self._timer is None and (self._new or self._known):
            delay = self._free_at - time.monotonic()
            if delay > 0:
                self._timer = self._loop.call_later(delay, self._serve_next)
            else:
                self._timer = self._loop.call_soon(self._serve_next)

    def _serve_next(self) -> None:
        self._timer = None
        waiting = self._new or self._known
        if not waiting:
            return  # the connection has left
        begun = time.monotonic()
        connection = next(reversed(waiting) if waiting is self._new else iter(waiting))
        del waiting[connection]
        self._is_serving = True
        try:
            connection.serve_one()
        finally:
            self._is_serving = False
            self._served_at = ended = time.monotonic()
            if ended - begun > LONG_SECONDS:
                self._free_at = ended + ended - begun
            self._schedule()

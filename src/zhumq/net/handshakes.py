"""TLS handshakes in progress: a few steps in a turn of the event loop, bounded in number and in time."""

import asyncio
import time
from typing import Final, Protocol

# Handshakes in progress: each holds some 50 KB, and up to 256 KiB that it received.
HANDSHAKES_MAX: Final = 1_000
# From accepting a connection to the end of its handshake.
HANDSHAKE_MS_MAX: Final = 10_000
# Steps are taken for this long in a turn of the loop, and at least one.
TURN_SECONDS: Final = 0.002


class Handshake(Protocol):
    """A connection that has yet to complete its handshake."""

    @property
    def client_host(self) -> str: ...

    def take_step(self) -> None:
        """Process what the client has sent."""

    def fail(self, reason: str) -> None:
        """Close the connection."""


class Handshakes:
    """Decides which handshake goes on.

    A step costs up to milliseconds of CPU, so few are taken in each turn of the loop and connections with
    requests are served in between. Addresses take turns: a flood from one address does not delay
    clients at others. Within an address the newest goes first, as its client still waits for it.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        count_max: int = HANDSHAKES_MAX,
        seconds_max: float = HANDSHAKE_MS_MAX / 1000,
    ) -> None:
        self._loop = loop
        self._count_max = count_max
        self._seconds_max = seconds_max
        self._deadlines: dict[Handshake, asyncio.TimerHandle] = {}
        # By address, the oldest first.
        self._in_progress: dict[str, dict[Handshake, None]] = {}
        self._ready: dict[str, dict[Handshake, None]] = {}
        self._turn: asyncio.Handle | None = None

    @property
    def count(self) -> int:
        return len(self._deadlines)

    def begin(self, handshake: Handshake) -> None:
        """Count a handshake until `end`. Over the limit the oldest of the busiest address fails."""
        if len(self._deadlines) >= self._count_max:
            busiest = max(self._in_progress.values(), key=len)
            next(iter(busiest)).fail("too many handshakes are in progress")
        self._in_progress.setdefault(handshake.client_host, {})[handshake] = None
        self._set_deadline(handshake)

    def end(self, handshake: Handshake) -> None:
        deadline = self._deadlines.pop(handshake, None)
        if deadline is not None:
            deadline.cancel()
        for by_address in (self._in_progress, self._ready):
            same_address = by_address.get(handshake.client_host, {})
            same_address.pop(handshake, None)
            if not same_address:
                by_address.pop(handshake.client_host, None)

    def enter(self, handshake: Handshake) -> None:
        """Take a step of this handshake in one of the next turns."""
        self._ready.setdefault(handshake.client_host, {})[handshake] = None
        self._schedule()

    def close(self) -> None:
        """Fail all handshakes."""
        for handshake in tuple(self._deadlines):
            handshake.fail("this broker is stopping")
        if self._turn is not None:
            self._turn.cancel()

    def _set_deadline(self, handshake: Handshake) -> None:
        self._deadlines[handshake] = self._loop.call_later(
            self._seconds_max, self._on_deadline, handshake
        )

    def _on_deadline(self, handshake: Handshake) -> None:
        if handshake in self._ready.get(handshake.client_host, ()):
            # It waits for this broker, so the wait does not count against the client.
            self._set_deadline(handshake)
        else:
            handshake.fail(f"the handshake was not complete after {self._seconds_max:g} s")

    def _schedule(self) -> None:
        if self._turn is None and self._ready:
            self._turn = self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        until = time.monotonic() + TURN_SECONDS
        try:
            while self._ready:
                self._next().take_step()
                if time.monotonic() >= until:
                    break
        finally:
            self._schedule()

    def _next(self) -> Handshake:
        address = next(iter(self._ready))
        same_address = self._ready.pop(address)
        handshake, _ = same_address.popitem()
        if same_address:
            self._ready[address] = same_address
        return handshake

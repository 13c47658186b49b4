"""A timer wheel: one timer for the deadlines of all connections."""

import asyncio
from typing import Protocol


class Expiring(Protocol):
    """An object with a deadline that may move."""

    def expire(self, tick: int) -> int:
        """Called at the deadline. Returns the tick of the next call, or 0 for none."""


class DeadlineWheel:
    """Calls `expire` on each member at its tick.

    Activity does not reschedule anything: a member records the current `tick`, and its `expire`
    returns the deadline that has moved. So an active connection costs nothing here.
    """

    __slots__ = ("_buckets", "_loop", "_member_ticks", "_tick_ms", "_timer", "tick")

    def __init__(self, loop: asyncio.AbstractEventLoop, *, tick_ms: int) -> None:
        self._loop = loop
        self._tick_ms = tick_ms
        self._buckets: dict[int, set[Expiring]] = {}
        self._member_ticks: dict[Expiring, int] = {}
        self.tick = 1
        self._timer = loop.call_later(tick_ms / 1000, self._turn)

    def ticks(self, duration_ms: int) -> int:
        """The number of ticks in which at least this time passes, from any moment in a tick."""
        return -(-duration_ms // self._tick_ms) + 1

    def milliseconds(self, ticks: int) -> int:
        return ticks * self._tick_ms

    def schedule(self, member: Expiring, tick: int) -> None:
        self.discard(member)
        tick = max(tick, self.tick + 1)
        self._member_ticks[member] = tick
        self._buckets.setdefault(tick, set()).add(member)

    def discard(self, member: Expiring) -> None:
        tick = self._member_ticks.pop(member, None)
        if tick is not None:
            bucket = self._buckets[tick]
            bucket.discard(member)
            if not bucket:
                del self._buckets[tick]

    def close(self) -> None:
        self._timer.cancel()
        self._buckets.clear()
        self._member_ticks.clear()

    def _turn(self) -> None:
        self.tick += 1
        self._timer = self._loop.call_later(self._tick_ms / 1000, self._turn)
        for member in tuple(self._buckets.get(self.tick, ())):
            # A member that expired earlier in this turn may have discarded this one.
            if self._member_ticks.get(member) == self.tick:
                next_tick = member.expire(self.tick)
                if next_tick:
                    self.schedule(member, next_tick)
                else:
                    self.discard(member)

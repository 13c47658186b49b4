"""How long background work on the event loop pauses, so that it takes only time that requests leave."""

from collections.abc import Callable
from time import monotonic
from typing import Final

from zhumq.host.thread_time import demand_seconds

SHARE_OF_IDLE: Final = 0.5  # of the time in which the loop had nothing else to do
SHARE_MIN: Final = 0.02  # also of a loop that is always busy, so that the work ends at some time
PAUSE_SECONDS_MIN: Final = 0.002
PAUSE_SECONDS_MAX: Final = 1.0


class BackgroundPace:
    """Measures how busy the thread is between two turns of the work: `begin`, the turn, `end`."""

    def __init__(
        self, clock: Callable[[], float] = monotonic, demand: Callable[[], float] = demand_seconds
    ) -> None:
        self._clock = clock
        self._demand = demand  # processor time of the thread, with what it waited for
        self._began = 0.0
        self._ended = clock()
        self._demand_at_end = demand()
        self._busy = 0.0

    def begin(self) -> None:
        """A turn begins."""
        self._began = self._clock()
        passed = self._began - self._ended
        if passed > 0.0:
            self._busy = min((self._demand() - self._demand_at_end) / passed, 1.0)

    def end(self) -> float:
        """A turn ends. Returns the seconds until the next one may begin."""
        self._ended = self._clock()
        self._demand_at_end = self._demand()
        share = max(SHARE_OF_IDLE * (1.0 - self._busy), SHARE_MIN)
        pause = (self._ended - self._began) * (1.0 / share - 1.0)
        return min(max(pause, PAUSE_SECONDS_MIN), PAUSE_SECONDS_MAX)

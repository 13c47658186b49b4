"""When something runs again: every so often, or at times of the day. Pure: the clock is given, a decision comes out."""

from dataclasses import dataclass
from typing import Final

DAY_MS: Final = 86_400_000
MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Times without a beginning or an end, in milliseconds since 1970, so that each start finds the same ones.

    One of the two is given: multiples of `every_ms`, or `at_ms`, sorted times since midnight in UTC.
    """

    every_ms: int | None = None
    at_ms: tuple[int, ...] = ()

    def newest(self, now_ms: int) -> int:
        """The last time that is not after this moment."""
        if self.every_ms is not None:
            return now_ms - now_ms % self.every_ms
        midnight = now_ms - now_ms % DAY_MS
        today = [midnight + each for each in self.at_ms if midnight + each <= now_ms]
        return today[-1] if today else midnight - DAY_MS + self.at_ms[-1]

    def next(self, now_ms: int) -> int:
        """The first time after this moment."""
        if self.every_ms is not None:
            return self.newest(now_ms) + self.every_ms
        midnight = now_ms - now_ms % DAY_MS
        today = [midnight + each for each in self.at_ms if midnight + each > now_ms]
        return today[0] if today else midnight + DAY_MS + self.at_ms[0]

    def count(self, after_ms: int, until_ms: int) -> int:
        """How many times there are after the one moment and not after the other."""
        if until_ms <= after_ms:
            return 0
        if self.every_ms is not None:
            return until_ms // self.every_ms - after_ms // self.every_ms
        return sum((until_ms - each) // DAY_MS - (after_ms - each) // DAY_MS for each in self.at_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing is due before this time."""

    until_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """It runs now, once, for this time and those that were missed before it."""

    at_ms: int
    missed: int


@dataclass(slots=True, kw_only=True)
class Occasions:
    """Which time of a schedule is due. Time goes on while something runs, and clocks are set."""

    schedule: Schedule
    # The newest time that has been dealt with; times before the first start are none of ours.
    done_ms: int

    def decide(self, now_ms: int) -> Wait | Due:
        newest = self.schedule.newest(now_ms)
        if newest <= self.done_ms:
            # A clock that was put back by more than a period would make this wait that much longer:
            # it goes on with the clock as it is now, and repeats nothing at once.
            if self.done_ms > self.schedule.next(now_ms):
                self.done_ms = newest
            return Wait(until_ms=self.schedule.next(max(now_ms, self.done_ms)))
        return Due(at_ms=newest, missed=self.schedule.count(self.done_ms, newest) - 1)

    def finish(self, due: Due) -> None:
        """Note that a time was dealt with. Those that came while it ran are missed, and run once more."""
        self.done_ms = max(self.done_ms, due.at_ms)

"""The time that retention goes by: a clock that jumps ahead deletes nothing at once. Pure."""

from typing import Final

# The clock of the broker may be corrected by this much at once.
JUMP_MS_MAX: Final = 5 * 60_000
# After a larger jump an operator, or NTP, has this long to correct the clock.
HOLD_MS: Final = 3_600_000


class RetentionClock:
    """Follows the wall clock. After a jump ahead it goes on as if there had been none, for `HOLD_MS`.

    A suspended machine looks the same, so the new time counts in the end. A clock that is set back counts
    at once: then segments only stay longer.
    """

    def __init__(self, now_ms: int, monotonic_ms: int) -> None:
        self._time_ms = now_ms
        self._monotonic_ms = monotonic_ms
        self._held_since_ms: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether the wall clock is ahead of this one."""
        return self._held_since_ms is not None

    def read(self, now_ms: int, monotonic_ms: int) -> int:
        """The time, from the wall clock and the monotonic one."""
        steady_ms = self._time_ms + monotonic_ms - self._monotonic_ms
        if now_ms - steady_ms <= JUMP_MS_MAX:
            self._held_since_ms = None
        elif self._held_since_ms is None:
            self._held_since_ms = monotonic_ms
        elif monotonic_ms - self._held_since_ms >= HOLD_MS:
            self._held_since_ms = None
            steady_ms = now_ms
        self._time_ms = steady_ms if self.is_held else now_ms
        self._monotonic_ms = monotonic_ms
        return self._time_ms

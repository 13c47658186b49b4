"""Clocks: wall time for records, monotonic time for deadlines."""

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time that a test can replace."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, as they are written into records."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back, for deadlines."""


def utc_offset_ms(now_ms: int) -> int:
    """How far the local time of this machine is ahead of UTC at this moment."""
    return time.localtime(now_ms / 1000).tm_gmtoff * 1000


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

"""How much processor time the calling thread has asked for."""

import time
from pathlib import Path
from typing import Final

# Linux: nanoseconds run, nanoseconds that it waited for a processor, number of time slices.
_SCHEDSTAT: Final = Path("/proc/thread-self/schedstat")
_NANOSECONDS: Final = 1e9


def demand_seconds() -> float:
    """For how long this thread has run or, where the system tells it, could have run and had no processor."""
    try:
        ran, waited, _ = _SCHEDSTAT.read_text().split()
        return (int(ran) + int(waited)) / _NANOSECONDS
    except (OSError, ValueError):
        return time.thread_time()

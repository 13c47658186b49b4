"""How the C library keeps memory that was freed: with us, not given back and faulted in anew."""

import ctypes
import resource
from pathlib import Path
from typing import Final

# glibc's malloc.h. Setting either one also ends the thresholds' own adjustment.
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
# A request of some hundred KiB is allocated and freed for each produce. Left alone, glibc returns
# such memory to the system every time: 200 page faults a request, and half of its CPU time.
FREED_BYTES_KEPT_MAX: Final = 64 * 1024 * 1024
MAPPED_BYTES_MIN: Final = 32 * 1024 * 1024  # the most that glibc allows


# Worth giving back.
SPARE_BYTES_MIN: Final = 32 * 1024 * 1024
# Looks to let pass after one that gave back little: the memory is in use.
LOOKS_SKIPPED_MAX: Final = 12
_STATM: Final = Path("/proc/self/statm")


class SpareMemory:
    """Gives back what was freed and is not at the end of the heap, when there may be much of it.

    A burst, such as clients that read nothing, leaves memory that the C library would keep for ever.
    """

    def __init__(self) -> None:
        self._least_bytes = 0  # that was held at any look
        self._skip = 1
        self._skipped = 0

    def look(self) -> int:
        """Called from time to time, in a thread: it can take some milliseconds. What was given back."""
        self._skipped += 1
        try:
            held = _resident_bytes()
            trim = ctypes.CDLL(None).malloc_trim
        except (AttributeError, OSError):
            return 0  # not Linux, or another C library
        self._least_bytes = min(self._least_bytes or held, held)
        if held < self._least_bytes + SPARE_BYTES_MIN or self._skipped < self._skip:
            return 0
        trim(0)
        left = _resident_bytes()
        gained = held - left
        self._skipped = 0
        self._skip = 1 if gained >= SPARE_BYTES_MIN else min(self._skip * 2, LOOKS_SKIPPED_MAX)
        self._least_bytes = min(self._least_bytes, left)
        return gained


def _resident_bytes() -> int:
    return int(_STATM.read_text().split()[1]) * resource.getpagesize()


def keep_freed_memory() -> bool:
    """Set it for this process; False where the C library has no such setting (musl)."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    kept = mallopt(M_TRIM_THRESHOLD, FREED_BYTES_KEPT_MAX)
    mapped = mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES_MIN)
    return bool(kept and mapped)

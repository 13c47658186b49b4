"""Settings of the C library's allocator: it keeps freed memory, and returns it after a burst."""

import ctypes
import mmap
import resource
from pathlib import Path
from typing import Final

# glibc's malloc.h. Setting either one also turns off the dynamic adjustment of the thresholds.
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
# Each produce request allocates and frees some hundred KiB. By default glibc returns such memory to
# the system every time: 200 page faults a request, and half of its CPU time.
FREED_BYTES_KEPT_MAX: Final = 64 * 1024 * 1024
MAPPED_BYTES_MIN: Final = 32 * 1024 * 1024  # the most that glibc allows


# Less than this is not worth a trim.
SPARE_BYTES_MIN: Final = 32 * 1024 * 1024
# Checks to skip after a trim that returned little: the memory is in use.
LOOKS_SKIPPED_MAX: Final = 12
_STATM: Final = Path("/proc/self/statm")


class SpareMemory:
    """Returns freed memory inside the heap to the system, when there may be much of it.

    After a burst, such as clients that do not read, the C library would keep that memory for ever.
    """

    def __init__(self) -> None:
        self._least_bytes = 0  # the lowest resident size of all checks
        self._skip = 1
        self._skipped = 0

    def look(self) -> int:
        """Trim if it is worth it; returns the freed bytes. Takes some milliseconds: run it in a thread."""
        self._skipped += 1
        try:
            held = resident_bytes()
            trim = ctypes.CDLL(None).malloc_trim
        except (AttributeError, OSError):
            return 0  # not Linux, or another C library
        self._least_bytes = min(self._least_bytes or held, held)
        if held < self._least_bytes + SPARE_BYTES_MIN or self._skipped < self._skip:
            return 0
        trim(0)
        left = resident_bytes()
        gained = held - left
        self._skipped = 0
        self._skip = 1 if gained >= SPARE_BYTES_MIN else min(self._skip * 2, LOOKS_SKIPPED_MAX)
        self._least_bytes = min(self._least_bytes, left)
        return gained


def resident_bytes() -> int:
    """The memory of this process; Linux only."""
    return int(_STATM.read_text().split()[1]) * resource.getpagesize()


def mapped_memory(size: int) -> mmap.mmap:
    """Memory outside the heap, of zeros, which the system gets back with the last reference: for what is large and short-lived."""
    return mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def keep_freed_memory() -> bool:
    """Keep freed memory in this process; False where the C library has no such setting (musl)."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    kept = mallopt(M_TRIM_THRESHOLD, FREED_BYTES_KEPT_MAX)
    mapped = mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES_MIN)
    return bool(kept and mapped)

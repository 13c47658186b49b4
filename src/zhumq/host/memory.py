"""How the C library keeps memory that was freed: with us, not given back and faulted in anew."""

import ctypes
from typing import Final

# glibc's malloc.h. Setting either one also ends the thresholds' own adjustment.
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
# A request of some hundred KiB is allocated and freed for each produce. Left alone, glibc returns
# such memory to the system every time: 200 page faults a request, and half of its CPU time.
FREED_BYTES_KEPT_MAX: Final = 64 * 1024 * 1024
MAPPED_BYTES_MIN: Final = 32 * 1024 * 1024  # the most that glibc allows


def keep_freed_memory() -> bool:
    """Set it for this process; False where the C library has no such setting (musl)."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    kept = mallopt(M_TRIM_THRESHOLD, FREED_BYTES_KEPT_MAX)
    mapped = mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES_MIN)
    return bool(kept and mapped)

"""Completes a compaction that had finished writing when the broker stopped."""

from collections.abc import Sequence

from zhumq.host.disk import DirectoryEntry, Disk
from zhumq.storage.log_files import (
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_prefix,
    offset_in,
)


def complete_swaps(directory: str, entries: Sequence[DirectoryEntry], disk: Disk) -> bool:
    """Rename the compacted segments to their final names. True if there were any.

    The name says which segments it replaces: `<first>-<next offset>.log.swap` replaces all segments
    that begin at `first` or later and before the next offset.
    """
    found = False
    for entry in entries:
        covered = swap_range(entry.name)
        if covered is None:
            continue
        found = True
        first, next_offset = covered
        for other in entries:
            base = offset_in(other.name, LOG_SUFFIX)
            if base is not None and first <= base < next_offset:
                for suffix in (*SEGMENT_SUFFIXES, TRANSACTION_INDEX_SUFFIX):
                    disk.unlink(file_prefix(directory, base) + suffix)
        disk.rename(f"{directory}/{entry.name}", file_prefix(directory, first) + LOG_SUFFIX)
    return found


def swap_name(first: int, next_offset: int) -> str:
    """The name of a complete compacted log file that has not replaced the old segments yet."""
    return f"{first:020d}-{next_offset:020d}{LOG_SUFFIX}{SWAP_SUFFIX}"


def swap_range(name: str) -> tuple[int, int] | None:
    """The first and the next offset in the name of a swap file; None for other files."""
    stem, dot, rest = name.partition(".")
    first, dash, next_offset = stem.partition("-")
    if dot + rest != LOG_SUFFIX + SWAP_SUFFIX or not dash:
        return None
    return (int(first), int(next_offset)) if first.isdigit() and next_offset.isdigit() else None

"""The names of the files in a partition's folder."""

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
KEY_INDEX_SUFFIX = ".keyindex"
STALE_KEY_INDEX_SUFFIX = ".keyindex.stale"  # of a segment that was compacted since
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"  # to be removed after file.delete.delay.ms
CLEANED_SUFFIX = ".cleaned"  # compaction is still writing it; removed after a crash
SWAP_SUFFIX = ".swap"  # compaction is done; it replaces older segments
CUT_SUFFIX = ".cut"  # bytes that recovery cut off a torn tail
OFFSET_DIGITS = 20

SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)


def file_prefix(directory: str, offset: int) -> str:
    """The path of a segment's files, without suffix."""
    return f"{directory}/{offset:0{OFFSET_DIGITS}d}"


def offset_in(name: str, suffix: str) -> int | None:
    """The offset in a file name with this suffix; None for other names."""
    if len(name) != OFFSET_DIGITS + len(suffix) or not name.endswith(suffix):
        return None
    digits = name[:OFFSET_DIGITS]
    return int(digits) if digits.isascii() and digits.isdigit() else None

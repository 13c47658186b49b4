"""Resolves the start of a subscription to an offset of a partition."""

from zhumq.replication.partition import Partition
from zhumq.share.subscription import Start, StartKind, check_start


def check_partition_start(served: Partition, start: Start) -> None:
    """Refuse an offset that the partition does not have."""
    check_start(
        start,
        log_start_offset=served.log_start_offset,
        log_end_offset=served.high_watermark,
    )


def clamped(served: Partition, offset: int) -> int:
    """The offset, or the nearest one that the partition has."""
    return min(max(offset, served.log_start_offset), served.high_watermark)


def first_offset(served: Partition, start: Start) -> int:
    """The current offset of a start."""
    kind = start.otherwise if start.kind is StartKind.STORED else start.kind
    match kind:
        case StartKind.LATEST:
            return served.high_watermark
        case StartKind.OFFSET:
            return clamped(served, start.value)
        case StartKind.TIME:
            found = served.offset_for_timestamp(start.value)
            offset = served.high_watermark if found is None else found.offset
            return min(offset, served.high_watermark)
        case _:
            return served.log_start_offset

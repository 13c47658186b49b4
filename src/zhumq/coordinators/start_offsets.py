"""Resolves the start of a subscription to an offset of a partition."""

from zhumq.model.isolation import Isolation
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


def first_offset(served: Partition, start: Start, isolation: Isolation) -> int:
    """The current offset of a start. At read_committed the end is before open transactions: they may be committed."""
    end_offset = served.end_offset(isolation)
    kind = start.otherwise if start.kind is StartKind.STORED else start.kind
    match kind:
        case StartKind.LATEST:
            return end_offset
        case StartKind.OFFSET:
            return clamped(served, start.value)
        case StartKind.TIME:
            found = served.offset_for_timestamp(start.value)
            return end_offset if found is None else min(found.offset, end_offset)
        case _:
            return served.log_start_offset

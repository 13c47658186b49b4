"""Finds offsets by timestamp."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from zhumq.model.errors import CorruptMessage
from zhumq.records.batch import NO_TIMESTAMP, BatchHeader, RecordBatch
from zhumq.records.outline import RecordOutline, outline
from zhumq.storage.batch_scan import LOOKUP_CHUNK_BYTES
from zhumq.storage.segment import Segment


class TimestampedOffset(NamedTuple):
    """A record's timestamp, its offset, and the leader epoch it was written in."""

    timestamp: int
    offset: int
    leader_epoch: int


def first_at_or_after(
    segments: Sequence[Segment], timestamp: int, log_start_offset: int
) -> TimestampedOffset | None:
    """The first record from log_start_offset on with this timestamp or a later one."""
    for segment in segments:
        if segment.max_timestamp < timestamp:
            continue
        start_offset = max(segment.time_index.offset_before(timestamp), log_start_offset)
        start = segment.offset_index.position_before(start_offset)
        for position, header in segment.scan(start, chunk_bytes=LOOKUP_CHUNK_BYTES):
            if header.max_timestamp < timestamp or header.last_offset < log_start_offset:
                continue
            for found, offset, *_ in _records(segment, position, header):
                if found >= timestamp and offset >= log_start_offset:
                    return TimestampedOffset(found, offset, header.partition_leader_epoch)
    return None


def largest(segments: Sequence[Segment], log_start_offset: int) -> TimestampedOffset | None:
    """The first record with the largest timestamp (KIP-734)."""
    candidates = [segment for segment in segments if segment.max_timestamp != NO_TIMESTAMP]
    if not candidates:
        return None
    segment = max(candidates, key=lambda each: (each.max_timestamp, -each.base_offset))
    found = segment.find(segment.offset_of_max_timestamp)
    if found is None:
        return None
    position, header = found
    for timestamp, offset, *_ in _records(segment, position, header):
        if timestamp >= header.max_timestamp and offset >= log_start_offset:
            return TimestampedOffset(timestamp, offset, header.partition_leader_epoch)
    return None


def has_its_max_timestamp(segment: Segment) -> bool:
    """Whether the batch that the time index names has the segment's largest timestamp."""
    if not segment.size:
        return True
    try:
        found = segment.find(segment.offset_of_max_timestamp)
    except CorruptMessage:
        return False
    return found is not None and found[1].max_timestamp == segment.max_timestamp


def _records(segment: Segment, position: int, header: BatchHeader) -> Iterator[RecordOutline]:
    data = segment.file.read_at(position, header.size)
    return outline(RecordBatch(header, memoryview(data)))

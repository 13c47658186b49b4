"""Scans a segment after a crash: finds valid batches, damaged ranges, and the end of the valid part."""

from dataclasses import dataclass, field

from zhumq.host.disk import DiskFile
from zhumq.records.batch import (
    BATCH_LENGTH_MIN,
    CHECKED_OFFSET,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    MAGIC_OFFSET,
    PREFIX_BYTES,
    BatchHeader,
)
from zhumq.records.codecs import crc32c
from zhumq.storage.batch_scan import RELATIVE_OFFSET_MAX
from zhumq.storage.leader_epochs import UNDEFINED_EPOCH, LeaderEpochs
from zhumq.storage.log_slice import CorruptRange
from zhumq.storage.segment import Segment

BUFFER_BYTES = 4 * 1024 * 1024
MAGIC_BYTE = bytes([MAGIC])


@dataclass(slots=True, kw_only=True)
class ScanResult:
    """The result of scanning one segment."""

    segment: Segment
    start: int
    valid_end: int  # the end of the last valid batch, or where the scan began
    next_offset: int  # the offset after that batch
    has_batches: bool = False
    corrupt_ranges: list[CorruptRange] = field(default_factory=list)

    @property
    def has_bad_end(self) -> bool:
        return self.valid_end < self.segment.size


class ScanBuffer:
    """A part of a file in memory that moves to the requested positions."""

    __slots__ = ("_data", "_end", "_file", "_size", "_start")

    def __init__(self, file: DiskFile, end: int, size: int = BUFFER_BYTES) -> None:
        self._file = file
        self._end = end
        self._size = size
        self._start = 0
        self._data = b""

    def view(self, position: int, length: int) -> memoryview:
        """These bytes; fewer at the end of the file."""
        length = min(length, self._end - position)
        place = position - self._start
        if place < 0 or place + length > len(self._data):
            read_bytes = min(max(length, self._size), self._end - position)
            self._data = self._file.read_at(position, read_bytes)
            self._start = position
            place = 0
        return memoryview(self._data)[place : place + length]


def scan_segment(
    segment: Segment,
    start: int,
    expected_offset: int,
    *,
    gaps_end: int,
    leader_epochs: LeaderEpochs,
    proof_epochs: LeaderEpochs | None = None,
) -> ScanResult:
    """Check every batch from this position on, index it, and add its leader epoch.

    Below gaps_end compaction may have removed offsets. proof_epochs are the epochs that the batches
    must have, if known.
    """
    buffer = ScanBuffer(segment.file, segment.size)
    result = ScanResult(segment=segment, start=start, valid_end=start, next_offset=expected_offset)
    position = start
    while position < segment.size:
        header = _valid_batch(buffer, position, segment, result.next_offset, gaps_end=gaps_end)
        if header is not None and not _is_of_its_epoch(header, proof_epochs):
            header = None
        if header is None:
            found = _next_valid_batch(buffer, position, segment, result.next_offset)
            if found is None:
                break
            resumed, header = found
            result.corrupt_ranges.append(
                CorruptRange(
                    segment.base_offset, position, resumed, result.next_offset, header.base_offset
                )
            )
            position = resumed
        elif header.base_offset > max(result.next_offset, gaps_end):
            # Batches between the two are lost.
            result.corrupt_ranges.append(
                CorruptRange(
                    segment.base_offset, position, position, result.next_offset, header.base_offset
                )
            )
        segment.note_batch(header, position)
        leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
        position += header.size
        result.valid_end = position
        result.next_offset = header.next_offset
        result.has_batches = True
    return result


def _is_of_its_epoch(header: BatchHeader, epochs: LeaderEpochs | None) -> bool:
    if epochs is None:
        return True
    return epochs.epoch_of(header.base_offset) in (header.partition_leader_epoch, UNDEFINED_EPOCH)


def _valid_batch(
    buffer: ScanBuffer, position: int, segment: Segment, expected_offset: int, *, gaps_end: int
) -> BatchHeader | None:
    """The batch at this position, if it is complete, valid, and the expected next one."""
    header = _plausible_header(buffer, position, segment, expected_offset)
    if header is None or not _crc_matches(buffer, position, header):
        return None
    if header.base_offset == expected_offset or header.base_offset <= gaps_end:
        return header
    # The checksum does not cover the offset, and no gap is allowed here. Unless the next batch
    # confirms it, the offset itself is damaged.
    following = _plausible_header(buffer, position + header.size, segment, header.next_offset)
    if following is not None and following.base_offset == header.next_offset:
        return header
    return None


def _plausible_header(
    buffer: ScanBuffer, position: int, segment: Segment, expected_offset: int
) -> BatchHeader | None:
    data = buffer.view(position, HEADER_BYTES) if position < segment.size else b""
    if len(data) < HEADER_BYTES:
        return None
    header = BatchHeader._make(HEADER.unpack_from(data))
    if (
        header.magic == MAGIC
        and BATCH_LENGTH_MIN <= header.batch_length <= segment.size - position - PREFIX_BYTES
        and expected_offset <= header.base_offset <= segment.base_offset + RELATIVE_OFFSET_MAX
        and 0 <= header.records_count <= header.last_offset_delta + 1
    ):
        return header
    return None


def _crc_matches(buffer: ScanBuffer, position: int, header: BatchHeader) -> bool:
    return crc32c(buffer.view(position, header.size)[CHECKED_OFFSET:]) == header.crc


def _next_valid_batch(
    buffer: ScanBuffer, bad_position: int, segment: Segment, expected_offset: int
) -> tuple[int, BatchHeader] | None:
    """The first valid batch behind a bad position.

    The search tries every byte, because the length in the bad batch's header may be damaged: taking a
    damaged middle for a torn tail would truncate acknowledged records. (The price: after a crash, a
    record that contains a valid batch with a matching offset may be taken for a batch.)
    """
    data = buffer.view(bad_position, HEADER_BYTES)
    if len(data) == HEADER_BYTES:
        # Most often the header is valid and its length leads to the next batch.
        length = HEADER.unpack_from(data)[1]
        behind = bad_position + PREFIX_BYTES + max(length, 0)
        header = _plausible_header(buffer, behind, segment, expected_offset + 1)
        if header is not None and _crc_matches(buffer, behind, header):
            return behind, header
    position = bad_position + 1
    while position + HEADER_BYTES <= segment.size:
        block = bytes(buffer.view(position, BUFFER_BYTES))
        if len(block) < HEADER_BYTES:
            break  # The file is shorter than it was.
        place = block.find(MAGIC_BYTE, MAGIC_OFFSET)
        while place >= 0:
            candidate = position + place - MAGIC_OFFSET
            header = _plausible_header(buffer, candidate, segment, expected_offset + 1)
            if header is not None and _crc_matches(buffer, candidate, header):
                return candidate, header
            place = block.find(MAGIC_BYTE, place + 1)
        position += len(block) - MAGIC_OFFSET
    return None

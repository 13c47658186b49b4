"""Iterates over the batches of a log file by their headers, without reading their records."""

from collections.abc import Iterator, Sequence
from typing import Final

from zhumq.host.disk import DiskFile
from zhumq.model.errors import CorruptMessage
from zhumq.records.batch import (
    BATCH_LENGTH_MIN,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    PREFIX_BYTES,
    BatchHeader,
)
from zhumq.storage.log_slice import CorruptRange

LOOKUP_CHUNK_BYTES: Final = 16 * 1024  # read at once to find one batch
SCAN_CHUNK_BYTES: Final = 1024 * 1024  # read at once to scan a whole segment
RELATIVE_OFFSET_MAX: Final = 2**31 - 1


def scan_batches(
    file: DiskFile,
    position: int,
    end: int,
    *,
    base_offset: int,
    corrupt_ranges: Sequence[CorruptRange],
    chunk_bytes: int,
) -> Iterator[tuple[int, BatchHeader]]:
    """The batches from this position on, which must be the start of a batch. Skips corrupt ranges.
    Raises CorruptMessage where the bytes are not a batch."""
    skips = {
        bad.start_position: bad.end_position
        for bad in corrupt_ranges
        if bad.end_position > bad.start_position
    }
    floor = base_offset
    ceiling = floor + RELATIVE_OFFSET_MAX
    chunk = b""
    chunk_start = 0
    while position < end:
        if position in skips:
            position = skips[position]
            continue
        place = position - chunk_start
        if place + HEADER_BYTES > len(chunk):
            chunk = file.read_at(position, min(chunk_bytes, end - position))
            chunk_start = position
            place = 0
            if len(chunk) < HEADER_BYTES:
                raise no_batch(file, position)
        header = BatchHeader._make(HEADER.unpack_from(chunk, place))
        next_position = position + header.batch_length + PREFIX_BYTES
        if (
            header.magic != MAGIC
            or header.batch_length < BATCH_LENGTH_MIN
            or next_position > end
            or header.last_offset_delta < 0
            or not floor <= header.base_offset <= ceiling - header.last_offset_delta
        ):
            raise no_batch(file, position)
        floor = header.base_offset + header.last_offset_delta + 1
        yield position, header
        position = next_position


def no_batch(file: DiskFile, position: int) -> CorruptMessage:
    """The error for a position where no batch begins."""
    return CorruptMessage(f"{file.path} holds no record batch at byte {position}")

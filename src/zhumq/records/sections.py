"""Splits fetched bytes into batches, and gives the decompressed records of those a reader may see."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from zhumq.model.buffers import Buffer
from zhumq.model.errors import CorruptMessage
from zhumq.records.batch import (
    BATCH_LENGTH_MIN,
    CHECKED_OFFSET,
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    RecordBatch,
    decode_header,
)
from zhumq.records.codecs import crc32c, decompress
from zhumq.records.control import MarkerType, decode_end_marker


class Section(NamedTuple):
    """A batch's header and its records, decompressed."""

    header: BatchHeader
    payload: Buffer
    # Records before this are deleted: the log begins in the middle of the batch.
    first_offset: int = 0


class AbortedTransactions:
    """Decides which batches to leave out: control batches and those of aborted transactions.

    A Fetch response names each aborted transaction by its producer and its first offset; its end is
    the abort marker in the log.
    """

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._waiting = sorted(((first, producer) for producer, first in aborted), reverse=True)
        self._open: set[int] = set()

    def hides(self, batch: RecordBatch) -> bool:
        """Whether to leave a batch out. Call it for every batch, in the order of the log."""
        header = batch.header
        while self._waiting and self._waiting[-1][0] <= header.last_offset:
            self._open.add(self._waiting.pop()[1])
        if header.is_control:
            for record in batch.records():
                marker = decode_end_marker(record)
                if marker is not None and marker.marker_type is MarkerType.ABORT:
                    self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open


def whole_batches(buffer: Buffer) -> Iterator[RecordBatch]:
    """The batches in a buffer, with their checksums verified. An incomplete one at the end is left out."""
    view = memoryview(buffer)
    position = 0
    while len(view) - position >= HEADER_BYTES:
        header = decode_header(view, position)
        if header.magic != MAGIC:
            raise CorruptMessage(
                f"the batch at {header.base_offset} has format {header.magic}: only {MAGIC} is read"
            )
        if header.batch_length < BATCH_LENGTH_MIN or header.last_offset_delta < 0:
            raise CorruptMessage(
                f"the header of the batch at {header.base_offset} is damaged: length"
                f" {header.batch_length}, last offset {header.last_offset}"
            )
        end = position + header.size
        if end > len(view):
            return
        if crc32c(view[position + CHECKED_OFFSET : end]) != header.crc:
            raise CorruptMessage(f"the batch at {header.base_offset} has a wrong checksum")
        yield RecordBatch(header, view[position:end])
        position = end


def section_of(batch: RecordBatch, first_offset: int = 0) -> Section:
    """The records of a batch, decompressed."""
    header = batch.header
    if not header.records_count and len(batch.data) == HEADER_BYTES:
        return Section(header, b"", first_offset)  # Compaction has removed all records.
    payload = decompress(header.compression, batch.data[HEADER_BYTES:])
    return Section(header, payload, first_offset)

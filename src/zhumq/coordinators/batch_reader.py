"""Reads batches of a partition for a share partition and slices them to the acquired offsets."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from zhumq.model.isolation import Isolation
from zhumq.records.batch import BatchHeader, batches
from zhumq.replication.partition import Partition
from zhumq.share.acknowledgement import AcquiredRange
from zhumq.share.share_partition import Span

READ_BYTES_MIN: Final = 4_096
RECORD_BYTES_GUESS: Final = 1_024


class BatchSlice(NamedTuple):
    """Adjacent batches as they were read."""

    data: bytes
    spans: list[Span]
    positions: list[int]  # where each span begins, and where the last one ends


def read_batches(
    partition: Partition, offset: int, size: int, *, at_least_one: bool, isolation: Isolation
) -> BatchSlice:
    """Batches from the one that contains this offset on, up to the end of the isolation level."""
    data = partition.read(offset, size, at_least_one=at_least_one).read_bytes()
    headers = [batch.header for batch in batches(data)]
    hidden: set[int] = set()
    if isolation is Isolation.READ_COMMITTED:
        end_offset = partition.last_stable_offset
        headers = [header for header in headers if header.base_offset < end_offset]
        hidden = _aborted(partition, headers)
    spans: list[Span] = []
    positions = [0]
    for header in headers:
        has_records = not header.is_control and header.base_offset not in hidden
        spans.append(Span(header.base_offset, header.last_offset, has_records))
        positions.append(positions[-1] + header.size)
    return BatchSlice(data, spans, positions)


def _aborted(partition: Partition, headers: Sequence[BatchHeader]) -> set[int]:
    """The base offsets of batches in aborted transactions. All of the transactions have ended."""
    written = [header for header in headers if header.is_transactional]
    if not written:
        return set()
    aborted = partition.aborted_transactions(written[0].base_offset, written[-1].last_offset + 1)
    return {
        header.base_offset
        for header in written
        for each in aborted
        if each.producer_id == header.producer_id
        and each.first_offset <= header.base_offset < each.last_offset
    }


class BatchReader:
    """Keeps a batch that was delivered in part: the next read usually continues in it."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._slice: BatchSlice | None = None
        self._isolation = Isolation.READ_UNCOMMITTED
        self._cut: tuple[int, int, bytes] | None = None
        self._record_bytes = RECORD_BYTES_GUESS

    def read(
        self,
        offset: int,
        records_left: int,
        bytes_left: int,
        *,
        at_least_one: bool,
        isolation: Isolation,
    ) -> BatchSlice:
        """Batches from the one that contains this offset on, with about `records_left` records."""
        if isolation is not self._isolation:
            self._isolation, self._slice = isolation, None
        kept = self._slice
        if kept is not None and kept.spans[0].first_offset <= offset <= kept.spans[-1].last_offset:
            first = next(
                index for index, span in enumerate(kept.spans) if span.last_offset >= offset
            )
            return BatchSlice(kept.data, kept.spans[first:], kept.positions[first:])
        guess = records_left * self._record_bytes
        size = max(min(bytes_left, max(guess, READ_BYTES_MIN)), 0)
        read = read_batches(
            self._partition, offset, size, at_least_one=at_least_one, isolation=isolation
        )
        spans = read.spans
        if spans:
            self._slice = read
            count = spans[-1].last_offset - spans[0].first_offset + 1
            self._record_bytes = max(len(read.data) // count, 1)
        return read

    def cut_out(self, read: BatchSlice, ranges: Sequence[AcquiredRange]) -> bytes:
        """The batches that contain these offsets; the same object as last time if the batches are the same."""
        first, last = ranges[0].first_offset, ranges[-1].last_offset
        begin = next(i for i, span in enumerate(read.spans) if span.last_offset >= first)
        end = next(i for i, span in enumerate(read.spans) if span.last_offset >= last)
        base, final = read.spans[begin].first_offset, read.spans[end].last_offset
        if self._cut is None or self._cut[:2] != (base, final):
            data = read.data[read.positions[begin] : read.positions[end + 1]]
            self._cut = (base, final, data)
        records = self._cut[2]
        if final == last:
            # Delivered up to the end of the batch: it is not read again soon.
            self._cut = None
            if self._slice is not None and self._slice.spans[-1].last_offset <= last:
                self._slice = None
        return records

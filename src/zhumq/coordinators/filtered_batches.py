"""Batches that filters read: decoded once for all groups of a partition, and the newest ones kept."""

import uuid
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final
from weakref import WeakValueDictionary

from zhumq.coordinators.batch_reader import read_batches
from zhumq.coordinators.filter_rounds import FilterPace, FilterRounds
from zhumq.filters.columns import BatchColumns
from zhumq.host.clock import Clock
from zhumq.model.errors import BrokerError
from zhumq.model.isolation import Isolation
from zhumq.records.batch import COMPRESSION_MASK, HEADER_BYTES, RecordBatch, batches
from zhumq.records.builder import assemble_batch
from zhumq.records.codecs import decompress
from zhumq.replication.partition import Partition
from zhumq.share.acknowledgement import AcquiredRange
from zhumq.share.share_partition import Span

READ_BYTES: Final = 256 * 1024
# Of a slice. A batch beyond these is delivered as it is: a small one can decompress to far more than a broker may spend
# on it.
BATCH_RECORDS_MAX: Final = 50_000
BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
# Kept of all partitions together; a decoded record takes about 0.5 KiB.
KEPT_RECORDS_MAX: Final = 50_000
KEPT_BYTES_MAX: Final = 16 * 1024 * 1024

# After a change of leaders, other records may be at the same offsets.
_Place = tuple[uuid.UUID, int, int, Isolation]


class DecodedSlice:
    """Adjacent batches with the columns of their records."""

    def __init__(self, partition: Partition, spans: Sequence[Span], data: memoryview) -> None:
        name = partition.topic_partition
        self.columns = BatchColumns(name.topic, name.partition)
        self._batches = list(batches(data))
        sections = _sections(spans, self._batches)
        self.spans = spans[: len(sections)]
        decoded = [
            (index, section) for index, section in enumerate(sections) if section is not None
        ]
        outcomes = self.columns.add(
            [(self._batches[index].header, section) for index, section in decoded]
        )
        # Batches by index, with the position of their first record.
        self._readable = [
            index for (index, _), is_good in zip(decoded, outcomes, strict=True) if is_good
        ]
        self._starts: list[int] = []
        position = 0
        for index in self._readable:
            self._starts.append(position)
            position += self._batches[index].header.records_count
        self.size = len(data) + len(self.columns.payload)
        readable = set(self._readable)
        # Batches with records that cannot be filtered.
        self.unreadable = [
            index
            for index, span in enumerate(self.spans)
            if span.has_records and index not in readable
        ]
        # Adjacent batches that can be filtered as one span, and the others; whether they can.
        self.parts: list[tuple[Span, bool]] = []
        for index, span in enumerate(self.spans):
            self._add_part(span, index in readable)

    def _add_part(self, span: Span, can_filter: bool) -> None:
        if self.parts and can_filter and self.parts[-1][1]:
            first, last, *_ = self.parts[-1][0]
            if last + 1 == span.first_offset:
                self.parts[-1] = (Span(first, span.last_offset), True)
                return
        self.parts.append((span, can_filter))

    def cut_out(self, ranges: Sequence[AcquiredRange]) -> bytes:
        """The batches of the acquired offsets, each with these records alone if that is smaller."""
        offsets, starts = self.columns.offsets, self._starts
        # Of each batch, from which record to which one.
        chosen: dict[int, list[tuple[int, int]]] = {}
        for first, last, _ in ranges:
            begin = bisect_left(offsets, first)
            end = bisect_left(offsets, last + 1, lo=begin)
            place = bisect_right(starts, begin) - 1
            while begin < end:
                following = starts[place + 1] if place + 1 < len(starts) else len(offsets)
                until = min(end, following)
                if begin < until:
                    chosen.setdefault(self._readable[place], []).append((begin, until))
                begin, place = until, place + 1
        parts = {index: self._with_records(index, pieces) for index, pieces in chosen.items()}
        for index in self.unreadable:
            span = self.spans[index]
            if any(
                each.first_offset <= span.last_offset and each.last_offset >= span.first_offset
                for each in ranges
            ):
                parts[index] = self._batches[index].data
        return b"".join(parts[index] for index in sorted(parts))

    def _with_records(self, index: int, pieces: Sequence[tuple[int, int]]) -> bytes | memoryview:
        batch, records, payload = self._batches[index], self.columns.records, self.columns.payload
        count = sum(end - begin for begin, end in pieces)
        if count == batch.header.records_count:
            return batch.data
        sections = [payload[records[begin].begin : records[end - 1].end] for begin, end in pieces]
        if HEADER_BYTES + sum(map(len, sections)) >= len(batch.data):
            return batch.data
        # As compaction leaves a batch: the offsets and the times stay those of the original.
        header = batch.header._replace(
            attributes=batch.header.attributes & ~COMPRESSION_MASK, records_count=count
        )
        return assemble_batch(header, b"".join(sections))


class FilteredBatches:
    """The newest slices of all partitions that filters read.

    Groups at the end of a log read at the same offsets, so that the first of them decodes for all.
    """

    def __init__(self, clock: Clock) -> None:
        self._kept: OrderedDict[tuple[_Place, int], DecodedSlice] = OrderedDict()
        self._kept_records = 0
        self._kept_bytes = 0
        self._pace = FilterPace(clock)
        # Its readers hold them.
        self._rounds: WeakValueDictionary[_Place, FilterRounds] = WeakValueDictionary()

    def rounds_of(self, partition: Partition, isolation: Isolation) -> FilterRounds:
        place = _place_of(partition, isolation)
        found = self._rounds.get(place)
        if found is None:
            found = FilterRounds(self._pace, lambda: partition.end_offset(isolation))
            self._rounds[place] = found
        return found

    def read(
        self, partition: Partition, offset: int, isolation: Isolation, end_offset: int
    ) -> DecodedSlice:
        """Batches from the one that contains this offset on, up to the one before `end_offset`."""
        key = (_place_of(partition, isolation), offset)
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found
        read = read_batches(partition, offset, READ_BYTES, at_least_one=True, isolation=isolation)
        count = bisect_left(read.spans, end_offset, key=lambda span: span.last_offset)
        count = max(count, min(1, len(read.spans)))
        # At read_committed the slice ends before the batches that are not stable yet.
        stable = memoryview(read.data)[: read.positions[count]]
        decoded = DecodedSlice(partition, read.spans[:count], stable)
        if decoded.spans:
            self._keep(key, decoded)
        return decoded

    def _keep(self, key: tuple[_Place, int], decoded: DecodedSlice) -> None:
        self._kept[key] = decoded
        self._kept_records += len(decoded.columns)
        self._kept_bytes += decoded.size
        while self._kept_records > KEPT_RECORDS_MAX or self._kept_bytes > KEPT_BYTES_MAX:
            _, oldest = self._kept.popitem(last=False)
            self._kept_records -= len(oldest.columns)
            self._kept_bytes -= oldest.size


def _place_of(partition: Partition, isolation: Isolation) -> _Place:
    index = partition.topic_partition.partition
    return (partition.topic_id, index, partition.leader_epoch, isolation)


def _sections(spans: Sequence[Span], whole: Sequence[RecordBatch]) -> list[bytes | None]:
    """The decompressed records of batches, as many as the bounds allow for together.

    None for a batch without records, and for the first one if it is corrupt or too large; another one that is ends
    the slice, and begins the next one.
    """
    sections: list[bytes | None] = []
    records_left, bytes_left = BATCH_RECORDS_MAX, BATCH_BYTES_MAX
    for span, batch in zip(spans, whole, strict=True):
        section = None
        if span.has_records:
            section = _section(batch, records_left, bytes_left)
            if section is None and sections:
                break
        if section is not None:
            records_left -= batch.header.records_count
            bytes_left = max(bytes_left - len(section), 0)
        sections.append(section)
    return sections


def _section(batch: RecordBatch, records_max: int, bytes_max: int) -> bytes | None:
    """The decompressed records of a batch; None if it is corrupt or too large."""
    header = batch.header
    if header.records_count > records_max:
        return None
    compressed = batch.data[HEADER_BYTES:]
    if not header.records_count and not compressed:
        return b""  # Compaction removed all of them.
    try:
        return bytes(decompress(header.compression, compressed, size_max=bytes_max))
    except BrokerError:
        return None

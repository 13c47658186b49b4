"""Reads batches of a partition through a filter: which offsets pass, and batches with only their records."""

import logging
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final

from zhumq.coordinators.batch_reader import BatchSlice
from zhumq.coordinators.filter_rounds import Looker
from zhumq.coordinators.filtered_batches import DecodedSlice, FilteredBatches
from zhumq.filters.filter import Filter
from zhumq.model.isolation import Isolation
from zhumq.replication.partition import Partition
from zhumq.share.acknowledgement import AcquiredRange
from zhumq.share.share_partition import Span

logger = logging.getLogger(__name__)

# Records that one acquisition looks at. The event loop serves other clients before it goes on.
SCANNED_RECORDS_MAX: Final = 10_000
EMPTY: Final = BatchSlice(b"", [], [])


class FilteredReader:
    """Reads for one share partition, as BatchReader does without a filter."""

    def __init__(
        self,
        partition: Partition,
        message_filter: Filter,
        shared: FilteredBatches,
        wake: Callable[[], None],
    ) -> None:
        self.filter = message_filter
        self._partition = partition
        self._shared = shared
        self._slice: DecodedSlice | None = None
        self._isolation = Isolation.READ_UNCOMMITTED
        self._looker = Looker(wake)
        self._rounds = shared.rounds_of(partition, self._isolation)
        self._spans: list[Span] = []
        self._last_passing = -1
        self._scanned = 0
        self._has_warned = False

    @property
    def is_waiting(self) -> bool:
        """It looks again in the next round, and not when messages come."""
        return self._looker.is_waiting

    def begin(self) -> None:
        """An acquisition begins."""
        self._scanned = 0

    def read(
        self,
        offset: int,
        _records_left: int,
        _bytes_left: int,
        *,
        at_least_one: bool,  # noqa: ARG002 - as BatchReader's; a slice has one size for all groups
        isolation: Isolation,
    ) -> BatchSlice:
        """The batches from this offset on, with spans of offsets that pass and that do not. Empty while it waits."""
        if self._isolation is not isolation:
            self._isolation, self._slice = isolation, None
            self._rounds = self._shared.rounds_of(self._partition, isolation)
        kept = self._slice
        if kept is None or not (
            self._spans[0].first_offset <= offset <= self._spans[-1].last_offset
        ):
            if self._scanned >= SCANNED_RECORDS_MAX:
                return EMPTY
            end_offset = self._rounds.end_for(self._looker, offset)
            if end_offset is None:
                return EMPTY
            kept = self._slice = self._shared.read(self._partition, offset, isolation, end_offset)
            self._spans = self._select(kept)
            passing = (span.last_offset for span in reversed(self._spans) if span.has_records)
            self._last_passing = next(passing, -1)
            self._scanned += len(kept.columns)
            if not self._spans:
                self._slice = None
                return EMPTY
        first = bisect_left(self._spans, offset, key=_last_of)
        return BatchSlice(b"", self._spans[first:], [])

    def _select(self, read: DecodedSlice) -> list[Span]:
        """The spans of a slice: adjacent offsets that pass, and those that do not."""
        columns = read.columns
        passing = self.filter.select(columns)
        if columns.unreadable:
            passing = sorted({*passing, *columns.unreadable})
        if (columns.unreadable or read.unreadable) and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "%s: records from offset %d on cannot be filtered (corrupt, or too many in a batch): delivered as they"
                " are",
                self._partition.topic_partition,
                read.spans[0].first_offset,
            )
        offsets = [columns.offsets[position] for position in passing]
        spans: list[Span] = []
        begin = 0
        for span, can_filter in read.parts:
            if not can_filter:
                spans.append(span)
                continue
            end = bisect_left(offsets, span.last_offset + 1, lo=begin)
            _add_spans(spans, span, offsets[begin:end])
            begin = end
        return spans

    def cut_out(self, _read: BatchSlice, ranges: Sequence[AcquiredRange]) -> bytes:
        """The batches of the acquired offsets, with as few other records as possible."""
        read = self._slice
        assert read is not None, "offsets are acquired from what was read"
        if ranges[-1].last_offset >= self._last_passing:
            self._slice = None  # Delivered up to its end: it is not read again soon.
        return read.cut_out(ranges)


def _last_of(span: Span) -> int:
    return span.last_offset


def _add_spans(spans: list[Span], whole: Span, passing: Sequence[int]) -> None:
    """Split a batch into the offsets that pass, which are ascending, and those between."""
    next_offset = whole.first_offset
    first = last = -1
    for offset in passing:
        if first >= 0 and offset == last + 1:
            last = offset
            continue
        if first >= 0:
            spans.append(Span(first, last))
            next_offset = last + 1
        if offset > next_offset:
            _add_filtered(spans, next_offset, offset - 1)
        first = last = offset
    if first >= 0:
        spans.append(Span(first, last))
        next_offset = last + 1
    if next_offset <= whole.last_offset:
        _add_filtered(spans, next_offset, whole.last_offset)


def _add_filtered(spans: list[Span], first: int, last: int) -> None:
    if spans and spans[-1].is_filtered and spans[-1].last_offset + 1 == first:
        first = spans.pop().first_offset
    spans.append(Span(first, last, has_records=False, is_filtered=True))

"""The ordered segments of a log: finds an offset, reads from it, removes segments at either end."""

from bisect import bisect_right
from collections.abc import Sequence

from zhumq.model.errors import CorruptMessage
from zhumq.model.ids import TopicPartition
from zhumq.records.batch import HEADER_BYTES
from zhumq.storage.empty_batches import first_run
from zhumq.storage.log_slice import CorruptRange, FileRegion, LogSlice
from zhumq.storage.segment import Segment
from zhumq.storage.verification import Proof, verify_read

KNOWN_POSITIONS_MAX = 256  # batches whose position is remembered, per generation and log


class SegmentList:
    """All segments, oldest first; the last one is the active one."""

    __slots__ = (
        "_base_offsets",
        "_older_positions",
        "_positions",
        "_proof",
        "_segments",
        "_topic_partition",
        "active",
    )

    def __init__(
        self, topic_partition: TopicPartition, segments: Sequence[Segment], proof: Proof
    ) -> None:
        self._topic_partition = topic_partition
        self._proof = proof
        self._segments = list(segments)
        self._base_offsets = [segment.base_offset for segment in segments]
        # Offset -> position of recently written or read batches, so that reads at the end need no
        # search. Valid in the segment that holds the offset.
        # Two generations: when the younger is full, the older is dropped.
        self._positions: dict[int, int] = {}
        self._older_positions: dict[int, int] = {}
        self.active: Segment = self._segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def all(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    @property
    def base_offset(self) -> int:
        """The base offset of the oldest segment."""
        return self._base_offsets[0]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def corrupt_ranges(self) -> tuple[CorruptRange, ...]:
        return tuple(bad for segment in self._segments for bad in segment.corrupt_ranges)

    def has_base(self, offset: int) -> bool:
        """Whether a segment begins at this offset."""
        place = bisect_right(self._base_offsets, offset) - 1
        return place >= 0 and self._base_offsets[place] == offset

    def base_of(self, offset: int) -> int:
        """The base offset of the segment that holds this offset."""
        return self._base_offsets[max(bisect_right(self._base_offsets, offset) - 1, 0)]

    def remember(self, offset: int, position: int) -> None:
        """Cache the position of the batch that begins with this offset."""
        positions = self._positions
        positions[offset] = position
        if len(positions) > KNOWN_POSITIONS_MAX:
            self._older_positions = positions
            self._positions = {}

    def forget_positions(self) -> None:
        """Drop the cached positions, because batches have moved."""
        self._positions = {}
        self._older_positions = {}

    def add(self, segment: Segment) -> None:
        """Add a new active segment."""
        self._segments.append(segment)
        self._base_offsets.append(segment.base_offset)
        self.active = segment

    def next_offset_of(self, place: int, end_offset: int) -> int:
        """The offset behind the segment at this place."""
        is_last = place + 1 >= len(self._segments)
        return end_offset if is_last else self._base_offsets[place + 1]

    def read(
        self,
        offset: int,
        end_offset: int,
        limit_offset: int,
        max_bytes: int,
        at_least_one: bool,
        skip_empty: bool = False,
    ) -> LogSlice:
        """Whole batches from this offset on, none that reaches limit_offset. The offset is in the log."""
        place = bisect_right(self._base_offsets, offset) - 1
        while offset < limit_offset:
            segment = self._segments[place]
            segment_end = self.next_offset_of(place, end_offset)
            start = self._position_in(segment, offset, end_offset)
            if limit_offset >= segment_end:
                end, next_offset = segment.size, segment_end
            else:
                end = self._position_in(segment, limit_offset, end_offset)
                next_offset = limit_offset
            if segment.corrupt_ranges:
                end, next_offset = self._before_damage(segment, start, offset, end, next_offset)
            is_part = False
            if start < min(end, segment.unverified_end):
                stop, stop_offset = verify_read(segment, start, end, max_bytes, self._proof)
                if stop < end:
                    end, next_offset, is_part = stop, stop_offset, True
            if skip_empty:
                start, end, next_offset = first_run(segment, start, end, next_offset, max_bytes)
                if start >= end and is_part:
                    offset = next_offset
                    continue
            if start < end:
                if end - start > max_bytes:
                    return self._cut_to(segment, start, max_bytes, offset, at_least_one)
                return LogSlice((FileRegion(segment.file, start, end - start),), next_offset)
            if limit_offset < segment_end:
                break
            offset = segment_end  # All batches of this segment are before the offset.
            place += 1
        return LogSlice((), offset)

    def _position_in(self, segment: Segment, offset: int, end_offset: int) -> int:
        """The position of the first batch that reaches this offset."""
        if offset <= segment.base_offset:
            return 0
        if offset >= end_offset:
            return segment.size
        position = self._positions.get(offset)
        if position is None:
            position = self._older_positions.get(offset)
        if position is not None:
            return position
        found = segment.find(offset)
        if found is None:
            return segment.size
        position, header = found
        if header.base_offset == offset:
            self.remember(offset, position)
        return position

    def _cut_to(
        self, segment: Segment, start: int, max_bytes: int, offset: int, at_least_one: bool
    ) -> LogSlice:
        """As many whole batches as fit into max_bytes."""
        boundary = segment.boundary_before(start, start + max_bytes)
        if boundary is None:
            if not at_least_one:
                return LogSlice((), offset)
            _, header = next(segment.scan(start, chunk_bytes=HEADER_BYTES))
            boundary = start + header.size, header.next_offset
        end, next_offset = boundary
        if next_offset <= offset:
            raise CorruptMessage(
                f"{self._topic_partition}: the batches behind offset {offset} do not advance past it"
            )
        if end < segment.size:
            self.remember(next_offset, end)
        return LogSlice((FileRegion(segment.file, start, end - start),), next_offset)

    def _before_damage(
        self, segment: Segment, start: int, offset: int, end: int, next_offset: int
    ) -> tuple[int, int]:
        """The position and the offset where a read has to stop before a corrupt range. Raises
        CorruptMessage if the read would begin in one."""
        for bad in segment.corrupt_ranges:
            if offset < bad.first_offset < next_offset:
                end, next_offset = min(end, bad.start_position), bad.first_offset
        for bad in segment.corrupt_ranges:
            if bad.first_offset <= offset < bad.next_offset or (
                start >= end and bad.first_offset == next_offset
            ):
                raise CorruptMessage(
                    f"{self._topic_partition} is damaged from offset {bad.first_offset} to "
                    f"{bad.next_offset - 1} ({segment.prefix}.log, bytes {bad.start_position} to "
                    f"{bad.end_position - 1}); read on from {bad.next_offset}"
                )
        return end, next_offset

    def take_first(self, count: int) -> list[Segment]:
        """Remove the oldest segments from the list; never the active one."""
        assert count < len(self._segments)
        taken = self._segments[:count]
        del self._segments[:count]
        del self._base_offsets[:count]
        return taken

    def take_all(self) -> list[Segment]:
        """Remove every segment; the caller adds a new one at once."""
        taken = self._segments[:]
        self._segments.clear()
        self._base_offsets.clear()
        self.forget_positions()
        return taken

    def take_from(self, offset: int) -> list[Segment]:
        """Remove the segments that begin at or after this offset, but not the oldest one."""
        place = max(bisect_right(self._base_offsets, offset - 1), 1)
        taken = self._segments[place:]
        del self._segments[place:]
        del self._base_offsets[place:]
        self.active = self._segments[-1]
        self.forget_positions()
        return taken

    def replace(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Replace neighbouring segments by the compacted ones made of them."""
        place = self._segments.index(old[0])
        assert tuple(self._segments[place : place + len(old)]) == tuple(old)
        self._segments[place : place + len(old)] = new
        self._base_offsets = [segment.base_offset for segment in self._segments]
        self.forget_positions()

"""One segment: a log file with its indexes, and the search for a batch in it."""

import contextlib
import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence

from zhumq.host.disk import Disk, DiskFile
from zhumq.model.buffers import Buffer
from zhumq.model.errors import CorruptMessage, DiskFull
from zhumq.records.batch import HEADER_BYTES, NO_TIMESTAMP, PREFIX_BYTES, BatchHeader
from zhumq.storage.batch_scan import (
    LOOKUP_CHUNK_BYTES,
    SCAN_CHUNK_BYTES,
    no_batch,
    scan_batches,
)
from zhumq.storage.index_cache import IndexCache
from zhumq.storage.indexes import (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    IndexCorrupt,
    OffsetIndex,
    TimeIndex,
)
from zhumq.storage.log_files import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    file_prefix,
)
from zhumq.storage.log_slice import CorruptRange

logger = logging.getLogger(__name__)


class Segment:
    """The batches from base_offset on, up to the next segment."""

    __slots__ = (
        "_bytes_since_entry",
        "_cache",
        "_disk",
        "_file",
        "_index_interval_bytes",
        "_make_folder",
        "_max_timestamp",
        "_offset_index",
        "_offset_of_max_timestamp",
        "_time_index",
        "_written_offset_entries",
        "_written_time_entries",
        "base_offset",
        "checksum",
        "corrupt_ranges",
        "first_timestamp",
        "is_sealed",
        "next_offset",
        "prefix",
        "size",
        "unverified_end",
        "verified",
    )

    def __init__(
        self,
        directory: str,
        base_offset: int,
        *,
        disk: Disk,
        cache: IndexCache,
        size: int,
        index_interval_bytes: int,
    ) -> None:
        self.prefix = file_prefix(directory, base_offset)
        self.base_offset = base_offset
        self.size = size
        self.is_sealed = False
        self.corrupt_ranges: list[CorruptRange] = []
        self.next_offset: int | None = None  # the offset behind a sealed segment
        self.checksum: int | None = None  # of the whole file, as compaction wrote it
        # The bytes below were on the disk at start. Reads verify them first.
        self.unverified_end = size
        # The last run of those bytes that was verified: start, end, offset at its end.
        self.verified = (0, 0, base_offset)
        self.first_timestamp: int | None = None  # of the first batch, once known
        self._disk = disk
        self._cache = cache
        self._file: DiskFile | None = None
        # Called before the files of a new log's segment are created; None once they exist.
        self._make_folder: Callable[[], None] | None = None
        self._index_interval_bytes = index_interval_bytes
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._written_offset_entries = 0
        self._written_time_entries = 0
        self._bytes_since_entry = 0
        # Of the whole segment; None until it is read from the time index.
        self._max_timestamp: int | None = None
        self._offset_of_max_timestamp = base_offset

    @classmethod
    def create(
        cls,
        directory: str,
        base_offset: int,
        *,
        disk: Disk,
        cache: IndexCache,
        index_interval_bytes: int,
        make_folder: Callable[[], None] | None = None,
    ) -> "Segment":
        """A new, empty segment. Its files are created now or, with make_folder, when first needed."""
        segment = cls(
            directory, base_offset, disk=disk, cache=cache, size=0,
            index_interval_bytes=index_interval_bytes,
        )  # fmt: skip
        segment.start_indexes()
        segment._make_folder = make_folder
        if make_folder is None:
            segment._create_files()
        return segment

    @property
    def has_files(self) -> bool:
        return self._make_folder is None

    @property
    def file(self) -> DiskFile:
        """The log file, opened when first needed."""
        if self._file is None and self._make_folder is not None:
            self._make_folder()
            self._create_files()
            self._make_folder = None
        elif self._file is None:
            self._file = self._disk.open_file(self.prefix + LOG_SUFFIX)
        assert self._file is not None
        return self._file

    @property
    def offset_index(self) -> OffsetIndex:
        index = self._offset_index
        if index is None:
            index = self._load_indexes()
        if self.is_sealed:
            self._cache.touch(self)
        return index

    @property
    def time_index(self) -> TimeIndex:
        _ = self.offset_index  # both are in memory or neither
        assert self._time_index is not None
        return self._time_index

    @property
    def has_indexes_loaded(self) -> bool:
        return self._offset_index is not None

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp in the segment."""
        newest = self._max_timestamp
        return self._load_max_timestamp() if newest is None else newest

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the first batch with the largest timestamp."""
        _ = self.max_timestamp
        return self._offset_of_max_timestamp

    @property
    def paths(self) -> list[str]:
        """The files of this segment."""
        return [self.prefix + suffix for suffix in SEGMENT_SUFFIXES]

    def append(self, parts: Sequence[Buffer]) -> int:
        """Write bytes at the end; returns their position. The caller then notes the batches."""
        position = (self._file or self.file).append(parts)
        self.size = self._file.size  # type: ignore[union-attr]
        return position

    def note_batch(self, header: BatchHeader, position: int) -> None:
        """Update the indexes for a batch that is at this position, with its offset in its header."""
        self.note_batches(((header, None),), header.base_offset, position)

    def note_batches(
        self, batches: Iterable[tuple[BatchHeader, object]], offset: int, position: int
    ) -> None:
        """Update the indexes for consecutive batches from this offset and position on."""
        newest = self.max_timestamp
        bytes_since_entry = self._bytes_since_entry
        for header, _ in batches:
            offset += header.last_offset_delta
            max_timestamp = header.max_timestamp
            if max_timestamp > newest:
                self._max_timestamp = newest = max_timestamp
                self._offset_of_max_timestamp = offset
            if self.first_timestamp is None:
                self.first_timestamp = (
                    max_timestamp if position == 0 else self._read_first_timestamp()
                )
            if bytes_since_entry > self._index_interval_bytes:
                self.offset_index.append(offset, position)
                self._note_max_timestamp()
                bytes_since_entry = 0
            offset += 1
            size = header.batch_length + PREFIX_BYTES
            bytes_since_entry += size
            position += size
        self._bytes_since_entry = bytes_since_entry

    def scan(
        self, position: int = 0, *, end: int | None = None, chunk_bytes: int = SCAN_CHUNK_BYTES
    ) -> Iterator[tuple[int, BatchHeader]]:
        """The batches from this position on, which must be the start of a batch. Skips corrupt ranges.
        Raises CorruptMessage where the bytes are not a batch."""
        return self._scan(self.file, position, self.size if end is None else end, chunk_bytes)

    def scan_file(self, file: DiskFile) -> Iterator[tuple[int, BatchHeader]]:
        """As scan, through the caller's own file: for threads, once the segment is sealed."""
        return self._scan(file, 0, self.size, SCAN_CHUNK_BYTES)

    def _scan(
        self, file: DiskFile, position: int, end: int, chunk_bytes: int
    ) -> Iterator[tuple[int, BatchHeader]]:
        return scan_batches(
            file,
            position,
            end,
            base_offset=self.base_offset,
            corrupt_ranges=self.corrupt_ranges,
            chunk_bytes=chunk_bytes,
        )

    def find(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The first batch that reaches this offset; None if all end before it."""
        start = self.offset_index.position_before(offset)
        try:
            return self._find_from(start, offset)
        except CorruptMessage:
            if not self._is_wrong_entry(start):
                raise
        self.rebuild_indexes()
        return self._find_from(self.offset_index.position_before(offset), offset)

    def boundary_before(self, start: int, limit: int) -> tuple[int, int] | None:
        """The last end of a batch that begins at or after start and ends by limit: its position
        and the offset there. None if the first batch is larger."""
        known = max(self.offset_index.boundary_before(limit), start)
        try:
            return self._boundary_from(known, start, limit)
        except CorruptMessage:
            if not self._is_wrong_entry(known):
                raise
        self.rebuild_indexes()
        known = max(self.offset_index.boundary_before(limit), start)
        return self._boundary_from(known, start, limit)

    def entry_matches(self, position: int) -> bool:
        """Whether the batch at a position in the offset index has the offset of its entry."""
        index = self.offset_index
        entry = bisect_left(index.positions, position)
        with contextlib.suppress(CorruptMessage):
            for _, header in self.scan(position, chunk_bytes=HEADER_BYTES):
                return header.last_offset == index.offsets[entry] + self.base_offset
        return False

    def _find_from(self, start: int, offset: int) -> tuple[int, BatchHeader] | None:
        for position, header in self.scan(start, chunk_bytes=LOOKUP_CHUNK_BYTES):
            if header.base_offset + header.last_offset_delta >= offset:
                if position == start > 0 and header.last_offset > offset:
                    # The index entry is of a batch that ends at or before the offset.
                    raise no_batch(self.file, start)
                return position, header
        return None

    def _boundary_from(self, known: int, start: int, limit: int) -> tuple[int, int] | None:
        found: tuple[int, int] | None = None
        for position, header in self.scan(known, chunk_bytes=LOOKUP_CHUNK_BYTES):
            if position + header.size > limit:
                # A known boundary is also the end of the batch before it.
                return found or ((known, header.base_offset) if known > start else None)
            found = position + header.size, header.next_offset
        return found

    def seal(self, next_offset: int) -> None:
        """Complete the index files: the segment gets no more batches."""
        self.write_indexes(final=True)
        self.is_sealed = True
        self.next_offset = next_offset
        self._cache.touch(self)

    def unseal(self) -> None:
        """Make the segment the active one again."""
        self.is_sealed = False
        self.next_offset = self.checksum = None
        self._cache.forget(self)

    def write_indexes(self, *, final: bool) -> None:
        """Bring the index files up to date, without a sync. The final entry of the time index is the
        largest timestamp, so that retention reads only that entry."""
        if self._offset_index is None or self._time_index is None:
            return  # Nothing was added since they were loaded.
        if final:
            self._note_max_timestamp()
        offset_entries = len(self._offset_index)
        time_entries = len(self._time_index)
        if offset_entries > self._written_offset_entries:
            self._append_to(
                INDEX_SUFFIX,
                self._written_offset_entries * OFFSET_ENTRY_BYTES,
                self._offset_index.encode(self._written_offset_entries),
            )
            self._written_offset_entries = offset_entries
        if time_entries > self._written_time_entries:
            self._append_to(
                TIME_INDEX_SUFFIX,
                self._written_time_entries * TIME_ENTRY_BYTES,
                self._time_index.encode(self._written_time_entries),
            )
            self._written_time_entries = time_entries

    def truncate(self, position: int, next_offset: int) -> None:
        """Remove everything from this position on: the batches from next_offset on."""
        self.file.truncate(position)
        self.size = position
        self.unverified_end = min(self.unverified_end, position)
        self.verified = (0, 0, self.base_offset)
        self.restart_indexes(position, next_offset)
        self.replace_index_files()

    def restart_indexes(self, position: int, next_offset: int) -> None:
        """Remove the batches from this position on from the indexes in memory."""
        offset_index, time_index = self.offset_index, self.time_index
        offset_index.truncate_to(position)
        time_index.truncate_to(next_offset)
        self.corrupt_ranges = [
            bad
            for bad in self.corrupt_ranges
            if bad.end_position <= position and bad.next_offset <= next_offset
        ]
        # The largest timestamp may be removed: read it again from the batches behind the last entry.
        last = time_index.last
        self._max_timestamp, self._offset_of_max_timestamp = last or (
            NO_TIMESTAMP,
            self.base_offset,
        )
        start = offset_index.position_before(self._offset_of_max_timestamp)
        try:
            for place, header in self.scan(start, end=position):
                if place == 0:
                    self.first_timestamp = header.max_timestamp
                if header.max_timestamp > self._max_timestamp:
                    self._max_timestamp = header.max_timestamp
                    self._offset_of_max_timestamp = header.last_offset
        except CorruptMessage as error:
            logger.warning("the largest timestamp of %s may be wrong: %s", self.prefix, error)
        if position == 0:
            self.first_timestamp = None
        self._bytes_since_entry = position - offset_index.boundary_before(position)

    def start_indexes(self) -> None:
        """Start with empty indexes, for a new segment or a rebuild."""
        self._offset_index = OffsetIndex(self.base_offset)
        self._time_index = TimeIndex(self.base_offset)
        self._written_offset_entries = 0
        self._written_time_entries = 0
        self._bytes_since_entry = 0
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = self.base_offset

    def rebuild_indexes(self) -> None:
        """Rebuild the indexes from the log, in memory and on disk."""
        self.start_indexes()
        try:
            for position, header in self.scan():
                self.note_batch(header, position)
        except CorruptMessage as error:
            # Batches before the damage are indexed; recovery and reads detect the rest.
            logger.warning("the index of %s ends at a damaged batch: %s", self.prefix, error)
        self._note_max_timestamp()
        self.replace_index_files()

    def replace_index_files(self, *, final: bool = False) -> None:
        """Write both index files completely; `final` as in write_indexes.

        Without disk space the indexes stay in memory, and the missing files are rebuilt when needed.
        """
        if final:
            self._note_max_timestamp()
        offset_index, time_index = self.offset_index, self.time_index
        try:
            self._disk.write_file(self.prefix + INDEX_SUFFIX, offset_index.encode(), sync=False)
            self._disk.write_file(self.prefix + TIME_INDEX_SUFFIX, time_index.encode(), sync=False)
        except DiskFull as error:
            logger.warning("the indexes of %s are in memory only: %s", self.prefix, error)
            self._written_offset_entries = self._written_time_entries = 0
            for path in self.paths[1:]:
                self._disk.unlink(path)
            return
        self._written_offset_entries = len(offset_index)
        self._written_time_entries = len(time_index)

    def take_indexes(self, offset_index: OffsetIndex, time_index: TimeIndex) -> None:
        """Use the indexes that compaction built, and write their files."""
        self._offset_index = offset_index
        self._time_index = time_index
        self.replace_index_files()

    def unload_indexes(self) -> None:
        """Free the memory of a sealed segment's indexes; the index files hold them."""
        self._offset_index = None
        self._time_index = None

    def close_file(self) -> None:
        """Close the descriptor until it is needed again: an idle partition holds none."""
        self._file = None

    def release(self) -> None:
        """Release a segment that leaves its log. Its file stays open while a reader references it."""
        self._cache.forget(self)
        self.unload_indexes()
        self._file = None

    def _create_files(self) -> None:
        file = self._disk.open_file(self.prefix + LOG_SUFFIX, create=True)
        if file.size:
            file.truncate(0)  # left over from a roll that failed half-way
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            index_file = self._disk.open_file(self.prefix + suffix, create=True)
            index_file.truncate(0)
            index_file.close()
        self._file = file

    def _load_indexes(self) -> OffsetIndex:
        offset_data = self._disk.read_file(self.prefix + INDEX_SUFFIX)
        time_data = self._disk.read_file(self.prefix + TIME_INDEX_SUFFIX)
        # A closed segment with batches has at least the final entry of the time index, and a large
        # one has an offset index.
        is_lost = (self.size and not time_data) or (
            self.size > self._index_interval_bytes and not offset_data
        )
        if offset_data is None or time_data is None or is_lost:
            self.rebuild_indexes()
        else:
            try:
                self._offset_index = OffsetIndex.decode(offset_data, self.base_offset, self.size)
                self._time_index = TimeIndex.decode(time_data, self.base_offset)
            except IndexCorrupt:
                self.rebuild_indexes()
            else:
                self._written_offset_entries = len(self._offset_index)
                self._written_time_entries = len(self._time_index)
                self._bytes_since_entry = self.size - self._offset_index.boundary_before(self.size)
        assert self._offset_index is not None
        return self._offset_index

    def _load_max_timestamp(self) -> int:
        last = self._last_time_entry() or self.time_index.last or (NO_TIMESTAMP, self.base_offset)
        self._max_timestamp, self._offset_of_max_timestamp = last
        return self._max_timestamp

    def _last_time_entry(self) -> tuple[int, int] | None:
        """The last entry of the time index file: retention reads only that entry of each segment."""
        if self._time_index is not None or not self.is_sealed:
            return None
        file = self._disk.open_file(self.prefix + TIME_INDEX_SUFFIX, create=True)
        try:
            return TimeIndex.last_in(file, self.base_offset)
        finally:
            file.close()

    def _read_first_timestamp(self) -> int:
        # With a damaged first batch the age is unknown, and the segment rolls by size only.
        with contextlib.suppress(CorruptMessage):
            for _, header in self.scan(chunk_bytes=HEADER_BYTES):
                return header.max_timestamp
        return NO_TIMESTAMP

    def _note_max_timestamp(self) -> None:
        self.time_index.append_if_larger(self.max_timestamp, self._offset_of_max_timestamp)

    def _append_to(self, suffix: str, position: int, data: bytes) -> None:
        file = self._disk.open_file(self.prefix + suffix, create=True)
        try:
            if file.size != position:
                file.truncate(position)
            file.append((data,))
        finally:
            file.close()

    def _is_wrong_entry(self, position: int) -> bool:
        """Whether the offset index has an entry for this position that matches no batch there."""
        index = self.offset_index
        entry = bisect_left(index.positions, position)
        if position == 0 or entry == len(index) or index.positions[entry] != position:
            return False
        last_offset = index.offsets[entry] + self.base_offset
        return (position, last_offset) not in ((at, head.last_offset) for at, head in self.scan())

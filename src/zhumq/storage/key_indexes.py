"""The key index files of one log: which records they cover, and what is to be indexed next."""

import contextlib
import logging
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from zhumq.host.disk import Disk
from zhumq.model.errors import BrokerError, CorruptMessage
from zhumq.records.batch import RecordBatch, batches
from zhumq.records.keys import RecordKeys, keys_of
from zhumq.records.outline import payload_of
from zhumq.storage.indexes import IndexCorrupt
from zhumq.storage.key_index_builder import (
    SLOTS_FIRST,
    KeyIndexBuilder,
    slots_after,
    written_end_offset,
)
from zhumq.storage.key_index_file import KeyIndexFile
from zhumq.storage.key_index_pages import Opening
from zhumq.storage.log_files import (
    DELETED_SUFFIX,
    KEY_INDEX_SUFFIX,
    STALE_KEY_INDEX_SUFFIX,
    file_prefix,
    offset_in,
)

logger = logging.getLogger(__name__)

RECORDS_PER_STEP: Final = 128  # that are indexed between two yields
# How much of the log is read at most before the progress is written, even if it has no keys.
PROGRESS_BYTES: Final = 16 << 20

# What covers the records from its begin offset to its end offset.
KeyIndex = KeyIndexFile | KeyIndexBuilder


class KeyIndexes:
    """The index files of one log, and the one that grows.

    A file is of one segment and named by its first offset; a segment has as many as it takes. They are
    derived from the log: a damaged or lost one is only a part of the log that is to be indexed again.
    Compaction makes the files of its segments stale: they name records that are gone, and serve until the
    compacted segments are indexed.

    `version` changes with every change but the indexing itself. Used on the event loop.
    """

    __slots__ = (
        "_base_of",
        "_begun",
        "_builder",
        "_directory",
        "_disk",
        "_files",
        "_slots",
        "_stale",
        "_unwritten_bytes",
        "version",
    )

    def __init__(self, directory: str, disk: Disk, base_of: Callable[[int], int]) -> None:
        self._directory = directory
        self._disk = disk
        self._base_of = base_of  # the base offset of the segment that holds an offset
        self._files: list[KeyIndexFile] = []  # by offset, none overlaps another
        self._stale: list[KeyIndexFile] = []
        self._builder: KeyIndexBuilder | None = None
        self._begun: int | None = None  # the begin offset of a file to be continued
        self._slots = SLOTS_FIRST  # of the next file
        self._unwritten_bytes = 0  # of the log, since the progress was last written
        self.version = 0

    # What the log does

    def load(self, names: Iterable[str], end_offset: int) -> None:
        """Find the files of a log that is opened and ends at this offset."""
        growing: list[int] = []
        for name in sorted(names):
            begin = offset_in(name, KEY_INDEX_SUFFIX)
            stale = offset_in(name, STALE_KEY_INDEX_SUFFIX)
            if begin is not None:
                self._load_file(begin, growing)
            elif stale is not None:
                with self._use_of(
                    file_prefix(self._directory, stale) + STALE_KEY_INDEX_SUFFIX
                ) as path:
                    self._stale.append(KeyIndexFile(self._disk, path, stale))
        # One file grows at a time. A damaged one looks the same, and is continued or built again.
        self._begun = growing.pop() if growing else None
        for begin in growing:
            logger.warning("%s is built again: it is not complete", self._path(begin))
            self._disk.unlink(self._path(begin))
        # What a crash took from the end of the log may come again with other records.
        self.truncate_to(end_offset)

    def _load_file(self, begin: int, growing: list[int]) -> None:
        path = self._path(begin)
        try:
            file = KeyIndexFile(self._disk, path, begin)
        except IndexCorrupt:
            growing.append(begin)
        except BrokerError as reason:
            logger.warning("%s is not used: %s", path, reason)
        else:
            if self._files and begin < self._files[-1].end_offset:
                self._disk.unlink(path)
            else:
                self._files.append(file)

    @contextlib.contextmanager
    def _use_of(self, path: str) -> Iterator[str]:
        """Do without a file that cannot be used: its records are indexed again."""
        try:
            yield path
        except IndexCorrupt as reason:
            logger.warning("%s is built again: %s", path, reason)
            self._disk.unlink(path)
        except BrokerError as reason:
            logger.warning("%s is not used: %s", path, reason)

    def truncate_to(self, offset: int) -> None:
        """Remove the files of records at this offset or later."""
        self.version += 1
        for files in (self._files, self._stale):
            for file in files:
                if file.end_offset > offset:
                    self._disk.unlink(file.path)
            files[:] = [file for file in files if file.end_offset <= offset]
        if self._builder is not None and self._builder.end_offset > offset:
            self._drop_builder()
        if self._begun is not None:
            reaches = offset + 1
            with self._use_of(self._path(self._begun)) as path:
                reaches = written_end_offset(self._disk, path, self._begun)
            if reaches > offset:
                self._drop_begun()

    def remove_before(self, offset: int) -> list[str]:
        """Forget the files of segments before this offset, which go with them. Returns the renamed files, to
        be removed later."""
        self.version += 1
        renamed: list[str] = []
        for files in (self._files, self._stale):
            for file in files:
                if file.end_offset <= offset:
                    with contextlib.suppress(BrokerError):
                        self._disk.rename(file.path, file.path + DELETED_SUFFIX)
                        renamed.append(file.path + DELETED_SUFFIX)
            files[:] = [file for file in files if file.end_offset > offset]
        if self._builder is not None and self._builder.begin_offset < offset:
            self._drop_builder()
        if self._begun is not None and self._begun < offset:
            self._drop_begun()
        return renamed

    def compacted(self, first_offset: int, end_offset: int) -> None:
        """The segments of these offsets were replaced: their files are stale from now on."""
        self.version += 1
        builder = self._builder
        if builder is not None and first_offset <= builder.begin_offset < end_offset:
            self._drop_builder()
        if self._begun is not None and first_offset <= self._begun < end_offset:
            self._drop_begun()
        for file in self._files[:]:
            if first_offset <= file.begin_offset < end_offset:
                self._files.remove(file)
                path = file_prefix(self._directory, file.begin_offset) + STALE_KEY_INDEX_SUFFIX
                try:
                    self._disk.rename(file.path, path)
                except BrokerError as reason:
                    logger.warning("%s is not used: %s", file.path, reason)
                    continue
                file.path = path
                self._stale = [
                    each for each in self._stale if each.begin_offset != file.begin_offset
                ]
                self._stale.append(file)
        self._stale.sort(key=_begin_offset)

    def drop(self) -> None:
        """Remove all files: the topic is not indexed any more."""
        if self._files or self._stale or self._builder or self._begun is not None:
            self.truncate_to(-1)

    def close(self) -> None:
        """Write how far the growing file is, and free its memory; it is continued when there is more to index."""
        builder, self._builder = self._builder, None
        if builder is None:
            return
        self.version += 1
        self._begun = builder.begin_offset
        try:
            builder.write(all_pages=True)
        except BrokerError as reason:
            logger.warning("%s: its last entries are built again: %s", builder.path, reason)
        builder.close()

    # Lookup

    def covering(self, before: int) -> tuple[KeyIndex | None, int]:
        """The index of the record before an offset, and the offset where it begins. None where there is no
        index, with the offset where the last one before it ends."""
        floor = 0
        for each in (
            _last_below(self._files, before),
            self._builder,
            _last_below(self._stale, before),
        ):
            if each is not None and each.begin_offset < before:
                if each.end_offset >= before:
                    return each, each.begin_offset
                floor = max(floor, each.end_offset)
        return None, floor

    def discard(self, index: KeyIndex, reason: IndexCorrupt) -> None:
        """Remove an index that turned out to be damaged."""
        logger.warning("%s is built again: %s", index.path, reason)
        self.version += 1
        if index is self._builder:
            self._drop_builder()
            return
        self._files = [each for each in self._files if each is not index]
        self._stale = [each for each in self._stale if each is not index]
        self._disk.unlink(index.path)

    # Indexing: generators that yield between steps, and end early when the version changes.

    def next_offset(self, start_offset: int) -> int:
        """The first offset from here on that is not indexed, as far as the log is not compacted since."""
        offset = self._bridged(start_offset)
        for each in self._files:
            if each.begin_offset > offset:
                break
            offset = self._bridged(max(offset, each.end_offset))
        return offset

    def _bridged(self, offset: int) -> int:
        builder = self._builder
        if builder is None or not builder.begin_offset <= offset < builder.end_offset:
            return offset
        return builder.end_offset

    def resume(self) -> Iterator[None]:
        """Continue the file that was growing when the log was closed."""
        begin = self._begun
        if begin is None:
            return
        with self._use_of(self._path(begin)) as path:
            builder = KeyIndexBuilder.reopen(self._disk, path, begin)
            for _ in builder.load():
                yield
                if self._begun != begin:  # It was removed meanwhile.
                    builder.close()
                    return
            self._builder = builder
        self._begun = None

    def absorb(self, data: bytes, offset: int, next_offset: int) -> Iterator[None]:
        """Index the batches from `next_offset()` on, up to another offset: what a read of the log returned."""
        version = self.version
        begins = (each.begin_offset for each in self._files if each.begin_offset > offset)
        later = min(begins, default=None)
        end = next_offset if later is None else min(next_offset, later)
        if self._builder is not None and not self._continues(self._builder, offset):
            yield from self._complete()
        if self._builder is None and version == self.version:
            yield from self._grow_again(offset)
        for batch in batches(data):
            if batch.header.is_control or batch.header.base_offset >= end:
                continue
            records = self._records(batch, offset, end)
            while some := list(islice(records, RECORDS_PER_STEP)):
                if version != self.version:
                    return
                builder = self._builder or self._begin(offset, batch.header.base_timestamp)
                builder.add(some)
                builder.write()
                offset = builder.end_offset
                if builder.is_full:
                    yield from self._complete()
                yield
        if version != self.version:
            return
        builder = self._builder or self._begin(offset, 0)
        builder.cover(end)
        self._unwritten_bytes += len(data)
        if self._unwritten_bytes >= PROGRESS_BYTES:
            self._unwritten_bytes = 0
            builder.write(all_pages=True)
        if end == later:
            yield from self._complete()

    def _continues(self, index: KeyIndex, offset: int) -> bool:
        return (
            index.end_offset == offset
            and not index.is_full
            and self._base_of(index.begin_offset) == self._base_of(offset)
        )

    def _grow_again(self, offset: int) -> Iterator[None]:
        """Continue a file that had to be completed before it was full, because older records came first."""
        file = _last_below(self._files, offset)
        if file is None or not self._continues(file, offset):
            return
        version = self.version
        with self._use_of(file.path) as path:
            builder = KeyIndexBuilder.reopen(self._disk, path, file.begin_offset)
            for _ in builder.load():
                yield
                if version != self.version:
                    builder.close()
                    return
            self._files.remove(file)
            self._builder = builder

    def _begin(self, offset: int, begin_ms: int) -> KeyIndexBuilder:
        opening = Opening(slots=self._slots, begin_offset=offset, begin_ms=begin_ms)
        self._builder = KeyIndexBuilder.begin(self._disk, self._path(offset), opening)
        return self._builder

    def _complete(self) -> Iterator[None]:
        """Complete the growing file."""
        builder = self._builder
        if builder is None:
            return
        for _ in builder.complete():
            yield
            if self._builder is not builder:
                return
        self._builder = None
        with self._use_of(builder.path) as path:
            file = KeyIndexFile(self._disk, path, builder.begin_offset)
            insort(self._files, file, key=_begin_offset)
        self._slots = slots_after(builder.entries, was_full=builder.is_full, slots=builder.slots)
        for stale in self._stale[:]:
            if self.next_offset(stale.begin_offset) >= stale.end_offset:
                self._stale.remove(stale)
                self._disk.unlink(stale.path)

    def _records(self, batch: RecordBatch, offset: int, end: int) -> Iterator[RecordKeys]:
        header = batch.header
        try:
            records = keys_of(header, payload_of(batch))
            if offset <= header.base_offset and header.last_offset < end:
                yield from records
            else:
                yield from (each for each in records if offset <= each[0] < end)
        except CorruptMessage as reason:
            # No consumer can read the rest of this batch either.
            logger.warning("%s: a batch is not indexed: %s", self._directory, reason)

    def _path(self, begin: int) -> str:
        return file_prefix(self._directory, begin) + KEY_INDEX_SUFFIX

    def _drop_begun(self) -> None:
        assert self._begun is not None
        self._disk.unlink(self._path(self._begun))
        self._begun = None

    def _drop_builder(self) -> None:
        builder, self._builder = self._builder, None
        if builder is not None:
            builder.close()
            self._disk.unlink(builder.path)


def _last_below(files: Sequence[KeyIndexFile], offset: int) -> KeyIndexFile | None:
    """The last of the files, which are sorted, that begins before this offset."""
    place = bisect_left(files, offset, key=_begin_offset)
    return files[place - 1] if place else None


def _begin_offset(index: KeyIndex) -> int:
    return index.begin_offset

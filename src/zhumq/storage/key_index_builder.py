"""A key index file that grows: entries are appended page by page, the slots are in memory until it is complete."""

import contextlib
import sys
from array import array
from collections.abc import Iterable, Iterator
from typing import Final

from zhumq.host.disk import Disk
from zhumq.records.keys import RecordKeys
from zhumq.storage.indexes import IndexCorrupt
from zhumq.storage.key_index_file import (
    FoundEntry,
    read_entries,
    read_opening,
    read_page,
    walk_chain,
)
from zhumq.storage.key_index_pages import (
    ENTRIES_PER_PAGE,
    ENTRIES_PER_SLOT,
    ENTRY,
    FILTER_SHIFT,
    HEAD_BYTES,
    PAGE_BYTES,
    PLACE_BITS,
    RELATIVE_OFFSET_MAX,
    SECONDS_MAX,
    SECONDS_MIN,
    SLOTS_PER_PAGE,
    Closing,
    Opening,
    PageKind,
    decode_page,
    encode_closing,
    encode_opening,
    encode_page,
    key_hash,
    seconds_between,
    tag_hash,
)

SLOTS_MIN: Final = 1 << 8
SLOTS_FIRST: Final = 1 << 14
SLOTS_MAX: Final = 1 << 19  # 4 MiB of memory while the file grows
PAGES_PER_WRITE: Final = 16
PAGES_PER_STEP: Final = 64  # that are written between two yields
PAGES_PER_LOAD: Final = 4  # of entries that are read
_ENTRY_BYTES: Final = ENTRY.size
_U32: Final = "I"
_NO_TIMESTAMPS: Final = (2**63 - 1, -(2**63))


def slots_after(entries: int, *, was_full: bool, slots: int) -> int:
    """The number of slots of the next file: four times those of a file that was full, or as many as the last
    segment's file could have done with."""
    if was_full:
        return min(slots * 4, SLOTS_MAX)
    needed = max(-(-entries // ENTRIES_PER_SLOT), SLOTS_MIN)
    return min(1 << (needed - 1).bit_length(), SLOTS_MAX)


class KeyIndexBuilder:
    """A file of one segment, from its begin offset to `end_offset`. Nothing of it is synced: whatever a crash
    tears is noticed by its checksum, and added again from the log."""

    __slots__ = (
        "_count",
        "_covered",
        "_current",
        "_disk",
        "_file",
        "_filters",
        "_heads",
        "_mask",
        "_number",
        "_pending",
        "_written",
        "begin_ms",
        "begin_offset",
        "end_offset",
        "entries",
        "path",
        "slots",
        "timestamp_max",
        "timestamp_min",
    )

    def __init__(self, disk: Disk, path: str, opening: Opening) -> None:
        self._disk = disk
        self.path = path
        self.slots, self.begin_offset, self.begin_ms = opening
        self.end_offset = self.begin_offset  # exclusive: all records before it were added
        self.timestamp_min, self.timestamp_max = _NO_TIMESTAMPS
        self.entries = 0
        self._mask = self.slots - 1
        self._heads = array(_U32, bytes(4 * self.slots))
        self._filters = array(_U32, bytes(4 * self.slots))
        self._file = disk.open_file(path, create=True)
        self._written = 1  # pages of the file that stay: the first one, and those of entries
        self._pending: list[bytes] = []  # pages behind them
        self._current = bytearray(PAGE_BYTES)
        self._count = 0  # entries in the current page
        self._number = 1  # of the current page
        self._covered = self.begin_offset  # by the pages before the current one

    @classmethod
    def begin(cls, disk: Disk, path: str, opening: Opening) -> "KeyIndexBuilder":
        """Begin a file, in place of one that may be there."""
        builder = cls(disk, path, opening)
        builder._file.truncate(0)
        builder._file.append((encode_opening(opening),))
        return builder

    @classmethod
    def reopen(cls, disk: Disk, path: str, begin_offset: int) -> "KeyIndexBuilder":
        """Open a file that was begun; `load` has to follow. Raises IndexCorrupt."""
        file = disk.open_file(path)
        try:
            opening = read_opening(file, begin_offset)
        finally:
            file.close()
        if not SLOTS_MIN <= opening.slots <= SLOTS_MAX or opening.slots & (opening.slots - 1):
            raise IndexCorrupt(f"it has {opening.slots} slots")
        return cls(disk, path, opening)

    def load(self) -> Iterator[None]:
        """Read the entries up to the first page that is torn, and cut the file there. Yields between the steps."""
        file, begin_offset = self._file, self.begin_offset
        for number in range(1, -(-file.size // PAGE_BYTES)):
            try:
                page = decode_page(read_page(file, number), number, begin_offset)
            except IndexCorrupt:
                break
            if page.kind is not PageKind.ENTRIES:
                break
            self._load_entries(page.data, page.used, number)
            self.end_offset = self._covered = begin_offset + page.covered
            self._written = number + 1
            if number % PAGES_PER_LOAD == 0:
                yield
        self._number = self._written
        file.truncate(self._written * PAGE_BYTES)

    def _load_entries(self, data: bytes, count: int, number: int) -> None:
        heads, filters, mask = self._heads, self._filters, self._mask
        seconds_min, seconds_max = 2**31, -(2**31)
        end = HEAD_BYTES + count * _ENTRY_BYTES
        for place, (hashed, _, seconds, _) in enumerate(ENTRY.iter_unpack(data[HEAD_BYTES:end])):
            slot = hashed & mask
            heads[slot] = number << PLACE_BITS | place
            filters[slot] |= 1 << (hashed >> FILTER_SHIFT)
            seconds_min, seconds_max = min(seconds_min, seconds), max(seconds_max, seconds)
        if count:
            # The entries know their timestamps to the second: the range may be a second too wide.
            self._note_times(self.begin_ms + seconds_min * 1000)
            self._note_times(self.begin_ms + seconds_max * 1000 + 999)
        self.entries += count

    def _note_times(self, timestamp: int) -> None:
        self.timestamp_min = min(self.timestamp_min, timestamp)
        self.timestamp_max = max(self.timestamp_max, timestamp)

    @property
    def is_full(self) -> bool:
        return (
            self.entries >= self.slots * ENTRIES_PER_SLOT
            or self.end_offset - self.begin_offset >= RELATIVE_OFFSET_MAX
        )

    def add(self, records: Iterable[RecordKeys]) -> None:
        """Add the next records. Nothing is written."""
        # Every message of an indexed topic passes here once: no calls that can be avoided.
        heads, filters, mask, pack_into = self._heads, self._filters, self._mask, ENTRY.pack_into
        begin_offset, begin_ms, page = self.begin_offset, self.begin_ms, self._current
        count, first_of_page = self._count, self._number << PLACE_BITS
        oldest, youngest = self.timestamp_min, self.timestamp_max
        entries, end_offset = self.entries, self.end_offset
        for offset, timestamp, key, tags in records:
            hashes = [] if key is None else [key_hash(key)]
            if tags:
                hashes += map(tag_hash, tags)
            for hashed in hashes:
                if count == ENTRIES_PER_PAGE:
                    self._count, self.end_offset = count, end_offset
                    self._end_page()
                    count, first_of_page = 0, self._number << PLACE_BITS
                slot = hashed & mask
                seconds = (timestamp - begin_ms) // 1000
                if not SECONDS_MIN <= seconds <= SECONDS_MAX:
                    seconds = seconds_between(begin_ms, timestamp)
                place = HEAD_BYTES + count * _ENTRY_BYTES
                pack_into(page, place, hashed, offset - begin_offset, seconds, heads[slot])
                heads[slot] = first_of_page | count
                filters[slot] |= 1 << (hashed >> FILTER_SHIFT)
                count += 1
                entries += 1
                if timestamp < oldest:
                    oldest = timestamp
                if timestamp > youngest:
                    youngest = timestamp
            end_offset = offset + 1
        self._count, self.entries, self.end_offset = count, entries, end_offset
        self.timestamp_min, self.timestamp_max = oldest, youngest

    def cover(self, end_offset: int) -> None:
        """All records before this offset were added; there may be none."""
        self.end_offset = max(self.end_offset, end_offset)

    def _end_page(self) -> None:
        self._pending.append(
            encode_page(
                PageKind.ENTRIES,
                self._number,
                self.begin_offset,
                bytes(self._current[HEAD_BYTES:]),
                count=self._count,
                covered=self.end_offset - self.begin_offset,
            )
        )
        self._covered = self.end_offset
        self._number += 1
        self._count = 0

    def write(self, *, all_pages: bool = False) -> None:
        """Write the pages that are full, once there are enough of them; or all, with the last one as it is."""
        if all_pages and (self._count or self._covered < self.end_offset):
            self._end_page()
        if self._pending and (all_pages or len(self._pending) >= PAGES_PER_WRITE):
            self._file.append(self._pending)
            self._written += len(self._pending)
            self._pending = []

    def complete(self) -> Iterator[None]:
        """Write the slots and the last page. Yields between the steps; may be tried again after an error.

        The file stays open as long as a lookup walks through this builder.
        """
        self.write(all_pages=True)
        file = self._file
        file.truncate(self._written * PAGE_BYTES)
        covered = self.end_offset - self.begin_offset
        pages: list[bytes] = []
        number = self._written
        for first in range(0, self.slots, SLOTS_PER_PAGE):
            heads = self._heads[first : first + SLOTS_PER_PAGE]
            filters = self._filters[first : first + SLOTS_PER_PAGE]
            payload = _little_endian(heads).ljust(4 * SLOTS_PER_PAGE, b"\0") + _little_endian(
                filters
            )
            pages.append(
                encode_page(
                    PageKind.SLOTS,
                    number,
                    self.begin_offset,
                    payload,
                    count=len(heads),
                    covered=covered,
                )
            )
            number += 1
            if len(pages) == PAGES_PER_STEP:
                file.append(pages)
                pages = []
                yield
        closing = Closing(
            end_offset=self.end_offset,
            timestamp_min=self.timestamp_min,
            timestamp_max=self.timestamp_max,
            entries=self.entries,
            first_slot_page=self._written,
        )
        pages.append(encode_closing(closing, number, self.begin_offset))
        file.append(pages)

    def find(self, hashed: int) -> Iterator[FoundEntry]:
        """The entries of the chain of this hash, newest first. Raises IndexCorrupt."""
        slot = hashed & self._mask
        if not self._filters[slot] >> (hashed >> FILTER_SHIFT) & 1:
            return iter(())
        return walk_chain(self._page, self._heads[slot], hashed, self.begin_offset)

    def _page(self, number: int) -> bytes:
        if number == self._number:
            return bytes(self._current)
        if number >= self._written:
            return self._pending[number - self._written]
        return read_entries(self._file, number, self.begin_offset)

    def close(self) -> None:
        """Release the file. What is not written is added again from the log."""
        self._file.close()


def written_end_offset(disk: Disk, path: str, begin_offset: int) -> int:
    """Up to which offset a growing file may cover its records. Raises IndexCorrupt."""
    file = disk.open_file(path)
    try:
        read_opening(file, begin_offset)
        for number in range(-(-file.size // PAGE_BYTES) - 1, -1, -1):
            with contextlib.suppress(IndexCorrupt):
                page = decode_page(read_page(file, number), number, begin_offset)
                return begin_offset + page.covered
    finally:
        file.close()
    return begin_offset


def _little_endian(numbers: "array[int]") -> bytes:
    if sys.byteorder == "big":
        numbers = array(_U32, numbers)
        numbers.byteswap()
    return numbers.tobytes()

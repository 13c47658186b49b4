"""A complete key index file: finds the entries of a hash with one read for its slot and one for each page of entries."""

import struct
from collections.abc import Callable, Iterator
from typing import Final

from zhumq.host.disk import Disk, DiskFile
from zhumq.storage.indexes import IndexCorrupt
from zhumq.storage.key_index_pages import (
    ENTRIES_PER_SLOT,
    ENTRY,
    FILTER_SHIFT,
    HEAD_BYTES,
    NO_ENTRY,
    PAGE_BYTES,
    PLACE_BITS,
    PLACE_MASK,
    SLOTS_PER_PAGE,
    Opening,
    PageKind,
    decode_closing,
    decode_opening,
    decode_page,
)

_SLOT_PART: Final = struct.Struct("<I")
_FILTERS_AT: Final = HEAD_BYTES + SLOTS_PER_PAGE * _SLOT_PART.size

# Offset and seconds since the begin time of the file; None for an entry with another hash.
FoundEntry = tuple[int, int] | None


class KeyIndexFile:
    """The keys and tags of the records from an offset to before another one, all in one segment."""

    __slots__ = (
        "_disk",
        "_first_slot_page",
        "begin_ms",
        "begin_offset",
        "end_offset",
        "entries",
        "path",
        "slots",
        "timestamp_max",
        "timestamp_min",
    )

    def __init__(self, disk: Disk, path: str, begin_offset: int) -> None:
        """Open a complete file. Raises IndexCorrupt, also if the file is not complete."""
        self._disk = disk
        self.path = path
        file = disk.open_file(path)
        try:
            opening = read_opening(file, begin_offset)
            last, rest = divmod(file.size, PAGE_BYTES)
            page = decode_page(read_page(file, last - 1), last - 1, begin_offset)
        finally:
            file.close()
        if page.kind is not PageKind.CLOSING or rest:
            raise IndexCorrupt("it is not complete")
        closing = decode_closing(page)
        self.begin_offset = begin_offset
        self.begin_ms = opening.begin_ms
        self.slots = opening.slots
        self.end_offset = closing.end_offset
        self.timestamp_min = closing.timestamp_min
        self.timestamp_max = closing.timestamp_max
        self.entries = closing.entries
        self._first_slot_page = closing.first_slot_page

    @property
    def is_full(self) -> bool:
        return self.entries >= self.slots * ENTRIES_PER_SLOT

    def find(self, hashed: int) -> Iterator[FoundEntry]:
        """The entries of the chain of this hash, newest first. Raises IndexCorrupt."""
        file = self._disk.open_file(self.path)
        try:
            place = hashed & (self.slots - 1)
            number = self._first_slot_page + place // SLOTS_PER_PAGE
            page = decode_page(read_page(file, number), number, self.begin_offset)
            if page.kind is not PageKind.SLOTS:
                raise IndexCorrupt(f"page {number} holds no slots")
            at = place % SLOTS_PER_PAGE * _SLOT_PART.size
            (head,) = _SLOT_PART.unpack_from(page.data, HEAD_BYTES + at)
            (bits,) = _SLOT_PART.unpack_from(page.data, _FILTERS_AT + at)
            if bits >> (hashed >> FILTER_SHIFT) & 1:
                yield from walk_chain(
                    lambda number: read_entries(file, number, self.begin_offset),
                    head,
                    hashed,
                    self.begin_offset,
                )
        finally:
            file.close()


def read_page(file: DiskFile, number: int) -> bytes:
    return file.read_at(number * PAGE_BYTES, PAGE_BYTES)


def read_opening(file: DiskFile, begin_offset: int) -> Opening:
    return decode_opening(read_page(file, 0), begin_offset)


def read_entries(file: DiskFile, number: int, begin_offset: int) -> bytes:
    """A whole page of entries. Raises IndexCorrupt."""
    page = decode_page(read_page(file, number), number, begin_offset)
    if page.kind is not PageKind.ENTRIES:
        raise IndexCorrupt(f"page {number} holds no entries")
    return page.data


def walk_chain(
    page_of: Callable[[int], bytes], head: int, hashed: int, begin_offset: int
) -> Iterator[FoundEntry]:
    """The entries of a chain, newest first; None for those of other hashes."""
    entry, data_number, data, last_offset = head, -1, b"", -1
    while entry != NO_ENTRY:
        number = entry >> PLACE_BITS
        if number != data_number:
            data, data_number = page_of(number), number
        place = HEAD_BYTES + (entry & PLACE_MASK) * ENTRY.size
        found, relative, seconds, previous = ENTRY.unpack_from(data, place)
        if previous >= entry:
            raise IndexCorrupt(f"entry {entry} follows entry {previous}")
        entry = previous
        if found != hashed:
            yield None
        elif relative != last_offset:
            # A record whose entries were written only in part before a crash has them twice.
            last_offset = relative
            yield begin_offset + relative, seconds

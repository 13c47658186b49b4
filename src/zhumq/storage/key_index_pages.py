"""The pages of a key index file: their layout, their checksums, and the hashes of keys and tags."""

import struct
import zlib
from enum import IntEnum
from typing import Final, NamedTuple

from zhumq.model.message_headers import TAGS_HEADER
from zhumq.records.codecs import crc32c
from zhumq.storage.indexes import IndexCorrupt

# A page: | crc32c u32 | kind u8 | 0 | count u16 | number u32 | covered u32 | 4080 bytes |
# The checksum begins with the file's begin offset, so that a page of another file is noticed, too.
# `covered`: all records before begin offset + covered are in this page or in those before it.
PAGE_BYTES: Final = 4096
_HEAD: Final = struct.Struct("<IBxHII")
HEAD_BYTES: Final = _HEAD.size
_CHECKED_FROM: Final = 4  # the checksum covers everything behind itself
PAYLOAD_BYTES: Final = PAGE_BYTES - HEAD_BYTES

# | hash u32 | offset - begin offset u32 | seconds since the begin time i32 | previous entry u32 |
ENTRY: Final = struct.Struct("<IIiI")
ENTRIES_PER_PAGE: Final = PAYLOAD_BYTES // ENTRY.size
# An entry is numbered by its page and its place in it: a page need not be full.
PLACE_BITS: Final = 8
PLACE_MASK: Final = (1 << PLACE_BITS) - 1
NO_ENTRY: Final = 0  # page 0 holds no entries
# | newest entry u32 * n | filter u32 * n |: a slot is the end of a chain of entries, and a filter of their hashes
SLOT_BYTES: Final = 8
SLOTS_PER_PAGE: Final = PAYLOAD_BYTES // SLOT_BYTES
ENTRIES_PER_SLOT: Final = 4  # on average, in a full file
FILTER_SHIFT: Final = 27  # the five upper bits of a hash choose a bit of the filter

SECONDS_MIN: Final = -(2**31)  # also of what is older
SECONDS_MAX: Final = 2**31 - 1  # also of what is younger
RELATIVE_OFFSET_MAX: Final = 2**32 - 2
VERSION: Final = 1

# The first page: | version u16 | slots u32 | begin offset i64 | begin time i64 |
_OPENING: Final = struct.Struct("<HIqq")
# The last page: | end offset i64 | smallest timestamp i64 | largest timestamp i64 | entries u32 | first slot page u32 |
_CLOSING: Final = struct.Struct("<qqqII")

# The hash of a key. Not a function around it: every message is hashed.
key_hash: Final = zlib.crc32
_TAG_SEED: Final = zlib.crc32(TAGS_HEADER.encode())


class PageKind(IntEnum):
    """What a page holds."""

    OPENING = 1  # what is known when the file is begun
    ENTRIES = 2
    SLOTS = 3
    CLOSING = 4  # the file is full or its segment is done: nothing follows


_KINDS: Final = frozenset(PageKind)


class Opening(NamedTuple):
    """The first page: what is known when a file is begun."""

    slots: int  # a power of two
    begin_offset: int
    begin_ms: int  # the timestamps of the entries count from here


class Closing(NamedTuple):
    """The last page: what is known when a file is complete."""

    end_offset: int  # exclusive
    timestamp_min: int
    timestamp_max: int
    entries: int
    first_slot_page: int


class Page(NamedTuple):
    """A page whose checksum matches."""

    kind: PageKind
    used: int  # entries or slots
    covered: int
    data: bytes  # the whole page; the payload begins at HEAD_BYTES


def tag_hash(tag: bytes) -> int:
    """The hash of a tag. Another one than that of an equal key."""
    return zlib.crc32(tag, _TAG_SEED)


def encode_page(
    kind: PageKind, number: int, begin_offset: int, payload: bytes, *, count: int, covered: int
) -> bytes:
    """A page with its checksum; the payload is filled up with zeros."""
    rest = _HEAD.pack(0, kind, count, number, covered)[_CHECKED_FROM:] + payload
    rest += bytes(PAGE_BYTES - _CHECKED_FROM - len(rest))
    return crc32c(rest, begin_offset & 0xFFFFFFFF).to_bytes(_CHECKED_FROM, "little") + rest


def decode_page(data: bytes, number: int, begin_offset: int) -> Page:
    """The page of this number. Raises IndexCorrupt."""
    if len(data) != PAGE_BYTES:
        raise IndexCorrupt(f"page {number} is cut off")
    checksum, kind, count, found, covered = _HEAD.unpack_from(data)
    if crc32c(memoryview(data)[_CHECKED_FROM:], begin_offset & 0xFFFFFFFF) != checksum:
        raise IndexCorrupt(f"the checksum of page {number} does not match")
    if found != number or kind not in _KINDS:
        raise IndexCorrupt(f"page {number} is a page {found} of kind {kind}")
    return Page(PageKind(kind), count, covered, data)


def encode_opening(opening: Opening) -> bytes:
    payload = _OPENING.pack(VERSION, *opening)
    return encode_page(PageKind.OPENING, 0, opening.begin_offset, payload, count=0, covered=0)


def decode_opening(data: bytes, begin_offset: int) -> Opening:
    """The first page of the file that begins at this offset. Raises IndexCorrupt."""
    page = decode_page(data, 0, begin_offset)
    version, *fields = _OPENING.unpack_from(page.data, HEAD_BYTES)
    opening = Opening(*fields)
    if page.kind is not PageKind.OPENING or version != VERSION:
        raise IndexCorrupt(f"it is of version {version}, not {VERSION}")
    if opening.begin_offset != begin_offset:
        raise IndexCorrupt(f"it begins at offset {opening.begin_offset}, not {begin_offset}")
    return opening


def encode_closing(closing: Closing, number: int, begin_offset: int) -> bytes:
    return encode_page(
        PageKind.CLOSING,
        number,
        begin_offset,
        _CLOSING.pack(*closing),
        count=0,
        covered=closing.end_offset - begin_offset,
    )


def decode_closing(page: Page) -> Closing:
    return Closing(*_CLOSING.unpack_from(page.data, HEAD_BYTES))


def seconds_between(begin_ms: int, timestamp: int) -> int:
    """The seconds of an entry, rounded down, at the limits if there is no room for them."""
    return min(max((timestamp - begin_ms) // 1000, SECONDS_MIN), SECONDS_MAX)


def may_be_within(begin_ms: int, seconds: int, from_ms: int | None, to_ms: int | None) -> bool:
    """Whether a record with these seconds may have a timestamp from one time to before another."""
    first = begin_ms + seconds * 1000
    too_old = from_ms is not None and first + 999 < from_ms and seconds != SECONDS_MAX
    too_young = to_ms is not None and first >= to_ms and seconds != SECONDS_MIN
    return not (too_old or too_young)

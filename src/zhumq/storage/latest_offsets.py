"""The last offset of each key, for compaction: a hash table of 20 bytes for a key, outside the heap."""

import hashlib
import struct
from typing import Final

from zhumq.host.memory import mapped_memory

KEYS_MAX: Final = 800_000  # in one table: 16 MB
FULL_FIFTHS: Final = 4  # of five slots are used at most
# | digest u64 | rest of the digest u32 | offset behind the first one, plus 1; 0 if the slot is free u32 |
SLOT: Final = struct.Struct("=QII")
DIGEST: Final = struct.Struct("=QI")
OFFSETS_MAX: Final = 2**32 - 1  # from the first to the last offset of one table
NO_OFFSET: Final = -1


class LatestOffsets:
    """Keys are known by their digests of 96 bits: no two keys of a table have the same one.

    It takes its memory at once, and the system gets it back at once. As lists or arrays that grow, 48 MB of freed memory stayed
    in the heap of a thread, which the C library never trims.
    """

    def __init__(self, keys_max: int) -> None:
        self._keys_max = keys_max
        self._count = 0
        self._first_offset = 0
        self._allocate(keys_max)

    def __len__(self) -> int:
        return self._count

    @property
    def size(self) -> int:
        """The bytes of its memory."""
        return len(self._memory)

    def has_room(self, keys: int, last_offset: int) -> bool:
        """Whether the keys of another batch fit. The first batch always does."""
        return not self._count or (
            self._count + keys <= self._keys_max and last_offset - self._first_offset < OFFSETS_MAX
        )

    def put(self, key: bytes, offset: int) -> None:
        """An offset that replaces an earlier one of the key. Offsets increase."""
        if not self._count:
            self._first_offset = offset
        if (self._count + 1) * 5 > self._slots * FULL_FIFTHS:
            self._grow()
        first, second = _digest(key)
        place, previous = self._find(first, second)
        if not previous:
            self._count += 1
        SLOT.pack_into(self._memory, place, first, second, offset - self._first_offset + 1)

    def get(self, key: bytes) -> int:
        """The last offset of the key, or -1."""
        _, found = self._find(*_digest(key))
        return self._first_offset + found - 1 if found else NO_OFFSET

    def _find(self, first: int, second: int) -> tuple[int, int]:
        """Where the digest is and the number of its offset; or the free place where it would be, and 0."""
        memory, unpack, size = self._memory, SLOT.unpack_from, SLOT.size
        place = first % self._slots * size
        end = self._slots * size
        while True:
            known_first, known_second, number = unpack(memory, place)
            if not number or (known_first == first and known_second == second):
                return place, number
            place += size
            if place == end:
                place = 0

    def _allocate(self, keys: int) -> None:
        # A search ends at a free slot, so there is always one.
        self._slots = keys * 5 // FULL_FIFTHS + 2
        self._memory = mapped_memory(self._slots * SLOT.size)

    def _grow(self) -> None:
        """Only for a first batch with more keys than the table is made for."""
        used = memoryview(self._memory)[: self._slots * SLOT.size]
        self._allocate(2 * self._slots)
        for first, second, number in SLOT.iter_unpack(used):
            if number:
                place, _ = self._find(first, second)
                SLOT.pack_into(self._memory, place, first, second, number)


def _digest(key: bytes) -> tuple[int, int]:
    first, second = DIGEST.unpack(hashlib.blake2b(key, digest_size=DIGEST.size).digest())
    return first, second

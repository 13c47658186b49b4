"""The last offset of each key, for compaction: a hash table in plain arrays, a fifth of the memory of a dictionary."""

import hashlib
import struct
from array import array
from typing import Final

KEYS_MAX: Final = 800_000  # in one table: 24 MB
SLOTS_MIN: Final = 1_024
FULL_FIFTHS: Final = 4  # of five slots are used at most, then there are twice as many
NO_OFFSET: Final = -1
DIGEST: Final = struct.Struct("=QQ")


class LatestOffsets:
    """Keys are known by their digests of 128 bits: no two keys of a topic have the same one."""

    def __init__(self) -> None:
        self._count = 0
        self._allocate(SLOTS_MIN)

    def __len__(self) -> int:
        return self._count

    def put(self, key: bytes, offset: int) -> None:
        """An offset that replaces an earlier one of the key."""
        if self._count * 5 >= len(self._offsets) * FULL_FIFTHS:
            self._grow()
        first, second = _digest(key)
        slot = self._slot(first, second)
        if self._offsets[slot] == NO_OFFSET:
            self._count += 1
        self._firsts[slot] = first
        self._seconds[slot] = second
        self._offsets[slot] = offset

    def get(self, key: bytes) -> int:
        """The last offset of the key, or -1."""
        return self._offsets[self._slot(*_digest(key))]

    def _slot(self, first: int, second: int) -> int:
        """Where the digest is, or the free slot where it would be."""
        offsets, firsts, seconds = self._offsets, self._firsts, self._seconds
        mask = len(offsets) - 1
        slot = first & mask
        while offsets[slot] != NO_OFFSET and (firsts[slot] != first or seconds[slot] != second):
            slot = (slot + 1) & mask
        return slot

    def _allocate(self, slots: int) -> None:
        self._firsts = array("Q", bytes(8 * slots))
        self._seconds = array("Q", bytes(8 * slots))
        self._offsets = array("q", b"\xff" * (8 * slots))  # NO_OFFSET in each

    def _grow(self) -> None:
        used = zip(self._firsts, self._seconds, self._offsets, strict=True)
        self._allocate(2 * len(self._offsets))
        for first, second, offset in used:
            if offset != NO_OFFSET:
                slot = self._slot(first, second)
                self._firsts[slot] = first
                self._seconds[slot] = second
                self._offsets[slot] = offset


def _digest(key: bytes) -> tuple[int, int]:
    first, second = DIGEST.unpack(hashlib.blake2b(key, digest_size=DIGEST.size).digest())
    return first, second

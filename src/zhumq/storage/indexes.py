"""The sparse indexes of a segment, in memory: offset to position, and timestamp to offset."""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from operator import lt

from zhumq.host.disk import DiskFile

# .index: | last offset of a batch, relative to the segment u32 | position of that batch u32 |
OFFSET_ENTRY_BYTES = 8
# .timeindex: | largest timestamp so far i64 | last offset of its batch, relative u32 |
TIME_ENTRY = struct.Struct(">qI")
TIME_ENTRY_BYTES = TIME_ENTRY.size


class IndexCorrupt(ValueError):
    """The file is not an index of this segment. The caller builds it again from the log."""


class OffsetIndex:
    """The last offset and the position of one batch for each index interval of the log."""

    __slots__ = ("base_offset", "offsets", "positions")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        # Invariant: both increase strictly and have the same length.
        self.offsets = array("I")
        self.positions = array("I")

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, last_offset: int, position: int) -> None:
        """Add the batch at this position."""
        self.offsets.append(last_offset - self.base_offset)
        self.positions.append(position)

    def position_before(self, offset: int) -> int:
        """The position of the last indexed batch that ends at or before this offset: a scan starts there."""
        entry = bisect_right(self.offsets, max(offset - self.base_offset, 0)) - 1
        if entry < 0 or offset < self.base_offset:
            return 0
        return self.positions[entry]

    def boundary_before(self, position: int) -> int:
        """The last known start of a batch at or before this position."""
        entry = bisect_right(self.positions, position) - 1
        return self.positions[entry] if entry >= 0 else 0

    def last_offset_at(self, position: int) -> int:
        """The last offset of the batch at a position that is in the index."""
        return self.base_offset + self.offsets[bisect_left(self.positions, position)]

    def truncate_to(self, position: int) -> None:
        """Remove the batches at or after this position."""
        count = bisect_left(self.positions, position)
        del self.offsets[count:]
        del self.positions[count:]

    def encode(self, first_entry: int = 0) -> bytes:
        """The entries from this one on, as in the file."""
        entries = array("I", bytes(OFFSET_ENTRY_BYTES * (len(self.offsets) - first_entry)))
        entries[0::2] = self.offsets[first_entry:]
        entries[1::2] = self.positions[first_entry:]
        return _big_endian(entries).tobytes()

    @classmethod
    def decode(cls, data: bytes, base_offset: int, log_bytes: int) -> "OffsetIndex":
        """The index in a file. Raises IndexCorrupt."""
        if len(data) % OFFSET_ENTRY_BYTES:
            raise IndexCorrupt(f"{len(data)} bytes are no whole number of entries")
        entries = array("I")
        entries.frombytes(data)
        _big_endian(entries)
        index = cls(base_offset)
        index.offsets = entries[0::2]
        index.positions = entries[1::2]
        if not (_grows(index.offsets) and _grows(index.positions)):
            raise IndexCorrupt("the entries do not grow")
        if index.positions and index.positions[-1] >= log_bytes:
            raise IndexCorrupt(f"an entry points past the {log_bytes} bytes of the log")
        return index


class TimeIndex:
    """Each new largest timestamp, with the last offset of its batch."""

    __slots__ = ("base_offset", "offsets", "timestamps")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        # Invariant: the timestamps increase strictly, the offsets never decrease.
        self.timestamps = array("q")
        self.offsets = array("I")

    def __len__(self) -> int:
        return len(self.timestamps)

    def append_if_larger(self, timestamp: int, last_offset: int) -> None:
        """Add a timestamp that is larger than all before."""
        if timestamp >= 0 and (not self.timestamps or timestamp > self.timestamps[-1]):
            self.timestamps.append(timestamp)
            self.offsets.append(last_offset - self.base_offset)

    def offset_before(self, timestamp: int) -> int:
        """An offset before which no batch reaches this timestamp."""
        entry = bisect_right(self.timestamps, timestamp) - 1
        return self.base_offset + (self.offsets[entry] if entry >= 0 else 0)

    def truncate_to(self, next_offset: int) -> None:
        """Remove the batches that reach this offset or a later one."""
        count = bisect_left(self.offsets, max(next_offset - self.base_offset, 0))
        del self.timestamps[count:]
        del self.offsets[count:]

    @property
    def last(self) -> tuple[int, int] | None:
        """The largest timestamp and the last offset of its batch."""
        if not self.timestamps:
            return None
        return self.timestamps[-1], self.base_offset + self.offsets[-1]

    @staticmethod
    def last_in(file: DiskFile, base_offset: int) -> tuple[int, int] | None:
        """As `last`, of the index in a file, reading that one entry. None as well for a damaged file."""
        if not file.size or file.size % TIME_ENTRY_BYTES:
            return None
        data = file.read_at(file.size - TIME_ENTRY_BYTES, TIME_ENTRY_BYTES)
        timestamp, relative = TIME_ENTRY.unpack(data)
        return (timestamp, base_offset + relative) if timestamp >= 0 else None

    def encode(self, first_entry: int = 0) -> bytes:
        """The entries from this one on, as in the file."""
        return b"".join(
            map(TIME_ENTRY.pack, self.timestamps[first_entry:], self.offsets[first_entry:])
        )

    @classmethod
    def decode(cls, data: bytes, base_offset: int) -> "TimeIndex":
        """The index in a file. Raises IndexCorrupt."""
        if len(data) % TIME_ENTRY_BYTES:
            raise IndexCorrupt(f"{len(data)} bytes are no whole number of entries")
        index = cls(base_offset)
        for timestamp, offset in TIME_ENTRY.iter_unpack(data):
            index.timestamps.append(timestamp)
            index.offsets.append(offset)
        if not (_grows(index.timestamps) and sorted(index.offsets) == list(index.offsets)):
            raise IndexCorrupt("the entries do not grow")
        return index


def _grows(values: "array[int]") -> bool:
    return all(map(lt, values, values[1:]))


def _big_endian(values: "array[int]") -> "array[int]":
    """Convert in place between this machine's byte order and the file's."""
    if sys.byteorder == "little":
        values.byteswap()
    return values

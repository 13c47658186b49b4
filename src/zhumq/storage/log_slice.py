"""Whole batches in a segment file, not yet read: what a fetch sends."""

from collections.abc import Sequence
from typing import NamedTuple

from zhumq.host.disk import DiskFile


class Appended(NamedTuple):
    """Where an append went, or where the batch it repeats already is."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int  # -1 if the records carry their producers' timestamps
    log_start_offset: int
    duplicate: bool


class FileRegion:
    """Bytes of an open file. Referring to the file keeps it readable, even once it is deleted."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: DiskFile, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"FileRegion({self.file.path!r}, {self.position}, {self.length})"

    def read_bytes(self) -> bytes:
        """The bytes themselves."""
        return self.file.read_at(self.position, self.length)


class LogSlice:
    """Whole batches from one offset on. Empty, or one region: a read does not span segments."""

    __slots__ = ("next_offset", "regions")

    def __init__(self, regions: Sequence[FileRegion], next_offset: int) -> None:
        self.regions = regions
        self.next_offset = next_offset  # where the next read goes on

    def __len__(self) -> int:
        return self.regions[0].length if self.regions else 0

    def read_bytes(self) -> bytes:
        """The bytes themselves."""
        return self.regions[0].read_bytes() if self.regions else b""


class CorruptRange(NamedTuple):
    """Bytes of a segment that are no batches, with valid ones behind them."""

    segment_base_offset: int
    start_position: int
    end_position: int
    first_offset: int  # the first offset that is lost
    next_offset: int  # the first one that is readable again

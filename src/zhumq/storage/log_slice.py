"""References to whole batches in a segment file, which a fetch sends without reading them."""

from collections.abc import Sequence
from typing import NamedTuple

from zhumq.host.disk import DiskFile
from zhumq.model.errors import BrokerError
from zhumq.storage.transaction_index import AbortedTransaction


class Appended(NamedTuple):
    """The offsets of an append, or of the batch that it repeats."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int  # -1 if the records carry their producers' timestamps
    log_start_offset: int
    duplicate: bool


class AppendedRun(NamedTuple):
    """The outcome of the first requests of a run: some were written together, and one may have ended it."""

    base_offsets: list[int]  # of those that were written together
    log_append_time_ms: int
    log_start_offset: int
    size: int  # bytes written
    # The request behind them: why it was refused, or what was done with it alone. None: the run goes on.
    last: Appended | BrokerError | None


class FileRegion:
    """Bytes of an open file. The reference keeps the file readable even after it is deleted."""

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
    """Whole batches from one offset on. Empty or one region: a read does not span segments."""

    __slots__ = ("aborted", "next_offset", "regions")

    def __init__(self, regions: Sequence[FileRegion], next_offset: int) -> None:
        self.regions = regions
        self.next_offset = next_offset  # where the next read continues
        # The aborted transactions among them, for readers of committed records.
        self.aborted: Sequence[AbortedTransaction] = ()

    def __len__(self) -> int:
        return self.regions[0].length if self.regions else 0

    def read_bytes(self) -> bytes:
        """The bytes themselves."""
        return self.regions[0].read_bytes() if self.regions else b""


class CorruptRange(NamedTuple):
    """Damaged bytes of a segment, with valid batches behind them."""

    segment_base_offset: int
    start_position: int
    end_position: int
    first_offset: int  # the first unreadable offset
    next_offset: int  # the first readable offset behind the damage

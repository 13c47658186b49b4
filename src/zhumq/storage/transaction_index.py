"""The transaction indexes of a log: the aborted transactions, by the segment that holds their markers."""

import logging
import struct
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from zhumq.host.disk import Disk
from zhumq.model.errors import BrokerError
from zhumq.records.codecs import crc32c
from zhumq.storage.indexes import IndexCorrupt
from zhumq.storage.log_files import TRANSACTION_INDEX_SUFFIX, file_prefix

logger = logging.getLogger(__name__)

# .txnindex: | version i16 | producer id i64 | first offset i64 | offset of the marker i64 |
#            | last stable offset when the marker was written i64 |
ENTRY: Final = struct.Struct(">hqqqq")
ENTRY_BYTES: Final = ENTRY.size
VERSION: Final = 0
LOADED_INDEXES_MAX: Final = 4  # of one log, besides those with entries that are not on the disk


class AbortedTransaction(NamedTuple):
    """A transaction that a marker aborted."""

    producer_id: int
    first_offset: int
    last_offset: int  # of its marker
    last_stable_offset: int  # behind the marker: the first offset of the oldest open transaction


class IndexProof(NamedTuple):
    """The first entries of an index file. The file itself has no checksum."""

    base_offset: int
    entries: int
    checksum: int


class _SegmentIndex:
    """The entries of one segment, in the order of their markers."""

    __slots__ = ("data", "written")

    def __init__(self, data: bytes = b"", *, written: int = 0) -> None:
        self.data = bytearray(data)
        self.written = written  # bytes that the file holds

    def __len__(self) -> int:
        return len(self.data) // ENTRY_BYTES

    def __getitem__(self, place: int) -> AbortedTransaction:
        _, *fields = ENTRY.unpack_from(self.data, place * ENTRY_BYTES)
        return AbortedTransaction(*fields)

    @property
    def last_offset(self) -> int:
        return self[len(self) - 1].last_offset if self.data else -1

    def add(self, entry: AbortedTransaction) -> None:
        self.data += ENTRY.pack(VERSION, *entry)

    def place_of(self, offset: int) -> int:
        """The place of the first entry whose marker is at this offset or later."""
        return bisect_left(range(len(self)), offset, key=lambda place: self[place].last_offset)

    def collect(self, offset: int, next_offset: int, found: list[AbortedTransaction]) -> bool:
        """Add the transactions that reach into this range. True if no later marker can end another one."""
        for place in range(self.place_of(offset), len(self)):
            entry = self[place]
            if entry.first_offset < next_offset:
                found.append(entry)
            if entry.last_stable_offset >= next_offset:
                return True
        return False


class TransactionIndexes:
    """The index files of one log. A segment without aborted transactions has none, as in Kafka.

    Entries are written with the other indexes of their segment: at a roll, a checkpoint, a close. A
    damaged or lost file is built again from the log.
    """

    __slots__ = ("_bases", "_directory", "_disk", "_loaded", "_proofs", "rebuild")

    def __init__(
        self, directory: str, disk: Disk, bases: Iterable[int], proofs: Sequence[IndexProof] = ()
    ) -> None:
        self._directory = directory
        self._disk = disk
        self._proofs = {proof.base_offset: proof for proof in proofs}
        self._bases = sorted({*bases, *self._proofs})
        self._loaded: dict[int, _SegmentIndex] = {}
        # Gives the entries of a segment from its batches.
        self.rebuild: Callable[[int], Sequence[AbortedTransaction]] = lambda _: ()

    @property
    def proofs(self) -> tuple[IndexProof, ...]:
        """What the files have to hold, as far as it is known."""
        return tuple(sorted(self._proofs.values()))

    def find(self, offset: int, next_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions of the batches from an offset to before another one."""
        found: list[AbortedTransaction] = []
        place = max(bisect_right(self._bases, offset) - 1, 0)
        for base_offset in self._bases[place:]:
            if self._load(base_offset).collect(offset, next_offset, found):
                break
        return found

    def add(self, base_offset: int, entry: AbortedTransaction) -> None:
        """Add a transaction whose marker is in this segment, unless it is in the index already."""
        if base_offset not in self._bases:
            insort(self._bases, base_offset)
            self._loaded[base_offset] = _SegmentIndex()
        index = self._load(base_offset)
        if entry.last_offset > index.last_offset:
            index.add(entry)

    def write(self) -> list[str]:
        """Bring the files up to date, without a sync. Returns those that changed."""
        changed = []
        for base_offset, index in self._loaded.items():
            if index.written < len(index.data):
                self._write(base_offset, index)
                changed.append(self._path(base_offset))
        return changed

    def truncate_to(self, offset: int) -> None:
        """Remove the transactions whose markers are at this offset or later."""
        for base_offset in self._bases[:]:
            if base_offset >= offset:
                self.remove((base_offset,))
        if not self._bases:
            return
        base_offset = self._bases[-1]
        index = self._load(base_offset)
        size = index.place_of(offset) * ENTRY_BYTES
        if size == 0:
            self.remove((base_offset,))
        elif size < len(index.data):
            del index.data[size:]
            index.written = min(index.written, size)
            self._write(base_offset, index)

    def remove(self, bases: Iterable[int]) -> None:
        """Remove the indexes of these segments, with their files."""
        for base_offset in bases:
            if base_offset in self._bases:
                self._bases.remove(base_offset)
                self._loaded.pop(base_offset, None)
                self._proofs.pop(base_offset, None)
                self._disk.unlink(self._path(base_offset))

    def replace(
        self, bases: Iterable[int], base_offset: int, entries: Iterable[AbortedTransaction]
    ) -> None:
        """Replace the indexes of these segments by that of the compacted one made of them."""
        self.remove(bases)
        for entry in entries:
            self.add(base_offset, entry)
        index = self._loaded.get(base_offset)
        if index is not None:
            self._try_to_write(base_offset, index)

    def invalidate(self, base_offset: int) -> None:
        """Build the index of a segment from its batches when it is needed."""
        self._loaded.pop(base_offset, None)
        self._proofs[base_offset] = IndexProof(base_offset, 0, -1)
        if base_offset not in self._bases:
            insort(self._bases, base_offset)

    def _load(self, base_offset: int) -> _SegmentIndex:
        index = self._loaded.get(base_offset)
        if index is not None:
            return index
        try:
            data = self._disk.read_file(self._path(base_offset)) or b""
            proof = self._proofs.get(base_offset)
            index = decode_index(data, base_offset, proof)
        except IndexCorrupt as error:
            logger.warning("%s is built again: %s", self._path(base_offset), error)
            index = _SegmentIndex()
            for entry in self.rebuild(base_offset):
                index.add(entry)
            self._try_to_write(base_offset, index)
        clean = [base for base, each in self._loaded.items() if each.written == len(each.data)]
        if len(clean) >= LOADED_INDEXES_MAX:
            del self._loaded[clean[0]]
        self._loaded[base_offset] = index
        return index

    def _try_to_write(self, base_offset: int, index: _SegmentIndex) -> None:
        try:
            self._write(base_offset, index)
        except BrokerError as error:
            logger.warning("%s is in memory only: %s", self._path(base_offset), error)

    def _write(self, base_offset: int, index: _SegmentIndex) -> None:
        file = self._disk.open_file(self._path(base_offset), create=True)
        try:
            if file.size != index.written:
                file.truncate(index.written)
            if index.written < len(index.data):
                file.append((bytes(index.data[index.written :]),))
        finally:
            file.close()
        index.written = len(index.data)
        self._proofs[base_offset] = IndexProof(base_offset, len(index), crc32c(index.data))

    def _path(self, base_offset: int) -> str:
        return file_prefix(self._directory, base_offset) + TRANSACTION_INDEX_SUFFIX


def decode_index(data: bytes, base_offset: int, proof: IndexProof | None) -> _SegmentIndex:
    """The entries of a file. Raises IndexCorrupt."""
    if proof is not None:
        size = proof.entries * ENTRY_BYTES
        if len(data) < size or crc32c(data[:size]) != proof.checksum:
            raise IndexCorrupt("it is not as it was written")
        # What follows was written after the proof, and may be torn: recovery adds it again.
        return _SegmentIndex(data[:size], written=size)
    if len(data) % ENTRY_BYTES:
        raise IndexCorrupt("it is cut off")
    last = base_offset - 1
    for version, _, first_offset, last_offset, last_stable_offset in ENTRY.iter_unpack(data):
        if (
            version != VERSION
            or not 0 <= first_offset < last_offset
            or not last < last_offset
            or not 0 <= last_stable_offset <= last_offset + 1
        ):
            raise IndexCorrupt(f"the entry behind offset {last} is not of an aborted transaction")
        last = last_offset
    return _SegmentIndex(data, written=len(data))

"""Restores the producer state at the end of a log from the newest valid snapshot and later batches."""

import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from zhumq.host.disk import DirectoryEntry, Disk
from zhumq.model.errors import CorruptMessage, DiskFull
from zhumq.records.batch import RecordBatch
from zhumq.records.control import decode_end_marker
from zhumq.storage.log_files import (
    SNAPSHOT_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_prefix,
    offset_in,
)
from zhumq.storage.producer_snapshot import SnapshotCorrupt, decode_snapshot, encode_snapshot
from zhumq.storage.producer_state import ProducerState
from zhumq.storage.segment import Segment
from zhumq.storage.transaction_index import AbortedTransaction, IndexProof, TransactionIndexes

logger = logging.getLogger(__name__)

# (base offset of the segment that holds the marker, the transaction)
NoteAborted = Callable[[int, AbortedTransaction], None]


class RestoredProducers(NamedTuple):
    """The producer state at the end of a log, and the snapshot it was made from (-1: none)."""

    state: ProducerState
    snapshot_offset: int


def restore_producers(
    directory: str,
    segments: Sequence[Segment],
    end_offset: int,
    *,
    disk: Disk,
    indexes: TransactionIndexes,
    entries: Sequence[DirectoryEntry] | None = None,
    snapshot_offset_max: int | None = None,
) -> RestoredProducers:
    """The producer state at the end of the log: the newest valid snapshot and the batches after it.

    Adds the aborted transactions among those batches to the indexes. `entries` is the folder listing, if
    the caller has one. After a crash, a snapshot past the recovery point counts only if nothing else
    stands for deleted batches: the indexes lack what was aborted before it.
    """
    snapshots: list[int] = []
    for entry in disk.list_directory(directory) if entries is None else entries:
        offset = offset_in(entry.name, SNAPSHOT_SUFFIX)
        if offset is not None and offset > end_offset:
            disk.unlink(f"{directory}/{entry.name}")  # of a truncated tail
        elif offset is not None:
            snapshots.append(offset)
    snapshots.sort(reverse=True)
    limit = end_offset if snapshot_offset_max is None else snapshot_offset_max
    usable = _newest_snapshot(directory, (each for each in snapshots if each <= limit), disk)
    if usable is not None:
        _replay_producers(usable.state, segments, usable.snapshot_offset, indexes.add)
        return usable
    start = segments[0].base_offset
    replayed = RestoredProducers(ProducerState(), -1)
    _replay_producers(replayed.state, segments, start, indexes.add)
    if start == 0:
        return replayed
    later = _newest_snapshot(directory, (each for each in snapshots if each > limit), disk)
    if later is None:
        return replayed
    _replay_producers(later.state, segments, later.snapshot_offset, lambda *_: None)
    return later


def _newest_snapshot(
    directory: str, snapshots: Iterable[int], disk: Disk
) -> RestoredProducers | None:
    """The first of these snapshots that is not damaged."""
    for offset in snapshots:
        path = file_prefix(directory, offset) + SNAPSHOT_SUFFIX
        try:
            return RestoredProducers(decode_snapshot(disk.read_file(path) or b""), offset)
        except SnapshotCorrupt as error:
            logger.warning("%s is not usable (%s), reading the log instead", path, error)
    return None


def keep_snapshot(
    directory: str, producers: RestoredProducers, end_offset: int, disk: Disk
) -> RestoredProducers:
    """Make a snapshot at the end of the log durable: retention may delete the replayed batches before
    the next snapshot is written."""
    path = file_prefix(directory, end_offset) + SNAPSHOT_SUFFIX
    if producers.snapshot_offset == end_offset:
        disk.sync_file(path)
        return producers
    try:
        disk.write_file(path, encode_snapshot(producers.state), sync=True)
    except DiskFull as error:
        logger.warning("cannot write the producer snapshot: %s", error)
        return producers
    return RestoredProducers(producers.state, end_offset)


def load_indexes(
    directory: str,
    segments: Sequence[Segment],
    entries: Sequence[DirectoryEntry],
    proofs: Sequence[IndexProof] | None,
    swapped: Sequence[tuple[int, int]],
    disk: Disk,
) -> TransactionIndexes:
    """The transaction indexes in the folder, as the manifest proves them (None: there is none). `swapped`
    are the offset ranges of compacted segments whose indexes a crash has kept from being written."""
    bases = {segment.base_offset for segment in segments}
    found = {offset_in(entry.name, TRANSACTION_INDEX_SUFFIX) for entry in entries}
    indexes = TransactionIndexes(
        directory,
        disk,
        (base for base in bases if base in found),
        [proof for proof in proofs or () if proof.base_offset in bases],
    )
    indexes.rebuild = lambda base_offset: rebuild_index(directory, segments, base_offset, disk)
    for first, next_offset in swapped:
        if proofs is None or any(first <= proof.base_offset < next_offset for proof in proofs):
            indexes.invalidate(first)
    return indexes


def rebuild_index(
    directory: str, segments: Sequence[Segment], base_offset: int, disk: Disk
) -> list[AbortedTransaction]:
    """The aborted transactions whose markers are in this segment, from the batches.

    They may begin in earlier segments, which the snapshot at the start of the segment replaces.
    """
    found: list[AbortedTransaction] = []

    def note(segment_base_offset: int, aborted: AbortedTransaction) -> None:
        if segment_base_offset == base_offset:
            found.append(aborted)

    earlier = [segment for segment in segments if segment.base_offset <= base_offset]
    state, start = ProducerState(), segments[0].base_offset
    path = file_prefix(directory, base_offset) + SNAPSHOT_SUFFIX
    with contextlib.suppress(SnapshotCorrupt):
        state = decode_snapshot(disk.read_file(path) or b"")
        start = base_offset
    _replay_producers(state, earlier, start, note)
    return found


def _replay_producers(
    state: ProducerState, segments: Sequence[Segment], offset: int, note: NoteAborted
) -> None:
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if (following is not None and following.base_offset <= offset) or not segment.size:
            continue
        try:
            _replay_segment(state, segment, offset, note)
        except CorruptMessage as error:
            logger.warning("the producer state is incomplete: %s", error)


def _replay_segment(state: ProducerState, segment: Segment, offset: int, note: NoteAborted) -> None:
    for position, header in segment.scan(segment.offset_index.position_before(offset)):
        if header.base_offset < offset or header.producer_id < 0:
            continue
        if not header.is_control or not header.is_transactional:
            state.update(header, header.base_offset)
            continue
        data = memoryview(segment.file.read_at(position, header.size))
        for record in RecordBatch(header, data).records():
            marker = decode_end_marker(record)
            if marker is None:
                continue
            aborted = state.end_transaction(header, marker, header.base_offset)
            if aborted is not None:
                note(segment.base_offset, aborted)

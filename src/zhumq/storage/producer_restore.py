"""Restores the producer state at the end of a log from the newest valid snapshot and later batches."""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from zhumq.host.disk import DirectoryEntry, Disk
from zhumq.model.errors import CorruptMessage, DiskFull
from zhumq.records.batch import RecordBatch
from zhumq.records.control import decode_end_marker
from zhumq.storage.log_files import SNAPSHOT_SUFFIX, file_prefix, offset_in
from zhumq.storage.producer_snapshot import SnapshotCorrupt, decode_snapshot, encode_snapshot
from zhumq.storage.producer_state import ProducerState
from zhumq.storage.segment import Segment

logger = logging.getLogger(__name__)


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
    entries: Sequence[DirectoryEntry] | None = None,
) -> RestoredProducers:
    """The producer state at the end of the log: the newest valid snapshot and the batches after it.

    `entries` is the folder listing, if the caller has one.
    """
    snapshots: list[int] = []
    for entry in disk.list_directory(directory) if entries is None else entries:
        offset = offset_in(entry.name, SNAPSHOT_SUFFIX)
        if offset is not None and offset > end_offset:
            disk.unlink(f"{directory}/{entry.name}")  # of a truncated tail
        elif offset is not None:
            snapshots.append(offset)
    for offset in sorted(snapshots, reverse=True):
        path = file_prefix(directory, offset) + SNAPSHOT_SUFFIX
        try:
            state = decode_snapshot(disk.read_file(path) or b"")
        except SnapshotCorrupt as error:
            logger.warning("%s is not usable (%s), reading the log instead", path, error)
            continue
        _replay_producers(state, segments, offset)
        return RestoredProducers(state, offset)
    state = ProducerState()
    _replay_producers(state, segments, segments[0].base_offset)
    return RestoredProducers(state, -1)


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


def _replay_producers(state: ProducerState, segments: Sequence[Segment], offset: int) -> None:
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if (following is not None and following.base_offset <= offset) or not segment.size:
            continue
        try:
            _replay_segment(state, segment, offset)
        except CorruptMessage as error:
            logger.warning("the producer state is incomplete: %s", error)


def _replay_segment(state: ProducerState, segment: Segment, offset: int) -> None:
    for position, header in segment.scan(segment.offset_index.position_before(offset)):
        if header.base_offset < offset or header.producer_id < 0:
            continue
        if not header.is_control:
            state.update(header, header.base_offset)
            continue
        data = memoryview(segment.file.read_at(position, header.size))
        for record in RecordBatch(header, data).records():
            marker = decode_end_marker(record)
            if marker is not None:
                state.end_transaction(header, marker)

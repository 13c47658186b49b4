"""Compares a log's folder with its manifest when the log is opened: file names and sizes only."""

import logging
from collections.abc import Mapping, Sequence
from itertools import pairwise

from zhumq.host.disk import DirectoryEntry, Disk
from zhumq.model.errors import CorruptMessage
from zhumq.storage.index_cache import IndexCache
from zhumq.storage.log_config import LogConfig
from zhumq.storage.log_files import LOG_SUFFIX, offset_in
from zhumq.storage.log_slice import CorruptRange
from zhumq.storage.manifest import Manifest
from zhumq.storage.segment import Segment
from zhumq.storage.verification import Proof, examine_segment

logger = logging.getLogger(__name__)


def lost_segments(
    manifest: Manifest | None, entries: Sequence[DirectoryEntry], log_start_offset: int
) -> Mapping[int, int]:
    """The segments that are in the manifest but not in the folder: base offset -> next offset."""
    if manifest is None:
        return {}
    found = {offset_in(entry.name, LOG_SUFFIX) for entry in entries}
    listed = [(each.base_offset, each.next_offset) for each in manifest.sealed]
    if manifest.active_base_offset < manifest.recovery_point:
        listed.append((manifest.active_base_offset, manifest.recovery_point))
    return {
        base_offset: next_offset
        for base_offset, next_offset in listed
        if base_offset not in found and next_offset > log_start_offset
    }


def placeholder_segment(
    directory: str,
    base_offset: int,
    next_offset: int,
    disk: Disk,
    cache: IndexCache,
    index_interval_bytes: int,
) -> Segment:
    """An empty segment in place of a lost one, so that reads of its offsets fail and do not skip them."""
    logger.error(
        "%s/%020d.log is missing: offsets %d to %d cannot be read",
        directory,
        base_offset,
        base_offset,
        next_offset - 1,
    )
    segment = Segment.create(
        directory,
        base_offset,
        disk=disk,
        cache=cache,
        index_interval_bytes=index_interval_bytes,
    )
    segment.corrupt_ranges = [CorruptRange(base_offset, 0, 0, base_offset, next_offset)]
    return segment


def check_against(
    manifest: Manifest | None,
    segments: Sequence[Segment],
    recovery_point: int,
    proof: Proof,
    config: LogConfig,
) -> bool:
    """Examine the segments whose size differs from the manifest. True if there were any."""
    if manifest is None:
        return _check_ends(segments, recovery_point, proof, config)
    # A lost segment is in the list as an empty placeholder with a corrupt range.
    by_base = {
        segment.base_offset: segment
        for segment in segments
        if segment.size or not segment.corrupt_ranges
    }
    is_any = False
    for record in manifest.sealed:
        segment = by_base.get(record.base_offset)
        if segment is None:
            continue
        segment.checksum = record.checksum
        if segment.size != record.size:
            is_any = True
            _examine(segment, record.next_offset, proof, record.size)
    active = by_base.get(manifest.active_base_offset)
    if active is not None and active is not segments[-1] and active.size < manifest.active_size:
        is_any = True
        _examine(active, manifest.recovery_point, proof, manifest.active_size)
    return is_any


def _check_ends(
    segments: Sequence[Segment], recovery_point: int, proof: Proof, config: LogConfig
) -> bool:
    """Check without a manifest that each sealed segment ends where the next one begins. Recovery
    scans the segments past the recovery point itself."""
    is_any = False
    for segment, following in pairwise(segments):
        if following.base_offset > recovery_point or config.is_compacted or not segment.size:
            continue
        if segment.corrupt_ranges or _end_of(segment) == following.base_offset:
            continue
        is_any = True
        _examine(segment, following.base_offset, proof, None)
    return is_any


def _end_of(segment: Segment) -> int | None:
    end_offset = None
    try:
        for _, header in segment.scan(segment.offset_index.boundary_before(segment.size)):
            end_offset = header.next_offset
    except CorruptMessage:
        return None
    return end_offset


def _examine(segment: Segment, next_offset: int, proof: Proof, size: int | None) -> None:
    segment.is_sealed = True
    segment.corrupt_ranges = examine_segment(segment, next_offset, proof, size=size)
    segment.unverified_end = 0

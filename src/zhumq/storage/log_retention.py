"""Retention of one segmented log: its facts, and the deletion of its oldest segments."""

import contextlib
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import assert_never

from zhumq.model.errors import DiskFull, StorageFailed
from zhumq.storage.log_files import DELETED_SUFFIX, SNAPSHOT_SUFFIX
from zhumq.storage.retention import (
    LogFacts,
    Reason,
    ReplicaFacts,
    RetentionLimits,
    SegmentFacts,
)
from zhumq.storage.segment import Segment
from zhumq.storage.segmented_log import SegmentedLog
from zhumq.storage.time_lookup import has_its_max_timestamp

logger = logging.getLogger(__name__)


def log_facts(log: SegmentedLog, replica: ReplicaFacts) -> LogFacts:
    """A log as retention sees it."""
    config = log.config
    return LogFacts(
        topic_partition=log.topic_partition,
        segments=[
            SegmentFacts(
                base_offset=segment.base_offset,
                next_offset=log.segments.next_offset_of(place, log.log_end_offset),
                size_bytes=segment.size,
                max_timestamp=segment.max_timestamp,
            )
            for place, segment in enumerate(log.segments.all)
        ],
        log_start_offset=log.log_start_offset,
        limits=_limits(config.retention_ms, config.retention_bytes, config.is_deleted),
        replica=replica,
    )


# Few of them, for many logs in every pass.
@lru_cache(maxsize=1024)
def _limits(retention_ms: int, retention_bytes: int, is_deleted: bool) -> RetentionLimits:
    return RetentionLimits(
        retention_ms=retention_ms, retention_bytes=retention_bytes, is_deleted=is_deleted
    )


def delete_segments(
    log: SegmentedLog, facts: LogFacts, reasons: Sequence[Reason]
) -> tuple[int, list[str]]:
    """Drop the oldest segments of a log, one for each reason, unless a time index was wrong.

    Returns their number, and their renamed files, to be removed later in a thread: removing a large file takes long.
    """
    count = _confirm_timestamps(log, len(reasons))
    if count == len(log.segments):
        try:
            log.flushing.roll()
        except DiskFull:
            # The active segment goes when the others have made room for its successor.
            count -= 1
    if not count:
        return 0, []
    removed = _delete_first(log, count)
    for segment, reason in zip(facts.segments[:count], reasons, strict=False):
        logger.info(
            "%s: deleted offsets %d to %d, %d bytes, newest record of %s: %s",
            log.topic_partition,
            segment.base_offset,
            segment.next_offset - 1,
            segment.size_bytes,
            _time_text(segment.max_timestamp),
            _because(reason, facts.limits),
        )
    return count, removed


def _because(reason: Reason, limits: RetentionLimits) -> str:
    match reason:
        case Reason.LOG_START:
            return "below the log start offset"
        case Reason.TIME:
            return f"older than retention.ms={limits.retention_ms}"
        case Reason.SIZE:
            return f"the partition is larger than retention.bytes={limits.retention_bytes}"
        case Reason.DISK:
            return "among the oldest of a disk that is too full"
        case _:
            assert_never(reason)


def _time_text(timestamp: int) -> str:
    if timestamp < 0:
        return "unknown time"
    try:
        return datetime.fromtimestamp(timestamp / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError):
        return f"{timestamp} ms"  # A producer may have written any number.


def _confirm_timestamps(log: SegmentedLog, count: int) -> int:
    """How many of the first segments have the largest timestamp that their time index states. The
    index has no checksum, so the batch itself is read. If they differ, the index is rebuilt."""
    for place, segment in enumerate(log.segments.all[:count]):
        if not segment.corrupt_ranges and not has_its_max_timestamp(segment):
            segment.rebuild_indexes()
            return place
    return count


def _delete_first(log: SegmentedLog, count: int) -> list[str]:
    removed = log.segments.take_first(count)
    trash: list[str] = []
    log.transaction_indexes.remove(segment.base_offset for segment in removed)
    log.flushing.write_manifest()
    for segment in removed:
        trash.extend(rename_deleted(log, segment))
        log.disk.unlink(segment.prefix + SNAPSHOT_SUFFIX)
    trash.extend(log.key_indexes.remove_before(log.segments.base_offset))
    log.log_start_offset = max(log.log_start_offset, log.segments.base_offset)
    log.recovery_point = max(log.recovery_point, log.log_start_offset)
    log.flushed_offset = max(log.flushed_offset, log.log_start_offset)
    log.flushing.forget_removed()
    if log.leader_epochs.truncate_start(log.log_start_offset):
        # Without room for the file there is room soon. Until then it has epochs below the start of the log, which nothing uses.
        with contextlib.suppress(DiskFull):
            log.flushing.write_leader_epochs()
    return trash


def rename_deleted(log: SegmentedLog, segment: Segment) -> list[str]:
    """Rename the files of a segment that has left the log; returns their new paths."""
    renamed: list[str] = []
    for path in segment.paths:
        try:
            log.disk.rename(path, path + DELETED_SUFFIX)
        except StorageFailed as error:
            logger.warning("%s: %s", log.topic_partition, error)
        else:
            renamed.append(path + DELETED_SUFFIX)
    segment.release()
    return renamed

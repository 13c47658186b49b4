"""Applies retention to a segmented log: drops its oldest segments."""

import logging

from zhumq.model.errors import StorageFailed
from zhumq.storage.log_config import UNLIMITED
from zhumq.storage.log_files import DELETED_SUFFIX, SNAPSHOT_SUFFIX
from zhumq.storage.retention import ReplicaFacts, RetentionPolicy, SegmentFacts, segments_to_delete
from zhumq.storage.segment import Segment
from zhumq.storage.segmented_log import SegmentedLog
from zhumq.storage.time_lookup import has_its_max_timestamp

logger = logging.getLogger(__name__)


def apply_retention(log: SegmentedLog, now_ms: int, replica: ReplicaFacts) -> list[str]:
    """Drop the segments that the policy no longer keeps. Returns their renamed files, to be removed
    later in a thread: removing a large file takes long."""
    if log.failure is not None:
        raise log.failure
    config = log.config
    log.producer_state.expire(now_ms, config.producer_id_expiration_ms)
    decides = config.is_deleted and replica.is_leader
    count = segments_to_delete(
        _segment_facts(log),
        RetentionPolicy(
            retention_ms=config.retention_ms if decides else UNLIMITED,
            retention_bytes=config.retention_bytes if decides else UNLIMITED,
            log_start_offset=log.log_start_offset,
        ),
        replica.high_watermark,
        now_ms,
    )
    count = _confirm_timestamps(log, count)
    if count == len(log.segments):
        if replica.is_sole:
            log.flushing.roll()
        else:
            count -= 1
    return _delete_first(log, count) if count else []


def _segment_facts(log: SegmentedLog) -> list[SegmentFacts]:
    return [
        SegmentFacts(
            base_offset=segment.base_offset,
            next_offset=log.segments.next_offset_of(place, log.log_end_offset),
            size_bytes=segment.size,
            max_timestamp=segment.max_timestamp,
        )
        for place, segment in enumerate(log.segments.all)
    ]


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
    log.log_start_offset = max(log.log_start_offset, log.segments.base_offset)
    log.recovery_point = max(log.recovery_point, log.log_start_offset)
    log.flushed_offset = max(log.flushed_offset, log.log_start_offset)
    log.flushing.forget_removed()
    if log.leader_epochs.truncate_start(log.log_start_offset):
        log.flushing.write_leader_epochs()
    logger.info(
        "%s: retention deleted %d segments, the log begins at %d",
        log.topic_partition,
        count,
        log.log_start_offset,
    )
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

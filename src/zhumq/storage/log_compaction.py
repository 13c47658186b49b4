"""Compacts a segmented log: prepares the work of a thread, and replaces the old segments afterwards."""

import logging

from zhumq.storage.compaction import (
    CompactedSegment,
    CompactionTicket,
    LastBatch,
    SealedSegment,
    is_worthwhile,
)
from zhumq.storage.log_retention import rename_deleted
from zhumq.storage.segment import Segment
from zhumq.storage.segmented_log import SegmentedLog

logger = logging.getLogger(__name__)


def begin_compaction(
    log: SegmentedLog, now_ms: int, high_watermark: int
) -> CompactionTicket | None:
    """The compaction that a thread has to run now; None if it is not worth it.

    Only for sealed segments below the recovery point: recovery must not scan gaps.
    """
    config = log.config
    if not config.is_compacted or log.failure is not None or log.corrupt_ranges:
        return None
    limit = min(high_watermark, log.recovery_point)
    first_unstable_offset = log.producer_state.first_unstable_offset(high_watermark)
    if first_unstable_offset is not None:
        limit = min(limit, first_unstable_offset)
    sealed: list[SealedSegment] = []
    for place, segment in enumerate(log.segments.all[:-1]):
        next_offset = log.segments.next_offset_of(place, log.log_end_offset)
        too_young = segment.max_timestamp > now_ms - config.min_compaction_lag_ms
        if next_offset > limit or (config.min_compaction_lag_ms and too_young):
            break
        sealed.append(SealedSegment(segment=segment, next_offset=next_offset))
    if not is_worthwhile(sealed, log.first_dirty_offset, config, now_ms):
        return None
    log.flushing.write_manifest()  # Its recovery point is past the gaps, so recovery starts there.
    return CompactionTicket(
        directory=log.directory,
        disk=log.disk,
        config=config,
        truncations=log.truncations,
        segments=sealed,
        first_dirty_offset=log.first_dirty_offset,
        end_offset=sealed[-1].next_offset,
        now_ms=now_ms,
        last_batches={
            producer_id: LastBatch(
                entry.batches[-1].last_offset if entry.batches else None, entry.epoch
            )
            for producer_id, entry in log.producer_state.producers.items()
        },
        aborted=log.aborted_transactions(sealed[0].segment.base_offset, sealed[-1].next_offset),
    )


def finish_compaction(log: SegmentedLog, ticket: CompactionTicket) -> list[str]:
    """Replace the old segments by the compacted ones. Returns the files to be removed later."""
    kept = set(log.segments.all)
    is_stale = ticket.truncations != log.truncations or any(
        each.segment not in kept for done in ticket.compacted for each in done.replaced
    )
    if ticket.error is not None or is_stale or log.is_closed:
        logger.warning("%s: not compacted: %s", log.topic_partition, ticket.error)
        ticket.discard()
        return []
    swaps: list[tuple[CompactedSegment, Segment]] = []
    for done in ticket.compacted:
        segment = _open_compacted(log, done)
        log.segments.replace([each.segment for each in done.replaced], [segment])
        bases = [each.segment.base_offset for each in done.replaced]
        log.transaction_indexes.replace(bases, segment.base_offset, done.aborted)
        log.key_indexes.compacted(bases[0], done.replaced[-1].next_offset)
        swaps.append((done, segment))
    log.first_dirty_offset = ticket.end_offset
    log.proof.gaps_end = max(log.proof.gaps_end, ticket.end_offset)
    # The new files are durable under their swap names: a restart after a crash finds them.
    log.flushing.write_manifest()
    trash: list[str] = []
    for done, segment in swaps:
        for each in done.replaced:
            trash.extend(rename_deleted(log, each.segment))
        log.disk.rename(done.path, segment.paths[0])
        segment.take_indexes(done.offset_index, done.time_index)
    return trash


def _open_compacted(log: SegmentedLog, done: CompactedSegment) -> Segment:
    segment = Segment(
        log.directory,
        done.base_offset,
        disk=log.disk,
        cache=log.cache,
        size=done.size,
        index_interval_bytes=log.config.index_interval_bytes,
    )
    segment.is_sealed = True
    segment.next_offset = done.replaced[-1].next_offset
    segment.checksum = done.checksum
    segment.unverified_end = 0  # This process has just written it.
    return segment

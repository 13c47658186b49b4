"""The upkeep of a log: truncation, deletion of records, retention, compaction, closing."""

import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from zhumq.model.errors import CorruptMessage, OffsetOutOfRange, StorageFailed
from zhumq.storage.compaction import (
    CompactedSegment,
    CompactionTicket,
    SealedSegment,
    is_worthwhile,
)
from zhumq.storage.flush_ticket import FlushTicket
from zhumq.storage.log_config import UNLIMITED, LogConfig
from zhumq.storage.log_files import DELETED_SUFFIX, SNAPSHOT_SUFFIX
from zhumq.storage.log_state import LogState
from zhumq.storage.producer_restore import restore_producers
from zhumq.storage.recovery import write_corrupt_ranges
from zhumq.storage.retention import RetentionPolicy, SegmentFacts, segments_to_delete
from zhumq.storage.segment import Segment
from zhumq.storage.time_lookup import has_its_max_timestamp

logger = logging.getLogger(__name__)

NO_CHECKSUMS: Mapping[int, int] = MappingProxyType({})


class LogUpkeep(LogState):
    """All operations on the segments of one partition except appending and reading."""

    # Truncation

    def delete_records_before(self, offset: int) -> int:
        """Raise the log start offset to this offset (DeleteRecords); returns the log start offset."""
        if self._failure is not None:
            raise self._failure
        if not 0 <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"{self.topic_partition} ends at {self.log_end_offset}, before {offset}"
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            if self.leader_epochs.truncate_start(offset):
                self._write_leader_epochs()
        return self.log_start_offset

    def truncate_to(self, offset: int) -> None:
        """Remove all batches that reach this offset or a later one."""
        if offset >= self.log_end_offset:
            return
        if offset < self._segments.base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        self._lower_recovery_point(offset)
        removed = self._segments.take_from(offset)
        segment = self._segments.active
        segment.unseal()
        self._checkpointed_active = (-1, 0)
        position, end_offset = segment.size, offset
        try:
            found = segment.find(offset)
        except CorruptMessage:
            # The position of the offset is unknown: the whole segment is removed, and fetched again.
            position, end_offset = 0, segment.base_offset
        else:
            if found is not None:
                position, end_offset = found[0], min(offset, found[1].base_offset)
        was_damaged = bool(self.corrupt_ranges)
        for bad in segment.corrupt_ranges:
            if bad.next_offset > offset:
                position = min(position, bad.start_position)
                end_offset = min(end_offset, bad.first_offset)
        self._lower_recovery_point(end_offset)  # whole batches go, so it may be below the offset
        self.write_manifest()
        for each in removed:
            self._remove_files(each)
        segment.truncate(position, end_offset)
        if was_damaged:
            write_corrupt_ranges(self.directory, self._segments.all, self._disk)
        if end_offset < self.log_start_offset:
            self.truncate_fully_and_start_at(self.log_start_offset)
        else:
            self._end_at(end_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records; the next batch gets this offset."""
        self.make_files()
        self._lower_recovery_point(min(offset, self.log_start_offset))
        removed = self._segments.take_all()
        self._manifest_file.drop()
        for segment in removed:
            self._remove_files(segment)
        self._segments.add(self._new_segment(offset))
        self.log_start_offset = offset
        self.recovery_point = offset
        self.gaps_end = 0
        self._end_at(offset)

    def _lower_recovery_point(self, offset: int) -> None:
        self._truncations += 1
        self._has_new_files = True  # so that the next flush makes the truncation durable
        if offset < self.recovery_point:
            self.recovery_point = max(offset, self.log_start_offset)
            self.before_recovery_point_falls()

    def _end_at(self, end_offset: int) -> None:
        self.log_end_offset = end_offset
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self.first_dirty_offset = min(self.first_dirty_offset, end_offset)
        self.gaps_end = min(self.gaps_end, end_offset)
        self._unsynced_segments = [
            segment for segment in self._unsynced_segments if segment in self._segments.all
        ]
        if self.leader_epochs.truncate_end(end_offset):
            self._write_leader_epochs()
        self.producer_state, self._checkpoint_snapshot = restore_producers(
            self.directory, self._segments.all, end_offset, disk=self._disk
        )

    def _remove_files(self, segment: Segment) -> None:
        for path in (*segment.paths, segment.prefix + SNAPSHOT_SUFFIX):
            self._disk.unlink(path)
        segment.release()

    # Retention and compaction

    def update_config(self, config: LogConfig) -> None:
        """Use these settings from the next append on."""
        self.config = config

    def apply_retention(self, now_ms: int, high_watermark: int) -> list[str]:
        """Drop the segments that the policy no longer keeps. Returns their renamed files, to be removed
        later in a thread: removing a large file takes long."""
        if self._failure is not None:
            raise self._failure
        self.producer_state.expire(now_ms, self.config.producer_id_expiration_ms)
        decides = self.config.is_deleted and not self.is_follower
        count = segments_to_delete(
            self._segment_facts(),
            RetentionPolicy(
                retention_ms=self.config.retention_ms if decides else UNLIMITED,
                retention_bytes=self.config.retention_bytes if decides else UNLIMITED,
                log_start_offset=self.log_start_offset,
            ),
            high_watermark,
            now_ms,
        )
        count = self._confirm_timestamps(count)
        if count == len(self._segments):
            if self.is_replicated:
                count -= 1
            else:
                self.roll()
        return self._delete_first(count) if count else []

    def _confirm_timestamps(self, count: int) -> int:
        """How many of the first segments have the largest timestamp that their time index states. The
        index has no checksum, so the batch itself is read. If they differ, the index is rebuilt."""
        for place, segment in enumerate(self._segments.all[:count]):
            if not segment.corrupt_ranges and not has_its_max_timestamp(segment):
                segment.rebuild_indexes()
                return place
        return count

    def _segment_facts(self) -> list[SegmentFacts]:
        return [
            SegmentFacts(
                base_offset=segment.base_offset,
                next_offset=self._segments.next_offset_of(place, self.log_end_offset),
                size_bytes=segment.size,
                max_timestamp=segment.max_timestamp,
            )
            for place, segment in enumerate(self._segments.all)
        ]

    def _delete_first(self, count: int) -> list[str]:
        removed = self._segments.take_first(count)
        trash: list[str] = []
        self.write_manifest()
        for segment in removed:
            trash.extend(self._rename_deleted(segment.paths))
            self._disk.unlink(segment.prefix + SNAPSHOT_SUFFIX)
            segment.release()
        self.log_start_offset = max(self.log_start_offset, self._segments.base_offset)
        self.recovery_point = max(self.recovery_point, self.log_start_offset)
        self.flushed_offset = max(self.flushed_offset, self.log_start_offset)
        self._unsynced_segments = [each for each in self._unsynced_segments if each not in removed]
        if self.leader_epochs.truncate_start(self.log_start_offset):
            self._write_leader_epochs()
        logger.info(
            "%s: retention deleted %d segments, the log begins at %d",
            self.topic_partition,
            count,
            self.log_start_offset,
        )
        return trash

    def _rename_deleted(self, paths: Sequence[str]) -> list[str]:
        renamed: list[str] = []
        for path in paths:
            try:
                self._disk.rename(path, path + DELETED_SUFFIX)
            except StorageFailed as error:
                logger.warning("%s: %s", self.topic_partition, error)
            else:
                renamed.append(path + DELETED_SUFFIX)
        return renamed

    def begin_compaction(self, now_ms: int, high_watermark: int) -> CompactionTicket | None:
        """The compaction that a thread has to run now; None if it is not worth it.

        Only for sealed segments below the recovery point: recovery must not scan gaps.
        """
        if not self.config.is_compacted or self._failure is not None or self.corrupt_ranges:
            return None
        limit = min(high_watermark, self.recovery_point)
        if self.first_undecided_offset is not None:
            limit = min(limit, self.first_undecided_offset)
        sealed: list[SealedSegment] = []
        for place, segment in enumerate(self._segments.all[:-1]):
            next_offset = self._segments.next_offset_of(place, self.log_end_offset)
            too_young = segment.max_timestamp > now_ms - self.config.min_compaction_lag_ms
            if next_offset > limit or (self.config.min_compaction_lag_ms and too_young):
                break
            sealed.append(SealedSegment(segment=segment, next_offset=next_offset))
        if not is_worthwhile(sealed, self.first_dirty_offset, self.config, now_ms):
            return None
        self.write_manifest()  # Its recovery point is past the gaps, so recovery starts behind them.
        return CompactionTicket(
            directory=self.directory,
            disk=self._disk,
            config=self.config,
            truncations=self._truncations,
            segments=sealed,
            first_dirty_offset=self.first_dirty_offset,
            end_offset=sealed[-1].next_offset,
            now_ms=now_ms,
            producer_sequences={
                producer_id: entry.batches[-1].last_sequence
                for producer_id, entry in self.producer_state.producers.items()
                if entry.batches
            },
        )

    def finish_compaction(
        self, ticket: CompactionTicket, checksums: Mapping[int, int] = NO_CHECKSUMS
    ) -> list[str]:
        """Replace the old segments by the compacted ones. `checksums` are those of the new files, by
        base offset. Returns the files to be removed later."""
        kept = set(self._segments.all)
        is_stale = ticket.truncations != self._truncations or any(
            each.segment not in kept for done in ticket.compacted for each in done.replaced
        )
        if ticket.error is not None or is_stale or self._is_closed:
            logger.warning("%s: not compacted: %s", self.topic_partition, ticket.error)
            ticket.discard()
            return []
        trash: list[str] = []
        swaps: list[tuple[CompactedSegment, Segment]] = []
        for done in ticket.compacted:
            segment = Segment(
                self.directory,
                done.base_offset,
                disk=self._disk,
                cache=self._cache,
                size=done.size,
                index_interval_bytes=self.config.index_interval_bytes,
            )
            segment.is_sealed = True
            segment.next_offset = done.replaced[-1].next_offset
            segment.checksum = checksums.get(done.base_offset)
            segment.unverified_end = 0  # This process has just written it.
            self._segments.replace([each.segment for each in done.replaced], [segment])
            swaps.append((done, segment))
        self.first_dirty_offset = ticket.end_offset
        self.gaps_end = max(self.gaps_end, ticket.end_offset)
        # The new files are durable under their swap names: a restart after a crash finds them.
        self.write_manifest()
        for done, segment in swaps:
            for each in done.replaced:
                trash.extend(self._rename_deleted(each.segment.paths))
                each.segment.release()
            self._disk.rename(done.path, segment.paths[0])
            segment.take_indexes(done.offset_index, done.time_index)
        return trash

    def begin_last_flush(self) -> FlushTicket | None:
        """The files to sync before a clean close; None if there are none."""
        # A log that never held a record has nothing to lose: the next start creates it again.
        if self._failure is not None or (self._is_new and self.log_end_offset == 0):
            return None
        self._segments.active.write_indexes(final=True)
        return self.begin_flush(checkpoint=True)

    def close(self, *, clean: bool = True) -> None:
        """Close the log. A clean close flushes first and writes a checkpoint for the next start."""
        if self._is_closed:
            return
        if clean and (ticket := self.begin_last_flush()) is not None:
            ticket.run()
            self.finish_flush(ticket)
            if self._failure is not None:
                raise self._failure
        self._is_closed = True
        if self._failure is None:
            self._failure = StorageFailed(f"{self.topic_partition} is closed")
        for segment in self._segments.all:
            segment.release()

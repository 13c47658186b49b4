"""What a log is made of, and its upkeep: flushing, cutting either end, retention, closing."""

import contextlib
import logging
import uuid
from collections.abc import Callable, Sequence

from zhumq.host.clock import Clock
from zhumq.host.disk import Disk
from zhumq.model.errors import BrokerError, OffsetOutOfRange, StorageFailed
from zhumq.model.ids import TopicPartition
from zhumq.storage.checkpoints import (
    LEADER_EPOCH_FILE,
    PARTITION_FILE,
    encode_leader_epochs,
    write_leader_epochs,
)
from zhumq.storage.compaction import CompactionTicket, SealedSegment, is_worthwhile
from zhumq.storage.flush_ticket import FlushTicket, SmallFile
from zhumq.storage.index_cache import IndexCache
from zhumq.storage.leader_epochs import LeaderEpochs
from zhumq.storage.log_config import UNLIMITED, LogConfig
from zhumq.storage.log_files import DELETED_SUFFIX, SNAPSHOT_SUFFIX, file_prefix
from zhumq.storage.log_slice import CorruptRange
from zhumq.storage.new_log import LoadedLog
from zhumq.storage.producer_snapshot import encode_snapshot
from zhumq.storage.producer_state import ProducerState
from zhumq.storage.recovery import restore_producers, write_corrupt_ranges
from zhumq.storage.retention import RetentionPolicy, SegmentFacts, segments_to_delete
from zhumq.storage.segment import Segment
from zhumq.storage.segment_list import SegmentList

logger = logging.getLogger(__name__)


class LogUpkeep:
    """The segments of one partition and all that is done to them besides appending and reading."""

    def __init__(
        self,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        loaded: LoadedLog,
        *,
        disk: Disk,
        clock: Clock,
        cache: IndexCache,
        topic_id: uuid.UUID | None,
    ) -> None:
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        # Invariant: log_start_offset <= recovery_point <= flushed_offset <= log_end_offset.
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.flushed_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self.first_dirty_offset = 0  # everything below was compacted
        # Retention is the leader's to decide: a follower drops what its leader has dropped.
        self.is_follower = False
        # One of several: its last batch tells how far it is, so retention leaves it.
        self.is_replicated = False
        self.leader_epochs: LeaderEpochs = loaded.leader_epochs
        self.producer_state: ProducerState = loaded.producer_state
        # Called before anything below the recovery point is cut, so that the checkpoint on disk
        # never claims more than the log holds.
        self.before_recovery_point_falls: Callable[[], None] = lambda: None
        self._disk = disk
        self._clock = clock
        self._cache = cache
        self._segments = SegmentList(topic_partition, loaded.segments)
        self._failure: StorageFailed | None = None
        self._is_closed = False
        self._truncations = 0
        self._unsynced_segments: list[Segment] = []  # sealed since the last flush
        self._has_new_files = loaded.is_new
        self._is_new = loaded.is_new  # the folder itself has to be made durable, too
        self._had_folder = loaded.has_folder
        self._unsynced_index_paths: list[str] = []
        self._bytes_since_checkpoint = 0
        self._checkpoint_at_ms = clock.monotonic_ms()
        self._checkpoint_snapshot = loaded.snapshot_offset  # the newest one that is on disk

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return self._segments.size_bytes

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self._segments.all

    @property
    def has_folder(self) -> bool:
        """Whether anything of the log is on the disk: of a new one, maybe nothing yet."""
        return self._had_folder or self._segments.active.has_files

    def make_files(self) -> None:
        """Make the folder and the files now if they were to be made at the first write."""
        if not self._segments.active.has_files:
            _ = self._segments.active.file

    @property
    def corrupt_ranges(self) -> tuple[CorruptRange, ...]:
        """What recovery found damaged with valid batches behind it."""
        return self._segments.corrupt_ranges

    @property
    def failure(self) -> StorageFailed | None:
        """Why the log is offline; None while it works."""
        return self._failure

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the oldest open transaction begins."""
        return self.producer_state.first_undecided_offset

    # Flushing

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether so much was written since the last checkpoint that a restart would take long, or
        there are sealed segments that compaction has to leave alone until then."""
        if self.log_end_offset == self.recovery_point or self._failure is not None:
            return False
        if self.config.is_compacted and self._segments.active.base_offset > self.recovery_point:
            return True
        age_ms = self._clock.monotonic_ms() - self._checkpoint_at_ms
        return (
            self._bytes_since_checkpoint >= self.config.checkpoint_bytes
            or age_ms >= self.config.checkpoint_ms
        )

    def begin_flush(self, *, checkpoint: bool = False) -> FlushTicket | None:
        """What a thread has to sync now; None if there is nothing. One flush at a time."""
        if self._failure is not None:
            return None
        checkpoint = checkpoint or self.is_checkpoint_due
        if (
            self.flushed_offset == self.log_end_offset
            and not self._has_new_files
            and not (checkpoint and self.recovery_point < self.log_end_offset)
        ):
            return None
        files = [segment.file for segment in self._unsynced_segments]
        files.append(self._segments.active.file)
        ticket = FlushTicket(
            next_offset=self.log_end_offset,
            truncations=self._truncations,
            disk=self._disk,
            files=files,
            directories=(self.directory,) if self._has_new_files else (),
        )
        if self._is_new:
            self._is_new = False
            ticket.paths = (f"{self.directory}/{PARTITION_FILE}",)
            ticket.directories = (self.directory, self.directory.rpartition("/")[0])
        if checkpoint:
            self._prepare_checkpoint(ticket)
        self._unsynced_segments = []
        self._has_new_files = False
        return ticket

    def _prepare_checkpoint(self, ticket: FlushTicket) -> None:
        try:
            self._segments.active.write_indexes(final=False)
        except BrokerError as error:
            # The data can still be synced; the next checkpoint tries again.
            logger.warning("%s: no checkpoint: %s", self.topic_partition, error)
            return
        ticket.is_checkpoint = True
        ticket.paths = (
            *ticket.paths,
            *self._unsynced_index_paths,
            *self._segments.active.paths[1:],
        )
        self._unsynced_index_paths = []
        ticket.small_files = (
            SmallFile(
                path=file_prefix(self.directory, self.log_end_offset) + SNAPSHOT_SUFFIX,
                data=encode_snapshot(self.producer_state),
            ),
            SmallFile(
                path=f"{self.directory}/{LEADER_EPOCH_FILE}",
                data=encode_leader_epochs(self.leader_epochs),
            ),
        )
        self._bytes_since_checkpoint = 0
        self._checkpoint_at_ms = self._clock.monotonic_ms()

    def finish_flush(self, ticket: FlushTicket) -> None:
        """The thread is done: what it synced counts as flushed, or the log is offline for good."""
        if self._is_closed:
            return
        if ticket.error is not None:
            # The kernel forgets which pages it could not write, so a second fsync would lie.
            logger.error("%s: flush failed, going offline: %s", self.topic_partition, ticket.error)
            self._failure = StorageFailed(f"{self.topic_partition} is offline: {ticket.error}")
            return
        if ticket.truncations != self._truncations:
            return  # Offsets below next_offset may have been written anew meanwhile.
        self.flushed_offset = max(self.flushed_offset, ticket.next_offset)
        if ticket.is_checkpoint:
            self._take_checkpoint(ticket.next_offset)

    def _take_checkpoint(self, next_offset: int) -> None:
        self.recovery_point = max(self.recovery_point, next_offset)
        previous, self._checkpoint_snapshot = self._checkpoint_snapshot, next_offset
        if previous not in (-1, next_offset) and not self._segments.has_base(previous):
            with contextlib.suppress(StorageFailed):
                self._disk.unlink(file_prefix(self.directory, previous) + SNAPSHOT_SUFFIX)

    def flush(self, *, checkpoint: bool = False) -> None:
        """Flush and wait for it. For startup, shutdown and tools; the event loop uses a ticket."""
        ticket = self.begin_flush(checkpoint=checkpoint)
        if ticket is not None:
            ticket.run()
            self.finish_flush(ticket)
        if self._failure is not None:
            raise self._failure

    def roll(self) -> None:
        """Begin a new segment at the end of the log."""
        previous = self._segments.active
        if not previous.size:
            return
        previous.write_indexes(final=True)
        segment = self._new_segment(self.log_end_offset)
        if self._checkpoint_snapshot != segment.base_offset:
            data = encode_snapshot(self.producer_state)
            self._disk.write_file(segment.prefix + SNAPSHOT_SUFFIX, data, sync=False)
        previous.seal()
        self._unsynced_segments.append(previous)
        self._unsynced_index_paths.extend(previous.paths[1:])
        self._unsynced_index_paths.append(segment.prefix + SNAPSHOT_SUFFIX)
        self._has_new_files = True
        self._segments.add(segment)

    def _new_segment(self, base_offset: int) -> Segment:
        return Segment.create(
            self.directory,
            base_offset,
            disk=self._disk,
            cache=self._cache,
            index_interval_bytes=self.config.index_interval_bytes,
        )

    def _write_leader_epochs(self) -> None:
        # Without a sync: what lies past the recovery point is read from the batches again, and a
        # checkpoint writes the file durably.
        if self._is_new:
            return  # Nothing of it was ever flushed. One file less where many logs are begun.
        path = f"{self.directory}/{LEADER_EPOCH_FILE}"
        write_leader_epochs(self._disk, path, self.leader_epochs, sync=False)

    # Cutting

    def delete_records_before(self, offset: int) -> int:
        """Let the log begin at this offset, as DeleteRecords wants; returns where it begins."""
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
        """Cut off all batches that reach to this offset or beyond."""
        if offset >= self.log_end_offset:
            return
        if offset < self._segments.base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        self._lower_recovery_point(offset)
        for segment in self._segments.take_from(offset):
            self._remove_files(segment)
        segment = self._segments.active
        segment.unseal()
        position, end_offset = segment.size, offset
        found = segment.find(offset)
        if found is not None:
            position, end_offset = found[0], min(offset, found[1].base_offset)
        was_damaged = bool(self.corrupt_ranges)
        for bad in segment.corrupt_ranges:
            if bad.next_offset > offset:
                position = min(position, bad.start_position)
                end_offset = min(end_offset, bad.first_offset)
        self._lower_recovery_point(end_offset)  # a batch goes whole, so it may be below the offset
        segment.truncate(position, end_offset)
        if was_damaged:
            write_corrupt_ranges(self.directory, self._segments.all, self._disk)
        if end_offset < self.log_start_offset:
            self.truncate_fully_and_start_at(self.log_start_offset)
        else:
            self._end_at(end_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Throw everything away; the next batch gets this offset."""
        self.make_files()
        self._lower_recovery_point(min(offset, self.log_start_offset))
        for segment in self._segments.take_all():
            self._remove_files(segment)
        self._segments.add(self._new_segment(offset))
        self.log_start_offset = offset
        self.recovery_point = offset
        self._end_at(offset)

    def _lower_recovery_point(self, offset: int) -> None:
        self._truncations += 1
        self._has_new_files = True  # so that the next flush makes the cut itself durable
        if offset < self.recovery_point:
            self.recovery_point = max(offset, self.log_start_offset)
            self.before_recovery_point_falls()

    def _end_at(self, end_offset: int) -> None:
        self.log_end_offset = end_offset
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self.first_dirty_offset = min(self.first_dirty_offset, end_offset)
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

    # Keeping house

    def update_config(self, config: LogConfig) -> None:
        """New settings, from the next append on."""
        self.config = config

    def apply_retention(self, now_ms: int, high_watermark: int) -> list[str]:
        """Drop the segments the policy no longer keeps. Returns their files, renamed, to be
        removed later: that takes long for a large file and is not for the event loop."""
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
        if count == len(self._segments):
            if self.is_replicated:
                count -= 1
            else:
                self.roll()
        return self._delete_first(count) if count else []

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
        """What a thread has to do to compact the log now; None if it is not worth it.

        Only sealed segments below the recovery point: what may have to be recovered has no gaps.
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

    def finish_compaction(self, ticket: CompactionTicket) -> list[str]:
        """Put the compacted segments in their place. Returns files to be removed later."""
        kept = set(self._segments.all)
        is_stale = ticket.truncations != self._truncations or any(
            each.segment not in kept for done in ticket.compacted for each in done.replaced
        )
        if ticket.error is not None or is_stale or self._is_closed:
            logger.warning("%s: not compacted: %s", self.topic_partition, ticket.error)
            ticket.discard()
            return []
        trash: list[str] = []
        for done in ticket.compacted:
            old = [each.segment for each in done.replaced]
            for segment in old:
                trash.extend(self._rename_deleted(segment.paths))
                segment.release()
            segment = Segment(
                self.directory,
                done.base_offset,
                disk=self._disk,
                cache=self._cache,
                size=done.size,
                index_interval_bytes=self.config.index_interval_bytes,
            )
            self._disk.rename(done.path, segment.paths[0])
            segment.take_indexes(done.offset_index, done.time_index)
            segment.is_sealed = True
            self._segments.replace(old, [segment])
        self.first_dirty_offset = ticket.end_offset
        return trash

    def begin_last_flush(self) -> FlushTicket | None:
        """What has to be synced before a clean close; None if there is nothing."""
        # A log that never held anything has nothing to lose: the next start makes it anew.
        if self._failure is not None or (self._is_new and self.log_end_offset == 0):
            return None
        self._segments.active.write_indexes(final=True)
        return self.begin_flush(checkpoint=True)

    def close(self, *, clean: bool = True) -> None:
        """Flush and write down what the next start needs, unless it is to look like a crash."""
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

"""A log in segment files: its state, reading from it, and the parts that do everything else on it."""

import logging
import uuid
from collections.abc import Callable

from zhumq.host.clock import Clock
from zhumq.host.disk import Disk
from zhumq.model.errors import BrokerError, CorruptMessage, OffsetOutOfRange, StorageFailed
from zhumq.model.ids import TopicPartition
from zhumq.schemas.log_records import TOPIC as SCHEMAS_TOPIC
from zhumq.storage import time_lookup
from zhumq.storage.checkpoints import SUSPECT_FILE, read_suspect_offset, write_suspect_offset
from zhumq.storage.deferring_appender import DeferringAppender
from zhumq.storage.fetched_batches import check_fetched
from zhumq.storage.flush_ticket import FlushTicket
from zhumq.storage.index_cache import IndexCache
from zhumq.storage.key_indexes import KeyIndexes
from zhumq.storage.leader_epochs import EpochStart
from zhumq.storage.log_appender import LogAppender
from zhumq.storage.log_config import LogConfig
from zhumq.storage.log_flushing import LogFlushing
from zhumq.storage.log_slice import CorruptRange, LogSlice
from zhumq.storage.log_truncation import LogTruncation
from zhumq.storage.new_log import LoadedLog
from zhumq.storage.producer_restore import rebuild_index
from zhumq.storage.recovery import load_log, write_corrupt_ranges
from zhumq.storage.schema_appender import SchemaAppender
from zhumq.storage.schema_ids import KnownSchemas
from zhumq.storage.segment import Segment
from zhumq.storage.segment_list import SegmentList
from zhumq.storage.time_lookup import TimestampedOffset
from zhumq.storage.transaction_index import AbortedTransaction
from zhumq.storage.verification import Proof, Unverified, examine_segment

logger = logging.getLogger(__name__)


class SegmentedLog:
    """A Log. Its attributes are the state that its parts share; retention and compaction, which only
    this layout has, are functions on it (`log_retention`, `log_compaction`)."""

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
    ) -> None:
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = loaded.topic_id
        self.config = config
        self.disk = disk
        self.cache = cache
        # After a checkpoint: log_start_offset <= recovery_point <= flushed_offset <= log_end_offset.
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.flushed_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self.first_dirty_offset = 0  # everything below was compacted
        self.bytes_written = 0  # since the log was opened
        self.truncations = 0  # since the log was opened
        self.writes_without_room = 0  # appends that a full disk refused
        self.failure: StorageFailed | None = None
        self.is_closed = False
        self.on_damage: Callable[[int], object] = _ignore
        self.accepts_deferred = False
        self.known_schemas: KnownSchemas | None = None
        # Called before a truncation below the recovery point, so that the recovery point on disk is
        # never past the end of the log.
        self.before_recovery_point_falls: Callable[[], None] = _ignore
        self.leader_epochs = loaded.leader_epochs
        self.producer_state = loaded.producer_state
        self.producer_state.date_by_records()
        self.transaction_indexes = loaded.transaction_indexes
        self.transaction_indexes.rebuild = self._rebuild_transaction_index
        self.proof = Proof(gaps_end=loaded.gaps_end, epochs=loaded.leader_epochs)
        self.segments = SegmentList(topic_partition, loaded.segments, self.proof)
        self.key_indexes = KeyIndexes(directory, disk, self.segments.base_of)
        if loaded.key_index_names:
            self.key_indexes.load(loaded.key_index_names, loaded.log_end_offset)
            self._drop_unused_key_indexes()
        self.flushing = LogFlushing(self, loaded, clock)
        self.truncation = LogTruncation(self)
        # Bound here and not forwarded below: every message is appended, and a call less counts.
        appender = _appender(self)
        self.append = appender.append
        self.append_each = appender.append_each
        self.append_fetched = appender.append_fetched
        self.append_marker = appender.append_marker

    @classmethod
    def open(
        cls,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        disk: Disk,
        clock: Clock,
        recovery_point: int = 0,
        clean_shutdown: bool = False,
        topic_id: uuid.UUID | None = None,
        log_start_offset: int = 0,
        cache: IndexCache | None = None,
        lazily: bool = False,
    ) -> "SegmentedLog":
        """Open the log in this folder, or create it; after a crash, recover it first.

        Lazily: the first write creates the folder and the files of a new log.
        """
        cache = cache or IndexCache()
        loaded = load_log(
            directory,
            config,
            disk=disk,
            cache=cache,
            recovery_point=recovery_point,
            clean_shutdown=clean_shutdown,
            log_start_offset=log_start_offset,
            topic_id=topic_id,
            lazily=lazily,
        )
        log = cls(directory, topic_partition, config, loaded, disk=disk, clock=clock, cache=cache)
        if loaded.needs_manifest:
            log.flushing.write_manifest()
        return log

    def make_files(self) -> None:
        if not self.segments.active.has_files:
            _ = self.segments.active.file

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        appender = _appender(self)
        self.append = appender.append
        self.append_each = appender.append_each
        self._drop_unused_key_indexes()

    def _drop_unused_key_indexes(self) -> None:
        if not self.config.index_keys:
            try:
                self.key_indexes.drop()
            except BrokerError as error:
                logger.warning("%s: its key index stays: %s", self.topic_partition, error)

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def may_have_gaps(self) -> bool:
        return self.first_dirty_offset > 0 or self.config.is_compacted

    def new_segment(self, base_offset: int) -> Segment:
        """An empty segment of this log, which the caller adds to it."""
        return Segment.create(
            self.directory,
            base_offset,
            disk=self.disk,
            cache=self.cache,
            index_interval_bytes=self.config.index_interval_bytes,
        )

    # Reading

    def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        up_to_offset: int,
        at_least_one: bool = True,
        for_consumer: bool = False,
    ) -> LogSlice:
        if self.failure is not None:
            raise self.failure
        end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= end_offset:
            raise OffsetOutOfRange(
                f"{self.topic_partition} holds offsets {self.log_start_offset} to {end_offset}, "
                f"not {offset}"
            )
        while True:
            try:
                return self.segments.read(
                    offset,
                    end_offset,
                    min(up_to_offset, end_offset),
                    max_bytes,
                    at_least_one,
                    for_consumer and self.may_have_gaps,
                )
            except Unverified as found:
                # Afterwards nothing of this segment is unverified, so the loop ends.
                self.examine(found.segment)

    def aborted_transactions(self, offset: int, next_offset: int) -> list[AbortedTransaction]:
        return self.transaction_indexes.find(offset, next_offset)

    def _rebuild_transaction_index(self, base_offset: int) -> list[AbortedTransaction]:
        return rebuild_index(self.directory, self.segments.all, base_offset, self.disk)

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        return time_lookup.first_at_or_after(self.segments.all, timestamp, self.log_start_offset)

    def max_timestamp_offset(self) -> TimestampedOffset | None:
        return time_lookup.largest(self.segments.all, self.log_start_offset)

    def epoch_of(self, offset: int) -> int:
        return self.leader_epochs.epoch_of(offset)

    def end_offset_for_epoch(self, epoch: int) -> EpochStart:
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    # Damage

    @property
    def corrupt_ranges(self) -> tuple[CorruptRange, ...]:
        return self.segments.corrupt_ranges

    def examine(self, segment: Segment) -> bool:
        """Scan a whole segment that failed verification. True if it is damaged: the damage is then
        persisted, and reads of it fail."""
        place = self.segments.all.index(segment)
        next_offset = self.segments.next_offset_of(place, self.log_end_offset)
        segment.corrupt_ranges = examine_segment(segment, next_offset, self.proof)
        segment.unverified_end = 0
        self.segments.forget_positions()
        if not segment.corrupt_ranges:
            return False
        try:
            write_corrupt_ranges(self.directory, self.segments.all, self.disk)
        except BrokerError as error:
            logger.warning("%s: cannot persist the damage: %s", self.topic_partition, error)
        self.on_damage(min(bad.first_offset for bad in segment.corrupt_ranges))
        return True

    def find_damage(self, offset: int, max_bytes: int) -> int | None:
        epoch = self.epoch_of(offset - 1) if offset > self.log_start_offset else -1
        try:
            part = self.read(offset, max_bytes=max_bytes, up_to_offset=self.log_end_offset)
            check_fetched(
                memoryview(part.read_bytes()),
                next_offset=offset,
                last_epoch=epoch,
                epoch_max=self.leader_epochs.latest_epoch,
                gaps_allowed=self.may_have_gaps,
            )
        except CorruptMessage:
            return offset
        # Reading verifies a little more than it returns.
        damage = (bad.first_offset for bad in self.corrupt_ranges if bad.next_offset > offset)
        return min(damage, default=None)

    @property
    def suspect_offset(self) -> int | None:
        return read_suspect_offset(self.disk, self.directory, self.log_start_offset)

    def mark_suspect(self, offset: int) -> None:
        known = self.suspect_offset
        offset = offset if known is None else min(known, offset)
        write_suspect_offset(self.disk, self.directory, offset)

    def clear_suspect(self) -> None:
        self.disk.unlink(f"{self.directory}/{SUSPECT_FILE}")

    # Flushing, closing, removal

    def begin_flush(self, *, checkpoint: bool = False) -> FlushTicket | None:
        return self.flushing.begin(checkpoint=checkpoint)

    def finish_flush(self, ticket: FlushTicket) -> None:
        self.flushing.finish(ticket)

    def close(self, *, clean: bool = True) -> None:
        if self.is_closed:
            return
        if clean and (ticket := self.flushing.begin_last()) is not None:
            ticket.run()
            self.finish_flush(ticket)
            if self.failure is not None:
                raise self.failure
        self.is_closed = True
        if self.failure is None:
            self.failure = StorageFailed(f"{self.topic_partition} is closed")
        for segment in self.segments.all:
            segment.release()

    def truncate_to(self, offset: int) -> None:
        self.truncation.truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self.truncation.truncate_fully_and_start_at(offset)

    def delete_records_before(self, offset: int) -> int:
        return self.truncation.delete_records_before(offset)


def _appender(log: SegmentedLog) -> LogAppender:
    plain = DeferringAppender(log) if log.config.delay_max_ms else LogAppender(log)
    # The schemas themselves are there before any is registered, also where the rule is the default of all topics.
    if log.config.schema_rule is None or log.topic_partition.topic == SCHEMAS_TOPIC:
        return plain
    return SchemaAppender(log, plain)


def _ignore(*_: object) -> None:
    """No listener."""

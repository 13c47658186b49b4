"""The log of one partition: append, read, find. Used on the event loop only."""

import uuid
from collections.abc import Sequence

from zhumq.host.clock import Clock
from zhumq.host.disk import Buffer, Disk
from zhumq.model.errors import BrokerError, CorruptMessage, InvalidRecord, OffsetOutOfRange
from zhumq.model.ids import TopicPartition
from zhumq.records.batch import (
    HEAD,
    LOG_APPEND_TIME_FLAG,
    PREFIX_BYTES,
    BatchHeader,
    RecordBatch,
)
from zhumq.records.control import decode_end_marker
from zhumq.storage import time_lookup
from zhumq.storage.batch_scan import RELATIVE_OFFSET_MAX
from zhumq.storage.fetched_batches import FetchedBatch, check_fetched
from zhumq.storage.index_cache import IndexCache
from zhumq.storage.leader_epochs import EpochStart
from zhumq.storage.log_config import LogConfig
from zhumq.storage.log_proof import VerifiedLog
from zhumq.storage.log_slice import Appended, AppendedRun, LogSlice
from zhumq.storage.producer_state import ProducerEntry, WrittenBatch
from zhumq.storage.recovery import load_log
from zhumq.storage.segment import Segment
from zhumq.storage.time_lookup import TimestampedOffset
from zhumq.storage.validator import (
    BATCH_RECORDS_MAX,
    CLIENT,
    WALKED_BYTES_MAX,
    AppendOrigin,
    CheckedBatch,
    WalkBudget,
    check_batch,
)
from zhumq.storage.verification import Unverified

# Of one write for several requests. It keeps the records of each one below what a WalkBudget always has.
RUN_BYTES_MAX = 1024 * 1024


class PartitionLog(VerifiedLog):
    """The log of one partition.

    A method that changes files succeeds completely or raises. After StorageFailed the log is offline
    until a restart; after DiskFull it works again once there is space.
    """

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
    ) -> "PartitionLog":
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
        log = cls(
            directory,
            topic_partition,
            config,
            loaded,
            disk=disk,
            clock=clock,
            cache=cache,
            topic_id=loaded.topic_id,
        )
        if loaded.needs_manifest:
            log.write_manifest()
        return log

    # Appending

    def append(
        self,
        batches: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        budget: WalkBudget | None = None,
    ) -> Appended:
        """Check the batches, assign the next offsets, and write them at the end."""
        if self._failure is not None:
            raise self._failure
        view = batches if type(batches) is memoryview else memoryview(batches)
        first = check_batch(view, self.config, now_ms, origin, budget)
        return self._append_rest(view, first, leader_epoch, now_ms, origin, budget)

    def _append_rest(
        self,
        view: memoryview,
        first: CheckedBatch,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin,
        budget: WalkBudget | None,
    ) -> Appended:
        """Append batches of which the first one is checked already."""
        size = len(view)
        checked = [first]
        header = first[0]
        end = header.batch_length + PREFIX_BYTES
        while end < size:
            checked.append(check_batch(view[end:], self.config, now_ms, origin, budget))
            header = checked[-1][0]
            end += header.batch_length + PREFIX_BYTES
        if header.producer_id >= 0 or len(checked) > 1:
            duplicate = self._check_producers(checked, origin)
            if duplicate is not None:
                return duplicate
        base_offset = self._write(checked, size, leader_epoch)
        append_time_ms = header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else -1
        return Appended(
            base_offset, self.log_end_offset - 1, append_time_ms, self.log_start_offset, False
        )

    def append_each(
        self, batches: Sequence[memoryview], *, leader_epoch: int, now_ms: int
    ) -> AppendedRun:
        """Append the batches of several requests, each as `append` would, in a single write.

        Ends behind the first request that is refused or that repeats an earlier one, and before one
        that would make the write too large. Raises what refuses them all, and writes nothing then.
        """
        if self._failure is not None:
            raise self._failure
        config = self.config
        size_max = min(config.segment_bytes, RUN_BYTES_MAX)
        budget = WalkBudget()
        # Not written yet: the producers of the batches that are checked.
        producers: dict[int, ProducerEntry] = {}
        checked: list[CheckedBatch] = []
        offsets: list[int] = []
        offset = self.log_end_offset
        size = 0
        last: Appended | BrokerError | None = None
        several: CheckedBatch | None = None  # the first batch of a request with more of them
        for view in batches:
            length = len(view)
            if size + length > size_max and checked:
                break
            try:
                batch = check_batch(view, config, now_ms, CLIENT, budget)
                header = batch[0]
                if header.batch_length + PREFIX_BYTES != length:
                    several = batch
                    break
                if header.producer_id >= 0:
                    written = self.producer_state.check_next(header, offset, producers)
                    if written is not None:
                        last = self._repeated(written, header)
                        break
            except BrokerError as refusal:
                last = refusal
                break
            checked.append(batch)
            offsets.append(offset)
            offset += header.last_offset_delta + 1
            size += length
            if budget.bytes_left < WALKED_BYTES_MAX or budget.records_left < BATCH_RECORDS_MAX:
                break  # The largest batch may exceed what is left.
        if checked:
            self._write(checked, size, leader_epoch)
        if several is not None:
            try:
                last = self._append_rest(view, several, leader_epoch, now_ms, CLIENT, None)
                size += length
            except BrokerError as refusal:
                last = refusal
        append_time_ms = now_ms if config.stamps_append_time else -1
        return AppendedRun(offsets, append_time_ms, self.log_start_offset, size, last)

    def _write(self, checked: list[CheckedBatch], size: int, leader_epoch: int) -> int:
        """Assign the next offsets, and write the batches at the end. Returns the first offset."""
        base_offset = self.log_end_offset
        next_offset = base_offset
        parts: list[Buffer] = []
        for header, tail in checked:
            parts.append(HEAD.pack(next_offset, header.batch_length, leader_epoch))
            parts.extend(tail)
            next_offset += header.last_offset_delta + 1
        if next_offset - base_offset > RELATIVE_OFFSET_MAX:
            raise InvalidRecord(
                f"{next_offset - base_offset} records in one write are more than a segment can hold"
            )
        if leader_epoch > self.leader_epochs.latest_epoch:
            self._begin_epoch(leader_epoch, base_offset)
        segment = self._segments.active
        try:
            if segment.size and self._is_full(segment, size, next_offset - 1, checked[-1][0]):
                self.roll()
                segment = self._segments.active
            position = segment.append(parts)
        except BrokerError as error:
            self._note_failed_write(error)
            raise
        self._note(checked, segment, position)
        return base_offset

    def append_fetched(self, batches: Buffer, *, epoch_max: int, gaps_allowed: bool) -> int:
        """Write a leader's batches unchanged, with its offsets and epochs; returns the log end offset.

        Raises CorruptMessage, and writes nothing, if they do not follow the end of this log.
        """
        if self._failure is not None:
            raise self._failure
        fetched = check_fetched(
            memoryview(batches),
            next_offset=self.log_end_offset,
            last_epoch=self.leader_epochs.latest_epoch,
            epoch_max=epoch_max,
            gaps_allowed=gaps_allowed,
        )
        if fetched and fetched[0].header.base_offset < self.log_end_offset:
            self._begin_inside_batch(fetched[0].header.base_offset)
        self._note_gaps(fetched)
        run: list[FetchedBatch] = []
        run_bytes = 0
        for batch in fetched:
            header = batch.header
            if self._is_full(
                self._segments.active, run_bytes + header.size, header.last_offset, header
            ):
                self._write_fetched(run)
                run, run_bytes = [], 0
                self.roll()
            if header.partition_leader_epoch > self.leader_epochs.latest_epoch:
                self._begin_epoch(header.partition_leader_epoch, header.base_offset)
            run.append(batch)
            run_bytes += header.size
        self._write_fetched(run)
        return self.log_end_offset

    def _note_gaps(self, fetched: Sequence[FetchedBatch]) -> None:
        """Persist, before the batches, up to which offset the leader's compaction left gaps."""
        gaps_end = self.gaps_end
        expected_offset = self.log_end_offset
        for header, _ in fetched:
            if header.base_offset > expected_offset:
                gaps_end = header.base_offset
            expected_offset = header.next_offset
        if gaps_end > self.gaps_end:
            self.gaps_end = gaps_end
            self.write_manifest()

    def _begin_inside_batch(self, base_offset: int) -> None:
        """Start the log with a batch that begins before the log start offset: the leader deleted
        records up to the middle of that batch, and the log keeps whole batches."""
        start_offset = self.log_end_offset
        if self.log_start_offset != start_offset:
            raise CorruptMessage(f"{self.topic_partition}: a fetched batch begins before the end")
        self.truncate_fully_and_start_at(base_offset)
        self.log_start_offset = start_offset

    def _write_fetched(self, run: Sequence[FetchedBatch]) -> None:
        if not run:
            return
        segment = self._segments.active
        try:
            position = segment.append([batch.data for batch in run])
        except BrokerError as error:
            self._note_failed_write(error)
            raise
        for header, _ in run:
            size = header.size
            segment.note_batch(header.last_offset, position, size, header.max_timestamp)
            self._segments.remember(header.base_offset, position)
            if header.producer_id >= 0:
                self._note_producer(header, segment, position, header.base_offset)
            self._bytes_since_checkpoint += size
            position += size
        self.log_end_offset = run[-1].header.next_offset

    def _check_producers(
        self, checked: list[CheckedBatch], origin: AppendOrigin
    ) -> Appended | None:
        """Raise unless the batches follow the last ones of their producers. Returns the earlier append
        if they repeat it."""
        if origin is not AppendOrigin.CLIENT:
            return None
        if len(checked) > 1:
            self.producer_state.check_all(header for header, _ in checked)
            return None
        header = checked[0][0]
        written = self.producer_state.check(header)
        return None if written is None else self._repeated(written, header)

    def _repeated(self, written: WrittenBatch, header: BatchHeader) -> Appended:
        return Appended(
            written.base_offset,
            written.last_offset,
            written.timestamp if header.attributes & LOG_APPEND_TIME_FLAG else -1,
            self.log_start_offset,
            duplicate=True,
        )

    def _note(self, checked: list[CheckedBatch], segment: Segment, position: int) -> None:
        """Update indexes, producer state and log end offset for batches that were written."""
        offset = self.log_end_offset
        start = position
        remember = self._segments.remember
        for header, _ in checked:
            size = header.batch_length + PREFIX_BYTES
            next_offset = offset + header.last_offset_delta + 1
            segment.note_batch(next_offset - 1, position, size, header.max_timestamp)
            remember(offset, position)
            if header.producer_id >= 0:
                self._note_producer(header, segment, position, offset)
            position += size
            offset = next_offset
        self._bytes_since_checkpoint += position - start
        self.log_end_offset = offset

    def _note_producer(
        self, header: BatchHeader, segment: Segment, position: int, base_offset: int
    ) -> None:
        if not header.is_control:
            self.producer_state.update(header, base_offset)
            return
        data = memoryview(segment.file.read_at(position, header.size))
        for record in RecordBatch(header, data).records():
            marker = decode_end_marker(record)
            if marker is not None:
                self.producer_state.end_transaction(header, marker)

    def _begin_epoch(self, leader_epoch: int, start_offset: int) -> None:
        # Not persisted here: a checkpoint does that, and recovery reads the epochs past the recovery
        # point from the batches. A thousand new leaders must not wait for a thousand renames.
        self.make_files()
        self.leader_epochs.assign(leader_epoch, start_offset)

    def _is_full(self, segment: Segment, size: int, last_offset: int, header: BatchHeader) -> bool:
        """Whether the log has to roll: the segment is too large or too old."""
        config = self.config
        if (
            segment.size + size > config.segment_bytes
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
        ):
            return True
        first_timestamp = segment.first_timestamp
        return (
            first_timestamp is not None
            and 0 <= first_timestamp < header.max_timestamp - config.segment_ms
        )

    @property
    def may_have_gaps(self) -> bool:
        """Whether this log, or the leader's log it was copied from, was ever compacted."""
        return self.first_dirty_offset > 0 or self.config.is_compacted

    # Reading

    def find_damage(self, offset: int, max_bytes: int) -> int | None:
        """Verify what a read from this offset returns. The first damaged offset, or None."""
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

    def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        up_to_offset: int,
        at_least_one: bool = True,
        for_consumer: bool = False,
    ) -> LogSlice:
        """Whole batches, starting with the one that holds this offset, none that reaches up_to_offset.

        At most max_bytes, but at least one batch if at_least_one is set and there is one. For a
        consumer, without the batches that compaction emptied; a replica needs those, too.
        """
        if self._failure is not None:
            raise self._failure
        end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= end_offset:
            raise OffsetOutOfRange(
                f"{self.topic_partition} holds offsets {self.log_start_offset} to {end_offset}, "
                f"not {offset}"
            )
        while True:
            try:
                return self._segments.read(
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

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first record with this timestamp or a later one."""
        return time_lookup.first_at_or_after(self._segments.all, timestamp, self.log_start_offset)

    def max_timestamp_offset(self) -> TimestampedOffset | None:
        """The record with the largest timestamp."""
        return time_lookup.largest(self._segments.all, self.log_start_offset)

    def epoch_of(self, offset: int) -> int:
        """The epoch in which this offset was written; -1 if unknown."""
        return self.leader_epochs.epoch_of(offset)

    def end_offset_for_epoch(self, epoch: int) -> EpochStart:
        """The largest known epoch not above this one, and the offset where it ends."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

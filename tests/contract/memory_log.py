"""A log in memory for tests: whole batches in a list. It passes the same contract as the logs on disk."""

import uuid
from collections.abc import Callable, Iterable, Sequence

from zhumq.host.disk import DiskFile
from zhumq.model.buffers import Buffer
from zhumq.model.errors import (
    BrokerError,
    CorruptMessage,
    DiskFull,
    OffsetOutOfRange,
    StorageFailed,
)
from zhumq.model.ids import TopicPartition
from zhumq.records.batch import (
    HEAD,
    HEAD_BYTES,
    LOG_APPEND_TIME_FLAG,
    PREFIX_BYTES,
    RecordBatch,
    decode_header,
)
from zhumq.records.control import EndMarker, build_marker_batch, decode_end_marker
from zhumq.records.outline import outline
from zhumq.storage.fetched_batches import check_fetched
from zhumq.storage.flush_ticket import FlushTicket
from zhumq.storage.key_indexes import KeyIndexes
from zhumq.storage.leader_epochs import EpochStart, LeaderEpochs
from zhumq.storage.log_config import LogConfig
from zhumq.storage.log_slice import Appended, AppendedRun, CorruptRange, FileRegion, LogSlice
from zhumq.storage.producer_state import ProducerState
from zhumq.storage.schema_ids import KnownSchemas
from zhumq.storage.time_lookup import TimestampedOffset
from zhumq.storage.transaction_index import AbortedTransaction
from zhumq.storage.validator import (
    COORDINATOR,
    PLAIN_CLIENT,
    AppendOrigin,
    CheckedBatch,
    WalkBudget,
    check_batch,
)
from zhumq.testing.disk import MemoryDisk

PARTITION = TopicPartition("orders", 0)


class MemoryLog:
    """A Log without files.

    Its faults are those of its `disk` (`bytes_free`, `sync_fails`), and `damage`.
    """

    def __init__(
        self,
        topic_partition: TopicPartition = PARTITION,
        config: LogConfig | None = None,
        *,
        topic_id: uuid.UUID | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config or LogConfig()
        self.on_damage: Callable[[int], object] = lambda _: None
        self.accepts_deferred = False
        self.known_schemas: KnownSchemas | None = None
        self.disk = MemoryDisk()
        self.log_start_offset = 0
        self.flushed_offset = 0
        self.log_end_offset = 0
        self.bytes_written = 0
        self.producer_state = ProducerState()
        self.key_indexes = KeyIndexes("/memory", self.disk, lambda _: 0)
        self.failure: StorageFailed | None = None
        self.suspect_offset: int | None = None
        self.corrupt_ranges: tuple[CorruptRange, ...] = ()
        self._epochs = LeaderEpochs()
        self._batches: list[RecordBatch] = []
        self._aborted: list[AbortedTransaction] = []
        self._truncations = 0
        self._is_truncation_flushed = True
        self._is_closed = False

    def make_files(self) -> None:
        """There are none."""

    def update_config(self, config: LogConfig) -> None:
        self.config = config

    @property
    def size_bytes(self) -> int:
        return sum(len(batch.data) for batch in self._batches)

    @property
    def may_have_gaps(self) -> bool:
        return self.config.is_compacted

    # Faults

    def damage(self, offset: int) -> None:
        """Flip a bit of the batch that holds this offset."""
        for place, batch in enumerate(self._batches):
            if batch.header.base_offset <= offset <= batch.header.last_offset:
                data = bytearray(batch.data)
                data[-1] ^= 1
                self._batches[place] = RecordBatch(batch.header, memoryview(data))

    def reopened(self) -> "MemoryLog":
        """The log after a crash: without the batches that no flush reached."""
        log = MemoryLog(self.topic_partition, self.config, topic_id=self.topic_id)
        log.log_start_offset = self.log_start_offset
        log.suspect_offset = self.suspect_offset
        log._add(
            batch for batch in self._batches if batch.header.next_offset <= self.flushed_offset
        )
        log.flushed_offset = log.log_end_offset = max(log.log_end_offset, self.log_start_offset)
        log.bytes_written = 0
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
        self._check_online()
        view = memoryview(batches)
        checked: list[CheckedBatch] = []
        end = 0
        while not checked or end < len(view):
            checked.append(check_batch(view[end:], self.config, now_ms, origin, budget))
            end += checked[-1][0].batch_length + PREFIX_BYTES
        header = checked[0][0]
        if origin is COORDINATOR:
            self.producer_state.check_unnumbered(each for each, _ in checked)
        elif len(checked) > 1:
            self.producer_state.check_all(each for each, _ in checked)
        elif header.producer_id >= 0:
            written = self.producer_state.check(header)
            if written is not None:
                stamp = written.timestamp if header.attributes & LOG_APPEND_TIME_FLAG else -1
                return Appended(
                    written.base_offset, written.last_offset, stamp, self.log_start_offset, True
                )
        base_offset = self._write(checked, leader_epoch)
        header = checked[-1][0]
        stamp = header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else -1
        return Appended(base_offset, self.log_end_offset - 1, stamp, self.log_start_offset, False)

    def append_marker(
        self,
        marker: EndMarker,
        *,
        producer_id: int,
        producer_epoch: int,
        transaction_version: int,
        leader_epoch: int,
        now_ms: int,
    ) -> Appended:
        self._check_online()
        data = build_marker_batch(
            marker,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=now_ms,
            timestamp_type=self.config.message_timestamp_type,
        )
        header = decode_header(data)
        self.producer_state.check_marker(header, marker, transaction_version)
        offset = self._write([(header, (data[HEAD_BYTES:],))], leader_epoch)
        stamp = now_ms if self.config.stamps_append_time else -1
        return Appended(offset, offset, stamp, self.log_start_offset, False)

    def append_each(
        self, batches: Sequence[bytes | memoryview], *, leader_epoch: int, now_ms: int
    ) -> AppendedRun:
        self._check_online()
        offsets: list[int] = []
        last: Appended | BrokerError | None = None
        size = 0
        for each in batches:
            try:
                appended = self.append(
                    each, leader_epoch=leader_epoch, now_ms=now_ms, origin=PLAIN_CLIENT
                )
            except DiskFull:
                raise
            except BrokerError as refusal:
                last = refusal
                break
            size += 0 if appended.duplicate else len(each)
            if appended.duplicate or decode_header(each).size != len(each):
                last = appended
                break
            offsets.append(appended.base_offset)
        append_time_ms = now_ms if self.config.stamps_append_time else -1
        return AppendedRun(offsets, append_time_ms, self.log_start_offset, size, last)

    def append_fetched(self, batches: Buffer, *, epoch_max: int, gaps_allowed: bool) -> int:
        self._check_online()
        fetched = check_fetched(
            memoryview(batches),
            next_offset=self.log_end_offset,
            last_epoch=self._epochs.latest_epoch,
            epoch_max=epoch_max,
            gaps_allowed=gaps_allowed,
        )
        start_offset = self.log_end_offset
        begins_inside = bool(fetched) and fetched[0].header.base_offset < start_offset
        if begins_inside and self.log_start_offset != start_offset:
            raise CorruptMessage(f"{self.topic_partition}: a fetched batch begins before the end")
        self._spend(sum(len(data) for _, data in fetched))
        if begins_inside:
            self.truncate_fully_and_start_at(fetched[0].header.base_offset)
            self.log_start_offset = start_offset
        self._add(RecordBatch(header, memoryview(bytes(data))) for header, data in fetched)
        return self.log_end_offset

    def _write(self, checked: Sequence[CheckedBatch], leader_epoch: int) -> int:
        base_offset = next_offset = self.log_end_offset
        written: list[RecordBatch] = []
        for header, tail in checked:
            head = HEAD.pack(next_offset, header.batch_length, leader_epoch)
            data = memoryview(b"".join((head, *tail)))
            written.append(RecordBatch(decode_header(data), data))
            next_offset += header.last_offset_delta + 1
        self._spend(sum(len(batch.data) for batch in written))
        self._add(written)
        return base_offset

    def _add(self, written: Iterable[RecordBatch]) -> None:
        """Add batches that have their offsets, and what follows from them."""
        for batch in written:
            header = batch.header
            self._batches.append(batch)
            self.bytes_written += len(batch.data)
            self._epochs.assign(header.partition_leader_epoch, header.base_offset)
            self._note_producer(batch)
            self.log_end_offset = header.next_offset

    def _note_producer(self, batch: RecordBatch) -> None:
        header = batch.header
        if header.producer_id < 0:
            return
        if not header.is_control:
            self.producer_state.update(header, header.base_offset)
            return
        for marker in filter(None, map(decode_end_marker, batch.records())):
            aborted = self.producer_state.end_transaction(header, marker, header.base_offset)
            if aborted is not None:
                self._aborted.append(aborted)

    def _spend(self, size: int) -> None:
        self.disk.spend(size, str(self.topic_partition))

    def _check_online(self) -> None:
        if self.failure is not None:
            raise self.failure

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
        self._check_online()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"{self.topic_partition} holds offsets {self.log_start_offset} to"
                f" {self.log_end_offset}, not {offset}"
            )
        found: list[memoryview] = []
        size = 0
        next_offset = offset
        for batch in self._batches:
            header = batch.header
            if header.last_offset < offset:
                continue
            if header.last_offset >= up_to_offset:
                break
            if not batch.crc_matches:
                self._note_damage(batch)
                if not found:
                    raise CorruptMessage(f"{self.topic_partition} is damaged at {offset}")
                break
            if header.records_count or not for_consumer:
                if size + header.size > max_bytes and (found or not at_least_one):
                    break
                found.append(batch.data)
                size += header.size
            next_offset = header.next_offset
        regions = (FileRegion(_file_of(b"".join(found)), 0, size),) if found else ()
        return LogSlice(regions, next_offset)

    def _note_damage(self, batch: RecordBatch) -> None:
        header = batch.header
        damage = CorruptRange(0, 0, 0, header.base_offset, header.next_offset)
        if damage not in self.corrupt_ranges:
            self.corrupt_ranges = (*self.corrupt_ranges, damage)
            self.on_damage(header.base_offset)

    def aborted_transactions(self, offset: int, next_offset: int) -> list[AbortedTransaction]:
        return [
            each
            for each in self._aborted
            if each.last_offset >= offset and each.first_offset < next_offset
        ]

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        return next((each for each in self._times() if each.timestamp >= timestamp), None)

    def max_timestamp_offset(self) -> TimestampedOffset | None:
        return max(self._times(), key=lambda each: (each.timestamp, -each.offset), default=None)

    def _times(self) -> list[TimestampedOffset]:
        return [
            TimestampedOffset(timestamp, offset, batch.header.partition_leader_epoch)
            for batch in self._batches
            for timestamp, offset, *_ in outline(batch)
            if offset >= self.log_start_offset
        ]

    def epoch_of(self, offset: int) -> int:
        return self._epochs.epoch_of(offset)

    def end_offset_for_epoch(self, epoch: int) -> EpochStart:
        return self._epochs.end_offset_for(epoch, self.log_end_offset)

    # Durability

    def begin_flush(self) -> FlushTicket | None:
        is_flushed = self.flushed_offset == self.log_end_offset and self._is_truncation_flushed
        if self.failure is not None or is_flushed:
            return None
        self._is_truncation_flushed = True
        return FlushTicket(
            next_offset=self.log_end_offset,
            truncations=self._truncations,
            disk=self.disk,
            files=(),
            directories=(str(self.topic_partition),),
        )

    def finish_flush(self, ticket: FlushTicket) -> None:
        if self._is_closed:
            return
        if ticket.error is not None:
            self.failure = StorageFailed(f"{self.topic_partition} is offline: {ticket.error}")
        elif ticket.truncations == self._truncations:
            self.flushed_offset = max(self.flushed_offset, ticket.next_offset)

    def close(self, *, clean: bool = True) -> None:
        if self._is_closed:
            return
        if clean and (ticket := self.begin_flush()) is not None:
            ticket.run()
            self.finish_flush(ticket)
            self._check_online()
        self._is_closed = True
        if self.failure is None:
            self.failure = StorageFailed(f"{self.topic_partition} is closed")

    # Removal

    def truncate_to(self, offset: int) -> None:
        if offset >= self.log_end_offset:
            return
        kept = [batch for batch in self._batches if batch.header.last_offset < offset]
        removed = self._batches[len(kept) :]
        end_offset = min([offset, *(batch.header.base_offset for batch in removed)])
        if end_offset < self.log_start_offset:
            self.truncate_fully_and_start_at(self.log_start_offset)
        else:
            self._truncate(kept, end_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self.log_start_offset = offset
        self._truncate([], offset)

    def _truncate(self, kept: list[RecordBatch], end_offset: int) -> None:
        self._truncations += 1
        self._is_truncation_flushed = False
        self._batches = kept
        self._epochs.truncate_end(end_offset)
        self.log_end_offset = end_offset
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self.corrupt_ranges = tuple(
            bad for bad in self.corrupt_ranges if bad.next_offset <= end_offset
        )
        self.producer_state = ProducerState()
        self._aborted = []
        for batch in kept:
            self._note_producer(batch)

    def delete_records_before(self, offset: int) -> int:
        self._check_online()
        if not 0 <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"{self.topic_partition} ends at {self.log_end_offset}, before {offset}"
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self._epochs.truncate_start(offset)
        return self.log_start_offset

    # Damage

    def find_damage(self, offset: int, max_bytes: int) -> int | None:
        try:
            self.read(offset, max_bytes=max_bytes, up_to_offset=self.log_end_offset)
        except CorruptMessage:
            return offset
        damage = (bad.first_offset for bad in self.corrupt_ranges if bad.next_offset > offset)
        return min(damage, default=None)

    def mark_suspect(self, offset: int) -> None:
        known = self.suspect_offset
        self.suspect_offset = offset if known is None else min(known, offset)

    def clear_suspect(self) -> None:
        self.suspect_offset = None


def _file_of(data: bytes) -> DiskFile:
    """A file in memory with these bytes."""
    disk = MemoryDisk()
    disk.make_directory("/")
    file = disk.open_file("/slice", create=True)
    file.append((data,))
    return file

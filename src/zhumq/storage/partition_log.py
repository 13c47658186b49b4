"""One partition's log: append, read, find. Used from the event loop only."""

import uuid
from collections.abc import Sequence

from zhumq.host.clock import Clock
from zhumq.host.disk import Buffer, Disk
from zhumq.model.errors import BrokerError, OffsetOutOfRange, StorageFailed
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
from zhumq.storage.index_cache import IndexCache
from zhumq.storage.leader_epochs import EpochStart
from zhumq.storage.log_config import LogConfig
from zhumq.storage.log_slice import Appended, LogSlice
from zhumq.storage.log_upkeep import LogUpkeep
from zhumq.storage.recovery import load_log
from zhumq.storage.segment import RELATIVE_OFFSET_MAX, Segment
from zhumq.storage.time_lookup import TimestampedOffset
from zhumq.storage.validator import (
    AppendOrigin,
    CheckedBatch,
    WalkBudget,
    check_batch,
    check_batches,
)


class PartitionLog(LogUpkeep):
    """The log of one partition.

    A method that changes files either does so whole or raises; after StorageFailed the log is
    offline until a restart, after DiskFull it works again as soon as there is room.
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
    ) -> "PartitionLog":
        """Open the log in this folder, made if absent; after a crash, recover it first."""
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
        )
        return cls(
            directory,
            topic_partition,
            config,
            loaded,
            disk=disk,
            clock=clock,
            cache=cache,
            topic_id=loaded.topic_id,
        )

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
        """Check the batches, give them the next offsets, and write them at the end."""
        if self._failure is not None:
            raise self._failure
        view = batches if type(batches) is memoryview else memoryview(batches)
        checked = check_batches(view, self.config, now_ms=now_ms, origin=origin, budget=budget)
        header = checked[0][0]
        if header.producer_id >= 0 or len(checked) > 1:
            duplicate = self._check_producers(checked, origin)
            if duplicate is not None:
                return duplicate
        base_offset = self._write(checked, len(view), leader_epoch)
        header = checked[-1][0]
        append_time_ms = header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else -1
        return Appended(
            base_offset, self.log_end_offset - 1, append_time_ms, self.log_start_offset, False
        )

    def append_each(
        self, batches: Sequence[memoryview], *, leader_epoch: int, now_ms: int
    ) -> list[int] | None:
        """Several clients' appends of one batch each, in a single write; returns their offsets.

        None, and nothing is written, where one of them is not plainly good: `append` tells why.
        """
        config = self.config
        if self._failure is not None or config.stamps_append_time:
            return None
        try:
            checked = [
                check_batch(view, config, now_ms, AppendOrigin.CLIENT, None) for view in batches
            ]
            self.producer_state.check_all(header for header, _ in checked)
        except BrokerError:
            return None
        size = sum(map(len, batches))
        if size > config.segment_bytes:
            return None
        offset = self.log_end_offset
        offsets = []
        bytes_checked = 0
        for header, _ in checked:
            offsets.append(offset)
            offset += header.last_offset_delta + 1
            bytes_checked += header.batch_length + PREFIX_BYTES
        if bytes_checked != size:
            return None  # There is more than one batch in one of them.
        self._write(checked, size, leader_epoch)
        return offsets

    def _write(self, checked: list[CheckedBatch], size: int, leader_epoch: int) -> int:
        """Give the batches the next offsets, and write them at the end. Returns the first offset."""
        base_offset = self.log_end_offset
        if leader_epoch > self.leader_epochs.latest_epoch:
            self._begin_epoch(leader_epoch, base_offset)
        next_offset = base_offset
        parts: list[Buffer] = []
        for header, tail in checked:
            parts.append(HEAD.pack(next_offset, header.batch_length, leader_epoch))
            parts.extend(tail)
            next_offset += header.last_offset_delta + 1
        segment = self._segments.active
        if segment.size and self._is_full(segment, size, next_offset - 1, checked[-1][0]):
            self.roll()
            segment = self._segments.active
        try:
            position = segment.append(parts)
        except StorageFailed as error:
            self._failure = error
            raise
        self._note(checked, segment, position)
        return base_offset

    def _check_producers(
        self, checked: list[CheckedBatch], origin: AppendOrigin
    ) -> Appended | None:
        """Raise unless the batches follow their producers' last ones; the earlier append if they
        repeat it."""
        if origin is not AppendOrigin.CLIENT:
            return None
        if len(checked) > 1:
            self.producer_state.check_all(header for header, _ in checked)
            return None
        header = checked[0][0]
        written = self.producer_state.check(header)
        if written is None:
            return None
        return Appended(
            written.base_offset,
            written.last_offset,
            written.timestamp if header.attributes & LOG_APPEND_TIME_FLAG else -1,
            self.log_start_offset,
            duplicate=True,
        )

    def _note(self, checked: list[CheckedBatch], segment: Segment, position: int) -> None:
        """The batches are written: indexes, producers and the end of the log follow."""
        offset = self.log_end_offset
        segments = self._segments
        for header, _ in checked:
            size = header.batch_length + 12
            next_offset = offset + header.last_offset_delta + 1
            segment.note_batch(next_offset - 1, position, size, header.max_timestamp)
            segments.remember(offset, position)
            if header.producer_id >= 0:
                self._note_producer(header, segment, position, offset)
            self._bytes_since_checkpoint += size
            position += size
            offset = next_offset
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
        self.leader_epochs.assign(leader_epoch, start_offset)
        self._write_leader_epochs()

    def _is_full(self, segment: Segment, size: int, last_offset: int, header: BatchHeader) -> bool:
        """Whether a new segment has to begin: the old one is too large, or too old."""
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

    # Reading

    def read(
        self, offset: int, *, max_bytes: int, up_to_offset: int, at_least_one: bool = True
    ) -> LogSlice:
        """Whole batches from the one that holds this offset on, none that reaches up_to_offset.

        At most max_bytes, but at least one batch if at_least_one is set and one is there.
        """
        if self._failure is not None:
            raise self._failure
        end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= end_offset:
            raise OffsetOutOfRange(
                f"{self.topic_partition} holds offsets {self.log_start_offset} to {end_offset}, "
                f"not {offset}"
            )
        return self._segments.read(
            offset, end_offset, min(up_to_offset, end_offset), max_bytes, at_least_one
        )

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first record that is not older than this timestamp."""
        return time_lookup.first_at_or_after(self._segments.all, timestamp, self.log_start_offset)

    def max_timestamp_offset(self) -> TimestampedOffset | None:
        """The record with the largest timestamp."""
        return time_lookup.largest(self._segments.all, self.log_start_offset)

    def end_offset_for_epoch(self, epoch: int) -> EpochStart:
        """The largest known epoch not above this one, and the offset where it ends."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

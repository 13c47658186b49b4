"""Appends to a segmented log: batches of clients, which get offsets here, and batches of the leader."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zhumq.model.buffers import COPIED_BYTES_MAX, Buffer
from zhumq.model.errors import BrokerError, CorruptMessage, DiskFull, InvalidRecord, StorageFailed
from zhumq.records.batch import (
    HEAD,
    HEAD_BYTES,
    LOG_APPEND_TIME_FLAG,
    PREFIX_BYTES,
    BatchHeader,
    RecordBatch,
    decode_header,
)
from zhumq.records.control import EndMarker, build_marker_batch, decode_end_marker
from zhumq.storage.batch_scan import RELATIVE_OFFSET_MAX
from zhumq.storage.fetched_batches import FetchedBatch, check_fetched
from zhumq.storage.log_slice import Appended, AppendedRun
from zhumq.storage.producer_state import ProducerEntry, WrittenBatch
from zhumq.storage.segment import Segment
from zhumq.storage.validator import (
    BATCH_RECORDS_MAX,
    COORDINATOR,
    PLAIN_CLIENT,
    WALKED_BYTES_MAX,
    AppendOrigin,
    CheckedBatch,
    WalkBudget,
    check_batch,
)

if TYPE_CHECKING:
    from zhumq.storage.segmented_log import SegmentedLog

# Of one write for several requests. It keeps the records of each one below what a WalkBudget always has.
RUN_BYTES_MAX = 1024 * 1024


class LogAppender:
    """Checks batches, writes them into the active segment, and notes what follows from them. `append`,
    `append_each` and `append_fetched` are those of Log."""

    __slots__ = ("_log",)

    def __init__(self, log: "SegmentedLog") -> None:
        self._log = log

    # Batches of clients

    def append(
        self,
        batches: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        budget: WalkBudget | None = None,
        first: CheckedBatch | None = None,  # the first batch, if it is checked already
    ) -> Appended:
        log = self._log
        if log.failure is not None:
            raise log.failure
        config = log.config
        size = len(batches)
        view = batches if size <= COPIED_BYTES_MAX else memoryview(batches)
        checked = [first or check_batch(view, config, now_ms, origin, budget)]
        header = checked[0][0]
        end = header.batch_length + PREFIX_BYTES
        while end < size:
            checked.append(check_batch(view[end:], config, now_ms, origin, budget))
            header = checked[-1][0]
            end += header.batch_length + PREFIX_BYTES
        if header.producer_id >= 0 or len(checked) > 1:
            duplicate = self._check_producers(checked, origin)
            if duplicate is not None:
                return duplicate
        base_offset = self._write(checked, size, leader_epoch)
        append_time_ms = header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else -1
        return Appended(
            base_offset, log.log_end_offset - 1, append_time_ms, log.log_start_offset, False
        )

    def append_each(
        self, batches: Sequence[bytes | memoryview], *, leader_epoch: int, now_ms: int
    ) -> AppendedRun:
        log = self._log
        if log.failure is not None:
            raise log.failure
        config = log.config
        size_max = min(config.segment_bytes, RUN_BYTES_MAX)
        budget = WalkBudget()
        # Not written yet: the producers of the batches that are checked.
        producers: dict[int, ProducerEntry] = {}
        checked: list[CheckedBatch] = []
        offsets: list[int] = []
        offset = log.log_end_offset
        size = 0
        last: Appended | BrokerError | None = None
        several: CheckedBatch | None = None  # the first batch of a request with more of them
        for view in batches:
            length = len(view)
            if size + length > size_max and checked:
                break
            try:
                batch = check_batch(view, config, now_ms, PLAIN_CLIENT, budget)
                header = batch[0]
                if header.batch_length + PREFIX_BYTES != length:
                    several = batch
                    break
                if header.producer_id >= 0:
                    written = log.producer_state.check_next(header, offset, producers)
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
                last = self.append(
                    view,
                    leader_epoch=leader_epoch,
                    now_ms=now_ms,
                    origin=PLAIN_CLIENT,
                    first=several,
                )
                size += length
            except BrokerError as refusal:
                last = refusal
        append_time_ms = now_ms if config.stamps_append_time else -1
        return AppendedRun(offsets, append_time_ms, log.log_start_offset, size, last)

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
        log = self._log
        if log.failure is not None:
            raise log.failure
        data = build_marker_batch(
            marker,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=now_ms,
            timestamp_type=log.config.message_timestamp_type,
        )
        header = decode_header(data)
        log.producer_state.check_marker(header, marker, transaction_version)
        checked: list[CheckedBatch] = [(header, (data[HEAD_BYTES:],))]
        offset = self._write(checked, len(data), leader_epoch, marker)
        append_time_ms = now_ms if log.config.stamps_append_time else -1
        return Appended(offset, offset, append_time_ms, log.log_start_offset, duplicate=False)

    def _check_producers(
        self, checked: list[CheckedBatch], origin: AppendOrigin
    ) -> Appended | None:
        """Raise unless the batches follow the last ones of their producers. Returns the earlier append
        if they repeat it."""
        log = self._log
        if origin is COORDINATOR:
            log.producer_state.check_unnumbered(header for header, _ in checked)
            return None
        if len(checked) > 1:
            log.producer_state.check_all(header for header, _ in checked)
            return None
        header = checked[0][0]
        written = log.producer_state.check(header)
        return None if written is None else self._repeated(written, header)

    def _repeated(self, written: WrittenBatch, header: BatchHeader) -> Appended:
        return Appended(
            written.base_offset,
            written.last_offset,
            written.timestamp if header.attributes & LOG_APPEND_TIME_FLAG else -1,
            self._log.log_start_offset,
            duplicate=True,
        )

    def _write(
        self,
        checked: list[CheckedBatch],
        size: int,
        leader_epoch: int,
        marker: EndMarker | None = None,
    ) -> int:
        """Assign the next offsets, and write the batches at the end. Returns the first offset.

        Control batches are only those with a marker, one at a time.
        """
        log = self._log
        base_offset = log.log_end_offset
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
        if leader_epoch > log.leader_epochs.latest_epoch:
            self._begin_epoch(leader_epoch, base_offset)
        segment = log.segments.active
        try:
            if segment.size and self._is_full(segment, size, next_offset - 1, checked[-1][0]):
                log.flushing.roll()
                segment = log.segments.active
            position = segment.append(parts)
        except BrokerError as error:
            self._note_failed_write(error)
            raise
        self._note(checked, segment, position, marker)
        return base_offset

    def _note(
        self,
        checked: list[CheckedBatch],
        segment: Segment,
        position: int,
        marker: EndMarker | None,
    ) -> None:
        """Update indexes, producer state and log end offset for batches that were written."""
        log = self._log
        offset = log.log_end_offset
        segment.note_batches(checked, offset, position)
        # Readers who wait at the end continue here.
        log.segments.remember(offset, position)
        for header, _ in checked:
            if header.producer_id >= 0:
                if marker is None:
                    log.producer_state.update(header, offset)
                else:
                    self._end_transaction(header, marker, segment, offset)
            offset += header.last_offset_delta + 1
        log.bytes_written += segment.size - position
        log.log_end_offset = offset

    # Batches of the leader

    def append_fetched(self, batches: Buffer, *, epoch_max: int, gaps_allowed: bool) -> int:
        log = self._log
        if log.failure is not None:
            raise log.failure
        fetched = check_fetched(
            memoryview(batches),
            next_offset=log.log_end_offset,
            last_epoch=log.leader_epochs.latest_epoch,
            epoch_max=epoch_max,
            gaps_allowed=gaps_allowed,
        )
        if fetched and fetched[0].header.base_offset < log.log_end_offset:
            self._begin_inside_batch(fetched[0].header.base_offset)
        self._note_gaps(fetched)
        run: list[FetchedBatch] = []
        run_bytes = 0
        for batch in fetched:
            header = batch.header
            if self._is_full(
                log.segments.active, run_bytes + header.size, header.last_offset, header
            ):
                self._write_fetched(run)
                run, run_bytes = [], 0
                log.flushing.roll()
            if header.partition_leader_epoch > log.leader_epochs.latest_epoch:
                self._begin_epoch(header.partition_leader_epoch, header.base_offset)
            run.append(batch)
            run_bytes += header.size
        self._write_fetched(run)
        return log.log_end_offset

    def _begin_inside_batch(self, base_offset: int) -> None:
        """Start the log with a batch that begins before the log start offset: the leader deleted
        records up to the middle of that batch, and the log keeps whole batches."""
        log = self._log
        start_offset = log.log_end_offset
        if log.log_start_offset != start_offset:
            raise CorruptMessage(f"{log.topic_partition}: a fetched batch begins before the end")
        log.truncate_fully_and_start_at(base_offset)
        log.log_start_offset = start_offset

    def _note_gaps(self, fetched: Sequence[FetchedBatch]) -> None:
        """Persist, before the batches, up to which offset the leader's compaction left gaps."""
        log = self._log
        gaps_end = log.proof.gaps_end
        expected_offset = log.log_end_offset
        for header, _ in fetched:
            if header.base_offset > expected_offset:
                gaps_end = header.base_offset
            expected_offset = header.next_offset
        if gaps_end > log.proof.gaps_end:
            log.proof.gaps_end = gaps_end
            log.flushing.write_manifest()

    def _write_fetched(self, run: Sequence[FetchedBatch]) -> None:
        if not run:
            return
        log = self._log
        segment = log.segments.active
        try:
            position = segment.append([batch.data for batch in run])
        except BrokerError as error:
            self._note_failed_write(error)
            raise
        log.segments.remember(run[0].header.base_offset, position)
        log.bytes_written += segment.size - position
        for header, data in run:
            segment.note_batch(header, position)
            if header.producer_id >= 0:
                self._note_producer(header, data, segment)
            position += header.size
        log.log_end_offset = run[-1].header.next_offset

    # What both need

    def _is_full(self, segment: Segment, size: int, last_offset: int, header: BatchHeader) -> bool:
        """Whether the log has to roll: the segment is too large or too old."""
        config = self._log.config
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

    def _begin_epoch(self, leader_epoch: int, start_offset: int) -> None:
        # Not persisted here: a checkpoint does that, and recovery reads the epochs past the recovery
        # point from the batches. A thousand new leaders must not wait for a thousand renames.
        self._log.make_files()
        self._log.leader_epochs.assign(leader_epoch, start_offset)

    def _note_producer(self, header: BatchHeader, data: memoryview, segment: Segment) -> None:
        if not header.is_control or not header.is_transactional:
            self._log.producer_state.update(header, header.base_offset)
            return
        for record in RecordBatch(header, data).records():
            marker = decode_end_marker(record)
            if marker is not None:
                self._end_transaction(header, marker, segment, header.base_offset)

    def _end_transaction(
        self, header: BatchHeader, marker: EndMarker, segment: Segment, offset: int
    ) -> None:
        aborted = self._log.producer_state.end_transaction(header, marker, offset)
        if aborted is not None:
            self._log.transaction_indexes.add(segment.base_offset, aborted)

    def _note_failed_write(self, error: BrokerError) -> None:
        if isinstance(error, DiskFull):
            self._log.writes_without_room += 1
        elif isinstance(error, StorageFailed):
            self._log.failure = error


class OneByOneAppender(LogAppender):
    """An appender that looks into the records of each batch."""

    __slots__ = ()

    def append_each(
        self, batches: Sequence[bytes | memoryview], *, leader_epoch: int, now_ms: int
    ) -> AppendedRun:
        """One request at a time: few of them are written together anyway when each is read."""
        start_offset = self._log.log_start_offset
        try:
            first = self.append(
                batches[0], leader_epoch=leader_epoch, now_ms=now_ms, origin=PLAIN_CLIENT
            )
        except BrokerError as refusal:
            return AppendedRun([], -1, start_offset, 0, refusal)
        return AppendedRun([], -1, start_offset, 0 if first.duplicate else len(batches[0]), first)

"""Compaction: keeps the last record of each key, at its offset. The heavy part runs in a thread."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from zhumq.host.disk import Disk, DiskFile
from zhumq.model.errors import BrokerError, CorruptMessage
from zhumq.records.batch import NO_TIMESTAMP, BatchHeader, Record, RecordBatch, decode_header
from zhumq.records.builder import rebuild_batch
from zhumq.records.control import decode_end_marker
from zhumq.storage.batch_scan import RELATIVE_OFFSET_MAX
from zhumq.storage.compaction_swap import swap_name
from zhumq.storage.compaction_transactions import CleanedTransactions
from zhumq.storage.indexes import OffsetIndex, TimeIndex
from zhumq.storage.latest_offsets import KEYS_MAX, LatestOffsets
from zhumq.storage.log_config import LogConfig
from zhumq.storage.log_files import CLEANED_SUFFIX, SWAP_SUFFIX
from zhumq.storage.segment import Segment
from zhumq.storage.transaction_index import AbortedTransaction
from zhumq.storage.verification import file_checksum

logger = logging.getLogger(__name__)


class LastBatch(NamedTuple):
    """The batch that holds the last sequence of a producer; after an epoch bump, its marker (None)."""

    last_offset: int | None
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSegment:
    """A segment that may be compacted, and where it ends."""

    segment: Segment
    next_offset: int


@dataclass(slots=True, kw_only=True)
class CompactedSegment:
    """A new segment that replaces some neighbouring segments."""

    replaced: Sequence[SealedSegment]
    path: str  # the finished file
    size: int
    offset_index: OffsetIndex
    time_index: TimeIndex
    # Of the file: where offsets have gaps, batches do not verify each other.
    checksum: int | None = None
    aborted: list[AbortedTransaction] = field(default_factory=list)  # for its transaction index

    @property
    def base_offset(self) -> int:
        return self.replaced[0].segment.base_offset


@dataclass(slots=True, kw_only=True)
class CompactionTicket:
    """A compaction of one log: prepared on the event loop, run in a thread, finished on the loop."""

    directory: str
    disk: Disk
    config: LogConfig
    truncations: int
    segments: Sequence[SealedSegment]
    first_dirty_offset: int
    end_offset: int  # records at and after it stay untouched
    now_ms: int
    # The last batch of each producer stays, even if it is empty.
    last_batches: dict[int, LastBatch]
    aborted: Sequence[AbortedTransaction]  # in the segments
    compacted: list[CompactedSegment] = field(default_factory=list)
    unreadable_offsets: list[int] = field(default_factory=list)
    error: BrokerError | None = None

    def run(self) -> None:
        """Write the compacted segments. Called in a thread; the old segments stay as they are."""
        try:
            latest = self._latest_offsets()
            transactions = CleanedTransactions(self.aborted)
            for group in self._groups():
                self._rewrite(group, latest, transactions)
            # From here on a restart completes the compaction; before, it discards it.
            for done in self.compacted:
                self.disk.rename(done.path, done.path.removesuffix(CLEANED_SUFFIX) + SWAP_SUFFIX)
                done.path = done.path.removesuffix(CLEANED_SUFFIX) + SWAP_SUFFIX
            self.disk.sync_directory(self.directory)
        except BrokerError as error:
            self.error = error
            self.discard()
        if self.unreadable_offsets:
            logger.warning(
                "%s: %d batches have records that cannot be decoded and stay as they are,"
                " the first one at offset %d",
                self.directory,
                len(self.unreadable_offsets),
                self.unreadable_offsets[0],
            )

    def discard(self) -> None:
        """Delete the compacted segments."""
        for done in self.compacted:
            self.disk.unlink(done.path)
        self.compacted.clear()

    def _latest_offsets(self) -> LatestOffsets:
        """The last offset of each key in the dirty part. Lowers end_offset if there are too many keys: the next pass
        compacts the records behind them."""
        latest = LatestOffsets(min(KEYS_MAX, self.end_offset - self.first_dirty_offset))
        transactions = CleanedTransactions(
            each for each in self.aborted if each.last_offset >= self.first_dirty_offset
        )
        for sealed in self.segments:
            if sealed.next_offset <= self.first_dirty_offset:
                continue
            file = _open(sealed, self.disk)
            for position, header in sealed.segment.scan_file(file):
                if header.last_offset < self.first_dirty_offset:
                    continue
                if header.is_control:
                    self._end_transaction(_read(file, position, header), transactions)
                    continue
                if transactions.is_aborted(header):
                    continue  # Its records replace none.
                if not latest.has_room(header.records_count, header.last_offset):
                    self.end_offset = header.base_offset
                    return latest
                for record in _records(_read(file, position, header)) or ():
                    if record.key is not None:
                        latest.put(record.key, record.offset)
        return latest

    def _groups(self) -> list[list[SealedSegment]]:
        """Runs of neighbouring segments that fit into one segment together."""
        groups: list[list[SealedSegment]] = []
        size = 0
        for sealed in self.segments:
            if sealed.segment.base_offset >= self.end_offset:
                break
            if (
                groups
                and size + sealed.segment.size <= self.config.segment_bytes
                and sealed.next_offset - groups[-1][0].segment.base_offset <= RELATIVE_OFFSET_MAX
            ):
                groups[-1].append(sealed)
            else:
                groups.append([sealed])
                size = 0
            size += sealed.segment.size
        return groups

    def _rewrite(
        self,
        group: list[SealedSegment],
        latest: LatestOffsets,
        transactions: CleanedTransactions,
    ) -> None:
        base_offset = group[0].segment.base_offset
        name = swap_name(base_offset, group[-1].next_offset).removesuffix(SWAP_SUFFIX)
        path = f"{self.directory}/{name}{CLEANED_SUFFIX}"
        self.disk.unlink(path)
        output = self.disk.open_file(path, create=True)
        result = CompactedSegment(
            replaced=group,
            path=path,
            size=0,
            offset_index=OffsetIndex(base_offset),
            time_index=TimeIndex(base_offset),
        )
        self.compacted.append(result)
        bytes_since_entry = 0
        largest = (NO_TIMESTAMP, base_offset)
        for sealed in group:
            file = _open(sealed, self.disk)
            for position, header in sealed.segment.scan_file(file):
                # The last batch of the segment stays, even if it is empty: opening the log checks the
                # end of the segment against it, and all replicas of the log end at the same offset.
                is_last = sealed is group[-1] and position + header.size == sealed.segment.size
                original = _read(file, position, header)
                must_stay = is_last or self._is_last_of_producer(header)
                if header.is_control:
                    batch = self._compacted_marker(original, transactions, result, must_stay)
                else:
                    is_aborted = transactions.is_aborted(header)
                    batch = self._compacted_batch(original, latest, is_aborted, must_stay)
                if batch is None:
                    continue
                place = output.append((batch.data,))
                if batch.header.max_timestamp > largest[0]:
                    largest = batch.header.max_timestamp, batch.header.last_offset
                if bytes_since_entry > self.config.index_interval_bytes:
                    result.offset_index.append(batch.header.last_offset, place)
                    result.time_index.append_if_larger(*largest)
                    bytes_since_entry = 0
                bytes_since_entry += len(batch.data)
        result.time_index.append_if_larger(*largest)
        output.sync()
        result.size = output.size
        result.checksum = file_checksum(output)
        output.close()

    def _compacted_batch(
        self,
        original: RecordBatch,
        latest: LatestOffsets,
        is_aborted: bool,
        must_stay: bool,
    ) -> RecordBatch | None:
        """The batch without superseded records; None if no record is left."""
        header = original.header
        if header.base_offset >= self.end_offset:
            return original
        records = [] if is_aborted else _records(original)
        if records is None:
            self.unreadable_offsets.append(header.base_offset)
            return original
        horizon = header.delete_horizon_ms
        has_tombstones = False
        kept: list[Record] = []
        for record in records:
            if record.offset < self.end_offset:
                if record.key is None or latest.get(record.key) > record.offset:
                    continue
                if record.value is None:
                    if horizon is not None and self.now_ms > horizon:
                        continue  # Consumers had delete.retention.ms to read the tombstone.
                    has_tombstones = True
            kept.append(record)
        if not kept and not must_stay:
            return None
        if has_tombstones and horizon is None:
            horizon = self.now_ms + self.config.delete_retention_ms
        elif kept and len(kept) == len(records):
            return original
        return _rebuilt(header, kept, horizon)

    def _compacted_marker(
        self,
        original: RecordBatch,
        transactions: CleanedTransactions,
        result: CompactedSegment,
        must_stay: bool,
    ) -> RecordBatch | None:
        """The marker; None if its transaction is emptied, and readers had the time to read the marker."""
        header = original.header
        is_emptied, aborted = self._end_transaction(original, transactions)
        is_untouched = header.base_offset >= self.end_offset
        if aborted is not None and (is_untouched or not is_emptied):
            result.aborted.append(aborted)
        if is_untouched or not is_emptied:
            return original
        horizon = header.delete_horizon_ms
        if header.records_count and horizon is None:
            horizon = self.now_ms + self.config.delete_retention_ms
            return _rebuilt(header, list(original.records()), horizon)
        if header.records_count and horizon is not None and self.now_ms <= horizon:
            return original
        return _rebuilt(header, [], horizon) if must_stay else None

    def _end_transaction(
        self, batch: RecordBatch, transactions: CleanedTransactions
    ) -> tuple[bool, AbortedTransaction | None]:
        """Whether a control batch belongs to a transaction without batches, and which it aborts."""
        for record in batch.records():
            marker = decode_end_marker(record)
            if marker is None:
                return False, None  # a control record of another type
            has_batches, aborted = transactions.end(batch.header, marker)
            return not has_batches, aborted
        return True, None

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self.last_batches.get(header.producer_id)
        if last is None or header.producer_id < 0:
            return False
        if last.last_offset is None:
            return header.is_control and header.producer_epoch == last.producer_epoch
        return header.last_offset == last.last_offset


def is_worthwhile(
    segments: Sequence[SealedSegment], first_dirty_offset: int, config: LogConfig, now_ms: int
) -> bool:
    """Whether enough of the log is dirty, or the dirty part is old enough, to compact it now."""
    dirty = [each.segment for each in segments if each.next_offset > first_dirty_offset]
    dirty_bytes = sum(segment.size for segment in dirty)
    if not dirty_bytes:
        return False
    total_bytes = sum(each.segment.size for each in segments)
    oldest = dirty[0].max_timestamp
    return (
        dirty_bytes / total_bytes >= config.min_cleanable_dirty_ratio
        or 0 <= oldest < now_ms - config.max_compaction_lag_ms
    )


def _open(sealed: SealedSegment, disk: Disk) -> DiskFile:
    """A separate descriptor for the thread: the segment's own belongs to the event loop."""
    return disk.open_file(sealed.segment.paths[0])


def _read(file: DiskFile, position: int, header: BatchHeader) -> RecordBatch:
    """Read a batch and verify its checksum: a damaged batch must not get a new, matching checksum."""
    batch = RecordBatch(header, memoryview(file.read_at(position, header.size)))
    if not batch.crc_matches:
        raise CorruptMessage(f"batch {header.base_offset} does not match its checksum")
    return batch


def _records(batch: RecordBatch) -> list[Record] | None:
    """The records; None if the client wrote records that cannot be decoded, so their keys are unknown."""
    try:
        return list(batch.records())
    except CorruptMessage:
        return None


def _rebuilt(header: BatchHeader, kept: Sequence[Record], horizon: int | None) -> RecordBatch:
    data = rebuild_batch(header, kept, delete_horizon_ms=horizon)
    return RecordBatch(decode_header(data), memoryview(data))

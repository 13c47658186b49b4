"""The log of one partition as every layout on disk offers it. Used on the event loop only."""

import uuid
from collections.abc import Callable, Sequence
from typing import Protocol

from zhumq.model.buffers import Buffer
from zhumq.model.errors import StorageFailed
from zhumq.model.ids import TopicPartition
from zhumq.records.control import EndMarker
from zhumq.storage.flush_ticket import FlushTicket
from zhumq.storage.key_indexes import KeyIndexes
from zhumq.storage.leader_epochs import EpochStart
from zhumq.storage.log_config import LogConfig
from zhumq.storage.log_slice import Appended, AppendedRun, CorruptRange, LogSlice
from zhumq.storage.producer_state import ProducerState
from zhumq.storage.schema_ids import KnownSchemas
from zhumq.storage.time_lookup import TimestampedOffset
from zhumq.storage.transaction_index import AbortedTransaction
from zhumq.storage.validator import AppendOrigin, WalkBudget


class Log(Protocol):
    """Whole batches in the order of their offsets.

    A method that changes the log succeeds completely or raises. After StorageFailed the log is offline
    until a restart; after DiskFull it works again once there is space.
    """

    # Called with the first offset that cannot be read any more.
    on_damage: Callable[[int], object]
    # Whether delayed messages may be appended: their coordinator knows from which offset on it has to stage them.
    accepts_deferred: bool
    # Knows which schemas are registered, for a topic with a rule about them; None: this broker does not yet.
    known_schemas: KnownSchemas | None

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def topic_id(self) -> uuid.UUID | None: ...

    @property
    def config(self) -> LogConfig: ...

    def make_files(self) -> None:
        """Make a new log known to the next start, before anything is written. Raises BrokerError."""

    def update_config(self, config: LogConfig) -> None:
        """Use these settings from the next append on."""

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""

    @property
    def flushed_offset(self) -> int:
        """Everything below is durable."""

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""

    @property
    def bytes_written(self) -> int:
        """Bytes of the batches that were appended since the log was opened, whether they are still there or not."""

    @property
    def producer_state(self) -> ProducerState:
        """The last batches and the open transactions of the producers."""

    @property
    def failure(self) -> StorageFailed | None:
        """Why the log is offline; None while it works."""

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
        """Check the batches, assign the next offsets, and write them at the end. A batch that repeats
        an earlier one of its producer is not written: its first offsets are returned. Batches of a
        coordinator have no sequences."""

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
        """Write the marker that ends the transaction of a producer. Raises if a newer instance of the
        producer, or a newer coordinator, has fenced it."""

    def append_each(
        self, batches: Sequence[bytes | memoryview], *, leader_epoch: int, now_ms: int
    ) -> AppendedRun:
        """Append the batches of several requests of plain clients, each as `append` would, in one write.

        Ends behind the first request that is refused or that repeats an earlier one, and before one
        that would make the write too large. Raises what refuses them all, and writes nothing then.
        """

    def append_fetched(self, batches: Buffer, *, epoch_max: int, gaps_allowed: bool) -> int:
        """Write a leader's batches unchanged, with its offsets and epochs; returns the log end offset.

        Raises CorruptMessage, and writes nothing, if they do not follow the end of this log.
        """

    # Reading

    @property
    def may_have_gaps(self) -> bool:
        """Whether this log, or the leader's log it was copied from, was ever compacted."""

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

    def aborted_transactions(self, offset: int, next_offset: int) -> Sequence[AbortedTransaction]:
        """The aborted transactions that reach from an offset to before another one, in the order of
        their markers, which may be behind."""

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first record with this timestamp or a later one."""

    def max_timestamp_offset(self) -> TimestampedOffset | None:
        """The record with the largest timestamp."""

    def epoch_of(self, offset: int) -> int:
        """The epoch in which this offset was written; -1 if unknown."""

    def end_offset_for_epoch(self, epoch: int) -> EpochStart:
        """The largest known epoch not above this one, and the offset where it ends."""

    @property
    def key_indexes(self) -> KeyIndexes:
        """The index of keys and tags, which is empty unless the topic has one."""

    # Durability. A flush is prepared here, run in a thread, and finished here; one at a time.

    def begin_flush(self) -> FlushTicket | None:
        """What a thread has to sync now; None if there is nothing."""

    def finish_flush(self, ticket: FlushTicket) -> None:
        """Apply a ticket that a thread has run: move the flushed offset, or take the log offline."""

    def close(self, *, clean: bool = True) -> None:
        """Close the log. A clean close flushes first."""

    # Removal

    def truncate_to(self, offset: int) -> None:
        """Remove all batches that reach this offset or a later one."""

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records; the next batch gets this offset."""

    def delete_records_before(self, offset: int) -> int:
        """Raise the log start offset to this offset (DeleteRecords); returns the log start offset."""

    # Damage

    @property
    def corrupt_ranges(self) -> tuple[CorruptRange, ...]:
        """The damaged ranges with valid batches behind them. Reads of them raise CorruptMessage."""

    def find_damage(self, offset: int, max_bytes: int) -> int | None:
        """Verify what a read from this offset returns. The first damaged offset, or None."""

    @property
    def suspect_offset(self) -> int | None:
        """The offset from which the log is not trusted, even if its checksums match. Persistent until
        the log is truncated there."""

    def mark_suspect(self, offset: int) -> None:
        """Persist that the log from this offset on is damaged, or was never flushed."""

    def clear_suspect(self) -> None:
        """Remove the mark once the log is truncated."""

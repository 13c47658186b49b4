"""The log of a shard: its partition, the batches of a decision, and the replay of batches."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from zhumq.model.errors import BrokerError
from zhumq.model.state_machine import Outcome, Producer, Shard, StateRecord, TransactionalShard
from zhumq.records.batch import Record, RecordBatch
from zhumq.records.builder import build_batch
from zhumq.records.control import EndMarker, MarkerType, decode_end_marker

BATCH_OVERHEAD_BYTES: Final = 61
RECORD_OVERHEAD_BYTES: Final = 40  # varints of one record, at their longest
NO_PRODUCER: Final = Producer(-1, -1)


class AppendedRange(Protocol):
    """Offsets of an append."""

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""


class LogPart(Protocol):
    """A range of a log, not read from the disk yet."""

    def read_bytes(self) -> bytes | memoryview:
        """Its batches."""


class StatePartition(Protocol):
    """The partition of a shard's log, as the runtime uses it."""

    @property
    def log_start_offset(self) -> int:
        """The first offset in the log."""

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record. Records below it that are not durable yet may be lost."""

    def append_own(self, batches: bytes, now_ms: int) -> AppendedRange:
        """Append whole batches of the coordinator, all or nothing. Those of a producer's transaction have no
        sequences. Raises BrokerError."""

    def append_marker(
        self,
        marker: EndMarker,
        *,
        producer_id: int,
        producer_epoch: int,
        transaction_version: int,
        now_ms: int,
    ) -> AppendedRange:
        """End the transaction of a producer. Raises BrokerError."""

    def has_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of this producer is open here."""

    def verification(self, producer_id: int) -> int:
        """A number for `allow_transaction`, taken before the transaction's coordinator is asked."""

    def allow_transaction(self, producer_id: int, producer_epoch: int, verification: int) -> None:
        """The transaction's coordinator confirmed that it includes this partition."""

    def call_when_durable(
        self, next_offset: int, callback: Callable[[BrokerError | None], None]
    ) -> None:
        """Call back when everything below is durable, or with the error if it never will be."""

    def when_durable(self, next_offset: int) -> "asyncio.Future[None]":
        """The same as a future."""

    def read(self, offset: int, max_bytes: int) -> LogPart:
        """Whole batches from the one that contains this offset on, at least one if there is one."""


def batches_of(outcome: Outcome[Any], now_ms: int, batch_bytes_max: int) -> bytes:
    """The records of a decision in as few batches as the limit allows: one, for all but the largest.

    Those of a producer's transaction have no sequences, as in Kafka.
    """
    if len(outcome.records) == 1:
        (only,) = outcome.records
        return _batch_of([Record(key=only.key, value=only.value, timestamp=now_ms)], outcome)
    runs: list[list[Record]] = []
    size = batch_bytes_max
    for each in outcome.records:
        record_bytes = len(each.key) + len(each.value or b"") + RECORD_OVERHEAD_BYTES
        if size + record_bytes > batch_bytes_max:
            runs.append([])
            size = BATCH_OVERHEAD_BYTES
        runs[-1].append(Record(key=each.key, value=each.value, timestamp=now_ms))
        size += record_bytes
    return b"".join(_batch_of(records, outcome) for records in runs)


def _batch_of(records: list[Record], outcome: Outcome[Any]) -> bytes:
    producer = outcome.producer or NO_PRODUCER
    return build_batch(
        records,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        is_transactional=outcome.producer is not None,
    )


def replay_batch(shard: Shard[Any, Any], batch: RecordBatch, now_ms: int) -> None:
    """Apply a batch of the log: records, records of a transaction, or the end of a transaction."""
    header = batch.header
    if header.is_control:
        for record in batch.records():
            marker = decode_end_marker(record)
            if marker is not None:
                end_transaction(shard, marker, header.producer_id, now_ms)
        return
    records = (
        StateRecord(key=record.key, value=record.value, offset=record.offset)
        for record in batch.records()
        if record.key is not None
    )
    producer = Producer(header.producer_id, header.producer_epoch)
    replay(shard, records, producer if header.is_transactional else None, now_ms)


def replay(
    shard: Shard[Any, Any],
    records: Iterable[StateRecord],
    producer: Producer | None,
    now_ms: int,
) -> None:
    """Apply records, which belong to the transaction of a producer if there is one."""
    if producer is not None and isinstance(shard, TransactionalShard):
        for record in records:
            shard.replay_pending(producer.producer_id, record, now_ms)
    else:
        for record in records:
            shard.replay(record, now_ms)


def end_transaction(
    shard: Shard[Any, Any], marker: EndMarker, producer_id: int, now_ms: int
) -> None:
    """Apply a marker."""
    if isinstance(shard, TransactionalShard):
        is_commit = marker.marker_type is MarkerType.COMMIT
        shard.end_transaction(producer_id, now_ms, is_commit=is_commit)

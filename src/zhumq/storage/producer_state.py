"""The last batches of each idempotent producer: detects duplicates, sequence gaps and fenced producers."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from zhumq.model.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
)
from zhumq.records.batch import SEQUENCE_MAX, TRANSACTIONAL_FLAG, BatchHeader
from zhumq.records.control import EndMarker

REMEMBERED_BATCHES = 5  # the most a client may have in flight (max.in.flight.requests)
NO_EPOCH = -1
NO_OFFSET = -1


class WrittenBatch(NamedTuple):
    """A batch that is in the log."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


@dataclass(slots=True, kw_only=True)
class ProducerEntry:
    """The state of one producer on this partition."""

    epoch: int = NO_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: int = -1
    transaction_first_offset: int = NO_OFFSET
    # Oldest first, at most REMEMBERED_BATCHES, all of the current epoch.
    batches: list[WrittenBatch] = field(default_factory=list)

    @property
    def next_sequence(self) -> int:
        """The base sequence that the next batch of the current epoch must have."""
        return (self.batches[-1][0] + 1) & SEQUENCE_MAX if self.batches else 0

    def copy(self) -> "ProducerEntry":
        return ProducerEntry(
            epoch=self.epoch,
            coordinator_epoch=self.coordinator_epoch,
            last_timestamp=self.last_timestamp,
            transaction_first_offset=self.transaction_first_offset,
            batches=list(self.batches),
        )


class ProducerState:
    """All producers of one log. Hard state: exactly the replay of the log's batches."""

    __slots__ = ("_transactions", "producers")

    def __init__(self) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        self._transactions: dict[int, int] = {}  # producer id -> first offset of the open one

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProducerState) and self.producers == other.producers

    __hash__ = None  # type: ignore[assignment]

    @property
    def first_undecided_offset(self) -> int | None:
        """The first offset of the oldest open transaction: the last stable offset cannot pass it."""
        return min(self._transactions.values()) if self._transactions else None

    def check(self, header: BatchHeader) -> WrittenBatch | None:
        """The batch in the log that this one repeats; None if it follows its producer's last one.

        Raises if it does neither.
        """
        entry = self.producers.get(header.producer_id)
        return None if entry is None else _find_repeated(entry, header)

    def check_all(self, headers: Iterable[BatchHeader]) -> None:
        """Raise unless each batch follows its producer's last one, also within the same append."""
        staged: dict[int, ProducerEntry] = {}
        for header in headers:
            if header.producer_id >= 0:
                entry = self._staged(header.producer_id, staged)
                check_follows(entry, header)
                _write(entry, header, 0, header.last_offset_delta)

    def check_next(
        self, header: BatchHeader, base_offset: int, staged: dict[int, ProducerEntry]
    ) -> WrittenBatch | None:
        """Like `check`, for a batch that is written together with others, at this offset.

        `staged` has the producers of those before it; unless the batch repeats one, its own is added.
        """
        entry = self._staged(header.producer_id, staged)
        repeated = _find_repeated(entry, header)
        if repeated is None:
            _write(entry, header, base_offset, base_offset + header.last_offset_delta)
        return repeated

    def _staged(self, producer_id: int, staged: dict[int, ProducerEntry]) -> ProducerEntry:
        entry = staged.get(producer_id)
        if entry is None:
            known = self.producers.get(producer_id)
            entry = staged[producer_id] = known.copy() if known else ProducerEntry()
        return entry

    def update(self, header: BatchHeader, base_offset: int) -> None:
        """Record a data batch that was written at this offset."""
        producer_id = header.producer_id
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry()
        _write(entry, header, base_offset, base_offset + header.last_offset_delta)
        if header.attributes & TRANSACTIONAL_FLAG and entry.transaction_first_offset == NO_OFFSET:
            entry.transaction_first_offset = base_offset
            self._transactions[producer_id] = base_offset

    def end_transaction(self, header: BatchHeader, marker: EndMarker) -> None:
        """Record the marker that ends the producer's transaction."""
        entry = self.producers.setdefault(header.producer_id, ProducerEntry())
        if entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = header.max_timestamp
        entry.transaction_first_offset = NO_OFFSET
        self._transactions.pop(header.producer_id, None)

    def restore(self, producer_id: int, entry: ProducerEntry) -> None:
        """Add an entry of a snapshot."""
        self.producers[producer_id] = entry
        if entry.transaction_first_offset != NO_OFFSET:
            self._transactions[producer_id] = entry.transaction_first_offset

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Remove producers that wrote nothing for expiration_ms; returns how many."""
        expired = [
            producer_id
            for producer_id, entry in self.producers.items()
            if entry.transaction_first_offset == NO_OFFSET
            and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self.producers[producer_id]
        return len(expired)


def _find_repeated(entry: ProducerEntry, header: BatchHeader) -> WrittenBatch | None:
    """The batch of the entry that this one repeats; None if it follows the last one. Raises if neither."""
    if entry.epoch == header.producer_epoch:
        sequence = header.base_sequence
        # The most frequent case first.
        if sequence == entry.next_sequence and entry.transaction_first_offset == NO_OFFSET:
            return None
        last_sequence = header.last_sequence
        for batch in reversed(entry.batches):
            if batch.last_sequence == last_sequence and batch.first_sequence == sequence:
                return batch
    check_follows(entry, header)
    return None


def check_follows(entry: ProducerEntry | None, header: BatchHeader) -> None:
    """Raise unless the batch follows the last one of this entry."""
    if entry is None or entry.epoch == NO_EPOCH:
        return  # Unknown, possibly because retention deleted its batches: any start is valid.
    if header.producer_epoch < entry.epoch:
        raise InvalidProducerEpoch(
            f"producer {header.producer_id} has epoch {header.producer_epoch}, "
            f"a newer instance has {entry.epoch}"
        )
    expected = entry.next_sequence if header.producer_epoch == entry.epoch else 0
    if header.base_sequence != expected:
        raise OutOfOrderSequenceNumber(
            f"producer {header.producer_id} sent sequence {header.base_sequence}, "
            f"expected is {expected}"
        )
    if entry.transaction_first_offset != NO_OFFSET and not header.is_transactional:
        raise InvalidTxnState(
            f"producer {header.producer_id} has an open transaction and wrote outside of it"
        )


def _write(entry: ProducerEntry, header: BatchHeader, base_offset: int, last_offset: int) -> None:
    batches = entry.batches
    if entry.epoch != header.producer_epoch:
        entry.epoch = header.producer_epoch
        batches.clear()
    elif len(batches) >= REMEMBERED_BATCHES:
        del batches[0]
    delta = last_offset - base_offset
    sequence = header.base_sequence
    if sequence >= 0:
        sequence = (sequence + delta) & SEQUENCE_MAX
    timestamp = entry.last_timestamp = header.max_timestamp
    # Bypasses NamedTuple's constructor: this runs for every batch of an idempotent producer.
    batches.append(tuple.__new__(WrittenBatch, (sequence, last_offset, delta, timestamp)))

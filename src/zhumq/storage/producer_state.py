"""The last batches and the open transaction of each producer: detects duplicates, gaps and fenced producers."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from zhumq.model.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
)
from zhumq.model.transaction_errors import TransactionCoordinatorFenced
from zhumq.records.batch import SEQUENCE_MAX, TRANSACTIONAL_FLAG, BatchHeader
from zhumq.records.control import EndMarker, MarkerType
from zhumq.storage.transaction_index import AbortedTransaction

REMEMBERED_BATCHES = 5  # the most a client may have in flight (max.in.flight.requests)
NO_EPOCH = -1
NO_OFFSET = -1
EPOCH_MAX = 2**15 - 1
# KIP-890: the coordinator raises the epoch of a producer with each end of a transaction.
EPOCH_BUMPING_VERSION = 2


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
    # Soft state of an open log. Markers since it was opened; what `expire` saw last, and when that was written.
    markers: int = field(default=0, compare=False)
    expiry_seen: tuple[int, int] | None = field(default=None, compare=False)
    expiry_active_ms: int = field(default=-1, compare=False)

    @property
    def next_sequence(self) -> int:
        """The base sequence that the next batch of the current epoch must have."""
        return (self.batches[-1][0] + 1) & SEQUENCE_MAX if self.batches else 0

    @property
    def newest(self) -> tuple[int, int]:
        """What changes with every batch and every marker of this producer."""
        return (self.batches[-1].last_offset if self.batches else NO_OFFSET, self.markers)

    def copy(self) -> "ProducerEntry":
        return ProducerEntry(
            epoch=self.epoch,
            coordinator_epoch=self.coordinator_epoch,
            last_timestamp=self.last_timestamp,
            transaction_first_offset=self.transaction_first_offset,
            batches=list(self.batches),
        )


_UNKNOWN = ProducerEntry()  # of a producer without batches


class _Permission(NamedTuple):
    """A producer of this epoch may begin a transaction."""

    epoch: int
    begins_at_zero: bool


class ProducerState:
    """All producers of one log. Hard state: exactly the replay of the log's batches.

    A transaction is open from its first batch to its marker. Until the marker is below the high
    watermark, the transaction still counts for the last stable offset: a new leader may not have it.
    """

    __slots__ = ("_allowed", "_ended", "_transactions", "producers")

    def __init__(self) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        # Producer id -> first offset of its open transaction; in the order of the offsets.
        self._transactions: dict[int, int] = {}
        # Marker's offset -> first offset of a transaction that ended; in the order of the markers.
        self._ended: dict[int, int] = {}
        # Of producers that may begin a transaction here. Soft state.
        self._allowed: dict[int, _Permission] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProducerState) and self.producers == other.producers

    __hash__ = None  # type: ignore[assignment]

    @property
    def first_undecided_offset(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return next(iter(self._transactions.values()), None)

    @property
    def has_unstable(self) -> bool:
        """Whether there is a transaction for `first_unstable_offset`."""
        return bool(self._transactions or self._ended)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset of the oldest transaction that is open or whose marker is not committed: the
        last stable offset cannot pass it."""
        if self._ended:
            self.forget_ended(high_watermark)
        undecided = next(iter(self._transactions.values()), None)
        if not self._ended:
            return undecided
        ended = min(self._ended.values())
        return ended if undecided is None else min(ended, undecided)

    def forget_ended(self, high_watermark: int) -> None:
        """Forget the transactions whose markers are below the high watermark."""
        ended = self._ended
        while ended:
            marker_offset = next(iter(ended))
            if marker_offset >= high_watermark:
                break
            del ended[marker_offset]

    def has_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of this producer, with this epoch, is open."""
        entry = self.producers.get(producer_id)
        return entry is not None and (
            entry.transaction_first_offset != NO_OFFSET and entry.epoch == producer_epoch
        )

    def verification(self, producer_id: int) -> int:
        """A number for `allow_transaction`, taken before the coordinator is asked."""
        entry = self.producers.get(producer_id)
        return 0 if entry is None else entry.markers

    def allow_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        verification: int,
        *,
        begins_at_zero: bool = False,
    ) -> None:
        """The coordinator confirmed that this partition is in the producer's transaction, whose first batch
        may be appended (KIP-890). Ends with that batch, or with the next marker: if one came since the
        verification began, the transaction is over, and nothing is allowed.

        `begins_at_zero`: a client of transaction version 2, whose sequences begin at 0 with each epoch. A batch of an
        unknown producer is then not its first one if it has another sequence.
        """
        if verification == self.verification(producer_id):
            self._allowed[producer_id] = _Permission(producer_epoch, begins_at_zero)

    def check(self, header: BatchHeader) -> WrittenBatch | None:
        """The batch in the log that this one repeats; None if it follows its producer's last one.

        Raises if it does neither.
        """
        entry = self.producers.get(header.producer_id)
        if entry is None:
            if header.attributes & TRANSACTIONAL_FLAG:
                self._check_begins(_UNKNOWN, header)
            return None
        repeated = _find_repeated(entry, header)
        if header.attributes & TRANSACTIONAL_FLAG:
            if repeated is None:
                self._check_begins(entry, header)
            else:
                _check_same_transaction(entry, repeated, header)
        return repeated

    def check_all(self, headers: Iterable[BatchHeader]) -> None:
        """Raise unless each batch follows its producer's last one, also within the same append."""
        staged: dict[int, ProducerEntry] = {}
        for header in headers:
            if header.producer_id >= 0:
                entry = self._staged(header.producer_id, staged)
                check_follows(entry, header)
                if header.attributes & TRANSACTIONAL_FLAG:
                    self._check_begins(entry, header)
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
            if header.attributes & TRANSACTIONAL_FLAG:
                self._check_begins(entry, header)
            _write(entry, header, base_offset, base_offset + header.last_offset_delta)
        elif header.attributes & TRANSACTIONAL_FLAG:
            _check_same_transaction(entry, repeated, header)
        return repeated

    def check_unnumbered(self, headers: Iterable[BatchHeader]) -> None:
        """Like `check_all`, for batches of a coordinator, which have no sequences: the epoch counts, and whether
        they may begin a transaction."""
        for header in headers:
            if header.producer_id < 0:
                continue
            entry = self.producers.get(header.producer_id, _UNKNOWN)
            _check_epoch(entry, header)
            _check_inside(entry, header)
            if header.attributes & TRANSACTIONAL_FLAG:
                self._check_begins(entry, header)

    def check_marker(
        self, header: BatchHeader, marker: EndMarker, transaction_version: int
    ) -> None:
        """Raise unless the marker may end the producer's transaction: its coordinator and its producer
        epoch are not fenced."""
        entry = self.producers.get(header.producer_id)
        if entry is None:
            return
        epoch = header.producer_epoch
        is_repeated = epoch == entry.epoch and (
            entry.transaction_first_offset == NO_OFFSET or epoch == EPOCH_MAX
        )
        # KIP-1228: a marker of version 2 has a larger epoch than the batches that it ends. One that was
        # delayed past the start of the next transaction has that transaction's epoch.
        if epoch < entry.epoch or (
            transaction_version >= EPOCH_BUMPING_VERSION
            and epoch == entry.epoch
            and not is_repeated
        ):
            raise InvalidProducerEpoch(
                f"a marker of producer {header.producer_id} has epoch {epoch},"
                f" the producer has {entry.epoch} here"
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"a marker of producer {header.producer_id} is of coordinator epoch"
                f" {marker.coordinator_epoch}, a newer coordinator has {entry.coordinator_epoch}"
            )

    def _check_begins(self, entry: ProducerEntry, header: BatchHeader) -> None:
        """Raise if this transactional batch begins a transaction and may not, or is of another producer epoch
        than the open one."""
        if entry.transaction_first_offset != NO_OFFSET and entry.epoch == header.producer_epoch:
            return
        allowed = self._allowed.get(header.producer_id)
        if allowed is None or allowed.epoch != header.producer_epoch:
            raise InvalidTxnState(
                f"producer {header.producer_id} has no transaction that includes this partition"
            )
        if allowed.begins_at_zero and entry.epoch == NO_EPOCH and header.base_sequence:
            raise OutOfOrderSequenceNumber(
                f"producer {header.producer_id} begins with sequence {header.base_sequence}"
            )

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
        if header.attributes & TRANSACTIONAL_FLAG and producer_id not in self._transactions:
            self._transactions[producer_id] = entry.transaction_first_offset
            self._allowed.pop(producer_id, None)

    def end_transaction(
        self, header: BatchHeader, marker: EndMarker, offset: int
    ) -> AbortedTransaction | None:
        """Record the marker at this offset. Returns the transaction that it aborts, if that has batches."""
        producer_id = header.producer_id
        entry = self.producers.setdefault(producer_id, ProducerEntry())
        first_offset = entry.transaction_first_offset
        if entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = header.max_timestamp
        entry.transaction_first_offset = NO_OFFSET
        entry.markers += 1
        self._transactions.pop(producer_id, None)
        self._allowed.pop(producer_id, None)
        if first_offset == NO_OFFSET:
            return None
        self._ended[offset] = first_offset
        if marker.marker_type is MarkerType.COMMIT:
            return None
        undecided = self.first_undecided_offset
        return AbortedTransaction(
            producer_id, first_offset, offset, offset + 1 if undecided is None else undecided
        )

    def restore(self, producers: dict[int, ProducerEntry]) -> None:
        """Take the producers of a snapshot."""
        self.producers = producers
        first_offsets = (
            (entry.transaction_first_offset, producer_id)
            for producer_id, entry in producers.items()
            if entry.transaction_first_offset != NO_OFFSET
        )
        self._transactions = {producer_id: first for first, producer_id in sorted(first_offsets)}

    def date_by_records(self) -> None:
        """The log was opened: of its producers only the times of their records are known."""
        for entry in self.producers.values():
            entry.expiry_seen = entry.newest
            entry.expiry_active_ms = entry.last_timestamp

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Remove producers that wrote nothing for expiration_ms; returns how many. Called now and again: what was written
        since the last call counts as written now, whatever the times of its records are."""
        expired = []
        for producer_id, entry in self.producers.items():
            if entry.expiry_seen != entry.newest or entry.expiry_active_ms > now_ms:
                entry.expiry_seen = entry.newest
                entry.expiry_active_ms = now_ms
            idle_ms = now_ms - entry.expiry_active_ms
            if entry.transaction_first_offset == NO_OFFSET and idle_ms >= expiration_ms:
                expired.append(producer_id)
        for producer_id in expired:
            del self.producers[producer_id]
            self._allowed.pop(producer_id, None)
        return len(expired)


def _find_repeated(entry: ProducerEntry, header: BatchHeader) -> WrittenBatch | None:
    """The batch of the entry that this one repeats; None if it follows the last one. Raises if neither."""
    if entry.epoch == header.producer_epoch:
        sequence = header.base_sequence
        # The most frequent case first.
        if sequence == entry.next_sequence and (
            entry.transaction_first_offset == NO_OFFSET or header.attributes & TRANSACTIONAL_FLAG
        ):
            return None
        last_sequence = header.last_sequence
        for batch in reversed(entry.batches):
            if batch.last_sequence == last_sequence and batch.first_sequence == sequence:
                return batch
    check_follows(entry, header)
    return None


def _check_same_transaction(
    entry: ProducerEntry, repeated: WrittenBatch, header: BatchHeader
) -> None:
    """Raise if the batch that this one repeats is of a transaction that has ended.

    Clients of transaction version 1 keep their epoch. librdkafka gives the sequences of messages that it dropped at an abort,
    and that were written all the same, to others. As a repeat these would be acknowledged and lost, as they are by Kafka.
    """
    first_offset = entry.transaction_first_offset
    if first_offset == NO_OFFSET or repeated.base_offset < first_offset:
        raise InvalidTxnState(
            f"producer {header.producer_id} sends sequence {header.base_sequence} again, which"
            " it has sent in a transaction that has ended"
        )


def check_follows(entry: ProducerEntry | None, header: BatchHeader) -> None:
    """Raise unless the batch follows the last one of this entry."""
    if entry is None or entry.epoch == NO_EPOCH:
        return  # Unknown, possibly because retention deleted its batches: any start is valid.
    _check_epoch(entry, header)
    expected = entry.next_sequence if header.producer_epoch == entry.epoch else 0
    if header.base_sequence != expected:
        raise OutOfOrderSequenceNumber(
            f"producer {header.producer_id} sent sequence {header.base_sequence}, "
            f"expected is {expected}"
        )
    _check_inside(entry, header)


def _check_epoch(entry: ProducerEntry, header: BatchHeader) -> None:
    if header.producer_epoch < entry.epoch:
        raise InvalidProducerEpoch(
            f"producer {header.producer_id} has epoch {header.producer_epoch}, "
            f"a newer instance has {entry.epoch}"
        )


def _check_inside(entry: ProducerEntry, header: BatchHeader) -> None:
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
    if header.attributes & TRANSACTIONAL_FLAG and entry.transaction_first_offset == NO_OFFSET:
        entry.transaction_first_offset = base_offset
    # Bypasses NamedTuple's constructor: this runs for every batch of an idempotent producer.
    batches.append(tuple.__new__(WrittenBatch, (sequence, last_offset, delta, timestamp)))

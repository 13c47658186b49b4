"""Partitions of the simulation of transactions: logs with the rules of the real one for producers and markers."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from simulation.transaction_history import Attempt, Violation
from zhumq.groups.pending_offsets import PendingOffsets
from zhumq.groups.persisted import OffsetKey
from zhumq.model.ids import TopicPartition
from zhumq.model.state_machine import StateRecord
from zhumq.records.batch import BatchHeader, Record, decode_header
from zhumq.records.builder import build_batch
from zhumq.records.control import EndMarker, MarkerType, build_marker_batch
from zhumq.storage.producer_state import ProducerState
from zhumq.transactions.requests import Answer
from zhumq.transactions.transaction import EPOCH_BUMPING_VERSION, Transaction, TransactionState

NO_SEQUENCE: Final = -1
GROUP: Final = TopicPartition("__consumer_offsets", 0)
DATA: Final = (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0))


class Batch(NamedTuple):
    """A request to write one batch."""

    producer: Answer
    version: int
    at: TopicPartition
    sequence: int
    attempt: Attempt

    @property
    def can_be_late(self) -> bool:
        """Whether something stops it from joining the next transaction: an epoch or a sequence of its own."""
        return self.version == EPOCH_BUMPING_VERSION or self.at in DATA


class Entry(NamedTuple):
    """A record or a marker in the log of a partition."""

    producer_id: int
    producer_epoch: int
    attempt: Attempt | None  # None: a marker
    is_commit: bool = False


class SimulatedPartition:
    """A log with the rules of the real one for producers and markers."""

    def __init__(self) -> None:
        self.state = ProducerState()
        self.log: list[Entry] = []
        self._open: dict[int, set[Attempt]] = {}  # by producer id
        self._epochs: dict[int, int] = {}  # of the last entry of each producer id

    def append(self, batch: Batch, verification: int) -> None:
        """Append a batch whose transaction the coordinator has confirmed since `verification`."""
        header = _batch_header(batch.producer, batch.sequence)
        self.state.allow_transaction(
            header.producer_id,
            header.producer_epoch,
            verification,
            begins_at_zero=batch.version == EPOCH_BUMPING_VERSION,
        )
        if self.state.check(header) is None:
            self._add(header, batch.attempt)

    def _add(self, header: BatchHeader, attempt: Attempt) -> None:
        self.state.update(header, len(self.log))
        self._append(Entry(header.producer_id, header.producer_epoch, attempt))
        self._open.setdefault(header.producer_id, set()).add(attempt)

    def end(self, prepared: Transaction, *, coordinator_epoch: int) -> None:
        """Append a marker."""
        is_commit = prepared.state is TransactionState.PREPARE_COMMIT
        marker = EndMarker(
            marker_type=MarkerType.COMMIT if is_commit else MarkerType.ABORT,
            coordinator_epoch=coordinator_epoch,
        )
        header = decode_header(
            build_marker_batch(
                marker,
                producer_id=prepared.producer_id,
                producer_epoch=prepared.producer_epoch,
                timestamp=0,
            )
        )
        self.state.check_marker(header, marker, prepared.client_version)
        self.state.end_transaction(header, marker, len(self.log))
        self._append(Entry(prepared.producer_id, prepared.producer_epoch, None, is_commit))
        ended = self._open.pop(prepared.producer_id, set())
        if len(ended) > 1:
            raise Violation(f"one marker ends several transactions: {sorted(ended)}")

    def _append(self, entry: Entry) -> None:
        if entry.producer_epoch < self._epochs.get(entry.producer_id, -1):
            raise Violation(f"the epochs of a producer went back in the log: {entry}")
        self._epochs[entry.producer_id] = entry.producer_epoch
        self.log.append(entry)


class SimulatedGroupPartition(SimulatedPartition):
    """A partition of `__consumer_offsets`: the offsets of each producer are pending until the marker.

    Commits of offsets have no sequences. Each transactional id has its own partition to commit offsets of.
    """

    def __init__(self) -> None:
        super().__init__()
        self._pending = PendingOffsets()
        self._committed: dict[bytes, StateRecord] = {}

    def append(self, batch: Batch, verification: int) -> None:
        header = _batch_header(batch.producer, NO_SEQUENCE)
        self.state.allow_transaction(header.producer_id, header.producer_epoch, verification)
        self.state.check_unnumbered([header])
        self._add(header, batch.attempt)
        name = batch.attempt.transactional_id
        record = StateRecord(key=name.encode(), value=str(batch.attempt.number).encode())
        self._pending.put(header.producer_id, OffsetKey("group", name, 0), record)

    def end(self, prepared: Transaction, *, coordinator_epoch: int) -> None:
        super().end(prepared, coordinator_epoch=coordinator_epoch)
        is_commit = prepared.state is TransactionState.PREPARE_COMMIT
        for record in self._pending.end(prepared.producer_id, is_commit=is_commit):
            self._committed[record.key] = record

    def check(self, committed: Iterable[Attempt]) -> None:
        """Raise Violation unless the offsets of each producer are those of its last committed attempt."""
        if self._pending:
            raise Violation("offsets are pending although no transaction is open")
        expected = {each.transactional_id.encode(): str(each.number).encode() for each in committed}
        found = {key: record.value for key, record in self._committed.items()}
        if found != expected:
            raise Violation(f"the committed offsets are {found}, and not {expected}")


def _batch_header(producer: Answer, sequence: int) -> BatchHeader:
    return decode_header(
        build_batch(
            [Record(timestamp=0)],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
    )

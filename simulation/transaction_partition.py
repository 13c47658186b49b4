"""Partitions of the simulation of transactions: logs with the rules of the real one for producers and markers."""

from typing import NamedTuple

from zhumq.records.batch import Record, decode_header
from zhumq.records.builder import build_batch
from zhumq.records.control import EndMarker, MarkerType, build_marker_batch
from zhumq.storage.producer_state import ProducerState
from zhumq.transactions.requests import Answer
from zhumq.transactions.transaction import Transaction


class Attempt(NamedTuple):
    """One transaction as its producer sees it."""

    transactional_id: str
    number: int


class Entry(NamedTuple):
    """A record or a marker in the log of a partition."""

    producer_id: int
    attempt: Attempt | None  # None: a marker
    is_commit: bool = False


class SimulatedPartition:
    """A log with the rules of the real one for producers and markers."""

    def __init__(self) -> None:
        self.state = ProducerState()
        self.log: list[Entry] = []

    def append(self, producer: Answer, sequence: int, attempt: Attempt, verification: int) -> None:
        """Append a batch whose transaction the coordinator has confirmed."""
        header = decode_header(
            build_batch(
                [Record(timestamp=0)],
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=sequence,
                is_transactional=True,
            )
        )
        self.state.allow_transaction(producer.producer_id, producer.producer_epoch, verification)
        if self.state.check(header) is not None:
            return
        self.state.update(header, len(self.log))
        self.log.append(Entry(producer.producer_id, attempt))

    def end(self, prepared: Transaction, *, is_commit: bool, coordinator_epoch: int) -> None:
        """Append a marker."""
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
        self.log.append(Entry(prepared.producer_id, None, is_commit))

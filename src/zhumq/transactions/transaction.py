"""The state of one transactional id, and its transitions. Pure: a state and facts in, the next state out."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from zhumq.model.ids import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1
EPOCH_MAX: Final = 2**15 - 1
# KIP-890: each end of a transaction raises the producer's epoch, and producing adds partitions.
EPOCH_BUMPING_VERSION: Final = 2


class TransactionState(StrEnum):
    """The state of a transactional id, with Kafka's names. Expired ones (Dead in Kafka) have no state."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


State = TransactionState
IDLE: Final = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
# The outcome is decided, and the markers are being written.
PREPARED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
TRANSITIONS: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    State.EMPTY: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT}),
    State.ONGOING: frozenset({State.ONGOING, *PREPARED}),
    State.PREPARE_COMMIT: frozenset({State.COMPLETE_COMMIT}),
    State.PREPARE_ABORT: frozenset({State.COMPLETE_ABORT}),
    # Version 2 aborts a transaction without partitions, whose only effect is the new epoch.
    State.COMPLETE_COMMIT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT}),
    State.COMPLETE_ABORT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transactional id: its producer, and its transaction if one is open."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP
    update_ms: int
    # The epoch before the last bump that the producer asked for (KIP-360): a repeated request has it.
    last_producer_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID  # before the epochs of that id were exhausted
    next_producer_id: int = NO_PRODUCER_ID  # once the markers are written: the epochs are exhausted
    client_version: int = 0  # the transaction version of the client that wrote this state

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the producer needs another id."""
        return is_exhausted(self.producer_epoch)

    @property
    def bumps_epochs(self) -> bool:
        return self.client_version >= EPOCH_BUMPING_VERSION

    def _to(self, state: TransactionState) -> TransactionState:
        assert state in TRANSITIONS[self.state], f"{self.state} -> {state}"
        return state


def is_exhausted(producer_epoch: int) -> bool:
    """Whether no client may get the next epoch: the last one is kept for fencing."""
    return producer_epoch >= EPOCH_MAX - 1


def bump_epoch(
    transaction: Transaction, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
) -> Transaction:
    """A producer begins, with this epoch."""
    return replace(
        transaction,
        state=transaction._to(State.EMPTY),
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=NO_TIMESTAMP,
        update_ms=now_ms,
        client_version=0,
    )


def rotate_producer_id(
    transaction: Transaction, producer_id: int, last_epoch: int, timeout_ms: int, now_ms: int
) -> Transaction:
    """A producer begins with another id, because the epochs of its old one are exhausted."""
    return replace(
        bump_epoch(transaction, 0, last_epoch, timeout_ms, now_ms),
        producer_id=producer_id,
        previous_producer_id=transaction.producer_id,
    )


def add_partitions(
    transaction: Transaction,
    partitions: frozenset[TopicPartition],
    client_version: int,
    now_ms: int,
) -> Transaction:
    """Partitions join the transaction; the first ones begin it."""
    is_open = transaction.state is State.ONGOING
    return replace(
        transaction,
        state=transaction._to(State.ONGOING),
        partitions=transaction.partitions | partitions,
        start_ms=transaction.start_ms if is_open else now_ms,
        update_ms=now_ms,
        client_version=client_version,
    )


def prepare_end(
    transaction: Transaction,
    *,
    is_commit: bool,
    client_version: int,
    next_producer_id: int,
    now_ms: int,
) -> Transaction:
    """The outcome is decided. With version 2 the epoch is raised: batches that come later are fenced."""
    epoch, last_epoch = transaction.producer_epoch, transaction.last_producer_epoch
    if client_version >= EPOCH_BUMPING_VERSION:
        epoch, last_epoch = min(epoch + 1, EPOCH_MAX), epoch
    is_open = transaction.state is State.ONGOING
    return replace(
        transaction,
        state=transaction._to(State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT),
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        next_producer_id=next_producer_id,
        start_ms=transaction.start_ms if is_open else now_ms,
        update_ms=now_ms,
        client_version=client_version,
    )


def fence(transaction: Transaction, now_ms: int, *, is_replaced: bool) -> Transaction:
    """Abort the transaction of a producer whose time is up, or which another instance replaces."""
    prepared = prepare_end(
        transaction,
        is_commit=False,
        client_version=EPOCH_BUMPING_VERSION,
        next_producer_id=NO_PRODUCER_ID,
        now_ms=now_ms,
    )
    # After a timeout the producer may go on with the new epoch (KIP-588), a replaced one may not.
    return replace(prepared, last_producer_epoch=NO_EPOCH) if is_replaced else prepared


def complete(transaction: Transaction, now_ms: int) -> Transaction:
    """All markers are written."""
    is_commit = transaction.state is State.PREPARE_COMMIT
    done = replace(
        transaction,
        state=transaction._to(State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT),
        partitions=frozenset(),
        next_producer_id=NO_PRODUCER_ID,
        update_ms=now_ms,
    )
    if transaction.next_producer_id == NO_PRODUCER_ID:
        return done
    return replace(
        done,
        producer_id=transaction.next_producer_id,
        producer_epoch=0,
        previous_producer_id=transaction.producer_id,
    )

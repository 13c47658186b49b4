"""The state of one transactional id, and its transitions. Pure: a state and facts in, the next state out."""

from enum import StrEnum
from typing import Final, NamedTuple

from zhumq.model.ids import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1
NO_PARTITIONS: Final = frozenset[TopicPartition]()  # one object: a new empty set has 216 bytes
EPOCH_MAX: Final = 2**15 - 1
# KIP-890: each end of a transaction raises the producer's epoch, and producing adds partitions.
EPOCH_BUMPING_VERSION: Final = 2
# Of a request of such a client, whose last transaction's marker may come while the new one is verified. Before, a marker
# that comes says nothing about which of the two the request belongs to.
VERIFICATIONS_MAX: Final = 3
# KIP-939: the timeout of a two-phase producer. Its transactions stay open until someone ends them.
NO_TIMEOUT_MS: Final = 2**31 - 1


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


# A tuple: it is changed several times for each transaction, which takes a frozen dataclass four times as long.
class Transaction(NamedTuple):
    """A transactional id: its producer, and its transaction if one is open."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    update_ms: int
    state: TransactionState = State.EMPTY
    partitions: frozenset[TopicPartition] = NO_PARTITIONS
    start_ms: int = NO_TIMESTAMP
    # The epoch before the last bump that the producer asked for (KIP-360): a repeated request has it.
    last_producer_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID  # before the epochs of that id were exhausted
    # The producer has this id once the markers are written, because the epochs of its old one are exhausted.
    next_producer_id: int = NO_PRODUCER_ID
    # KIP-939: with an epoch, the producer has the next pair already. It ends a transaction that an earlier instance
    # has left open, and whose batches and markers have `producer_id`.
    next_producer_epoch: int = NO_EPOCH
    client_version: int = 0  # the transaction version of the client that wrote this state

    @property
    def is_kept(self) -> bool:
        """Whether an instance that did not write the open transaction is to end it (KIP-939)."""
        return self.next_producer_epoch != NO_EPOCH

    @property
    def client_producer_id(self) -> int:
        """The id in the requests of the producer."""
        return self.next_producer_id if self.is_kept else self.producer_id

    @property
    def client_producer_epoch(self) -> int:
        """The epoch in the requests of the producer."""
        return self.next_producer_epoch if self.is_kept else self.producer_epoch

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the producer needs another id."""
        return is_exhausted(self.client_producer_epoch)

    @property
    def bumps_epochs(self) -> bool:
        return self.client_version >= EPOCH_BUMPING_VERSION

    def _to(self, state: TransactionState) -> TransactionState:
        assert state in TRANSITIONS[self.state], f"{self.state} -> {state}"
        return state


def is_exhausted(producer_epoch: int) -> bool:
    """Whether no client may get the next epoch: the last one is kept for fencing."""
    return producer_epoch >= EPOCH_MAX - 1


def begin_again(
    transaction: Transaction,
    *,
    producer_id: int,
    epoch: int,
    last_epoch: int,
    timeout_ms: int,
    now_ms: int,
) -> Transaction:
    """A producer begins with this epoch, and with another id if the epochs of its old one are exhausted."""
    return transaction._replace(
        state=transaction._to(State.EMPTY),
        producer_id=producer_id,
        previous_producer_id=_previous(transaction, producer_id),
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        timeout_ms=timeout_ms,
        partitions=NO_PARTITIONS,
        start_ms=NO_TIMESTAMP,
        update_ms=now_ms,
        client_version=0,
    )


def keep_open(
    transaction: Transaction,
    *,
    producer_id: int,
    epoch: int,
    last_epoch: int,
    timeout_ms: int,
    now_ms: int,
) -> Transaction:
    """A producer begins with this id and epoch, and is to end the open transaction (KIP-939)."""
    return transaction._replace(
        state=transaction._to(State.ONGOING),
        next_producer_id=producer_id,
        next_producer_epoch=epoch,
        previous_producer_id=_previous(transaction, producer_id),
        last_producer_epoch=last_epoch,
        # The transaction may be prepared: its time is never cut.
        timeout_ms=max(transaction.timeout_ms, timeout_ms),
        update_ms=now_ms,
    )


def _previous(transaction: Transaction, producer_id: int) -> int:
    """The previous id of a producer that goes on with `producer_id`."""
    client_id = transaction.client_producer_id
    return transaction.previous_producer_id if client_id == producer_id else client_id


def add_partitions(
    transaction: Transaction,
    partitions: frozenset[TopicPartition],
    client_version: int,
    now_ms: int,
) -> Transaction:
    """Partitions join the transaction; the first ones begin it."""
    is_open = transaction.state is State.ONGOING
    return transaction._replace(
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
    is_open = transaction.state is State.ONGOING
    prepared = transaction._replace(
        state=transaction._to(State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT),
        start_ms=transaction.start_ms if is_open else now_ms,
        update_ms=now_ms,
        client_version=client_version,
    )
    if client_version < EPOCH_BUMPING_VERSION:
        return prepared
    raised = prepared._replace(
        producer_epoch=_raised(transaction.producer_epoch),
        last_producer_epoch=transaction.client_producer_epoch,
    )
    if not transaction.is_kept:
        return raised._replace(next_producer_id=next_producer_id)
    if next_producer_id == NO_PRODUCER_ID:
        return raised._replace(next_producer_epoch=_raised(transaction.next_producer_epoch))
    return raised._replace(
        previous_producer_id=transaction.next_producer_id,
        next_producer_id=next_producer_id,
        next_producer_epoch=0,
    )


def _raised(epoch: int) -> int:
    return min(epoch + 1, EPOCH_MAX)


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
    return prepared._replace(last_producer_epoch=NO_EPOCH) if is_replaced else prepared


def complete(transaction: Transaction, now_ms: int) -> Transaction:
    """All markers are written."""
    is_commit = transaction.state is State.PREPARE_COMMIT
    done = transaction._replace(
        state=transaction._to(State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT),
        partitions=NO_PARTITIONS,
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_EPOCH,
        update_ms=now_ms,
    )
    if transaction.is_kept:
        return done._replace(
            producer_id=transaction.next_producer_id,
            producer_epoch=transaction.next_producer_epoch,
        )
    if transaction.next_producer_id == NO_PRODUCER_ID:
        return done
    return done._replace(
        producer_id=transaction.next_producer_id,
        producer_epoch=0,
        previous_producer_id=transaction.producer_id,
    )

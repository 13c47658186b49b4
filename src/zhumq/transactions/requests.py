"""What a shard of transactions is asked, and what it answers."""

from dataclasses import dataclass

from zhumq.model.errors import ErrorCode
from zhumq.model.ids import TopicPartition
from zhumq.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID, Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducer:
    """A producer begins: it gets an id and an epoch, and replaces the one with the same transactional id.

    Answered with an Answer. `new_producer_id` is an unused id, or None until the shard asks for one. An open transaction
    is aborted, or with `keep_prepared` left open, for this instance to end it (KIP-939).
    """

    transactional_id: str
    timeout_ms: int
    # KIP-360: the producer's own, if it goes on after an error.
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    new_producer_id: int | None = None
    enable_two_phase_commit: bool = (
        False  # its transactions do not time out, and `timeout_ms` does not count
    )
    keep_prepared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """Partitions join the transaction of a producer; `verify_only` asks whether they are in it (KIP-890)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    client_version: int = 0
    verify_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """A producer commits or aborts its transaction. `new_producer_id` as in InitProducer."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    client_version: int = 0
    new_producer_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersWritten:
    """All markers of a transaction are in the logs of its partitions."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitMarkers:
    """The broker that leads the shard asks for transactions whose markers it has to write. Answered with
    PreparedTransactions, once there are any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransaction:
    """Answered with a Description."""

    transactional_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTransactions:
    """Answered with a Listing. An empty filter lets all pass."""

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    running_ms_min: int = -1  # KIP-994: open for longer than this


TransactionRequest = (
    InitProducer
    | AddPartitions
    | EndTransaction
    | MarkersWritten
    | AwaitMarkers
    | DescribeTransaction
    | ListTransactions
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A code, and the producer's id and epoch from now on."""

    code: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    # The request needs an unused producer id: send it again with one.
    needs_producer_id: bool = False
    # InitProducer with `keep_prepared`: the id and epoch of the transaction that was left open.
    ongoing_producer_id: int = NO_PRODUCER_ID
    ongoing_producer_epoch: int = NO_EPOCH
    missing: frozenset[TopicPartition] = frozenset()  # verified, and not in the transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTransactions:
    """Decided transactions. The markers have the id, the epoch and the client version of each."""

    transactions: tuple[Transaction, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """One transactional id."""

    code: ErrorCode = ErrorCode.NONE
    transaction: Transaction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The transactional ids that pass the filters."""

    code: ErrorCode = ErrorCode.NONE
    transactions: tuple[Transaction, ...] = ()


TransactionResponse = Answer | PreparedTransactions | Description | Listing

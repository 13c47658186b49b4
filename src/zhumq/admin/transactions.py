"""Transactions: list, describe, commit and abort them, and find those that no coordinator will end."""

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.coordinators import CoordinatorKind, ask_coordinator, check
from zhumq.admin.errors import NotFound, Refused
from zhumq.admin.leaders import Leader, by_leader, find_leaders
from zhumq.admin.producers import producers_of
from zhumq.model.errors import RETRIABLE_CODES, ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.producers import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from zhumq.protocol.messages.transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

MAX_TIMEOUT_MS: Final = 900_000  # the default of transaction.max.timeout.ms
AT_ONCE_MAX: Final = 500  # transactional ids in one request
_NO_TIMEOUT_MS: Final = 2**31 - 1  # of two-phase producers (KIP-939)
_FENCING_TIMEOUT_MS: Final = (
    1_000  # of the instance that replaces a producer; it begins no transaction
)
_OPEN: Final = "Ongoing"
_DECIDED: Final = ("PrepareCommit", "PrepareAbort")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSummary:
    """A transactional id of a listing. The age is that of the open transaction, None without one."""

    transactional_id: str
    state: str  # as Kafka's tools write it
    producer_id: int
    coordinator: int
    age_ms: int | None
    is_two_phase: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPartition:
    """A partition that a transaction has written to."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDetails:
    """A transactional id, and its transaction if one is open."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int | None  # None: a two-phase producer, whose transactions do not time out
    started_ms: int | None
    age_ms: int | None
    coordinator: int
    partitions: tuple[WrittenPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction that is open in a partition, whether or not its coordinator knows it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int  # of the producer's last marker; -1: none
    start_offset: int
    age_ms: int  # since the last message


def list_transactions(
    connection: ClusterConnection,
    *,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    older_than_ms: int | None = None,
    pattern: str | None = None,
) -> list[TransactionSummary]:
    """The transactional ids by name. `older_than_ms`: only those with a transaction that is open for longer.
    `pattern` is an expression that the whole id matches."""
    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=-1 if older_than_ms is None else older_than_ms,
        transactional_id_pattern=pattern,
    )
    now_ms = _now_ms()
    found = []
    for broker, address in connection.broker_addresses().items():
        listed = _answered(connection, address, ApiKey.LIST_TRANSACTIONS, request)
        if listed.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION:
            raise Refused(f"the pattern {pattern!r} is not an expression of RE2")
        check("list transactions", listed.error_code)
        if listed.unknown_state_filters:
            unknown = ", ".join(listed.unknown_state_filters)
            raise Refused(
                f"there is no state {unknown}",
                f"{_OPEN}, {', '.join(_DECIDED)}, CompleteCommit, CompleteAbort, Empty",
            )
        begun = [
            each.transactional_id
            for each in listed.transaction_states
            if each.transaction_state == _OPEN or each.transaction_state in _DECIDED
        ]
        described = {
            each.transactional_id: _details(each, broker, now_ms)
            for each in _describe_all(connection, address, begun)
            if each.error_code == ErrorCode.NONE  # Others have moved, or expired.
        }
        for each in listed.transaction_states:
            details = described.get(each.transactional_id)
            if older_than_ms is not None and details is None:
                continue  # Brokers also count from the start of transactions that have ended.
            found.append(
                TransactionSummary(
                    transactional_id=each.transactional_id,
                    state=each.transaction_state,
                    producer_id=each.producer_id,
                    coordinator=broker,
                    age_ms=details.age_ms if details else None,
                    is_two_phase=details is not None and details.timeout_ms is None,
                )
            )
    return sorted(found, key=lambda each: each.transactional_id)


def describe_transaction(
    connection: ClusterConnection, transactional_id: str
) -> TransactionDetails:
    """A transactional id with its transaction. Raises NotFound."""

    def ask(coordinator: Leader) -> DescribedTransaction:
        (found,) = _describe_once(connection, coordinator.address, [transactional_id])
        return found

    coordinator, found = ask_coordinator(
        connection, CoordinatorKind.TRANSACTION, transactional_id, ask
    )
    if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise NotFound(
            f"there is no transactional id {transactional_id!r}", "see `zhumq transaction list`"
        )
    check(f"describe {transactional_id!r}", found.error_code)
    return _details(found, coordinator.broker, _now_ms())


def abort_transaction(connection: ClusterConnection, transactional_id: str) -> TransactionDetails:
    """Abort the open transaction of an id, and fence its producer. Returns what was aborted."""
    found = _open_transaction(connection, transactional_id)
    if found.timeout_ms is None:
        # It may be prepared: abort exactly the one that was looked at, not one that began meanwhile.
        _end_kept(connection, found, is_commit=False)
    else:
        _replace_producer(connection, transactional_id, keep_prepared=False)
    return found


def commit_prepared(connection: ClusterConnection, transactional_id: str) -> TransactionDetails:
    """Commit the open transaction of a two-phase producer, and fence the producer. Returns what was committed."""
    found = _open_transaction(connection, transactional_id)
    if found.timeout_ms is not None:
        raise Refused(
            f"{transactional_id!r} has no two-phase producer",
            "only its producer can commit, because only it knows whether all messages are sent",
        )
    _end_kept(connection, found, is_commit=True)
    return found


def find_hanging(
    connection: ClusterConnection,
    *,
    topic: str | None = None,
    partition: int | None = None,
    broker: int | None = None,
    older_than_ms: int = MAX_TIMEOUT_MS,
) -> list[OpenTransaction]:
    """Transactions that are open in a partition for longer than any may be, and that no coordinator will end:
    they hold back consumers with read_committed. `broker`: in the partitions that it leads."""
    leaders = find_leaders(connection, topic, partition)
    if broker is not None and broker not in connection.broker_addresses():
        raise NotFound(f"there is no broker {broker}", "see `zhumq cluster status`")
    candidates = [
        each
        for leader, partitions in by_leader(leaders)
        if broker is None or leader.broker == broker
        for each in _open_in(connection, leader, partitions)
        if each.age_ms > older_than_ms
    ]
    if not candidates:
        return []
    known = _known_to_coordinators(connection, {each.producer_id for each in candidates})
    return [
        each for each in candidates if (each.producer_id, each.topic, each.partition) not in known
    ]


def abort_hanging(
    connection: ClusterConnection, topic: str, partition: int, start_offset: int
) -> OpenTransaction:
    """Write the marker that ends a hanging transaction in a partition. Returns what was aborted.

    Raises Refused if a coordinator knows the transaction: a marker alone would tear it.
    """
    (leader, _), *_ = by_leader(find_leaders(connection, topic, partition))
    for found in _open_in(connection, leader, [(topic, partition)]):
        if found.start_offset == start_offset:
            break
    else:
        raise NotFound(
            f"no open transaction starts at offset {start_offset} of {topic}-{partition}",
            "see `zhumq transaction find-hanging`",
        )
    known = _known_to_coordinators(connection, {found.producer_id})
    if (found.producer_id, topic, partition) in known:
        name = known[found.producer_id, topic, partition]
        raise Refused(
            f"the coordinator of {name!r} will end this transaction",
            f"abort it everywhere with `zhumq transaction abort {name}`",
        )
    marker = WritableTxnMarker(
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        transaction_result=False,
        # -1 if the producer has ended no transaction here.
        coordinator_epoch=max(found.coordinator_epoch, 0),
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
    )
    answer = connection.request(
        ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest(markers=[marker]), address=leader.address
    )
    (result,) = answer.markers[0].topics[0].partitions
    check(f"abort the transaction in {topic}-{partition}", result.error_code)
    return found


# Ends of transactions by their coordinators


def _open_transaction(connection: ClusterConnection, transactional_id: str) -> TransactionDetails:
    found = describe_transaction(connection, transactional_id)
    if found.state in _DECIDED:
        raise Refused(
            f"the transaction of {transactional_id!r} is decided ({found.state})",
            "its coordinator writes the markers as soon as the partitions have leaders",
        )
    if found.state != _OPEN:
        raise Refused(f"{transactional_id!r} has no open transaction ({found.state})")
    return found


def _replace_producer(
    connection: ClusterConnection, transactional_id: str, *, keep_prepared: bool
) -> InitProducerIdResponse:
    """Become the producer of an id: the coordinator fences the other one, and aborts or keeps its transaction."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=_FENCING_TIMEOUT_MS,
        keep_prepared_txn=keep_prepared,
    )

    def ask(coordinator: Leader) -> Any:
        return connection.request(ApiKey.INIT_PRODUCER_ID, request, address=coordinator.address)

    answer: InitProducerIdResponse
    _, answer = ask_coordinator(connection, CoordinatorKind.TRANSACTION, transactional_id, ask)
    check(f"replace the producer of {transactional_id!r}", answer.error_code)
    return answer


def _end_kept(connection: ClusterConnection, found: TransactionDetails, *, is_commit: bool) -> None:
    name = found.transactional_id
    mine = _replace_producer(connection, name, keep_prepared=True)
    kept = (mine.ongoing_txn_producer_id, mine.ongoing_txn_producer_epoch)
    if kept != (found.producer_id, found.producer_epoch):
        raise Refused(
            f"the transaction of {name!r} was ended meanwhile",
            f"see `zhumq transaction describe {name}`",
        )
    request = EndTxnRequest(
        transactional_id=name,
        producer_id=mine.producer_id,
        producer_epoch=mine.producer_epoch,
        committed=is_commit,
    )

    def ask(coordinator: Leader) -> Any:
        return connection.request(ApiKey.END_TXN, request, address=coordinator.address)

    _, answer = ask_coordinator(connection, CoordinatorKind.TRANSACTION, name, ask)
    check(f"end the transaction of {name!r}", answer.error_code)


# Requests, and where they go


def _answered(connection: ClusterConnection, address: str, key: ApiKey, request: Any) -> Any:
    """The answer of a broker, once its shards are loaded."""
    for is_last in connection.attempts():
        answer = connection.request(key, request, address=address)
        if answer.error_code not in RETRIABLE_CODES or is_last:
            return answer
    raise AssertionError("the last attempt returns")


def _describe_once(
    connection: ClusterConnection, address: str, names: list[str]
) -> list[DescribedTransaction]:
    request = DescribeTransactionsRequest(transactional_ids=names)
    answer = connection.request(ApiKey.DESCRIBE_TRANSACTIONS, request, address=address)
    states: list[DescribedTransaction] = answer.transaction_states
    return states


def _describe_all(
    connection: ClusterConnection, address: str, names: Sequence[str]
) -> Iterator[DescribedTransaction]:
    for first in range(0, len(names), AT_ONCE_MAX):
        yield from _describe_once(connection, address, list(names[first : first + AT_ONCE_MAX]))


def _details(found: DescribedTransaction, coordinator: int, now_ms: int) -> TransactionDetails:
    is_begun = found.transaction_state == _OPEN or found.transaction_state in _DECIDED
    started_ms = found.transaction_start_time_ms if is_begun else None
    is_two_phase = found.transaction_timeout_ms == _NO_TIMEOUT_MS
    return TransactionDetails(
        transactional_id=found.transactional_id,
        state=found.transaction_state,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        timeout_ms=None if is_two_phase else found.transaction_timeout_ms,
        started_ms=started_ms,
        age_ms=None if started_ms is None else max(now_ms - started_ms, 0),
        coordinator=coordinator,
        partitions=tuple(
            WrittenPartition(topic=topic.topic, partition=index)
            for topic in found.topics
            for index in topic.partitions
        ),
    )


# Open transactions of partitions


def _open_in(
    connection: ClusterConnection, leader: Leader, partitions: list[tuple[str, int]]
) -> Iterator[OpenTransaction]:
    """The open transactions of partitions that a broker leads."""
    for each in producers_of(connection, leader, partitions):
        if each.transaction_start is not None:
            yield OpenTransaction(
                topic=each.topic,
                partition=each.partition,
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                coordinator_epoch=each.coordinator_epoch,
                start_offset=each.transaction_start,
                age_ms=max(_now_ms() - each.last_ms, 0),
            )


def _known_to_coordinators(
    connection: ClusterConnection, producer_ids: Collection[int]
) -> dict[tuple[int, str, int], str]:
    """The transactional id of each (producer id, topic, partition) that a coordinator will write a marker to."""
    known = {}
    request = ListTransactionsRequest(producer_id_filters=sorted(producer_ids))
    for broker, address in connection.broker_addresses().items():
        listed = _answered(connection, address, ApiKey.LIST_TRANSACTIONS, request)
        check("list transactions", listed.error_code)
        names = [each.transactional_id for each in listed.transaction_states]
        for found in _describe_all(connection, address, names):
            if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                continue
            # An id that cannot be described now must not pass for one that no coordinator knows.
            check(f"describe {found.transactional_id!r}", found.error_code)
            for each in _details(found, broker, 0).partitions:
                known[found.producer_id, each.topic, each.partition] = found.transactional_id
    return known


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

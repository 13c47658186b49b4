"""Verifies with the coordinator that partitions are in the transaction that a producer writes (KIP-890)."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from zhumq.coordinators.transaction_route import RoutedTransactions
from zhumq.model.errors import (
    BrokerError,
    CorruptMessage,
    ErrorCode,
    InvalidProducerEpoch,
    InvalidRequest,
    InvalidTxnState,
    NotEnoughReplicas,
)
from zhumq.model.ids import TopicPartition
from zhumq.model.transaction_errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    TransactionAbortable,
)
from zhumq.records.batch import decode_header, is_transactional
from zhumq.replication.partition import Partition
from zhumq.transactions.transaction import VERIFICATIONS_MAX

_FIRST_VERSION_WITH_ABORTABLE: Final = 11  # of Produce
_FIRST_VERSION_THAT_ADDS: Final = 12  # of Produce: clients with transaction version 2
_ERRORS: Final[Mapping[ErrorCode, type[BrokerError]]] = {
    error.code: error
    for error in (
        InvalidRequest,  # the transactional id is empty
        InvalidTxnState,
        InvalidProducerEpoch,
        InvalidProducerIdMapping,
        TransactionAbortable,
    )
}
# The partition is not in the transaction.
_MISSING: Final = (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE)

Errors = Mapping[TopicPartition, BrokerError]


@dataclass(slots=True)
class _Turn:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    requests: int = 0


class ProduceVerification:
    """Asks the coordinator before a producer's first batch of a transaction in a partition is appended.

    Requests of one producer are appended in their order: while one waits for the coordinator, those behind it wait.
    """

    def __init__(self, transactions: RoutedTransactions) -> None:
        self._transactions = transactions
        self._turns: dict[str, _Turn] = {}

    def is_done_at_once(
        self,
        transactional_id: str,
        written: Iterable[tuple[Partition, bytes | memoryview]],
        version: int,
    ) -> bool:
        """Allow the producer to write to its partitions, if the coordinator confirms the transaction without
        waiting and no request of the producer waits. Otherwise `verify` has to ask."""
        if transactional_id in self._turns:
            return False
        unverified = _unverified(written)
        if not unverified:
            return True
        producers = set(unverified.values())
        if version >= _FIRST_VERSION_THAT_ADDS or len(producers) > 1:
            return False
        (producer,) = producers
        partitions = (partition.topic_partition for partition in unverified)
        if not self._transactions.verified_at_once(transactional_id, *producer, partitions):
            return False
        for partition in unverified:
            partition.allow_transaction(*producer, partition.verification(producer[0]))
        return True

    @asynccontextmanager
    async def turn(self, transactional_id: str) -> AsyncIterator[None]:
        """Inside of it, no other request of the producer is appended."""
        turn = self._turns.setdefault(transactional_id, _Turn())
        turn.requests += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.requests -= 1
            if not turn.requests:
                del self._turns[transactional_id]

    async def verify(
        self,
        transactional_id: str,
        written: Iterable[tuple[Partition, bytes | memoryview]],
        version: int,
    ) -> Errors:
        """Allow the producer to write to its partitions. Returns the errors of those where it may not."""
        unverified = _unverified(written)
        if not unverified:
            return {}
        producers = set(unverified.values())
        if len(producers) > 1:
            refusal = InvalidProducerIdMapping("the batches are of more than one producer")
            return {partition.topic_partition: refusal for partition in unverified}
        ((producer_id, producer_epoch),) = producers
        adds = version >= _FIRST_VERSION_THAT_ADDS
        refused: dict[TopicPartition, ErrorCode] = {}
        left = list(unverified)
        for _ in range(VERIFICATIONS_MAX if adds else 1):
            verifications = {partition: partition.verification(producer_id) for partition in left}
            codes = await self._transactions.join(
                transactional_id,
                producer_id,
                producer_epoch,
                (partition.topic_partition for partition in left),
                adds=adds,
            )
            refused |= codes
            for partition, verification in verifications.items():
                if partition.topic_partition not in codes:
                    partition.allow_transaction(
                        producer_id, producer_epoch, verification, begins_at_zero=adds
                    )
            # A marker came meanwhile: that of the transaction before, or this one is over by now.
            left = [
                partition
                for partition, verification in verifications.items()
                if partition.topic_partition not in codes
                and partition.verification(producer_id) != verification
            ]
            if not left:
                break
        return {partition: _error(code, version) for partition, code in refused.items()}


def _unverified(
    written: Iterable[tuple[Partition, bytes | memoryview]],
) -> dict[Partition, tuple[int, int]]:
    """The partitions where a batch begins a transaction, with its producer."""
    found: dict[Partition, tuple[int, int]] = {}
    for partition, records in written:
        if not is_transactional(records):
            continue
        try:
            header = decode_header(records)
        except CorruptMessage:
            continue  # The append refuses it.
        producer = header.producer_id, header.producer_epoch
        if not partition.has_transaction(*producer):
            found[partition] = producer
    return found


def _error(code: ErrorCode, version: int) -> BrokerError:
    """As in Kafka: errors that old clients do not retry become one that they do."""
    if code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    if code in _MISSING:
        has_abortable = version >= _FIRST_VERSION_WITH_ABORTABLE
        kind = TransactionAbortable if has_abortable else InvalidTxnState
        return kind("the partition is not in the transaction")
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version >= _FIRST_VERSION_THAT_ADDS:
        return ConcurrentTransactions("the last transaction of the producer is being ended")
    kind_of_code = _ERRORS.get(code, NotEnoughReplicas)
    return kind_of_code(f"the coordinator does not confirm the transaction: {code.name}")

"""Moves staged records into their topics, and marks them as moved where they are staged, in one transaction."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from zhumq.coordinators.broker_transactions import code_of
from zhumq.model.errors import BrokerError, ErrorCode
from zhumq.model.ids import TopicPartition
from zhumq.model.state_machine import Producer
from zhumq.records.batch import Record
from zhumq.records.builder import build_batch

logger = logging.getLogger(__name__)

RETRY_SECONDS_MIN: Final = 0.02
RETRY_SECONDS_MAX: Final = 1.0
BATCH_BYTES_MAX: Final = 64 << 10  # unless one record is larger
RECORD_OVERHEAD_BYTES: Final = 64
# The transaction may still be open, or its end unknown: the same request decides, or says what was decided.
_ASK_AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
# The partition refuses the records themselves, now and later.
REFUSALS: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    }
)

# Marks the records, in the transaction of a producer. Its second argument asks whether the staging partition is in it.
Mark = Callable[[Producer, Callable[[], Awaitable[ErrorCode]]], Awaitable[ErrorCode]]


class TransactionCalls(Protocol):
    """What the mover asks of other brokers: `BrokerTransactions`. Each may raise BrokerError, and then may have happened."""

    async def init(self, transactional_id: str, timeout_ms: int) -> tuple[ErrorCode, Producer]:
        """A new instance of the producer: it fences the one before it, and aborts its transaction."""

    async def append(
        self, transactional_id: str, producer: Producer, partition: TopicPartition, batches: bytes
    ) -> None:
        """Append batches of the transaction to the partition, which joins it; durable when this returns."""

    async def join(
        self, transactional_id: str, producer: Producer, partition: TopicPartition
    ) -> ErrorCode:
        """A partition of this broker joins the transaction."""

    async def end(
        self, transactional_id: str, producer: Producer, *, is_commit: bool
    ) -> tuple[ErrorCode, Producer]:
        """End the transaction. Returns what the producer goes on with."""


class MoveFailed(Exception):
    """Nothing was moved. `errors` are those of the partitions that did not take their records; none if the transaction
    could not begin, be marked or be ended."""

    def __init__(self, reason: str, errors: Mapping[TopicPartition, BrokerError]) -> None:
        super().__init__(reason)
        self.errors = errors


class Mover:
    """The producer of one staging partition. One move at a time.

    Whatever dies in the middle, a record is in its topic exactly if its mark is in the staging partition: both wait for
    the marker of the same transaction. The leader of the staging partition begins as a new instance of the same
    transactional id, which aborts what an earlier leader left open, and fences it.
    """

    def __init__(
        self,
        transactions: TransactionCalls,
        *,
        transactional_id: str,
        staging: TopicPartition,
        timeout_ms: int,
    ) -> None:
        self._transactions = transactions
        self._id = transactional_id
        self._staging = staging
        self._timeout_ms = timeout_ms
        self._producer: Producer | None = None
        self._has_begun = False

    @property
    def is_unsettled(self) -> bool:
        """Whether it is not known how its last transaction ends: its records may still be in their partitions, and its
        marks count, or none of that. After `begin` it has ended."""
        return self._has_begun and self._producer is None

    async def begin(self) -> None:
        """Abort what an earlier leader left open, and wait for the end of it. Repeated until it succeeds."""
        self._has_begun = True
        delay = RETRY_SECONDS_MIN
        while self._producer is None:
            try:
                code, producer = await self._transactions.init(self._id, self._timeout_ms)
            except BrokerError as reason:
                logger.info("%s cannot begin: %s", self._id, reason)
            else:
                if code is ErrorCode.NONE:
                    self._producer = producer
                    return
                logger.info("%s cannot begin: %s", self._id, code.name)
            await asyncio.sleep(delay)
            delay = min(delay * 2, RETRY_SECONDS_MAX)

    async def move(self, records: Mapping[TopicPartition, Sequence[Record]], mark: Mark) -> None:
        """Append the records to their partitions, mark them, commit. Raises MoveFailed."""
        await self.begin()
        producer = self._producer
        assert producer is not None
        try:
            await self._write(producer, records, mark)
        except MoveFailed as failed:
            await self._end(producer, is_commit=False)
            if not failed.errors:
                self._producer = None  # The marks may be there until the transaction has ended.
            raise
        except BaseException:
            self._producer = None  # The next instance aborts the transaction.
            raise
        await self._end(producer, is_commit=True)

    async def _write(
        self, producer: Producer, records: Mapping[TopicPartition, Sequence[Record]], mark: Mark
    ) -> None:
        errors = await self._append(producer, records)
        if errors:
            raise MoveFailed("not all partitions take their records", errors)

        def verify() -> Awaitable[ErrorCode]:
            return self._transactions.join(self._id, producer, self._staging)

        code = await mark(producer, verify)
        if code is not ErrorCode.NONE:
            raise MoveFailed(f"the records cannot be marked: {code.name}", {})

    async def _append(
        self, producer: Producer, records: Mapping[TopicPartition, Sequence[Record]]
    ) -> dict[TopicPartition, BrokerError]:
        async def append(partition: TopicPartition) -> BrokerError | None:
            batches = _batches(records[partition], producer)
            try:
                await self._transactions.append(self._id, producer, partition, batches)
            except BrokerError as reason:
                return reason
            return None

        outcomes = await asyncio.gather(*(append(each) for each in records))
        return {
            partition: error
            for partition, error in zip(records, outcomes, strict=True)
            if error is not None
        }

    async def _end(self, producer: Producer, *, is_commit: bool) -> None:
        """End the transaction, however long that takes. If another instance or the timeout ended it, the marker says
        how: marks count, or do not, with the records they are about."""
        self._producer = None
        delay = RETRY_SECONDS_MIN
        while True:
            try:
                code, following = await self._transactions.end(
                    self._id, producer, is_commit=is_commit
                )
            except BrokerError as reason:
                logger.debug("%s cannot end its transaction: %s", self._id, reason)
            else:
                if code is ErrorCode.NONE:
                    self._producer = following
                    return
                if code not in _ASK_AGAIN:
                    logger.info("the transaction of %s was ended: %s", self._id, code.name)
                    return
            await asyncio.sleep(delay)
            delay = min(delay * 2, RETRY_SECONDS_MAX)


def mover_of(staging: TopicPartition, transactions: TransactionCalls, timeout_ms: int) -> Mover:
    """The mover of a staging partition, whose name is its transactional id."""
    return Mover(
        transactions, transactional_id=str(staging), staging=staging, timeout_ms=timeout_ms
    )


def is_refused(error: BrokerError) -> bool:
    """Whether the partition will not take the records later either."""
    return code_of(error) in REFUSALS


def _batches(records: Iterable[Record], producer: Producer) -> bytes:
    """The records in as few batches as the limit allows. Each transaction has a new epoch: its sequences begin at 0."""
    built: list[bytes] = []
    run: list[Record] = []
    size = sequence = 0

    def build() -> None:
        nonlocal sequence
        built.append(
            build_batch(
                run,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=sequence,
                is_transactional=True,
            )
        )
        sequence += len(run)

    for record in records:
        record_bytes = size_of(record)
        if run and size + record_bytes > BATCH_BYTES_MAX:
            build()
            run, size = [], 0
        run.append(record)
        size += record_bytes
    build()
    return b"".join(built)


def size_of(record: Record) -> int:
    """About as many bytes as it takes in a batch."""
    headers = sum(len(each.key) + len(each.value or b"") + 10 for each in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + RECORD_OVERHEAD_BYTES

"""Writes the markers of decided transactions, for the shards of `__transaction_state` that this broker leads."""

import asyncio
import itertools
import logging
from collections.abc import Iterable, Sequence
from typing import Final

from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.markers import (
    Codes,
    MarkerAppender,
    TransactionEnd,
    codes_of,
    message_of,
)
from zhumq.coordinators.shard_loops import ShardLoops
from zhumq.coordinators.transaction_service import TransactionRuntime, TransactionService
from zhumq.metadata.image import NO_BROKER
from zhumq.model.errors import BrokerError, ErrorCode
from zhumq.model.ids import TRANSACTION_STATE_TOPIC, BrokerId, TopicPartition
from zhumq.protocol.messages.transactions import (
    WritableTxnMarker,
    WriteMarkersRequest,
    WriteMarkersResponse,
)
from zhumq.protocol.peer_api import PeerApi
from zhumq.records.control import EndMarker, MarkerType
from zhumq.replication.inter_broker.peer_service import PeerConnection
from zhumq.replication.inter_broker.peers import TaskKeeper
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.replication.replication import Replication
from zhumq.transactions.requests import AwaitMarkers, MarkersWritten, PreparedTransactions
from zhumq.transactions.transaction import Transaction, TransactionState

logger = logging.getLogger(__name__)

WRITE_MARKERS: Final = PeerApi(WriteMarkersRequest, WriteMarkersResponse)
ANSWER_MS_MAX: Final = 30_000
RETRY_SECONDS_MIN: Final = 0.02
RETRY_SECONDS_MAX: Final = 1.0
# After these attempts, about 3 s, a partition that is not in the metadata image was deleted. Before that
# the image may be older than the transaction.
UNKNOWN_ATTEMPTS_MAX: Final = 8
MARKERS_AT_ONCE_MAX: Final = 500  # in one request to another broker
# A newer coordinator or producer wrote to the partition: these markers are no longer for this broker to write.
FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
)


class MarkerWriter:
    """One loop for each shard takes decided transactions, and writes their markers.

    Most transactions write where their coordinator is, and need no task. For the others, and after a failure, there is
    one task for each transaction, which goes on until its markers are written.
    """

    def __init__(
        self,
        runtime: TransactionRuntime,
        service: TransactionService,
        appender: MarkerAppender,
        store: MetadataStore,
        replicas: ReplicaManager,
        replication: Replication,
        broker_id: BrokerId,
    ) -> None:
        self._runtime = runtime
        self._service = service
        self.appender = appender
        self._store = store
        self._broker_id = broker_id
        self._peers = replication.peers
        self.committed_total = 0  # transactions whose markers are written
        self.aborted_total = 0
        self._outboxes: dict[int, _Outbox] = {}
        replication.service.register(WRITE_MARKERS, self._write_for_peer)
        self._loops = ShardLoops(replicas, TRANSACTION_STATE_TOPIC, self._serve, name="markers")

    async def close(self) -> None:
        await self._loops.close()

    async def _write_for_peer(
        self, _peer: PeerConnection, request: WriteMarkersRequest
    ) -> WriteMarkersResponse:
        return WriteMarkersResponse(markers=await self.appender.append_asked(request.markers))

    async def _serve(self, index: int, coordinator_epoch: int) -> None:
        writes = _Writes(self._service)
        try:
            while True:
                response = await self._runtime.submit(index, AwaitMarkers())
                assert isinstance(response, PreparedTransactions)
                if not response.transactions:
                    # The shard is being loaded, and hands out its decisions again. A marker of an earlier task
                    # could come late, and end the next transaction.
                    await writes.close()
                    await asyncio.sleep(RETRY_SECONDS_MIN)
                for transaction in response.transactions:
                    self._begin(index, coordinator_epoch, transaction, writes)
        finally:
            await writes.close()

    def _begin(
        self, index: int, coordinator_epoch: int, transaction: Transaction, writes: "_Writes"
    ) -> None:
        """Append the markers of one transaction at once if this broker leads all of its partitions."""
        end = _end_of(transaction, coordinator_epoch)
        writes.begin(transaction)

        def on_durable(is_written: bool) -> None:
            if not writes.has(transaction):
                return  # The shard was loaded again meanwhile, and has handed the transaction out again.
            if is_written:
                self._complete(index, transaction)
                writes.end(transaction)
            else:
                write = self._write(index, end, transaction, writes)
                writes.tasks.start(asyncio.get_running_loop().create_task(write, name="markers"))

        if self.appender.may_append_at_once(transaction.partitions):
            self.appender.append_at_once(end, sorted(transaction.partitions), on_durable)
        else:
            on_durable(False)

    async def _write(
        self, index: int, end: TransactionEnd, transaction: Transaction, writes: "_Writes"
    ) -> None:
        """Write the markers of one transaction, to all of its partitions, however long that takes."""
        try:
            if await self._write_all(end, transaction) and writes.has(transaction):
                self._complete(index, transaction)
        finally:
            writes.end(transaction)

    def _complete(self, index: int, transaction: Transaction) -> None:
        if transaction.state is TransactionState.PREPARE_COMMIT:
            self.committed_total += 1
        else:
            self.aborted_total += 1
        self._service.complete(
            index,
            MarkersWritten(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
            ),
        )

    async def _write_all(self, end: TransactionEnd, transaction: Transaction) -> bool:
        """Returns False if others have fenced the markers."""
        missing = set(transaction.partitions)
        delay = RETRY_SECONDS_MIN
        for attempt in itertools.count(1):
            if attempt > UNKNOWN_ATTEMPTS_MAX:
                missing -= self._deleted(missing)
            sends = [
                self._send(leader, end, partitions)
                for leader, partitions in self._by_leader(missing).items()
            ]
            # Most transactions write where their coordinator is: no task for one send.
            answers = [await sends[0]] if len(sends) == 1 else await asyncio.gather(*sends)
            for codes in answers:
                for partition, code in codes.items():
                    if code in FENCED:
                        logger.warning(
                            "the markers of %s are fenced by %s: %s",
                            transaction.transactional_id,
                            partition,
                            code.name,
                        )
                        return False
                    if code is ErrorCode.NONE:
                        missing.discard(partition)
            if not missing:
                break
            await asyncio.sleep(delay)
            delay = min(delay * 2, RETRY_SECONDS_MAX)
        return True

    def _deleted(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        return {each for each in partitions if self._store.image.partition(each) is None}

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """The partitions by the brokers that lead them now, as far as they have a leader."""
        image = self._store.image
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in sorted(partitions):
            state = image.partition(partition)
            leader = NO_BROKER if state is None else image.leader_of(state)
            if leader != NO_BROKER:
                by_leader.setdefault(leader, []).append(partition)
        return by_leader

    async def _send(
        self, leader: int, end: TransactionEnd, partitions: Sequence[TopicPartition]
    ) -> Codes:
        """The codes of the partitions; none where the broker does not answer."""
        if leader == self._broker_id:
            return await self.appender.append(end, partitions)
        outbox = self._outboxes.get(leader)
        if outbox is None:
            outbox = self._outboxes[leader] = _Outbox(self, leader)
        return await outbox.send(message_of(end, partitions))

    async def ask(self, leader: int, markers: Sequence[WritableTxnMarker]) -> list[Codes]:
        """Ask another broker to append markers. Raises BrokerError."""
        response = await self._peers.request(
            leader,
            WRITE_MARKERS,
            WriteMarkersRequest(markers=list(markers)),
            timeout_ms=ANSWER_MS_MAX,
        )
        return codes_of(response.markers)


class _Writes:
    """The transactions of a shard whose markers are being written."""

    def __init__(self, service: TransactionService) -> None:
        self._service = service
        self._transactions: dict[str, Transaction] = {}
        self.tasks = TaskKeeper()

    def begin(self, transaction: Transaction) -> None:
        self._transactions[transaction.transactional_id] = transaction
        self._service.begin_markers(transaction.transactional_id)

    def has(self, transaction: Transaction) -> bool:
        return self._transactions.get(transaction.transactional_id) is transaction

    def end(self, transaction: Transaction) -> None:
        if self.has(transaction):
            del self._transactions[transaction.transactional_id]
            self._service.end_markers(transaction.transactional_id)

    async def close(self) -> None:
        """Forget them all: no request waits for their markers any more."""
        for transaction in tuple(self._transactions.values()):
            self.end(transaction)
        await self.tasks.close()


class _Outbox:
    """The markers for one broker: those that come while a request is on its way leave together."""

    def __init__(self, writer: MarkerWriter, leader: int) -> None:
        self._writer = writer
        self._leader = leader
        self._waiting: list[tuple[WritableTxnMarker, asyncio.Future[Codes]]] = []
        self._sending: asyncio.Task[None] | None = None

    async def send(self, marker: WritableTxnMarker) -> Codes:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Codes] = loop.create_future()
        self._waiting.append((marker, answer))
        if self._sending is None:
            self._sending = loop.create_task(self._send_all(), name=f"markers-to-{self._leader}")
        return await answer

    async def _send_all(self) -> None:
        while self._waiting:
            leaving = self._waiting[:MARKERS_AT_ONCE_MAX]
            del self._waiting[: len(leaving)]
            answers: Sequence[Codes]
            try:
                answers = await self._writer.ask(self._leader, [each for each, _ in leaving])
            except BrokerError as reason:
                logger.debug("broker %d does not write markers: %s", self._leader, reason)
                answers = [{} for _ in leaving]
            for (_, answer), codes in zip(leaving, answers, strict=True):
                if not answer.done():  # Done: this broker no longer leads the shard.
                    answer.set_result(codes)
        self._sending = None


def _end_of(transaction: Transaction, coordinator_epoch: int) -> TransactionEnd:
    is_commit = transaction.state is TransactionState.PREPARE_COMMIT
    return TransactionEnd(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        marker=EndMarker(
            marker_type=MarkerType.COMMIT if is_commit else MarkerType.ABORT,
            coordinator_epoch=coordinator_epoch,
        ),
        transaction_version=transaction.client_version,
    )

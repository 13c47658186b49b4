"""Transactions that brokers begin themselves: routes to the coordinator of one, and to the partitions it writes to."""

from typing import Final

from zhumq.coordinators.internal_topic import InternalTopic
from zhumq.coordinators.router import LeaderRouter, RouteKind
from zhumq.coordinators.transaction_route import RoutedTransactions
from zhumq.coordinators.transaction_service import TransactionService
from zhumq.host.clock import Clock
from zhumq.model.errors import BrokerError, ErrorCode, InvalidRequest
from zhumq.model.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from zhumq.model.state_machine import Producer
from zhumq.model.transaction_errors import TransactionAbortable
from zhumq.net.channel import PeerRefused
from zhumq.protocol.messages.coordinator_records import decode_versioned, encode_versioned
from zhumq.protocol.messages.half_messages import AppendInTransactionRequest
from zhumq.protocol.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from zhumq.protocol.messages.transactions import EndTxnRequest, EndTxnResponse
from zhumq.replication.partition import Partition
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.storage.validator import AppendOrigin
from zhumq.transactions.requests import EndTransaction, InitProducer
from zhumq.transactions.transaction import EPOCH_BUMPING_VERSION, VERIFICATIONS_MAX

_VERSION: Final = 0
_INIT_VERSION: Final = 5
_END_VERSION: Final = 5

ProducerRequest = InitProducerIdRequest | EndTxnRequest
ProducerResponse = InitProducerIdResponse | EndTxnResponse


class ProducerRoute:
    """A `Route` for InitProducerId and EndTxn to the coordinator of a transactional id."""

    kind: int = RouteKind.OWN_PRODUCER

    def __init__(self, service: TransactionService) -> None:
        self._service = service

    async def answer(
        self, _partition: TopicPartition, request: ProducerRequest
    ) -> ProducerResponse:
        if isinstance(request, InitProducerIdRequest):
            begun = await self._service.handle(
                InitProducer(
                    transactional_id=request.transactional_id or "",
                    timeout_ms=request.transaction_timeout_ms,
                )
            )
            return InitProducerIdResponse(
                error_code=begun.code,
                producer_id=begun.producer_id,
                producer_epoch=begun.producer_epoch,
            )
        ended = await self._service.handle(
            EndTransaction(
                transactional_id=request.transactional_id,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                is_commit=request.committed,
                client_version=EPOCH_BUMPING_VERSION,
            )
        )
        return EndTxnResponse(
            error_code=ended.code,
            producer_id=ended.producer_id,
            producer_epoch=ended.producer_epoch,
        )

    def encode_request(self, request: ProducerRequest) -> bytes:
        if isinstance(request, InitProducerIdRequest):
            return b"\0" + encode_versioned(request, _INIT_VERSION)
        return b"\1" + encode_versioned(request, _END_VERSION)

    def decode_request(self, body: bytes) -> ProducerRequest:
        match body[:1]:
            case b"\0":
                return decode_versioned(InitProducerIdRequest, body[1:])[1]
            case b"\1":
                return decode_versioned(EndTxnRequest, body[1:])[1]
            case _:
                raise InvalidRequest("no such request of a broker's producer")

    def encode_response(self, _request: ProducerRequest, response: ProducerResponse) -> bytes:
        is_init = isinstance(response, InitProducerIdResponse)
        return encode_versioned(response, _INIT_VERSION if is_init else _END_VERSION)

    def decode_response(self, request: ProducerRequest, body: bytes) -> ProducerResponse:
        if isinstance(request, InitProducerIdRequest):
            return decode_versioned(InitProducerIdResponse, body)[1]
        return decode_versioned(EndTxnResponse, body)[1]


class AppendRoute:
    """A `Route` for batches of a transaction to the leader of a partition, which joins it. They are durable once it
    has answered."""

    kind: int = RouteKind.OWN_APPEND

    def __init__(
        self, replicas: ReplicaManager, transactions: RoutedTransactions, clock: Clock
    ) -> None:
        self._replicas = replicas
        self._transactions = transactions
        self._clock = clock

    async def answer(self, partition: TopicPartition, request: AppendInTransactionRequest) -> None:
        target = self._replicas.partition(*partition)
        target.check_leads()
        target.check_enough_replicas()
        producer = Producer(request.producer_id, request.producer_epoch)
        if not target.has_transaction(*producer):
            await self._join(target, request.transactional_id, producer)
        appended = target.append(request.batches, self._clock.now_ms(), origin=AppendOrigin.MOVER)
        await target.when_durable(appended.last_offset + 1)

    async def _join(self, target: Partition, transactional_id: str, producer: Producer) -> None:
        partition = target.topic_partition
        for _ in range(VERIFICATIONS_MAX):
            verification = target.verification(producer.producer_id)
            codes = await self._transactions.join(
                transactional_id, *producer, [partition], adds=True
            )
            if partition in codes:
                raise TransactionAbortable(
                    f"{partition} joins no transaction: {codes[partition]!r}"
                )
            if target.verification(producer.producer_id) == verification:
                break
            # The marker of the producer's last transaction came meanwhile: what was verified may be about that one.
        target.allow_transaction(*producer, verification, begins_at_zero=True)

    def encode_request(self, request: AppendInTransactionRequest) -> bytes:
        return encode_versioned(request, _VERSION)

    def decode_request(self, body: bytes) -> AppendInTransactionRequest:
        return decode_versioned(AppendInTransactionRequest, body)[1]

    def encode_response(self, _request: AppendInTransactionRequest, _response: None) -> bytes:
        return b""

    def decode_response(self, _request: AppendInTransactionRequest, _body: bytes) -> None:
        return None


class BrokerTransactions:
    """What a producer inside of a broker asks, whichever brokers have to answer."""

    def __init__(
        self,
        router: LeaderRouter,
        service: TransactionService,
        transactions: RoutedTransactions,
        topic: InternalTopic,
        replicas: ReplicaManager,
        clock: Clock,
    ) -> None:
        self._router = router
        self._service = service
        self._transactions = transactions
        self._topic = topic
        self._producers = ProducerRoute(service)
        self._appends = AppendRoute(replicas, transactions, clock)
        router.add(self._producers)
        router.add(self._appends)

    async def init(self, transactional_id: str, timeout_ms: int) -> tuple[ErrorCode, Producer]:
        """A new instance of the producer: it fences the one before it, and aborts its transaction. Raises BrokerError."""
        await self._topic.ensure()
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        return await self._ask(transactional_id, request)

    async def end(
        self, transactional_id: str, producer: Producer, *, is_commit: bool
    ) -> tuple[ErrorCode, Producer]:
        """End the transaction. Returns what the producer goes on with. Raises BrokerError."""
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=is_commit,
        )
        return await self._ask(transactional_id, request)

    async def append(
        self,
        transactional_id: str,
        producer: Producer,
        partition: TopicPartition,
        batches: bytes,
    ) -> None:
        """Append batches of the transaction; durable when this returns. Raises BrokerError."""
        request = AppendInTransactionRequest(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            batches=batches,
        )
        await self._router.send(self._appends, partition, request)

    async def join(
        self, transactional_id: str, producer: Producer, partition: TopicPartition
    ) -> ErrorCode:
        """A partition of this broker joins the transaction."""
        codes = await self._transactions.join(transactional_id, *producer, [partition], adds=True)
        return codes.get(partition, ErrorCode.NONE)

    async def _ask(
        self, transactional_id: str, request: ProducerRequest
    ) -> tuple[ErrorCode, Producer]:
        index = self._service.partition_for(transactional_id)
        coordinator = TopicPartition(TRANSACTION_STATE_TOPIC, index)
        response = await self._router.send(self._producers, coordinator, request)
        producer = Producer(response.producer_id, response.producer_epoch)
        return ErrorCode(response.error_code), producer


def code_of(error: BrokerError) -> ErrorCode:
    """The code of an error that this broker or another one has raised."""
    return error.error if isinstance(error, PeerRefused) else error.code

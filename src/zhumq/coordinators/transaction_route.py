"""The way to the coordinator of a transaction from any broker: for partitions that a producer writes to."""

from collections.abc import Iterable, Mapping
from typing import Final

from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.router import LeaderRouter, RouteKind
from zhumq.coordinators.transaction_service import TransactionService
from zhumq.model.errors import BrokerError, ErrorCode
from zhumq.model.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from zhumq.protocol.messages.coordinator_records import decode_versioned, encode_versioned
from zhumq.protocol.messages.transactions import (
    AddPartitionsToTxnTopic,
    JoinTransactionRequest,
    JoinTransactionResponse,
)
from zhumq.transactions.requests import AddPartitions, Answer
from zhumq.transactions.transaction import EPOCH_BUMPING_VERSION

_VERSION: Final = 0


class TransactionRoute:
    """A `Route` for partitions that join a transaction, or are verified to be in one (KIP-890)."""

    kind: int = RouteKind.TRANSACTION

    def __init__(self, service: TransactionService, store: MetadataStore) -> None:
        self._service = service
        self._store = store

    async def answer(
        self, _partition: TopicPartition, request: JoinTransactionRequest
    ) -> JoinTransactionResponse:
        answer = await self.join(
            AddPartitions(
                transactional_id=request.transactional_id,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                partitions=frozenset(partitions_of(request.topics)),
                client_version=EPOCH_BUMPING_VERSION,
                verify_only=request.verify_only,
            )
        )
        return JoinTransactionResponse(error_code=answer.code, missing=topics_of(answer.missing))

    async def join(self, request: AddPartitions) -> Answer:
        image = self._store.image
        if any(image.partition(each) is None for each in request.partitions):
            # A broker that does not know a partition yet could not write its marker.
            return Answer(code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return await self._service.handle(request)

    def encode_request(self, request: JoinTransactionRequest) -> bytes:
        return encode_versioned(request, _VERSION)

    def decode_request(self, body: bytes) -> JoinTransactionRequest:
        return decode_versioned(JoinTransactionRequest, body)[1]

    def encode_response(
        self, _request: JoinTransactionRequest, response: JoinTransactionResponse
    ) -> bytes:
        return encode_versioned(response, _VERSION)

    def decode_response(
        self, _request: JoinTransactionRequest, body: bytes
    ) -> JoinTransactionResponse:
        return decode_versioned(JoinTransactionResponse, body)[1]


class RoutedTransactions:
    """Asks the coordinator of any transaction, whichever broker that is."""

    def __init__(
        self, router: LeaderRouter, service: TransactionService, store: MetadataStore
    ) -> None:
        self._router = router
        self._service = service
        self._route = TransactionRoute(service, store)
        router.add(self._route)

    def verified_at_once(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
    ) -> bool:
        """Whether the coordinator is here, and confirms without waiting that the partitions are in the
        transaction of a producer. If not, `join` tells."""
        return self._service.verified_at_once(
            transactional_id, producer_id, producer_epoch, frozenset(partitions)
        )

    def _shard_of(self, transactional_id: str) -> TopicPartition:
        return TopicPartition(
            TRANSACTION_STATE_TOPIC, self._service.partition_for(transactional_id)
        )

    async def join(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        adds: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Partitions join the transaction of a producer; or, unless it `adds`, are verified to be in it.

        Returns the errors of those that are not in it. TRANSACTION_ABORTABLE: the coordinator does not
        have the partition in the transaction.
        """
        partitions = frozenset(partitions)
        shard = self._shard_of(transactional_id)
        if self._router.leads(shard):
            answer = await self._route.join(
                AddPartitions(
                    transactional_id=transactional_id,
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    partitions=partitions,
                    client_version=EPOCH_BUMPING_VERSION,
                    verify_only=not adds,
                )
            )
            return _errors(partitions, answer.code, answer.missing)
        request = JoinTransactionRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            verify_only=not adds,
            topics=topics_of(partitions),
        )
        try:
            response = await self._router.send(self._route, shard, request)
        except BrokerError:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return _errors(partitions, ErrorCode(response.error_code), partitions_of(response.missing))


def _errors(
    partitions: Iterable[TopicPartition], code: ErrorCode, missing: Iterable[TopicPartition]
) -> Mapping[TopicPartition, ErrorCode]:
    if code is not ErrorCode.NONE:
        return dict.fromkeys(partitions, code)
    return dict.fromkeys(missing, ErrorCode.TRANSACTION_ABORTABLE)


def topics_of(partitions: Iterable[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
    """The partitions by topic, as messages have them."""
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for name, index in sorted(partitions):
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = AddPartitionsToTxnTopic(name=name)
        topic.partitions.append(index)
    return list(topics.values())


def partitions_of(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    """The reverse."""
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]

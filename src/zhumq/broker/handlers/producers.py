"""InitProducerId and DescribeProducers: ids of idempotent and transactional producers, and their last sequences."""

from typing import Final

from zhumq.broker.dispatch import Handler, RequestContext
from zhumq.cluster.metadata_client import MetadataClient
from zhumq.coordinators.transaction_service import TransactionService
from zhumq.model.errors import BrokerError, ErrorCode
from zhumq.model.ids import NO_PRODUCER_ID
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.transactions.requests import InitProducer

_FIRST_EPOCH: Final = 0
_FIRST_VERSION_WITH_FENCED: Final = 4
_EPOCH_MAX: Final = 2**15 - 2


class ProducersHandler:
    """Gives producers an id and an epoch, and describes the producers of partitions."""

    def __init__(
        self,
        metadata_client: MetadataClient,
        replicas: ReplicaManager,
        transactions: TransactionService,
    ) -> None:
        self._metadata_client = metadata_client
        self._replicas = replicas
        self._transactions = transactions

    def handlers(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.INIT_PRODUCER_ID: self.init_producer_id,
            ApiKey.DESCRIBE_PRODUCERS: self.describe_producers,
        }

    async def init_producer_id(
        self, context: RequestContext, request: InitProducerIdRequest
    ) -> InitProducerIdResponse:
        if request.transactional_id is not None:
            return await self._init_transactional(context, request, request.transactional_id)
        if request.producer_id != NO_PRODUCER_ID:
            # KIP-360: a producer that lost its sequence continues with the next epoch of its id.
            if not 0 <= request.producer_epoch <= _EPOCH_MAX:
                return _refused(ErrorCode.INVALID_PRODUCER_EPOCH)
            return InitProducerIdResponse(
                producer_id=request.producer_id, producer_epoch=request.producer_epoch + 1
            )
        return InitProducerIdResponse(
            producer_id=await self._metadata_client.next_producer_id(), producer_epoch=_FIRST_EPOCH
        )

    async def _init_transactional(
        self, context: RequestContext, request: InitProducerIdRequest, transactional_id: str
    ) -> InitProducerIdResponse:
        answer = await self._transactions.handle(
            InitProducer(
                transactional_id=transactional_id,
                timeout_ms=request.transaction_timeout_ms,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                enable_two_phase_commit=request.enable2_pc,
                keep_prepared=request.keep_prepared_txn,
            )
        )
        if (
            answer.code is ErrorCode.PRODUCER_FENCED
            and context.version < _FIRST_VERSION_WITH_FENCED
        ):
            return _refused(ErrorCode.INVALID_PRODUCER_EPOCH)
        return InitProducerIdResponse(
            error_code=answer.code,
            producer_id=answer.producer_id,
            producer_epoch=answer.producer_epoch,
            ongoing_txn_producer_id=answer.ongoing_producer_id,
            ongoing_txn_producer_epoch=answer.ongoing_producer_epoch,
        )

    def describe_producers(
        self, _context: RequestContext, request: DescribeProducersRequest
    ) -> DescribeProducersResponse:
        response = DescribeProducersResponse()
        for topic in request.topics:
            described = TopicResponse(name=topic.name)
            response.topics.append(described)
            for index in topic.partition_indexes:
                answer = PartitionResponse(partition_index=index)
                described.partitions.append(answer)
                try:
                    # Followers answer, too: a tool may ask a certain broker.
                    partition = self._replicas.partition(topic.name, index)
                except BrokerError as reason:
                    answer.error_code = reason.code
                    answer.error_message = str(reason)
                    continue
                answer.active_producers = [
                    ProducerState(
                        producer_id=producer_id,
                        producer_epoch=entry.epoch,
                        last_sequence=entry.batches[-1].last_sequence if entry.batches else -1,
                        last_timestamp=entry.last_timestamp,
                        coordinator_epoch=entry.coordinator_epoch,
                        current_txn_start_offset=entry.transaction_first_offset,
                    )
                    for producer_id, entry in partition.producers.items()
                ]
        return response


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=-1)

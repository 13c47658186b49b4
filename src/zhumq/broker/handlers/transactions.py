"""Requests about transactions: what joins them, how they end, markers, descriptions and lists."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final

from zhumq.broker.dispatch import DeferredAnswer, EncodedAnswer, Handler, RequestContext
from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.internal_topic import InternalTopic
from zhumq.coordinators.markers import MarkerAppender
from zhumq.coordinators.transaction_route import partitions_of, topics_of
from zhumq.coordinators.transaction_service import TransactionService
from zhumq.groups.consumer_regex import RegexInvalid, TopicRegex
from zhumq.model.errors import ErrorCode
from zhumq.model.ids import CONSUMER_OFFSETS_TOPIC, INTERNAL_TOPICS, TopicPartition
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TopicData,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from zhumq.security.acl import Operation, ResourceType
from zhumq.transactions.requests import AddPartitions, Answer, EndTransaction, ListTransactions
from zhumq.transactions.transaction import EPOCH_BUMPING_VERSION, TransactionState

_FIRST_ADD_VERSION_OF_BROKERS: Final = 4
_FIRST_ADD_VERSION_WITH_ABORTABLE: Final = 5
_FIRST_VERSION_WITH_FENCED: Final = 2
_FIRST_END_VERSION_WITH_BUMPS: Final = 5
_STATES: Final = frozenset(TransactionState)

Codes = Mapping[TopicPartition, ErrorCode]


class TransactionsHandler:
    """Serves producers with a transactional id, other brokers, and tools."""

    def __init__(
        self,
        service: TransactionService,
        markers: MarkerAppender,
        offsets_topic: InternalTopic,
        partition_of_group: Callable[[str], int],
        store: MetadataStore,
    ) -> None:
        self._service = service
        self._markers = markers
        self._offsets_topic = offsets_topic
        self._partition_of_group = partition_of_group
        self._store = store

    def handlers(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.ADD_PARTITIONS_TO_TXN: self.add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: self.add_offsets,
            ApiKey.END_TXN: self.end,
            ApiKey.WRITE_TXN_MARKERS: self.write_markers,
            ApiKey.DESCRIBE_TRANSACTIONS: self.describe,
            ApiKey.LIST_TRANSACTIONS: self.list,
        }

    def add_partitions(
        self, context: RequestContext, request: AddPartitionsToTxnRequest
    ) -> EncodedAnswer | Coroutine[Any, Any, AddPartitionsToTxnResponse]:
        if context.version >= _FIRST_ADD_VERSION_OF_BROKERS:
            return self._add_for_broker(context, request)
        answer = DeferredAnswer(context)
        self._add(
            context,
            AddPartitionsToTxnTransaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            ),
            lambda codes: answer.settle(
                AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(codes))
            ),
        )
        return answer

    async def _add_for_broker(
        self, context: RequestContext, request: AddPartitionsToTxnRequest
    ) -> AddPartitionsToTxnResponse:
        loop = asyncio.get_running_loop()
        asked: list[asyncio.Future[Codes]] = []
        for each in request.transactions:
            asked.append(loop.create_future())
            self._add(context, each, partial(_settle, asked[-1]))
        added = await asyncio.gather(*asked)
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=each.transactional_id, topic_results=_results(codes)
                )
                for each, codes in zip(request.transactions, added, strict=True)
            ]
        )

    def _add(
        self,
        context: RequestContext,
        transaction: AddPartitionsToTxnTransaction,
        on_codes: Callable[[Codes], None],
    ) -> None:
        partitions = frozenset(partitions_of(transaction.topics))
        refused = self._refused(context, partitions)
        if refused:
            # All or nothing, as in Kafka.
            on_codes(
                {each: refused.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in partitions}
            )
            return
        is_broker = context.version >= _FIRST_ADD_VERSION_OF_BROKERS

        def on_answer(answer: Answer) -> None:
            has_abortable = context.version >= _FIRST_ADD_VERSION_WITH_ABORTABLE
            missing = (
                ErrorCode.TRANSACTION_ABORTABLE if has_abortable else ErrorCode.INVALID_TXN_STATE
            )
            code = _known_to(context, answer.code)
            on_codes({each: missing if each in answer.missing else code for each in partitions})

        self._service.ask(
            AddPartitions(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                partitions=partitions,
                client_version=EPOCH_BUMPING_VERSION if is_broker else 0,
                verify_only=transaction.verify_only,
            ),
            on_answer,
        )

    def _refused(self, context: RequestContext, partitions: frozenset[TopicPartition]) -> Codes:
        """The partitions that a client may not write to, or that do not exist."""
        refused: dict[TopicPartition, ErrorCode] = {}
        is_broker = context.version >= _FIRST_ADD_VERSION_OF_BROKERS
        for each in partitions:
            topic = each.topic
            if not is_broker and (
                topic in INTERNAL_TOPICS
                or not context.may(Operation.WRITE, ResourceType.TOPIC, topic)
            ):
                refused[each] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif self._store.image.partition(each) is None:
                refused[each] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return refused

    async def add_offsets(
        self, context: RequestContext, request: AddOffsetsToTxnRequest
    ) -> AddOffsetsToTxnResponse:
        await self._offsets_topic.ensure()
        index = self._partition_of_group(request.group_id)
        answer = await self._service.handle(
            AddPartitions(
                transactional_id=request.transactional_id,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                partitions=frozenset({TopicPartition(CONSUMER_OFFSETS_TOPIC, index)}),
            )
        )
        return AddOffsetsToTxnResponse(error_code=_known_to(context, answer.code))

    def end(self, context: RequestContext, request: EndTxnRequest) -> EncodedAnswer:
        bumps = context.version >= _FIRST_END_VERSION_WITH_BUMPS
        deferred = DeferredAnswer(context)

        def on_answer(answer: Answer) -> None:
            deferred.settle(
                EndTxnResponse(
                    error_code=_known_to(context, answer.code),
                    producer_id=answer.producer_id,
                    producer_epoch=answer.producer_epoch,
                )
            )

        self._service.ask(
            EndTransaction(
                transactional_id=request.transactional_id,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                is_commit=request.committed,
                client_version=EPOCH_BUMPING_VERSION if bumps else 0,
            ),
            on_answer,
        )
        return deferred

    async def write_markers(
        self, _context: RequestContext, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(markers=await self._markers.append_asked(request.markers))

    async def describe(
        self, context: RequestContext, request: DescribeTransactionsRequest
    ) -> DescribeTransactionsResponse:
        described = [
            await self._describe(context, transactional_id)
            for transactional_id in request.transactional_ids
        ]
        return DescribeTransactionsResponse(transaction_states=described)

    async def _describe(
        self, context: RequestContext, transactional_id: str
    ) -> DescribedTransaction:
        description = await self._service.describe(transactional_id)
        found = description.transaction
        if found is None:
            return DescribedTransaction(
                error_code=description.code, transactional_id=transactional_id
            )
        return DescribedTransaction(
            transactional_id=transactional_id,
            transaction_state=found.state,
            transaction_timeout_ms=found.timeout_ms,
            transaction_start_time_ms=found.start_ms,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            topics=[
                TopicData(topic=topic.name, partitions=topic.partitions)
                for topic in topics_of(found.partitions)
                if context.sees(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
            ],
        )

    async def list(
        self, context: RequestContext, request: ListTransactionsRequest
    ) -> ListTransactionsResponse:
        pattern = None
        if request.transactional_id_pattern:
            try:
                pattern = TopicRegex(request.transactional_id_pattern)
            except RegexInvalid:
                return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
        asked = frozenset(request.state_filters)
        response = ListTransactionsResponse(unknown_state_filters=sorted(asked - _STATES))
        listings = await self._service.list(
            ListTransactions(
                states=asked,
                producer_ids=frozenset(request.producer_id_filters),
                running_ms_min=request.duration_filter,
            )
        )
        for listing in listings:
            if listing.code not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR):
                return ListTransactionsResponse(error_code=listing.code)
            response.transaction_states += [
                ListedTransaction(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    transaction_state=each.state,
                )
                for each in listing.transactions
                if (pattern is None or pattern.matches(each.transactional_id))
                and context.sees(
                    Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each.transactional_id
                )
            ]
        return response


def _settle(future: asyncio.Future[Codes], codes: Codes) -> None:
    if not future.done():  # Done: the connection is gone.
        future.set_result(codes)


def _known_to(context: RequestContext, code: ErrorCode) -> ErrorCode:
    """Old clients do not know PRODUCER_FENCED."""
    if code is ErrorCode.PRODUCER_FENCED and context.version < _FIRST_VERSION_WITH_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def _results(codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=codes[TopicPartition(topic.name, index)],
                )
                for index in topic.partitions
            ],
        )
        for topic in topics_of(codes)
    ]

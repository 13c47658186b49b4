"""Rules of the requests about transactions."""

from collections.abc import Mapping
from typing import Any, Final

from zhumq.broker.rights.rule import (
    Need,
    Permitted,
    Rule,
    Subject,
    both,
    failure,
    on_group,
    on_items,
    refuse,
    require,
    split,
)
from zhumq.groups.requests import refused_transactional_commit, refused_transactional_topic
from zhumq.model.errors import ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    DescribedTransaction,
    DescribeTransactionsResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from zhumq.protocol.schema import Message
from zhumq.security.acl import CLUSTER_NAME, Operation, ResourceType

_CLUSTER: Final = ResourceType.CLUSTER
_GROUP: Final = ResourceType.GROUP
_TOPIC: Final = ResourceType.TOPIC
_TRANSACTIONAL_ID: Final = ResourceType.TRANSACTIONAL_ID
_FIRST_ADD_VERSION_OF_BROKERS: Final = 4


def _check_id(subject: Subject, request: Any) -> Permitted:
    require(subject, Operation.WRITE, _TRANSACTIONAL_ID, request.transactional_id)
    return Permitted(request)


_ON_ID: Final = Rule(needs=(refuse(Operation.WRITE, _TRANSACTIONAL_ID),), check=_check_id)


def _check_add_partitions(
    subject: Subject, request: AddPartitionsToTxnRequest
) -> Permitted | Message:
    """The handler refuses topics: one refusal changes the answer for the others."""
    if subject.version >= _FIRST_ADD_VERSION_OF_BROKERS:
        require(subject, Operation.CLUSTER_ACTION, _CLUSTER, CLUSTER_NAME)
        return Permitted(request)
    name = request.v3_and_below_transactional_id
    if subject.may(Operation.WRITE, _TRANSACTIONAL_ID, name):
        return Permitted(request)
    code = failure(_TRANSACTIONAL_ID).code
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=code
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


def _check_offset_commit(subject: Subject, request: TxnOffsetCommitRequest) -> Permitted | Message:
    for operation, type_, name in (
        (Operation.WRITE, _TRANSACTIONAL_ID, request.transactional_id),
        (Operation.READ, _GROUP, request.group_id),
    ):
        if not subject.may(operation, type_, name):
            return refused_transactional_commit(request, failure(type_).code)
    return split(
        request,
        "topics",
        "topics",
        TxnOffsetCommitResponse,
        lambda topic: (
            None
            if subject.may(Operation.READ, _TOPIC, topic.name)
            else refused_transactional_topic(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        ),
    )


def _check_write_markers(subject: Subject, request: WriteTxnMarkersRequest) -> Permitted | Message:
    if subject.sees(Operation.ALTER, _CLUSTER, CLUSTER_NAME) or subject.may(
        Operation.CLUSTER_ACTION, _CLUSTER, CLUSTER_NAME
    ):
        return Permitted(request)
    code = failure(_CLUSTER).code
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


TRANSACTION_RULES: Final[Mapping[ApiKey, Rule]] = {
    ApiKey.ADD_PARTITIONS_TO_TXN: Rule(
        needs=(
            refuse(Operation.WRITE, _TRANSACTIONAL_ID),
            Need(
                Operation.WRITE,
                _TOPIC,
                f"{ErrorCode.TOPIC_AUTHORIZATION_FAILED.name};"
                f" {ErrorCode.OPERATION_NOT_ATTEMPTED.name} for the other topics",
            ),
            Need(Operation.CLUSTER_ACTION, _CLUSTER, "of brokers, instead of both"),
        ),
        check=_check_add_partitions,
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: both(_ON_ID, on_group(Operation.READ)),
    ApiKey.END_TXN: _ON_ID,
    ApiKey.WRITE_TXN_MARKERS: Rule(
        needs=(
            refuse(Operation.CLUSTER_ACTION, _CLUSTER),
            Need(Operation.ALTER, _CLUSTER, "instead of CLUSTER_ACTION"),
        ),
        check=_check_write_markers,
    ),
    ApiKey.TXN_OFFSET_COMMIT: Rule(
        needs=(
            refuse(Operation.WRITE, _TRANSACTIONAL_ID),
            refuse(Operation.READ, _GROUP),
            refuse(Operation.READ, _TOPIC),
        ),
        check=_check_offset_commit,
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: Rule(
        needs=(
            refuse(Operation.DESCRIBE, _TRANSACTIONAL_ID),
            Need(Operation.DESCRIBE, _TOPIC, "the topic is left out"),
        ),
        check=on_items(
            Operation.DESCRIBE,
            _TRANSACTIONAL_ID,
            of="transactional_ids",
            into="transaction_states",
            response=DescribeTransactionsResponse,
            refused=lambda name, code: DescribedTransaction(error_code=code, transactional_id=name),
            name=str,
        ).check,
    ),
    ApiKey.LIST_TRANSACTIONS: Rule(
        needs=(Need(Operation.DESCRIBE, _TRANSACTIONAL_ID, "left out"),),
        check=lambda _, request: Permitted(request),
    ),
}

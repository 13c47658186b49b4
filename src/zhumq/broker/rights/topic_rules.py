"""Rules of the requests about topics, their records and their offsets."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final

from zhumq.broker.rights.rule import (
    Need,
    Permitted,
    Rule,
    Subject,
    failure,
    on_items,
    refuse,
    require,
    split,
    then,
    with_fields,
)
from zhumq.model.errors import ErrorCode, MalformedFrame
from zhumq.model.ids import ZERO_UUID
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.delays import ScheduleRequest
from zhumq.protocol.messages.lookup import LookupRequest
from zhumq.protocol.messages.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
    TopicRequest,
)
from zhumq.protocol.messages.offsets import (
    EpochEndOffset,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from zhumq.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from zhumq.protocol.messages.producers import (
    DescribeProducersResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionResponse,
    TopicResponse,
)
from zhumq.protocol.messages.topics import (
    CreatableTopicResult,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from zhumq.protocol.schema import Message
from zhumq.records.batch import is_transactional
from zhumq.security.acl import CLUSTER_NAME, Operation, ResourceType

_CLUSTER: Final = ResourceType.CLUSTER
_TOPIC: Final = ResourceType.TOPIC
_TRANSACTIONAL_ID: Final = ResourceType.TRANSACTIONAL_ID
_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_NO_PRODUCER: Final = -1
_FIRST_METADATA_VERSION_WITHOUT_NAMES: Final = 12
_LEFT_OUT: Final = "left out"
_CANCELS_REFUSED: Final = "TOPIC_AUTHORIZATION_FAILED for a request that cancels"


# Records


def _check_lookup(subject: Subject, request: LookupRequest) -> Permitted:
    require(subject, Operation.READ, _TOPIC, request.topic)
    return Permitted(request)


def _check_schedule(subject: Subject, request: ScheduleRequest) -> Permitted:
    operation = Operation.DELETE if request.action else Operation.READ
    require(subject, operation, _TOPIC, request.topic)
    return Permitted(request)


def _check_produce(subject: Subject, request: ProduceRequest) -> Permitted | Message:
    """The handler refuses topics by itself, on its fast path, too."""
    if not any(
        is_transactional(each.records)
        for topic in request.topic_data
        for each in topic.partition_data
    ):
        return Permitted(request)
    name = request.transactional_id
    if name is not None and subject.may(Operation.WRITE, _TRANSACTIONAL_ID, name):
        return Permitted(request)
    if request.acks == 0:
        raise MalformedFrame("a produce request with acks=0 is not permitted")
    code = failure(_TRANSACTIONAL_ID).code
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=each.index, error_code=code, base_offset=-1)
                    for each in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _check_init_producer_id(
    subject: Subject, request: InitProducerIdRequest
) -> Permitted | Message:
    name = request.transactional_id
    if name is not None:
        type_ = _TRANSACTIONAL_ID
        is_permitted = subject.may(Operation.WRITE, type_, name) and (
            not request.enable2_pc or subject.may(Operation.TWO_PHASE_COMMIT, type_, name)
        )
    else:
        type_ = _CLUSTER
        # KIP-679: who may write to a topic may do it idempotently.
        is_permitted = subject.may_write_to_any_topic() or subject.may(
            Operation.IDEMPOTENT_WRITE, type_, CLUSTER_NAME
        )
    if is_permitted:
        return Permitted(request)
    return InitProducerIdResponse(
        error_code=failure(type_).code, producer_id=_NO_PRODUCER, producer_epoch=_NO_PRODUCER
    )


def _check_leader_epochs(subject: Subject, request: Any) -> Permitted | Message:
    if subject.sees(Operation.CLUSTER_ACTION, _CLUSTER, CLUSTER_NAME):
        return Permitted(request)
    return _LEADER_EPOCHS.check(subject, request)


_LEADER_EPOCHS: Final = on_items(
    Operation.DESCRIBE,
    _TOPIC,
    of="topics",
    into="topics",
    response=OffsetForLeaderEpochResponse,
    name=attrgetter("topic"),
    refused=lambda topic, code: OffsetForLeaderTopicResult(
        topic=topic.topic,
        partitions=[
            EpochEndOffset(partition=each.partition, error_code=code) for each in topic.partitions
        ],
    ),
)


# Descriptions


def _check_metadata(subject: Subject, request: MetadataRequest) -> Permitted | Message:
    topics = request.topics
    # Version 0 has no null: an empty list requests every topic.
    if topics is None or (subject.version == 0 and not topics):
        permitted = Permitted(request, lambda response: _leave_out_topics(subject, response))
    else:
        named: list[Any] = []
        refusals: list[MetadataResponseTopic] = []
        for topic in topics:
            if _may_use(subject, request, topic):
                named.append(topic)
            elif topic.topic_id == ZERO_UUID:
                refusals.append(MetadataResponseTopic(error_code=_REFUSED, name=topic.name))
            else:
                by_name = subject.version < _FIRST_METADATA_VERSION_WITHOUT_NAMES
                refusals.append(
                    MetadataResponseTopic(
                        error_code=_REFUSED, name="" if by_name else None, topic_id=topic.topic_id
                    )
                )

        def add_refusals(response: MetadataResponse) -> None:
            # Version 0 takes an empty list for all topics.
            response.topics = response.topics + refusals if named else refusals

        permitted = (
            Permitted(with_fields(request, topics=named), add_refusals)
            if refusals
            else Permitted(request)
        )
    return then(permitted, lambda response: _tell_operations(subject, request, response))


def _may_use(subject: Subject, request: MetadataRequest, topic: Any) -> bool:
    if topic.topic_id != ZERO_UUID:
        name = subject.topic_name(topic.topic_id)
        return name is None or subject.may(Operation.DESCRIBE, _TOPIC, name)
    name = topic.name or ""
    if not subject.may(Operation.DESCRIBE, _TOPIC, name):
        return False
    creates = subject.creates_topics and request.allow_auto_topic_creation
    return (
        not creates
        or subject.has_topic(name)
        or subject.may_here_or_anywhere(Operation.CREATE, name)
    )


def _leave_out_topics(subject: Subject, response: MetadataResponse) -> None:
    response.topics = [
        topic
        for topic in response.topics
        if subject.sees(Operation.DESCRIBE, _TOPIC, topic.name or "")
    ]


def _tell_operations(
    subject: Subject, request: MetadataRequest, response: MetadataResponse
) -> None:
    if request.include_topic_authorized_operations:
        for topic in response.topics:
            if topic.name and topic.error_code != _REFUSED:
                topic.topic_authorized_operations = subject.operations(_TOPIC, topic.name)
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(subject)


def cluster_operations(subject: Subject) -> int:
    """As in Kafka: none for a subject that may not describe the cluster."""
    if not subject.may(Operation.DESCRIBE, _CLUSTER, CLUSTER_NAME):
        return 0
    return subject.operations(_CLUSTER, CLUSTER_NAME)


def _check_topic_partitions(
    subject: Subject, request: DescribeTopicPartitionsRequest
) -> Permitted | Message:
    if request.topics:
        permitted = _TOPIC_PARTITIONS.check(subject, request)
    else:
        # Named one by one, so that the next page begins at a topic that the subject may know of.
        names = [
            name for name in subject.topic_names() if subject.sees(Operation.DESCRIBE, _TOPIC, name)
        ]
        if not names:
            return DescribeTopicPartitionsResponse()
        topics = [TopicRequest(name=name) for name in names]
        permitted = Permitted(with_fields(request, topics=topics))

    def tell_operations(response: DescribeTopicPartitionsResponse) -> None:
        for topic in response.topics:
            if topic.error_code != _REFUSED:
                topic.topic_authorized_operations = subject.operations(_TOPIC, topic.name or "")

    return then(permitted, tell_operations)


_TOPIC_PARTITIONS: Final = on_items(
    Operation.DESCRIBE,
    _TOPIC,
    of="topics",
    into="topics",
    response=DescribeTopicPartitionsResponse,
    refused=lambda topic, code: DescribeTopicPartitionsResponseTopic(
        error_code=code, name=topic.name
    ),
)


# Changes


def _check_create_topics(subject: Subject, request: CreateTopicsRequest) -> Permitted | Message:
    permitted = split(
        request,
        "topics",
        "topics",
        CreateTopicsResponse,
        lambda topic: (
            None
            if subject.may_here_or_anywhere(Operation.CREATE, topic.name)
            else CreatableTopicResult(
                name=topic.name, error_code=_REFUSED, error_message="Authorization failed."
            )
        ),
    )

    def hide_configs(response: CreateTopicsResponse) -> None:
        for topic in response.topics:
            if not topic.error_code and not subject.sees(
                Operation.DESCRIBE_CONFIGS, _TOPIC, topic.name
            ):
                topic.topic_config_error_code = _REFUSED
                topic.num_partitions = topic.replication_factor = -1
                topic.configs = None

    return then(permitted, hide_configs)


def _check_delete_topics(subject: Subject, request: DeleteTopicsRequest) -> Permitted | Message:
    # Up to version 5 topics are named; then a topic has a name or an id.
    of = "topics" if request.topics else "topic_names"
    return split(
        request,
        of,
        "responses",
        DeleteTopicsResponse,
        lambda topic: _undeletable(
            subject, topic if isinstance(topic, DeleteTopicState) else DeleteTopicState(name=topic)
        ),
    )


def _undeletable(subject: Subject, topic: DeleteTopicState) -> DeletableTopicResult | None:
    name = topic.name
    by_id = name is None
    if name is None:
        name = subject.topic_name(topic.topic_id)
    if name is None or subject.may_here_or_anywhere(Operation.DELETE, name):
        return None
    is_known = subject.sees(Operation.DESCRIBE, _TOPIC, name)
    if not by_id and is_known and not subject.has_topic(name):
        return None  # The handler answers that there is no such topic.
    return DeletableTopicResult(
        # The name behind an id is for those who may describe the topic.
        name=name if is_known or not by_id else None,
        topic_id=topic.topic_id,
        error_code=_REFUSED,
        error_message="Topic authorization failed.",
    )


TOPIC_RULES: Final[Mapping[ApiKey, Rule]] = {
    ApiKey.PRODUCE: Rule(
        needs=(
            refuse(Operation.WRITE, _TOPIC),
            refuse(Operation.WRITE, _TRANSACTIONAL_ID),
        ),
        check=_check_produce,
    ),
    # The handler refuses topics: its sessions know partitions that the request does not name.
    ApiKey.FETCH: Rule(
        needs=(refuse(Operation.READ, _TOPIC),), check=lambda _, request: Permitted(request)
    ),
    ApiKey.LOOKUP: Rule(needs=(refuse(Operation.READ, _TOPIC),), check=_check_lookup),
    ApiKey.WRITING_PRODUCERS: Rule(
        needs=(Need(Operation.READ, _TOPIC, _LEFT_OUT),),
        check=lambda _, request: Permitted(request),
    ),
    ApiKey.SCHEDULE: Rule(
        needs=(
            refuse(Operation.READ, _TOPIC),
            Need(Operation.DELETE, _TOPIC, _CANCELS_REFUSED),
        ),
        check=_check_schedule,
    ),
    ApiKey.LIST_OFFSETS: on_items(
        Operation.DESCRIBE,
        _TOPIC,
        of="topics",
        into="topics",
        response=ListOffsetsResponse,
        refused=lambda topic, code: ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[
                ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=code)
                for each in topic.partitions
            ],
        ),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Rule(
        needs=(
            *_LEADER_EPOCHS.needs,
            Need(Operation.CLUSTER_ACTION, _CLUSTER, "instead of rights to topics"),
        ),
        check=_check_leader_epochs,
    ),
    ApiKey.METADATA: Rule(
        needs=(
            Need(Operation.DESCRIBE, _TOPIC, f"{_REFUSED.name}; {_LEFT_OUT} of all topics"),
            Need(Operation.CREATE, _TOPIC, f"{_REFUSED.name} if the topic would be created"),
            Need(Operation.CREATE, _CLUSTER, "instead of CREATE of topics"),
        ),
        check=_check_metadata,
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Rule(
        needs=(Need(Operation.DESCRIBE, _TOPIC, f"{_REFUSED.name}; {_LEFT_OUT} of all topics"),),
        check=_check_topic_partitions,
    ),
    ApiKey.CREATE_TOPICS: Rule(
        needs=(
            refuse(Operation.CREATE, _TOPIC),
            Need(Operation.CREATE, _CLUSTER, "instead of CREATE of topics"),
            Need(Operation.DESCRIBE_CONFIGS, _TOPIC, "settings and counts are left out"),
        ),
        check=_check_create_topics,
    ),
    ApiKey.DELETE_TOPICS: Rule(
        needs=(
            refuse(Operation.DELETE, _TOPIC),
            Need(Operation.DELETE, _CLUSTER, "instead of DELETE of topics"),
            Need(Operation.DESCRIBE, _TOPIC, "the name behind a topic id is left out"),
        ),
        check=_check_delete_topics,
    ),
    ApiKey.CREATE_PARTITIONS: on_items(
        Operation.ALTER,
        _TOPIC,
        of="topics",
        into="results",
        response=CreatePartitionsResponse,
        refused=lambda topic, code: CreatePartitionsTopicResult(name=topic.name, error_code=code),
    ),
    ApiKey.DELETE_RECORDS: on_items(
        Operation.DELETE,
        _TOPIC,
        of="topics",
        into="topics",
        response=DeleteRecordsResponse,
        refused=lambda topic, code: DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[
                DeleteRecordsPartitionResult(
                    partition_index=each.partition_index, low_watermark=-1, error_code=code
                )
                for each in topic.partitions
            ],
        ),
    ),
    ApiKey.DESCRIBE_PRODUCERS: on_items(
        Operation.READ,
        _TOPIC,
        of="topics",
        into="topics",
        response=DescribeProducersResponse,
        refused=lambda topic, code: TopicResponse(
            name=topic.name,
            partitions=[
                PartitionResponse(partition_index=index, error_code=code)
                for index in topic.partition_indexes
            ],
        ),
    ),
    ApiKey.INIT_PRODUCER_ID: Rule(
        needs=(
            refuse(Operation.IDEMPOTENT_WRITE, _CLUSTER),
            Need(Operation.WRITE, _TOPIC, "any topic, instead of IDEMPOTENT_WRITE"),
            refuse(Operation.WRITE, _TRANSACTIONAL_ID),
            refuse(Operation.TWO_PHASE_COMMIT, _TRANSACTIONAL_ID),
        ),
        check=_check_init_producer_id,
    ),
}

"""ApiVersions, Metadata, DescribeCluster, DescribeTopicPartitions."""

import asyncio
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from zhumq.broker.dispatch import Handler, RequestContext
from zhumq.broker.long_requests import PIECE_ELEMENTS
from zhumq.cluster.metadata_client import MetadataClient
from zhumq.cluster.store import MetadataStore
from zhumq.metadata.image import NO_BROKER, Broker, ClusterImage, PartitionState, Topic
from zhumq.metadata.topics import NewTopic, check_topic_name
from zhumq.model.errors import BrokerError, ErrorCode, TopicAlreadyExists
from zhumq.model.ids import INTERNAL_TOPICS, ZERO_UUID, BrokerId
from zhumq.model.replication_mode import Mode
from zhumq.protocol.api import APIS, OWN_KEY_MIN, ApiKey
from zhumq.protocol.messages.metadata import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    Cursor,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    FinalizedFeatureKey,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    SupportedFeatureKey,
)
from zhumq.protocol.schema import KeptList
from zhumq.security.acl import ResourceType, operation_bits
from zhumq.transactions.transaction import EPOCH_BUMPING_VERSION

# One request creates at most this many topics: a typing error in a client's subscription must not
# fill a broker with folders.
AUTO_CREATED_TOPICS_MAX: Final = 1_000
# What clients decide by which requests to send. Transactions: KIP-890.
FEATURES: Final = {"transaction.version": EPOCH_BUMPING_VERSION}
_FIRST_VERSION_WITH_FEATURE_0: Final = 4  # of ApiVersions
_DESCRIBED_PARTITIONS_MAX: Final = 2_000
_FIRST_VERSION_WITH_LISTENER_ERROR: Final = 6

# Without an authorizer: all of them.
TOPIC_OPERATIONS: Final = operation_bits(ResourceType.TOPIC)
CLUSTER_OPERATIONS: Final = operation_bits(ResourceType.CLUSTER)
OPERATIONS_NOT_ASKED: Final = -(2**31)


class MetadataHandler:
    """Answers from the newest metadata image; creates unknown topics where allowed."""

    def __init__(
        self,
        store: MetadataStore,
        metadata_client: MetadataClient,
        served_apis: Callable[[], Iterable[ApiKey]],
        *,
        auto_create_topics: bool,
    ) -> None:
        self._store = store
        self._metadata_client = metadata_client
        self._served_apis = served_apis
        self._auto_create_topics = auto_create_topics
        self._kept = _DescribedPartitions()

    def handlers(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.API_VERSIONS: self.api_versions,
            ApiKey.METADATA: self.metadata,
            ApiKey.DESCRIBE_CLUSTER: self.describe_cluster,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: self.describe_topic_partitions,
        }

    def api_versions(
        self, context: RequestContext, _request: ApiVersionsRequest | None
    ) -> ApiVersionsResponse:
        # As in Kafka: clients of version 3 fail at a feature whose lowest version is 0.
        lowest = 0 if context.version >= _FIRST_VERSION_WITH_FEATURE_0 else 1
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(
                    api_key=key,
                    min_version=APIS[key].advertised_min_version,
                    max_version=APIS[key].max_version,
                )
                for key in sorted(self._served_apis())
                if key < OWN_KEY_MIN
            ],
            supported_features=[
                SupportedFeatureKey(name=name, min_version=lowest, max_version=version)
                for name, version in FEATURES.items()
            ],
            finalized_features_epoch=0,
            finalized_features=[
                FinalizedFeatureKey(name=name, max_version_level=version, min_version_level=version)
                for name, version in FEATURES.items()
            ],
        )

    def metadata(self, context: RequestContext, request: MetadataRequest) -> Any:
        image = self._store.image.seen_from(context.connection.listener)
        requested = request.topics
        # Version 0 has no null: an empty list requests every topic.
        if requested is None or (context.version == 0 and not requested):
            return self._respond(
                context, request, [self._describe(image, t) for t in image.topics.values()]
            )
        may_create = self._auto_create_topics and request.allow_auto_topic_creation
        missing = [
            topic.name
            for topic in requested
            if topic.name is not None
            and topic.topic_id == ZERO_UUID
            and topic.name not in image.topics
        ]
        if missing and may_create:
            return self._create_and_answer(context, request, missing)
        # A topic named twice is described once, however often a client repeats it.
        topics = dict.fromkeys((each.name, each.topic_id) for each in requested)
        return self._respond(context, request, self._describe_topics(image, topics))

    async def _create_and_answer(
        self, context: RequestContext, request: MetadataRequest, missing: list[str]
    ) -> MetadataResponse:
        names = list(dict.fromkeys(missing))[:AUTO_CREATED_TOPICS_MAX]
        results = await self._metadata_client.create_topics([NewTopic(name=name) for name in names])
        refused = {
            name: result
            for name, result in zip(names, results, strict=True)
            if isinstance(result, BrokerError) and not isinstance(result, TopicAlreadyExists)
        }
        described: list[MetadataResponseTopic] = []
        topics = list(dict.fromkeys((each.name, each.topic_id) for each in request.topics or ()))
        for start in range(0, len(topics), PIECE_ELEMENTS):
            image = self._store.image.seen_from(context.connection.listener)
            described += self._describe_topics(image, topics[start : start + PIECE_ELEMENTS])
            await asyncio.sleep(0)  # other connections are served
        asked_for = set(missing)
        for topic in described:
            reason = refused.get(topic.name or "")
            if reason is not None:
                topic.error_code = reason.code
            elif (
                topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic.name in asked_for
            ):
                # Over the limit: the client asks again, and the next topics are created.
                topic.error_code = ErrorCode.LEADER_NOT_AVAILABLE
        return self._respond(context, request, described)

    def _describe_topics(
        self, image: ClusterImage, topics: Iterable[tuple[str | None, uuid.UUID]]
    ) -> list[MetadataResponseTopic]:
        described: list[MetadataResponseTopic] = []
        for name, topic_id in topics:
            if topic_id != ZERO_UUID:
                topic = image.topics_by_id.get(topic_id)
                if topic is None:
                    described.append(
                        MetadataResponseTopic(
                            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id
                        )
                    )
                    continue
            else:
                topic = image.topics.get(name or "")
                if topic is None:
                    described.append(
                        MetadataResponseTopic(error_code=_why_unknown(name or ""), name=name)
                    )
                    continue
            described.append(self._describe(image, topic))
        return described

    def _describe(self, image: ClusterImage, topic: Topic) -> MetadataResponseTopic:
        # What clients of a listener see that some brokers lack is changed below, so nothing is kept of it.
        is_whole = image is self._store.image
        partitions = self._kept if is_whole else describe_partitions
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=partitions(image, topic),
        )

    def _respond(
        self,
        context: RequestContext,
        request: MetadataRequest,
        topics: list[MetadataResponseTopic],
    ) -> MetadataResponse:
        listener = context.connection.listener
        image = self._store.image.seen_from(listener)
        if image is not self._store.image and context.version >= _FIRST_VERSION_WITH_LISTENER_ERROR:
            _name_missing_listeners(self._store.image, topics)
        if request.include_topic_authorized_operations:
            for topic in topics:
                topic.topic_authorized_operations = TOPIC_OPERATIONS
        response = MetadataResponse(
            brokers=[
                MetadataResponseBroker(
                    node_id=broker.broker_id,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=broker.rack,
                )
                for broker in image.brokers.values()
                if (endpoint := broker.endpoint(listener)) is not None
            ],
            cluster_id=image.cluster_id,
            controller_id=image.admin_broker_id,
            topics=topics,
        )
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = CLUSTER_OPERATIONS
        return response

    def describe_cluster(
        self, context: RequestContext, request: DescribeClusterRequest
    ) -> DescribeClusterResponse:
        listener = context.connection.listener
        image = self._store.image.seen_from(listener)
        asked = request.include_cluster_authorized_operations
        return DescribeClusterResponse(
            endpoint_type=request.endpoint_type,
            cluster_id=image.cluster_id,
            controller_id=image.controller_id,
            brokers=[
                DescribeClusterBroker(
                    broker_id=broker.broker_id,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=broker.rack,
                )
                for broker in image.brokers.values()
                if (endpoint := broker.endpoint(listener)) is not None
            ],
            cluster_authorized_operations=CLUSTER_OPERATIONS if asked else OPERATIONS_NOT_ASKED,
        )

    def describe_topic_partitions(
        self, context: RequestContext, request: DescribeTopicPartitionsRequest
    ) -> DescribeTopicPartitionsResponse:
        """KIP-966: topics in the order of their names, a page of partitions at a time."""
        image = self._store.image.seen_from(context.connection.listener)
        cursor = request.cursor
        names = sorted({topic.name for topic in request.topics} or set(image.topics))
        room = min(max(request.response_partition_limit, 1), _DESCRIBED_PARTITIONS_MAX)
        response = DescribeTopicPartitionsResponse()
        for name in names:
            first = 0
            if cursor is not None:
                if name < cursor.topic_name:
                    continue
                if name == cursor.topic_name:
                    first = max(cursor.partition_index, 0)
            if room == 0:
                response.next_cursor = Cursor(topic_name=name, partition_index=first)
                break
            described, used = self._describe_page(image, name, first, room)
            response.topics.append(described)
            room -= used
            topic = image.topics.get(name)
            if topic is not None and first + used < len(topic.partitions):
                response.next_cursor = Cursor(topic_name=name, partition_index=first + used)
                break
        return response

    def _describe_page(
        self, image: ClusterImage, name: str, first: int, room: int
    ) -> tuple[DescribeTopicPartitionsResponseTopic, int]:
        topic = image.topics.get(name)
        if topic is None:
            described = DescribeTopicPartitionsResponseTopic(
                error_code=_why_unknown(name), name=name
            )
            return described, 0
        page = topic.partitions[first : first + room]
        described = DescribeTopicPartitionsResponseTopic(
            name=name,
            topic_id=topic.topic_id,
            is_internal=name in INTERNAL_TOPICS,
            topic_authorized_operations=TOPIC_OPERATIONS,
            partitions=[
                _describe_page_entry(image, first + index, state)
                for index, state in enumerate(page)
            ],
        )
        return described, len(page)


def _why_unknown(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except BrokerError as reason:
        return reason.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class _DescribedPartitions:
    """The partitions of topics as they were described last. Clients ask again and again for topics that have not changed: a
    thousand with ten partitions each then cost an event loop 4 ms instead of 80."""

    def __init__(self) -> None:
        self._brokers: Mapping[BrokerId, Broker] = {}
        self._topics: dict[uuid.UUID, tuple[Topic, KeptList[MetadataResponsePartition]]] = {}

    def __call__(self, image: ClusterImage, topic: Topic) -> KeptList[MetadataResponsePartition]:
        if image.brokers is not self._brokers or len(self._topics) > len(image.topics):
            self._brokers = image.brokers
            self._topics.clear()
        found = self._topics.get(topic.topic_id)
        if found is None or found[0] is not topic:
            found = (topic, KeptList(describe_partitions(image, topic)))
            self._topics[topic.topic_id] = found
        return found[1]


def describe_partitions(image: ClusterImage, topic: Topic) -> list[MetadataResponsePartition]:
    """All partitions of a topic as the image has them."""
    return [
        _describe_partition(image, index, state) for index, state in enumerate(topic.partitions)
    ]


def _describe_partition(
    image: ClusterImage, index: int, state: PartitionState
) -> MetadataResponsePartition:
    leader = image.leader_of(state)
    return MetadataResponsePartition(
        error_code=_without_leader(leader),
        partition_index=index,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=_in_sync(image, state),
        offline_replicas=_offline(image, state),
    )


def _describe_page_entry(
    image: ClusterImage, index: int, state: PartitionState
) -> DescribeTopicPartitionsResponsePartition:
    leader = image.leader_of(state)
    return DescribeTopicPartitionsResponsePartition(
        error_code=_without_leader(leader),
        partition_index=index,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=_in_sync(image, state),
        eligible_leader_replicas=list(state.eligible),
        last_known_elr=[],
        offline_replicas=_offline(image, state),
    )


def _without_leader(leader: BrokerId) -> ErrorCode:
    # Clients ask again after a moment; a leader may be elected by then.
    return ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_BROKER else ErrorCode.NONE


def _name_missing_listeners(image: ClusterImage, topics: Iterable[MetadataResponseTopic]) -> None:
    """As Kafka does: a leader without the client's listener is an error of its own, since the client
    waits in vain for another leader."""
    for described in topics:
        topic = image.topics.get(described.name or "")
        if topic is None:
            continue
        for partition in described.partitions:
            if partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE:
                state = topic.partitions[partition.partition_index]
                if image.leader_of(state) != NO_BROKER:
                    partition.error_code = ErrorCode.LISTENER_NOT_FOUND


def _in_sync(image: ClusterImage, state: PartitionState) -> list[int]:
    if state.mode is Mode.FETCH:
        return list(state.in_sync)
    # A majority of a raft partition's replicas is in sync, and its members change with every
    # record: the live replicas are reported.
    return [each for each in state.in_sync if each in image.brokers]


def _offline(image: ClusterImage, state: PartitionState) -> list[int]:
    return [each for each in state.replicas if each not in image.brokers]

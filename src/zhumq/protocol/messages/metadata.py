"""Messages about the cluster: Metadata, ApiVersions, DescribeCluster, DescribeTopicPartitions."""

import uuid

from zhumq.model.ids import ZERO_UUID
from zhumq.protocol.schema import Message, field, int8, int16, int32, int64

OPERATIONS_NOT_ASKED_FOR = -0x8000_0000  # the client did not request authorized operations


class MetadataRequestTopic(Message):
    topic_id: uuid.UUID = field(versions="10+", default=ZERO_UUID)
    name: str | None = field(nullable="10+", default="")


class MetadataRequest(Message, api_key=3, versions="0-13", flexible="9+"):
    # Null requests every topic; version 0 has no null, and an empty list requests every topic.
    topics: list[MetadataRequestTopic] | None = field(nullable="1+")
    allow_auto_topic_creation: bool = field(versions="4+", default=True)
    include_cluster_authorized_operations: bool = field(versions="8-10", default=False)
    include_topic_authorized_operations: bool = field(versions="8+", default=False)


class MetadataResponseBroker(Message):
    node_id: int32 = 0
    host: str = ""
    port: int32 = 0
    rack: str | None = field(versions="1+", default=None)


class MetadataResponsePartition(Message):
    error_code: int16 = 0
    partition_index: int32 = 0
    leader_id: int32 = 0
    leader_epoch: int32 = field(versions="7+", default=-1)
    replica_nodes: list[int32] = field()
    isr_nodes: list[int32] = field()
    offline_replicas: list[int32] = field(versions="5+")


class MetadataResponseTopic(Message):
    error_code: int16 = 0
    name: str | None = field(nullable="12+", default="")
    topic_id: uuid.UUID = field(versions="10+", default=ZERO_UUID)
    is_internal: bool = field(versions="1+", default=False)
    partitions: list[MetadataResponsePartition] = field(may_be_kept=True)
    topic_authorized_operations: int32 = field(versions="8+", default=OPERATIONS_NOT_ASKED_FOR)


class MetadataResponse(Message, api_key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: int32 = field(versions="3+", default=0)
    brokers: list[MetadataResponseBroker] = field()
    cluster_id: str | None = field(versions="2+", default=None)
    controller_id: int32 = field(versions="1+", default=-1)
    topics: list[MetadataResponseTopic] = field()
    cluster_authorized_operations: int32 = field(versions="8-10", default=OPERATIONS_NOT_ASKED_FOR)
    error_code: int16 = field(versions="13+", default=0)


class ApiVersionsRequest(Message, api_key=18, versions="0-4", flexible="3+"):
    client_software_name: str = field(versions="3+")
    client_software_version: str = field(versions="3+")


class ApiVersion(Message):
    api_key: int16 = 0
    min_version: int16 = 0
    max_version: int16 = 0


class SupportedFeatureKey(Message):
    name: str = ""
    min_version: int16 = 0
    max_version: int16 = 0


class FinalizedFeatureKey(Message):
    name: str = ""
    max_version_level: int16 = 0
    min_version_level: int16 = 0


class ApiVersionsResponse(Message, api_key=18, versions="0-4", flexible="3+"):
    error_code: int16 = 0
    api_keys: list[ApiVersion] = field()
    throttle_time_ms: int32 = field(versions="1+", default=0)
    supported_features: list[SupportedFeatureKey] = field(versions="3+", tag=0)
    finalized_features_epoch: int64 = field(versions="3+", tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = field(versions="3+", tag=2)
    zk_migration_ready: bool = field(versions="3+", tag=3, default=False)


class DescribeClusterRequest(Message, api_key=60, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: bool = False
    endpoint_type: int8 = field(versions="1+", default=1)
    include_fenced_brokers: bool = field(versions="2+", default=False)


class DescribeClusterBroker(Message):
    broker_id: int32 = 0
    host: str = ""
    port: int32 = 0
    rack: str | None = None
    is_fenced: bool = field(versions="2+", default=False)


class DescribeClusterResponse(Message, api_key=60, versions="0-2", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    endpoint_type: int8 = field(versions="1+", default=1)
    cluster_id: str = ""
    controller_id: int32 = -1
    brokers: list[DescribeClusterBroker] = field()
    cluster_authorized_operations: int32 = OPERATIONS_NOT_ASKED_FOR


class TopicRequest(Message):
    name: str = ""


class Cursor(Message):
    topic_name: str = ""
    partition_index: int32 = 0


class DescribeTopicPartitionsRequest(Message, api_key=75, versions="0", flexible="0+"):
    topics: list[TopicRequest] = field()
    response_partition_limit: int32 = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponsePartition(Message):
    error_code: int16 = 0
    partition_index: int32 = 0
    leader_id: int32 = 0
    leader_epoch: int32 = -1
    replica_nodes: list[int32] = field()
    isr_nodes: list[int32] = field()
    eligible_leader_replicas: list[int32] | None = None
    last_known_elr: list[int32] | None = None
    offline_replicas: list[int32] = field()


class DescribeTopicPartitionsResponseTopic(Message):
    error_code: int16 = 0
    name: str | None = ""
    topic_id: uuid.UUID = ZERO_UUID
    is_internal: bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = field()
    topic_authorized_operations: int32 = OPERATIONS_NOT_ASKED_FOR


class DescribeTopicPartitionsResponse(Message, api_key=75, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = field()
    next_cursor: Cursor | None = None

"""Messages about topics: CreateTopics, CreatePartitions, DeleteRecords, DeleteTopics."""

import uuid

from zhumq.model.ids import ZERO_UUID
from zhumq.protocol.schema import Message, field, int8, int16, int32, int64


class CreatableReplicaAssignment(Message):
    partition_index: int32 = 0
    broker_ids: list[int32] = field()


class CreatableTopicConfig(Message):
    name: str = ""
    value: str | None = ""


class CreatableTopic(Message):
    name: str = ""
    num_partitions: int32 = 0
    replication_factor: int16 = 0
    assignments: list[CreatableReplicaAssignment] = field()
    configs: list[CreatableTopicConfig] = field()


class CreateTopicsRequest(Message, api_key=19, versions="2-7", flexible="5+"):
    topics: list[CreatableTopic] = field()
    timeout_ms: int32 = 60_000
    validate_only: bool = field(versions="1+", default=False)


class CreatableTopicConfigs(Message):
    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: int8 = -1
    is_sensitive: bool = False


class CreatableTopicResult(Message):
    name: str = ""
    topic_id: uuid.UUID = field(versions="7+", default=ZERO_UUID)
    error_code: int16 = 0
    error_message: str | None = field(versions="1+", default="")
    topic_config_error_code: int16 = field(versions="5+", tag=0, default=0)
    num_partitions: int32 = field(versions="5+", default=-1)
    replication_factor: int16 = field(versions="5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = field(versions="5+")


class CreateTopicsResponse(Message, api_key=19, versions="2-7", flexible="5+"):
    throttle_time_ms: int32 = field(versions="2+", default=0)
    topics: list[CreatableTopicResult] = field()


class DeleteTopicState(Message):
    name: str | None = None
    topic_id: uuid.UUID = ZERO_UUID


class DeleteTopicsRequest(Message, api_key=20, versions="1-6", flexible="4+"):
    topics: list[DeleteTopicState] = field(versions="6+")
    topic_names: list[str] = field(versions="0-5")
    timeout_ms: int32 = 0


class DeletableTopicResult(Message):
    name: str | None = field(nullable="6+", default="")
    topic_id: uuid.UUID = field(versions="6+", default=ZERO_UUID)
    error_code: int16 = 0
    error_message: str | None = field(versions="5+", default=None)


class DeleteTopicsResponse(Message, api_key=20, versions="1-6", flexible="4+"):
    throttle_time_ms: int32 = field(versions="1+", default=0)
    responses: list[DeletableTopicResult] = field()


class DeleteRecordsPartition(Message):
    partition_index: int32 = 0
    offset: int64 = 0


class DeleteRecordsTopic(Message):
    name: str = ""
    partitions: list[DeleteRecordsPartition] = field()


class DeleteRecordsRequest(Message, api_key=21, versions="0-2", flexible="2+"):
    topics: list[DeleteRecordsTopic] = field()
    timeout_ms: int32 = 0


class DeleteRecordsPartitionResult(Message):
    partition_index: int32 = 0
    low_watermark: int64 = 0
    error_code: int16 = 0


class DeleteRecordsTopicResult(Message):
    name: str = ""
    partitions: list[DeleteRecordsPartitionResult] = field()


class DeleteRecordsResponse(Message, api_key=21, versions="0-2", flexible="2+"):
    throttle_time_ms: int32 = 0
    topics: list[DeleteRecordsTopicResult] = field()


class CreatePartitionsAssignment(Message):
    broker_ids: list[int32] = field()


class CreatePartitionsTopic(Message):
    name: str = ""
    count: int32 = 0
    assignments: list[CreatePartitionsAssignment] | None = field()


class CreatePartitionsRequest(Message, api_key=37, versions="0-3", flexible="2+"):
    topics: list[CreatePartitionsTopic] = field()
    timeout_ms: int32 = 0
    validate_only: bool = False


class CreatePartitionsTopicResult(Message):
    name: str = ""
    error_code: int16 = 0
    error_message: str | None = None


class CreatePartitionsResponse(Message, api_key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: int32 = 0
    results: list[CreatePartitionsTopicResult] = field()

"""Messages about offsets: ListOffsets, OffsetForLeaderEpoch, OffsetCommit, OffsetFetch, OffsetDelete."""

import uuid

from zhumq.model.ids import ZERO_UUID
from zhumq.protocol.schema import Message, field, int8, int16, int32, int64


class ListOffsetsPartition(Message):
    partition_index: int32 = 0
    current_leader_epoch: int32 = field(versions="4+", default=-1)
    timestamp: int64 = 0


class ListOffsetsTopic(Message):
    name: str = ""
    partitions: list[ListOffsetsPartition] = field()


class ListOffsetsRequest(Message, api_key=2, versions="1-11", flexible="6+"):
    replica_id: int32 = 0
    isolation_level: int8 = field(versions="2+", default=0)
    topics: list[ListOffsetsTopic] = field()
    timeout_ms: int32 = field(versions="10+", default=0)


class ListOffsetsPartitionResponse(Message):
    partition_index: int32 = 0
    error_code: int16 = 0
    timestamp: int64 = -1
    offset: int64 = -1
    leader_epoch: int32 = field(versions="4+", default=-1)


class ListOffsetsTopicResponse(Message):
    name: str = ""
    partitions: list[ListOffsetsPartitionResponse] = field()


class ListOffsetsResponse(Message, api_key=2, versions="1-11", flexible="6+"):
    throttle_time_ms: int32 = field(versions="2+", default=0)
    topics: list[ListOffsetsTopicResponse] = field()


class OffsetForLeaderPartition(Message):
    partition: int32 = 0
    current_leader_epoch: int32 = field(versions="2+", default=-1)
    leader_epoch: int32 = 0


class OffsetForLeaderTopic(Message):
    topic: str = ""
    partitions: list[OffsetForLeaderPartition] = field()


class OffsetForLeaderEpochRequest(Message, api_key=23, versions="2-4", flexible="4+"):
    replica_id: int32 = field(versions="3+", default=-2)
    topics: list[OffsetForLeaderTopic] = field()


class EpochEndOffset(Message):
    error_code: int16 = 0
    partition: int32 = 0
    leader_epoch: int32 = field(versions="1+", default=-1)
    end_offset: int64 = -1


class OffsetForLeaderTopicResult(Message):
    topic: str = ""
    partitions: list[EpochEndOffset] = field()


class OffsetForLeaderEpochResponse(Message, api_key=23, versions="2-4", flexible="4+"):
    throttle_time_ms: int32 = field(versions="2+", default=0)
    topics: list[OffsetForLeaderTopicResult] = field()


class OffsetCommitRequestPartition(Message):
    partition_index: int32 = 0
    committed_offset: int64 = 0
    committed_leader_epoch: int32 = field(versions="6+", default=-1)
    committed_metadata: str | None = ""


class OffsetCommitRequestTopic(Message):
    name: str = field(versions="0-9")
    topic_id: uuid.UUID = field(versions="10+", default=ZERO_UUID)
    partitions: list[OffsetCommitRequestPartition] = field()


class OffsetCommitRequest(Message, api_key=8, versions="2-10", flexible="8+"):
    group_id: str = ""
    generation_id_or_member_epoch: int32 = field(versions="1+", default=-1)
    member_id: str = field(versions="1+")
    group_instance_id: str | None = field(versions="7+", default=None)
    retention_time_ms: int64 = field(versions="2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = field()


class OffsetCommitResponsePartition(Message):
    partition_index: int32 = 0
    error_code: int16 = 0


class OffsetCommitResponseTopic(Message):
    name: str = field(versions="0-9")
    topic_id: uuid.UUID = field(versions="10+", default=ZERO_UUID)
    partitions: list[OffsetCommitResponsePartition] = field()


class OffsetCommitResponse(Message, api_key=8, versions="2-10", flexible="8+"):
    throttle_time_ms: int32 = field(versions="3+", default=0)
    topics: list[OffsetCommitResponseTopic] = field()


class OffsetFetchRequestTopic(Message):
    name: str = field(versions="0-9")
    topic_id: uuid.UUID = field(versions="10+", default=ZERO_UUID)
    partition_indexes: list[int32] = field()


class OffsetFetchRequestGroup(Message):
    group_id: str = ""
    member_id: str | None = field(versions="9+", default=None)
    member_epoch: int32 = field(versions="9+", default=-1)
    topics: list[OffsetFetchRequestTopic] | None = field()


class OffsetFetchRequest(Message, api_key=9, versions="1-10", flexible="6+"):
    group_id: str = field(versions="0-7")
    # Null requests every partition that the group has an offset of.
    topics: list[OffsetFetchRequestTopic] | None = field(versions="0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = field(versions="8+")
    require_stable: bool = field(versions="7+", default=False)


class OffsetFetchResponsePartition(Message):
    partition_index: int32 = 0
    committed_offset: int64 = 0
    committed_leader_epoch: int32 = field(versions="5+", default=-1)
    metadata: str | None = ""
    error_code: int16 = 0


class OffsetFetchResponseTopic(Message):
    name: str = field(versions="0-9")
    topic_id: uuid.UUID = field(versions="10+", default=ZERO_UUID)
    partitions: list[OffsetFetchResponsePartition] = field()


class OffsetFetchResponseGroup(Message):
    group_id: str = ""
    topics: list[OffsetFetchResponseTopic] = field()
    error_code: int16 = 0


class OffsetFetchResponse(Message, api_key=9, versions="1-10", flexible="6+"):
    throttle_time_ms: int32 = field(versions="3+", default=0)
    topics: list[OffsetFetchResponseTopic] = field(versions="0-7")
    error_code: int16 = field(versions="2-7", default=0)
    groups: list[OffsetFetchResponseGroup] = field(versions="8+")


class OffsetDeleteRequestPartition(Message):
    partition_index: int32 = 0


class OffsetDeleteRequestTopic(Message):
    name: str = ""
    partitions: list[OffsetDeleteRequestPartition] = field()


class OffsetDeleteRequest(Message, api_key=47, versions="0"):
    group_id: str = ""
    topics: list[OffsetDeleteRequestTopic] = field()


class OffsetDeleteResponsePartition(Message):
    partition_index: int32 = 0
    error_code: int16 = 0


class OffsetDeleteResponseTopic(Message):
    name: str = ""
    partitions: list[OffsetDeleteResponsePartition] = field()


class OffsetDeleteResponse(Message, api_key=47, versions="0"):
    error_code: int16 = 0
    throttle_time_ms: int32 = 0
    topics: list[OffsetDeleteResponseTopic] = field()

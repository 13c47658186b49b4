"""Share groups (KIP-932): heartbeats, fetching under acquisition locks, acknowledging, and offsets."""

import uuid
from collections.abc import Sized
from typing import Annotated

from zhumq.model.ids import ZERO_UUID
from zhumq.protocol.messages.consumer_groups import HeartbeatAssignment, TopicIdPartitions
from zhumq.protocol.messages.groups import OPERATIONS_NOT_ASKED_FOR
from zhumq.protocol.schema import RECORDS, Message, field, int8, int16, int32, int64

INT32_MAX = 0x7FFF_FFFF

# Membership


class ShareGroupHeartbeatRequest(Message, api_key=76, versions="1", flexible="0+"):
    group_id: str = ""
    member_id: str = ""
    # 0 joins, -1 leaves.
    member_epoch: int32 = 0
    # Null: nothing has changed since the last heartbeat.
    rack_id: str | None = None
    subscribed_topic_names: list[str] | None = None


class ShareGroupHeartbeatResponse(Message, api_key=76, versions="1", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0
    assignment: HeartbeatAssignment | None = None


class ShareGroupDescribeRequest(Message, api_key=77, versions="1", flexible="0+"):
    group_ids: list[str] = field()
    include_authorized_operations: bool = False


class ShareGroupDescribeTopicPartitions(Message):
    topic_id: uuid.UUID = ZERO_UUID
    topic_name: str = ""
    partitions: list[int32] = field()


class ShareGroupDescribeAssignment(Message):
    topic_partitions: list[ShareGroupDescribeTopicPartitions] = field()


class ShareGroupDescribeMember(Message):
    member_id: str = ""
    rack_id: str | None = None
    member_epoch: int32 = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = field()
    assignment: ShareGroupDescribeAssignment = field()


class ShareGroupDescribedGroup(Message):
    error_code: int16 = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: int32 = 0
    assignment_epoch: int32 = 0
    assignor_name: str = ""
    members: list[ShareGroupDescribeMember] = field()
    authorized_operations: int32 = OPERATIONS_NOT_ASKED_FOR


class ShareGroupDescribeResponse(Message, api_key=77, versions="1", flexible="0+"):
    throttle_time_ms: int32 = 0
    groups: list[ShareGroupDescribedGroup] = field()


# Fetching and acknowledging


class AcknowledgementBatch(Message):
    first_offset: int64 = 0
    last_offset: int64 = 0
    # One for all of them, or one for each: 0 gap, 1 accept, 2 release, 3 reject, 4 renew.
    acknowledge_types: list[int8] = field()


class ShareFetchPartition(Message):
    partition_index: int32 = 0
    acknowledgement_batches: list[AcknowledgementBatch] = field()


class ShareFetchTopic(Message):
    topic_id: uuid.UUID = ZERO_UUID
    partitions: list[ShareFetchPartition] = field()


class ShareFetchRequest(Message, api_key=78, versions="1-2", flexible="0+"):
    group_id: str | None = None
    member_id: str | None = ""
    # 0 opens a session, -1 ends it, otherwise it counts the requests of the session.
    share_session_epoch: int32 = 0
    max_wait_ms: int32 = 0
    min_bytes: int32 = 0
    max_bytes: int32 = INT32_MAX
    max_records: int32 = 0
    batch_size: int32 = 0
    # 0: whole batches, also above max_records; 1: never more than max_records.
    share_acquire_mode: int8 = field(versions="2+", default=0)
    is_renew_ack: bool = field(versions="2+", default=False)
    topics: list[ShareFetchTopic] = field()
    forgotten_topics_data: list[TopicIdPartitions] = field()


class ShareLeaderIdAndEpoch(Message):
    leader_id: int32 = 0
    leader_epoch: int32 = 0


class AcquiredRecords(Message):
    first_offset: int64 = 0
    last_offset: int64 = 0
    delivery_count: int16 = 0


class ShareFetchPartitionData(Message):
    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    acknowledge_error_code: int16 = 0
    acknowledge_error_message: str | None = None
    current_leader: ShareLeaderIdAndEpoch = field()
    records: Annotated[Sized | None, RECORDS] = b""
    acquired_records: list[AcquiredRecords] = field()


class ShareFetchableTopicResponse(Message):
    topic_id: uuid.UUID = ZERO_UUID
    partitions: list[ShareFetchPartitionData] = field()


class ShareNodeEndpoint(Message):
    node_id: int32 = 0
    host: str = ""
    port: int32 = 0
    rack: str | None = None


class ShareFetchResponse(Message, api_key=78, versions="1-2", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int32 = 0
    responses: list[ShareFetchableTopicResponse] = field()
    node_endpoints: list[ShareNodeEndpoint] = field()


class AcknowledgePartition(Message):
    partition_index: int32 = 0
    acknowledgement_batches: list[AcknowledgementBatch] = field()


class AcknowledgeTopic(Message):
    topic_id: uuid.UUID = ZERO_UUID
    partitions: list[AcknowledgePartition] = field()


class ShareAcknowledgeRequest(Message, api_key=79, versions="1-2", flexible="0+"):
    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: int32 = 0
    is_renew_ack: bool = field(versions="2+", default=False)
    topics: list[AcknowledgeTopic] = field()


class ShareAcknowledgePartitionData(Message):
    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    current_leader: ShareLeaderIdAndEpoch = field()


class ShareAcknowledgeTopicResponse(Message):
    topic_id: uuid.UUID = ZERO_UUID
    partitions: list[ShareAcknowledgePartitionData] = field()


class ShareAcknowledgeResponse(Message, api_key=79, versions="1-2", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int32 = field(versions="2+", default=0)
    responses: list[ShareAcknowledgeTopicResponse] = field()
    node_endpoints: list[ShareNodeEndpoint] = field()


# Offsets


class DescribeShareGroupOffsetsRequestTopic(Message):
    topic_name: str = ""
    partitions: list[int32] = field()


class DescribeShareGroupOffsetsRequestGroup(Message):
    group_id: str = ""
    # Null: all that the group has.
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = field()


class DescribeShareGroupOffsetsRequest(Message, api_key=90, versions="0-1", flexible="0+"):
    groups: list[DescribeShareGroupOffsetsRequestGroup] = field()


class DescribeShareGroupOffsetsResponsePartition(Message):
    partition_index: int32 = 0
    start_offset: int64 = 0
    leader_epoch: int32 = 0
    lag: int64 = field(versions="1+", default=-1)
    error_code: int16 = 0
    error_message: str | None = None


class DescribeShareGroupOffsetsResponseTopic(Message):
    topic_name: str = ""
    topic_id: uuid.UUID = ZERO_UUID
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = field()


class DescribeShareGroupOffsetsResponseGroup(Message):
    group_id: str = ""
    topics: list[DescribeShareGroupOffsetsResponseTopic] = field()
    error_code: int16 = 0
    error_message: str | None = None


class DescribeShareGroupOffsetsResponse(Message, api_key=90, versions="0-1", flexible="0+"):
    throttle_time_ms: int32 = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup] = field()


class AlterShareGroupOffsetsRequestPartition(Message):
    partition_index: int32 = 0
    start_offset: int64 = 0


class AlterShareGroupOffsetsRequestTopic(Message):
    topic_name: str = ""
    partitions: list[AlterShareGroupOffsetsRequestPartition] = field()


class AlterShareGroupOffsetsRequest(Message, api_key=91, versions="0", flexible="0+"):
    group_id: str = ""
    topics: list[AlterShareGroupOffsetsRequestTopic] = field()


class AlterShareGroupOffsetsResponsePartition(Message):
    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None


class AlterShareGroupOffsetsResponseTopic(Message):
    topic_name: str = ""
    topic_id: uuid.UUID = ZERO_UUID
    partitions: list[AlterShareGroupOffsetsResponsePartition] = field()


class AlterShareGroupOffsetsResponse(Message, api_key=91, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    responses: list[AlterShareGroupOffsetsResponseTopic] = field()


class DeleteShareGroupOffsetsRequestTopic(Message):
    topic_name: str = ""


class DeleteShareGroupOffsetsRequest(Message, api_key=92, versions="0", flexible="0+"):
    group_id: str = ""
    topics: list[DeleteShareGroupOffsetsRequestTopic] = field()


class DeleteShareGroupOffsetsResponseTopic(Message):
    topic_name: str = ""
    topic_id: uuid.UUID = ZERO_UUID
    error_code: int16 = 0
    error_message: str | None = None


class DeleteShareGroupOffsetsResponse(Message, api_key=92, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    responses: list[DeleteShareGroupOffsetsResponseTopic] = field()

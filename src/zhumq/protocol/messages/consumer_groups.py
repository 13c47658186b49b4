"""The consumer group protocol (KIP-848): ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

import uuid

from zhumq.model.ids import ZERO_UUID
from zhumq.protocol.messages.groups import OPERATIONS_NOT_ASKED_FOR
from zhumq.protocol.schema import Message, field, int8, int16, int32


class TopicIdPartitions(Message):
    """Partitions of a topic, by its id: in the messages and records of consumer and share groups."""

    topic_id: uuid.UUID = ZERO_UUID
    partitions: list[int32] = field()


class HeartbeatAssignment(Message):
    """A member's assignment in a heartbeat response of consumer and share groups."""

    topic_partitions: list[TopicIdPartitions] = field()


class ConsumerGroupHeartbeatRequest(Message, api_key=68, versions="0-1", flexible="0+"):
    group_id: str = ""
    member_id: str = ""
    # 0 joins, -1 leaves, -2 leaves for now: a static member that will come back.
    member_epoch: int32 = 0
    # Null, and -1 for the timeout: unchanged since the last heartbeat.
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int32 = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: str | None = field(versions="1+", default=None)
    server_assignor: str | None = None
    topic_partitions: list[TopicIdPartitions] | None = None


class ConsumerGroupHeartbeatResponse(Message, api_key=68, versions="0-1", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0
    assignment: HeartbeatAssignment | None = None


class ConsumerGroupDescribeRequest(Message, api_key=69, versions="0-1", flexible="0+"):
    group_ids: list[str] = field()
    include_authorized_operations: bool = False


class ConsumerGroupDescribeTopicPartitions(Message):
    topic_id: uuid.UUID = ZERO_UUID
    topic_name: str = ""
    partitions: list[int32] = field()


class ConsumerGroupDescribeAssignment(Message):
    topic_partitions: list[ConsumerGroupDescribeTopicPartitions] = field()


class ConsumerGroupDescribeMember(Message):
    member_id: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: int32 = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = field()
    subscribed_topic_regex: str | None = None
    assignment: ConsumerGroupDescribeAssignment = field()
    target_assignment: ConsumerGroupDescribeAssignment = field()
    member_type: int8 = field(versions="1+", default=-1)


class ConsumerGroupDescribedGroup(Message):
    error_code: int16 = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: int32 = 0
    assignment_epoch: int32 = 0
    assignor_name: str = ""
    members: list[ConsumerGroupDescribeMember] = field()
    authorized_operations: int32 = OPERATIONS_NOT_ASKED_FOR


class ConsumerGroupDescribeResponse(Message, api_key=69, versions="0-1", flexible="0+"):
    throttle_time_ms: int32 = 0
    groups: list[ConsumerGroupDescribedGroup] = field()

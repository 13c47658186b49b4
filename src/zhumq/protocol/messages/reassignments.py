"""Reassignments and elections: Alter/ListPartitionReassignments, ElectLeaders."""

from zhumq.protocol.schema import Message, field, int8, int16, int32


class ReassignablePartition(Message):
    partition_index: int32 = 0
    # Null: cancel the reassignment in progress.
    replicas: list[int32] | None = None


class ReassignableTopic(Message):
    name: str = ""
    partitions: list[ReassignablePartition] = field()


class AlterPartitionReassignmentsRequest(Message, api_key=45, versions="0-1", flexible="0+"):
    timeout_ms: int32 = 60_000
    allow_replication_factor_change: bool = field(versions="1+", default=True)
    topics: list[ReassignableTopic] = field()


class ReassignablePartitionResponse(Message):
    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None


class ReassignableTopicResponse(Message):
    name: str = ""
    partitions: list[ReassignablePartitionResponse] = field()


class AlterPartitionReassignmentsResponse(Message, api_key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: int32 = 0
    allow_replication_factor_change: bool = field(versions="1+", default=True)
    error_code: int16 = 0
    error_message: str | None = None
    responses: list[ReassignableTopicResponse] = field()


class ListPartitionReassignmentsTopics(Message):
    name: str = ""
    partition_indexes: list[int32] = field()


class ListPartitionReassignmentsRequest(Message, api_key=46, versions="0", flexible="0+"):
    timeout_ms: int32 = 60_000
    # Null: all of them.
    topics: list[ListPartitionReassignmentsTopics] | None = None


class OngoingPartitionReassignment(Message):
    partition_index: int32 = 0
    replicas: list[int32] = field()
    adding_replicas: list[int32] = field()
    removing_replicas: list[int32] = field()


class OngoingTopicReassignment(Message):
    name: str = ""
    partitions: list[OngoingPartitionReassignment] = field()


class ListPartitionReassignmentsResponse(Message, api_key=46, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    topics: list[OngoingTopicReassignment] = field()


class TopicPartitions(Message):
    topic: str = ""
    partitions: list[int32] = field()


class ElectLeadersRequest(Message, api_key=43, versions="0-2", flexible="2+"):
    # 0: the preferred leaders; 1: any live replica where there is no leader.
    election_type: int8 = field(versions="1+", default=0)
    # Null: all of them.
    topic_partitions: list[TopicPartitions] | None = None
    timeout_ms: int32 = 60_000


class PartitionResult(Message):
    partition_id: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None


class ReplicaElectionResult(Message):
    topic: str = ""
    partition_result: list[PartitionResult] = field()


class ElectLeadersResponse(Message, api_key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = field(versions="1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = field()

"""Fetch: offsets in, record batches out, with incremental sessions."""

import uuid
from collections.abc import Sized
from typing import Annotated

from zhumq.model.ids import ZERO_UUID
from zhumq.protocol.schema import RECORDS, Message, field, int8, int16, int32, int64

INT32_MAX = 0x7FFF_FFFF
INT64_MAX = 0x7FFF_FFFF_FFFF_FFFF


class ReplicaState(Message):
    replica_id: int32 = -1
    replica_epoch: int64 = -1


class FetchPartition(Message):
    partition: int32 = 0
    current_leader_epoch: int32 = field(versions="9+", default=-1)
    fetch_offset: int64 = 0
    last_fetched_epoch: int32 = field(versions="12+", default=-1)
    log_start_offset: int64 = field(versions="5+", default=-1)
    partition_max_bytes: int32 = 0
    replica_directory_id: uuid.UUID = field(versions="17+", tag=0, default=ZERO_UUID)
    high_watermark: int64 = field(versions="18+", tag=1, default=INT64_MAX)


class FetchTopic(Message):
    topic: str = field(versions="0-12")
    topic_id: uuid.UUID = field(versions="13+", default=ZERO_UUID)
    partitions: list[FetchPartition] = field()


class ForgottenTopic(Message):
    topic: str = field(versions="7-12")
    topic_id: uuid.UUID = field(versions="13+", default=ZERO_UUID)
    partitions: list[int32] = field(versions="7+")


class FetchRequest(Message, api_key=1, versions="4-18", flexible="12+"):
    cluster_id: str | None = field(versions="12+", tag=0, default=None)
    replica_id: int32 = field(versions="0-14", default=-1)
    replica_state: ReplicaState = field(versions="15+", tag=1)
    max_wait_ms: int32 = 0
    min_bytes: int32 = 0
    max_bytes: int32 = field(versions="3+", default=INT32_MAX)
    isolation_level: int8 = field(versions="4+", default=0)
    session_id: int32 = field(versions="7+", default=0)
    session_epoch: int32 = field(versions="7+", default=-1)
    topics: list[FetchTopic] = field()
    forgotten_topics_data: list[ForgottenTopic] = field(versions="7+")
    rack_id: str = field(versions="11+")


class EpochEndOffset(Message):
    epoch: int32 = -1
    end_offset: int64 = -1


class LeaderIdAndEpoch(Message):
    leader_id: int32 = -1
    leader_epoch: int32 = -1


class SnapshotId(Message):
    end_offset: int64 = -1
    epoch: int32 = -1


class AbortedTransaction(Message):
    producer_id: int64 = 0
    first_offset: int64 = 0


class PartitionData(Message):
    """The tagged structs are None when absent, which is nearly always."""

    partition_index: int32 = 0
    error_code: int16 = 0
    high_watermark: int64 = 0
    last_stable_offset: int64 = field(versions="4+", default=-1)
    log_start_offset: int64 = field(versions="5+", default=-1)
    diverging_epoch: EpochEndOffset | None = field(versions="12+", tag=0, default=None)
    current_leader: LeaderIdAndEpoch | None = field(versions="12+", tag=1, default=None)
    snapshot_id: SnapshotId | None = field(versions="12+", tag=2, default=None)
    aborted_transactions: list[AbortedTransaction] | None = field(versions="4+")
    preferred_read_replica: int32 = field(versions="11+", default=-1)
    # Empty rather than null by default: old clients do not expect null here.
    records: Annotated[Sized | None, RECORDS] = b""


class FetchableTopicResponse(Message):
    topic: str = field(versions="0-12")
    topic_id: uuid.UUID = field(versions="13+", default=ZERO_UUID)
    partitions: list[PartitionData] = field()


class NodeEndpoint(Message):
    node_id: int32 = 0
    host: str = ""
    port: int32 = 0
    rack: str | None = None


class FetchResponse(Message, api_key=1, versions="4-18", flexible="12+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = field(versions="7+", default=0)
    session_id: int32 = field(versions="7+", default=0)
    responses: list[FetchableTopicResponse] = field()
    node_endpoints: list[NodeEndpoint] = field(versions="16+", tag=0)

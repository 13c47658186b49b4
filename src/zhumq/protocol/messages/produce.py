"""Produce: record batches in, their offsets out."""

import uuid
from typing import Annotated

from zhumq.model.ids import ZERO_UUID
from zhumq.protocol.schema import RECORDS, Message, field, int16, int32, int64


class PartitionProduceData(Message):
    index: int32 = 0
    records: Annotated[bytes | memoryview | None, RECORDS] = None


class TopicProduceData(Message):
    name: str = field(versions="0-12")
    topic_id: uuid.UUID = field(versions="13+", default=ZERO_UUID)
    partition_data: list[PartitionProduceData] = field()


class ProduceRequest(Message, api_key=0, versions="3-13", flexible="9+"):
    transactional_id: str | None = None
    acks: int16 = 0
    timeout_ms: int32 = 0
    topic_data: list[TopicProduceData] = field()


class BatchIndexAndErrorMessage(Message):
    batch_index: int32 = 0
    batch_index_error_message: str | None = None


class LeaderIdAndEpoch(Message):
    leader_id: int32 = -1
    leader_epoch: int32 = -1


class PartitionProduceResponse(Message):
    """`current_leader` is None when absent, which is nearly always: no object is made for it."""

    index: int32 = 0
    error_code: int16 = 0
    base_offset: int64 = 0
    log_append_time_ms: int64 = -1
    log_start_offset: int64 = field(versions="5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = field(versions="8+")
    error_message: str | None = field(versions="8+", default=None)
    current_leader: LeaderIdAndEpoch | None = field(versions="10+", tag=0, default=None)


class TopicProduceResponse(Message):
    name: str = field(versions="0-12")
    topic_id: uuid.UUID = field(versions="13+", default=ZERO_UUID)
    partition_responses: list[PartitionProduceResponse] = field()


class NodeEndpoint(Message):
    node_id: int32 = 0
    host: str = ""
    port: int32 = 0
    rack: str | None = None


class ProduceResponse(Message, api_key=0, versions="3-13", flexible="9+"):
    responses: list[TopicProduceResponse] = field()
    throttle_time_ms: int32 = 0
    node_endpoints: list[NodeEndpoint] = field(versions="10+", tag=0)

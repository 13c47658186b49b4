"""Messages about producers: InitProducerId and DescribeProducers."""

from zhumq.protocol.schema import Message, field, int16, int32, int64


class InitProducerIdRequest(Message, api_key=22, versions="0-6", flexible="2+"):
    """Version 6 is that of two-phase commit (KIP-939)."""

    transactional_id: str | None = ""
    transaction_timeout_ms: int32 = 0
    producer_id: int64 = field(versions="3+", default=-1)
    producer_epoch: int16 = field(versions="3+", default=-1)
    enable2_pc: bool = field(versions="6+", default=False)
    keep_prepared_txn: bool = field(versions="6+", default=False)


class InitProducerIdResponse(Message, api_key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id: int64 = -1
    producer_epoch: int16 = 0
    ongoing_txn_producer_id: int64 = field(versions="6+", default=-1)
    ongoing_txn_producer_epoch: int16 = field(versions="6+", default=-1)


class TopicRequest(Message):
    name: str = ""
    partition_indexes: list[int32] = field()


class DescribeProducersRequest(Message, api_key=61, versions="0", flexible="0+"):
    topics: list[TopicRequest] = field()


class ProducerState(Message):
    producer_id: int64 = 0
    producer_epoch: int32 = 0
    last_sequence: int32 = -1
    last_timestamp: int64 = -1
    coordinator_epoch: int32 = 0
    current_txn_start_offset: int64 = -1


class PartitionResponse(Message):
    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    active_producers: list[ProducerState] = field()


class TopicResponse(Message):
    name: str = ""
    partitions: list[PartitionResponse] = field()


class DescribeProducersResponse(Message, api_key=61, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    topics: list[TopicResponse] = field()

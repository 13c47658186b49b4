"""Messages about producer ids and transactions."""

from zhumq.protocol.schema import Message, field, int16, int32, int64


class InitProducerIdRequest(Message, api_key=22, versions="0-5", flexible="2+"):
    transactional_id: str | None = ""
    transaction_timeout_ms: int32 = 0
    producer_id: int64 = field(versions="3+", default=-1)
    producer_epoch: int16 = field(versions="3+", default=-1)


class InitProducerIdResponse(Message, api_key=22, versions="0-5", flexible="2+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id: int64 = -1
    producer_epoch: int16 = 0


class AddPartitionsToTxnTopic(Message):
    name: str = ""
    partitions: list[int32] = field()


class AddPartitionsToTxnTransaction(Message):
    transactional_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    verify_only: bool = False
    topics: list[AddPartitionsToTxnTopic] = field()


class AddPartitionsToTxnRequest(Message, api_key=24, versions="0-5", flexible="3+"):
    transactions: list[AddPartitionsToTxnTransaction] = field(versions="4+")
    v3_and_below_transactional_id: str = field(versions="0-3")
    v3_and_below_producer_id: int64 = field(versions="0-3", default=0)
    v3_and_below_producer_epoch: int16 = field(versions="0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(versions="0-3")


class AddPartitionsToTxnPartitionResult(Message):
    partition_index: int32 = 0
    partition_error_code: int16 = 0


class AddPartitionsToTxnTopicResult(Message):
    name: str = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field()


class AddPartitionsToTxnResult(Message):
    transactional_id: str = ""
    topic_results: list[AddPartitionsToTxnTopicResult] = field()


class AddPartitionsToTxnResponse(Message, api_key=24, versions="0-5", flexible="3+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = field(versions="4+", default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(versions="4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(versions="0-3")


class AddOffsetsToTxnRequest(Message, api_key=25, versions="0-4", flexible="3+"):
    transactional_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    group_id: str = ""


class AddOffsetsToTxnResponse(Message, api_key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0


class EndTxnRequest(Message, api_key=26, versions="0-5", flexible="3+"):
    transactional_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    committed: bool = False


class EndTxnResponse(Message, api_key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id: int64 = field(versions="5+", default=-1)
    producer_epoch: int16 = field(versions="5+", default=-1)


class TxnOffsetCommitRequestPartition(Message):
    partition_index: int32 = 0
    committed_offset: int64 = 0
    committed_leader_epoch: int32 = field(versions="2+", default=-1)
    committed_metadata: str | None = ""


class TxnOffsetCommitRequestTopic(Message):
    name: str = ""
    partitions: list[TxnOffsetCommitRequestPartition] = field()


class TxnOffsetCommitRequest(Message, api_key=28, versions="0-5", flexible="3+"):
    transactional_id: str = ""
    group_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    generation_id: int32 = field(versions="3+", default=-1)
    member_id: str = field(versions="3+")
    group_instance_id: str | None = field(versions="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field()


class TxnOffsetCommitResponsePartition(Message):
    partition_index: int32 = 0
    error_code: int16 = 0


class TxnOffsetCommitResponseTopic(Message):
    name: str = ""
    partitions: list[TxnOffsetCommitResponsePartition] = field()


class TxnOffsetCommitResponse(Message, api_key=28, versions="0-5", flexible="3+"):
    throttle_time_ms: int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = field()


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


class DescribeTransactionsRequest(Message, api_key=65, versions="0", flexible="0+"):
    transactional_ids: list[str] = field()


class TopicData(Message):
    topic: str = ""
    partitions: list[int32] = field()


class DescribeTransactionsTransactionState(Message):
    error_code: int16 = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: int32 = 0
    transaction_start_time_ms: int64 = 0
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    topics: list[TopicData] = field()


class DescribeTransactionsResponse(Message, api_key=65, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    transaction_states: list[DescribeTransactionsTransactionState] = field()


class ListTransactionsRequest(Message, api_key=66, versions="0-2", flexible="0+"):
    state_filters: list[str] = field()
    producer_id_filters: list[int64] = field()
    duration_filter: int64 = field(versions="1+", default=-1)
    transactional_id_pattern: str | None = field(versions="2+", default=None)


class ListTransactionsTransactionState(Message):
    transactional_id: str = ""
    producer_id: int64 = 0
    transaction_state: str = ""


class ListTransactionsResponse(Message, api_key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    unknown_state_filters: list[str] = field()
    transaction_states: list[ListTransactionsTransactionState] = field()

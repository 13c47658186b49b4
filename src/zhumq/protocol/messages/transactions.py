"""Messages about transactions: of clients, of coordinators, of tools, and the records of `__transaction_state`."""

from zhumq.protocol.schema import Message, field, int8, int16, int32, int64


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
    """Clients use versions up to 3, and brokers for several producers version 4 and 5 (KIP-890)."""

    transactions: list[AddPartitionsToTxnTransaction] = field(versions="4+")
    v3_and_below_transactional_id: str = field(versions="0-3", default="")
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
    """Version 5 is that of clients with transaction version 2."""

    transactional_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    committed: bool = False


class EndTxnResponse(Message, api_key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id: int64 = field(versions="5+", default=-1)
    producer_epoch: int16 = field(versions="5+", default=-1)


class WritableTxnMarkerTopic(Message):
    name: str = ""
    partition_indexes: list[int32] = field()


class WritableTxnMarker(Message):
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    transaction_result: bool = False
    topics: list[WritableTxnMarkerTopic] = field()
    coordinator_epoch: int32 = 0
    transaction_version: int8 = field(versions="2+", default=0)  # KIP-1228


class WriteTxnMarkersRequest(Message, api_key=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarker] = field()


class WritableTxnMarkerPartitionResult(Message):
    partition_index: int32 = 0
    error_code: int16 = 0


class WritableTxnMarkerTopicResult(Message):
    name: str = ""
    partitions: list[WritableTxnMarkerPartitionResult] = field()


class WritableTxnMarkerResult(Message):
    producer_id: int64 = 0
    topics: list[WritableTxnMarkerTopicResult] = field()


class WriteTxnMarkersResponse(Message, api_key=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarkerResult] = field()


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
    member_id: str = field(versions="3+", default="")
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


class DescribeTransactionsRequest(Message, api_key=65, versions="0", flexible="0+"):
    transactional_ids: list[str] = field()


class TopicData(Message):
    topic: str = ""
    partitions: list[int32] = field()


class DescribedTransaction(Message):
    """TransactionState in Kafka, where another message has the same name."""

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
    transaction_states: list[DescribedTransaction] = field()


class ListTransactionsRequest(Message, api_key=66, versions="0-2", flexible="0+"):
    state_filters: list[str] = field()
    producer_id_filters: list[int64] = field()
    duration_filter: int64 = field(versions="1+", default=-1)
    transactional_id_pattern: str | None = field(versions="2+", default=None)


class ListedTransaction(Message):
    """TransactionState in Kafka."""

    transactional_id: str = ""
    producer_id: int64 = 0
    transaction_state: str = ""


class ListTransactionsResponse(Message, api_key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    unknown_state_filters: list[str] = field()
    transaction_states: list[ListedTransaction] = field()


class WriteMarkersRequest(Message, api_key=1101):
    """Between brokers: markers for partitions that the other broker leads."""

    markers: list[WritableTxnMarker] = field()


class WriteMarkersResponse(Message, api_key=1101):
    markers: list[WritableTxnMarkerResult] = field()


class JoinTransactionRequest(Message, versions="0"):
    """Between brokers: partitions that a producer writes to join its transaction, or are verified to be in it."""

    transactional_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    verify_only: bool = False
    topics: list[AddPartitionsToTxnTopic] = field()


class JoinTransactionResponse(Message, versions="0"):
    error_code: int16 = 0
    missing: list[AddPartitionsToTxnTopic] = field()


class TransactionLogKey(Message, versions="0"):
    transactional_id: str = ""


class PartitionsSchema(Message):
    topic: str = ""
    partition_ids: list[int32] = field()


class TransactionLogValue(Message, versions="0-1", flexible="1+"):
    producer_id: int64 = 0
    previous_producer_id: int64 = field(versions="1+", tag=0, default=-1)
    next_producer_id: int64 = field(versions="1+", tag=1, default=-1)
    producer_epoch: int16 = 0
    transaction_timeout_ms: int32 = 0
    transaction_status: int8 = 0
    transaction_partitions: list[PartitionsSchema] | None = field()
    transaction_last_update_timestamp_ms: int64 = 0
    transaction_start_timestamp_ms: int64 = 0
    client_transaction_version: int16 = field(versions="1+", tag=2, default=0)
    next_producer_epoch: int16 = field(versions="1+", tag=3, default=-1)  # KIP-939
    # Ours; Kafka's readers skip it. KIP-360: a repeated bump of the epoch is recognised by it, here also after the
    # coordinator has moved.
    last_producer_epoch: int16 = field(versions="1+", tag=100, default=-1)

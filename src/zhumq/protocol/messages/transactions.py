"""Messages about transactions: TxnOffsetCommit, and the records of `__transaction_state`."""

from zhumq.protocol.schema import Message, field, int8, int16, int32, int64


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

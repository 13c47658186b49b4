"""The records of `__half_messages`, and the requests of brokers that move staged records into their topics."""

from zhumq.protocol.schema import Message, field, int8, int16, int32, int64

# The first number of a key is the type of the record. So `versions` of a key class is its record type.


class StagedMessageKey(Message, versions="0"):
    id: str = ""


class HalfStateKey(Message, versions="1"):
    id: str = ""


class StagedHeader(Message):
    key: str = ""
    value: bytes | None = None


class StagedMessageValue(Message, versions="0"):
    """A half message as it was prepared."""

    group: str = ""
    topic: str = ""
    partition: int32 = 0
    prepared_ms: int64 = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: list[StagedHeader] = field()


class HalfStateValue(Message, versions="0"):
    """What happened to a half message since."""

    state: int8 = 0
    group: str = ""
    prepared_ms: int64 = 0
    checks: int32 = 0
    changed_ms: int64 = 0
    reason: str = ""


class AppendInTransactionRequest(Message, versions="0"):
    """Between brokers: batches of a producer's transaction, for the leader of a partition."""

    transactional_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    batches: bytes = b""

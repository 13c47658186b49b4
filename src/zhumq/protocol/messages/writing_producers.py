"""WritingProducers, an API of our own: who writes to the partitions that a broker leads, and at which rate."""

from zhumq.protocol.schema import Message, field, float64, int16, int32, int64


class WritingProducersRequest(Message, api_key=20002, versions="0", flexible="0+"):
    """A broker answers for itself. Without topics it is asked about all."""

    topics: list[str] | None = None


class WritingProducer(Message):
    client_id: str = ""
    principal: str = ""
    host: str = ""
    port: int32 = 0
    producer_id: int64 = -1
    producer_epoch: int16 = -1
    transactional_id: str | None = None
    kind: str = ""
    topic: str = ""
    partition: int32 = 0
    requests: int64 = 0
    messages: int64 = 0
    size_bytes: int64 = 0
    request_rate: float64 = 0.0
    message_rate: float64 = 0.0
    byte_rate: float64 = 0.0
    first_ms: int64 = 0
    last_ms: int64 = 0


class WritingProducersResponse(Message, api_key=20002, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producers: list[WritingProducer] = field()
    forgotten: int64 = 0  # that are not kept, because others wrote more recently

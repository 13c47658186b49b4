"""Between brokers: when the messages at some offsets were written."""

from zhumq.protocol.schema import Message, field, int32, int64


class OffsetPlace(Message):
    topic: str = ""
    partition: int32 = 0
    offset: int64 = 0


class OffsetTimesRequest(Message, versions="0"):
    """Partitions that one broker leads."""

    places: list[OffsetPlace] = field()


class OffsetTimesResponse(Message, versions="0"):
    times_ms: list[int64] = field()  # in the order of the places; -1: not known

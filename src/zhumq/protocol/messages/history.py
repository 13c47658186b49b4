"""History, an API of our own: figures of a broker, a topic or a group over the last hours, as one broker kept them."""

from zhumq.protocol.schema import Message, field, float64, int8, int16, int32, int64


class HistoryRequest(Message, api_key=20003, versions="0", flexible="0+"):
    """A broker answers for itself. The steps begin at multiples of their length."""

    subject: int8 = 0  # 0: the broker, 1: a topic, 2: a group
    name: str = ""  # of the topic or the group
    start_ms: int64 = 0
    step_ms: int32 = 0
    count: int32 = 0


class HistoryField(Message):
    name: str = ""
    is_of_cluster: bool = (
        False  # every broker has the figure of the cluster: the largest counts, not the sum
    )


class HistoryPoint(Message):
    values: list[float64] = field()  # in the order of the fields; none: a gap


class HistoryResponse(Message, api_key=20003, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    fields: list[HistoryField] = field()
    points: list[HistoryPoint] = field()

"""Lookup, an API of our own: the messages of a partition with a key or a tag, newest first."""

from zhumq.protocol.schema import Message, field, int8, int16, int32, int64


class LookupRequest(Message, api_key=20000, versions="0", flexible="0+"):
    """Any broker takes it, and asks the leader of the partition."""

    topic: str = ""
    partition: int32 = 0
    kind: int8 = 0  # 0: a key, 1: a tag
    sought: bytes = b""
    before_offset: int64 = -1  # only messages before this offset; -1: all
    from_ms: int64 = -1  # only messages with this timestamp or a later one; -1: all
    to_ms: int64 = -1  # only messages with an earlier timestamp; -1: all
    limit: int32 = 1


class FoundHeader(Message):
    key: str = ""
    value: bytes | None = None


class FoundMessage(Message):
    offset: int64 = 0
    timestamp: int64 = -1
    key: bytes | None = None
    value: bytes | None = None
    headers: list[FoundHeader] = field()


class LookupResponse(Message, api_key=20000, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    messages: list[FoundMessage] = field()
    # How many offsets were read one by one, as no index has them.
    scanned: int64 = 0
    # Where the next request continues, if this one did not reach the start of the log; else -1.
    before_offset: int64 = -1

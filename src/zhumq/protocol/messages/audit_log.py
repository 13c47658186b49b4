"""AuditLog, an API of our own: lines of the audit log of one broker, newest first."""

from zhumq.protocol.schema import Message, field, int8, int16, int32, int64


class AuditLogRequest(Message, api_key=20004, versions="0", flexible="0+"):
    """A broker answers for itself: from its newest line on, or from before a place in one of its files."""

    file: int64 = -1  # -1: from the newest line on
    position: int64 = 0
    limit: int32 = 0
    principal: str = ""  # Of these, only lines that have it in them, in any case; empty: all.
    resource: str = ""
    allowed: int8 = -1  # 0: only what was refused, 1: only what was allowed, -1: all


class AuditLine(Message):
    file: int64 = 0  # the place of the line
    position: int64 = 0
    time: str = ""
    principal: str = ""
    host: str = ""
    listener: str = ""
    action: str = ""
    operation: str = ""
    resource: str = ""
    allowed: bool = False
    count: int32 = 0
    dropped: int64 = (
        0  # Not 0: so many events were counted and not written; the line has no others.
    )


class AuditLogResponse(Message, api_key=20004, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    lines: list[AuditLine] = field()
    # Where the next request goes on; -1: there is nothing before.
    next_file: int64 = -1
    next_position: int64 = 0
    # The time of the oldest line that was looked at; empty: none was.
    oldest_time: str = ""

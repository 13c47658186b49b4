"""Delayed messages that are not delivered yet: lists and cancels them, by topic, by time, by id."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from zhumq.admin.connection import REQUEST_TIMEOUT_SECONDS, ClusterConnection
from zhumq.admin.errors import NotFound, Refused, Unavailable
from zhumq.admin.topics import topic_partitions
from zhumq.model.errors import RETRIABLE_CODES, ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.delays import ScheduleRequest, ScheduleResponse

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1_000_000
_PER_REQUEST_MAX: Final = 1_000  # the brokers' limit
_PAUSE_SECONDS: Final = 0.1
_NOT_SET: Final = -1
_LIST: Final = 0
_CANCEL: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledMessage:
    """A delayed message."""

    topic: str
    partition: int
    offset: int  # in the answer to its producer
    due_ms: int
    scheduled_ms: int
    size_bytes: int

    @property
    def id(self) -> str:
        """PARTITION:OFFSET:DUE. The due time makes it quick to find."""
        return f"{self.partition}:{self.offset}:{self.due_ms}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Delayed messages, the next one first."""

    messages: tuple[ScheduledMessage, ...]
    has_more: bool  # than the limit


def list_scheduled(
    connection: ClusterConnection,
    topic: str,
    *,
    message_id: str | None = None,
    partition: int | None = None,
    from_ms: int | None = None,
    to_ms: int | None = None,
    limit: int = LIMIT_DEFAULT,
) -> Schedule:
    """The delayed messages of a topic, the next one first, at most `limit`. `from_ms` and `to_ms` bound their due times,
    the latter exclusively."""
    if not 1 <= limit <= LIMIT_MAX:
        raise Refused(f"a limit is 1 to {LIMIT_MAX}, not {limit}")
    requests = _requests(connection, topic, _LIST, message_id, partition, from_ms, to_ms)
    found = [
        message
        for request in requests
        for message in islice(_pages(connection, request, limit + 1), limit + 1)
    ]
    found.sort(key=lambda message: (message.due_ms, message.partition, message.offset))
    return Schedule(messages=tuple(found[:limit]), has_more=len(found) > limit)


def cancel_scheduled(
    connection: ClusterConnection,
    topic: str,
    *,
    message_id: str | None = None,
    partition: int | None = None,
    from_ms: int | None = None,
    to_ms: int | None = None,
) -> int:
    """Delete delayed messages that are not due yet, and return how many: one by its id, or all that are due in a time."""
    requests = _requests(connection, topic, _CANCEL, message_id, partition, from_ms, to_ms)
    return sum(1 for request in requests for _ in _pages(connection, request, LIMIT_MAX))


def _requests(
    connection: ClusterConnection,
    topic: str,
    action: int,
    message_id: str | None,
    partition: int | None,
    from_ms: int | None,
    to_ms: int | None,
) -> list[ScheduleRequest]:
    offset = _NOT_SET
    if message_id is not None:
        partition, offset, due_ms = _parse_id(message_id)
        if due_ms is not None:
            from_ms, to_ms = due_ms, due_ms + 1
    partitions = topic_partitions(connection, topic)
    if partition is not None and partition not in partitions:
        raise NotFound(f"topic {topic!r} has no partition {partition}", f"it has {len(partitions)}")
    return [
        ScheduleRequest(
            topic=topic,
            partition=each,
            action=action,
            offset=offset,
            from_ms=_NOT_SET if from_ms is None else from_ms,
            to_ms=_NOT_SET if to_ms is None else to_ms,
        )
        for each in (partitions if partition is None else (partition,))
    ]


def _parse_id(text: str) -> tuple[int, int, int | None]:
    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(each.isascii() and each.isdigit() for each in parts):
        raise Refused(f"{text!r} is not the id of a delayed message", "it is PARTITION:OFFSET")
    partition, offset, *due = map(int, parts)
    return partition, offset, due[0] if due else None


def _pages(
    connection: ClusterConnection, request: ScheduleRequest, limit: int
) -> Iterator[ScheduledMessage]:
    """The messages of one partition: as many requests as it takes."""
    request.limit = min(limit, _PER_REQUEST_MAX)
    while True:
        answer = _ask(connection, request)
        for each in answer.messages:
            yield ScheduledMessage(
                topic=request.topic,
                partition=request.partition,
                offset=each.offset,
                due_ms=each.due_ms,
                scheduled_ms=each.staged_ms,
                size_bytes=each.size_bytes,
            )
        if answer.after_ms == _NOT_SET or (answer.messages and request.offset != _NOT_SET):
            return
        request.after_ms, request.after_serial = answer.after_ms, answer.after_serial


def _ask(connection: ClusterConnection, request: ScheduleRequest) -> ScheduleResponse:
    """One request, repeated while the shard has no leader, is being loaded, or the broker restarts."""
    deadline = time.monotonic() + REQUEST_TIMEOUT_SECONDS
    named = f"the delayed messages of {request.topic}-{request.partition}"
    while True:
        try:
            answer: ScheduleResponse = connection.request(ApiKey.SCHEDULE, request)
        except Unavailable:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
            continue
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            return answer
        reason = answer.error_message or code.name.lower().replace("_", " ")
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise NotFound(f"{named}: {reason}", code=code.name)
        if code not in RETRIABLE_CODES:
            raise Refused(f"{named}: {reason}", code=code.name)
        if time.monotonic() >= deadline:
            raise Unavailable(f"{named}: {reason}", code=code.name)
        time.sleep(_PAUSE_SECONDS)

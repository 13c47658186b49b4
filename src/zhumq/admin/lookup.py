"""Lookup of messages by key or tag, in all partitions of a topic, newest first."""

import time
from dataclasses import dataclass
from typing import Final

from zhumq.admin.connection import REQUEST_TIMEOUT_SECONDS, ClusterConnection
from zhumq.admin.errors import AdminError, NotFound, Refused, Unavailable
from zhumq.admin.topics import topic_partitions
from zhumq.model.errors import RETRIABLE_CODES, ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.lookup import LookupRequest, LookupResponse

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1_000_000
_PER_REQUEST_MAX: Final = 1_000  # the brokers' limit
_PAUSE_SECONDS: Final = 0.1
_KEY: Final = 0
_TAG: Final = 1
_NOT_SET: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMessage:
    """A message that a lookup found."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None  # None: a tombstone, the key was deleted
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """What a lookup found, newest first, and how."""

    messages: tuple[FoundMessage, ...]
    scanned: int  # offsets that were read one by one, as the index does not have them yet
    is_complete: bool  # False: older messages were left out


def lookup(
    connection: ClusterConnection,
    topic: str,
    *,
    key: bytes | str | None = None,
    tag: bytes | str | None = None,
    partition: int | None = None,
    from_ms: int | None = None,
    to_ms: int | None = None,
    limit: int = LIMIT_DEFAULT,
) -> Lookup:
    """The committed messages of a topic with a key, or with a tag: the newest ones, at most `limit`.

    `from_ms` and `to_ms` bound their timestamps, the latter exclusively. All partitions are asked unless one is
    given: producers choose partitions by their own rules. The topic must have index.keys=true; what its
    index does not have yet is scanned.
    """
    sought = tag if key is None else key
    if sought is None or (key is not None and tag is not None):
        raise Refused("a lookup is of a key or of a tag", "give one of both")
    if not 1 <= limit <= LIMIT_MAX:
        raise Refused(f"a limit is 1 to {LIMIT_MAX}, not {limit}")
    partitions = topic_partitions(connection, topic)
    if partition is not None and partition not in partitions:
        raise NotFound(f"topic {topic!r} has no partition {partition}", f"it has {len(partitions)}")
    request = LookupRequest(
        topic=topic,
        kind=_TAG if key is None else _KEY,
        sought=sought.encode() if isinstance(sought, str) else sought,
        from_ms=_NOT_SET if from_ms is None else from_ms,
        to_ms=_NOT_SET if to_ms is None else to_ms,
    )
    found: list[FoundMessage] = []
    scanned, is_complete = 0, True
    for each in partitions if partition is None else (partition,):
        part = _lookup_in(connection, request, each, limit)
        found.extend(part.messages)
        scanned += part.scanned
        is_complete = is_complete and part.is_complete
    found.sort(key=lambda message: (message.timestamp_ms, message.offset), reverse=True)
    return Lookup(
        messages=tuple(found[:limit]),
        scanned=scanned,
        is_complete=is_complete and len(found) <= limit,
    )


def _lookup_in(
    connection: ClusterConnection, request: LookupRequest, partition: int, limit: int
) -> Lookup:
    """A lookup in one partition: as many requests as it takes."""
    found: list[FoundMessage] = []
    scanned, before = 0, _NOT_SET
    request.partition = partition
    while True:
        request.before_offset = before
        request.limit = min(limit - len(found), _PER_REQUEST_MAX)
        answer = _ask(connection, request)
        found.extend(
            FoundMessage(
                topic=request.topic,
                partition=partition,
                offset=each.offset,
                timestamp_ms=each.timestamp,
                key=_bytes(each.key),
                value=_bytes(each.value),
                headers=tuple((header.key, _bytes(header.value)) for header in each.headers),
            )
            for each in answer.messages
        )
        scanned += answer.scanned
        before = answer.before_offset
        if before == _NOT_SET or len(found) >= limit:
            break
    return Lookup(messages=tuple(found), scanned=scanned, is_complete=before == _NOT_SET)


def _bytes(field: bytes | None) -> bytes | None:
    return None if field is None else bytes(field)


def _ask(connection: ClusterConnection, request: LookupRequest) -> LookupResponse:
    """One request, repeated while the partition has no leader, or the broker restarts."""
    deadline = time.monotonic() + REQUEST_TIMEOUT_SECONDS
    while True:
        try:
            answer: LookupResponse = connection.request(ApiKey.LOOKUP, request)
        except Unavailable:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
            continue
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            return answer
        if code not in RETRIABLE_CODES or code in (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.CORRUPT_MESSAGE,
        ):
            raise _error(code, request, answer.error_message)
        if time.monotonic() >= deadline:
            raise Unavailable(
                f"cannot look up in {request.topic}-{request.partition}: {answer.error_message}"
            )
        time.sleep(_PAUSE_SECONDS)


def _error(code: ErrorCode, request: LookupRequest, message: str | None) -> AdminError:
    doing = f"cannot look up in {request.topic}-{request.partition}"
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return NotFound(f"{doing}: {message}", code=code.name)
    if code is ErrorCode.INVALID_CONFIG:
        return Refused(
            f"{doing}: the topic has no index of keys and tags",
            f"`zhumq topic alter {request.topic} --set index.keys=true` builds one",
            code=code.name,
        )
    return Refused(f"{doing}: {message or code.name.lower().replace('_', ' ')}", code=code.name)

"""Half messages of all brokers: list and show them, and decide on those that no producer decides on."""

from dataclasses import dataclass, fields
from typing import Any

from zhumq.admin.connection import ClusterConnection

LISTED_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfMessageEntry:
    """A half message without its body."""

    id: str
    group: str
    topic: str
    partition: int
    state: str  # pending, committed, failed, given-up; just ended: sent, rolled-back
    prepared_ms: int
    checks: int  # how often producers were asked
    changed_ms: int  # when the last one was asked, or when the state was decided
    reason: str  # of failed and given-up
    broker_id: int  # which coordinates it


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfMessageDetails:
    """A half message with its body, as far as the user may read its topic and it has not ended."""

    entry: HalfMessageEntry
    has_body: bool
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfMessageList:
    """The oldest half messages."""

    messages: tuple[HalfMessageEntry, ...]
    has_more: bool  # than were asked for


_FIELDS = tuple(each.name for each in fields(HalfMessageEntry))


def list_half_messages(
    connection: ClusterConnection,
    *,
    group: str = "",
    states: tuple[str, ...] = (),
    limit: int = LISTED_MAX,
) -> HalfMessageList:
    """The half messages of a producer group, or of all, that have not ended; the oldest first."""
    from zhumq.admin import push_calls  # noqa: PLC0415 (grpcio is an extra)

    answers = push_calls.call_all(
        connection, "ListHalf", group=group, states=list(states), limit=limit
    )
    found = [_entry(each) for answer in answers for each in answer.messages]
    found.sort(key=lambda each: each.prepared_ms)
    has_more = len(found) > limit or any(answer.has_more for answer in answers)
    return HalfMessageList(messages=tuple(found[:limit]), has_more=has_more)


def show_half_message(connection: ClusterConnection, message_id: str) -> HalfMessageDetails:
    """One half message. Raises NotFound."""
    from zhumq.admin import push_calls  # noqa: PLC0415 (grpcio is an extra)

    answer = push_calls.call_all(connection, "ShowHalf", id=message_id)[0]
    body = answer.body
    return HalfMessageDetails(
        entry=_entry(answer.half_message),
        has_body=answer.HasField("body"),
        key=body.key if body.HasField("key") else None,
        value=body.value if body.HasField("value") else None,
        headers=tuple(
            (each.key, each.value if each.HasField("value") else None) for each in body.headers
        ),
    )


def commit_half_message(connection: ClusterConnection, message_id: str) -> None:
    """Commit a half message in place of its producer, also one that was given up or has failed. Raises NotFound, and
    Refused if it was rolled back."""
    _decide(connection, message_id, "HALF_COMMIT")


def roll_back_half_message(connection: ClusterConnection, message_id: str) -> None:
    """Roll back a half message in place of its producer; one that was given up or has failed is deleted by that. Raises
    NotFound, and Refused if it was committed."""
    _decide(connection, message_id, "HALF_ROLLBACK")


def _decide(connection: ClusterConnection, message_id: str, decision: str) -> None:
    from zhumq.admin import push_calls  # noqa: PLC0415 (grpcio is an extra)

    push_calls.call_all(connection, "DecideHalf", id=message_id, decision=decision)


def _entry(message: Any) -> HalfMessageEntry:
    return HalfMessageEntry(**{name: getattr(message, name) for name in _FIELDS})

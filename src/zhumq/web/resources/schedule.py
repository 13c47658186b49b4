"""Delayed messages that are not delivered yet: list and cancel them."""

from typing import Annotated

import msgspec
from msgspec import Meta

from zhumq.admin import schedule
from zhumq.admin.errors import NotFound
from zhumq.web.brokers import Brokers
from zhumq.web.names import INT64_MAX, Milliseconds, PartitionNumber, TopicName
from zhumq.web.paging import Page, PageQuery
from zhumq.web.problems import invalid

MessageId = Annotated[
    str, Meta(pattern="^[0-9]{1,10}:[0-9]{1,19}(:[0-9]{1,19})?$", description="As in the list.")
]


class ScheduleQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which delayed messages: those that are due from `from_ms` to before `to_ms`."""

    partition: PartitionNumber | None = None
    from_ms: Milliseconds | None = None
    to_ms: Milliseconds | None = None


class CancelQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which delayed messages are cancelled: all that are due from `from_ms` to before `to_ms`; both are needed."""

    partition: PartitionNumber | None = None
    from_ms: Milliseconds | None = None
    to_ms: Milliseconds | None = None


class ScheduledMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A delayed message."""

    id: str
    topic: str
    partition: int
    offset: int
    due_ms: int
    scheduled_ms: int
    size_bytes: int


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """How many delayed messages were cancelled."""

    cancelled: int


def list_scheduled(
    brokers: Brokers, topic: TopicName, query: ScheduleQuery
) -> Page[ScheduledMessage]:
    """List the delayed messages of a topic, the next one first."""
    after = _cursor(query.after)
    from_ms = query.from_ms
    if after is not None:
        from_ms = max(after[0], from_ms or 0)
    limit = query.limit
    while True:
        found = schedule.list_scheduled(
            brokers.connection,
            topic,
            partition=query.partition,
            from_ms=from_ms,
            to_ms=query.to_ms,
            limit=limit,
        )
        left = [each for each in found.messages if after is None or _key(each) > after]
        if not found.has_more or len(left) >= query.limit or limit >= schedule.LIMIT_MAX:
            break
        # Very many are due at the same time as the last one of the page before.
        limit = min(limit * 2 + query.limit, schedule.LIMIT_MAX)
    items = left[: query.limit]
    has_more = found.has_more or len(left) > query.limit
    return Page(
        items=[_shown(each) for each in items],
        next=":".join(map(str, _key(items[-1]))) if has_more and items else None,
    )


def cancel_one(brokers: Brokers, topic: TopicName, message: MessageId) -> None:
    """Cancel a delayed message by its id."""
    count = schedule.cancel_scheduled(brokers.connection, topic, message_id=message)
    if not count:
        raise NotFound(f"there is no delayed message {message} in {topic!r}, or it was delivered")


def cancel_many(brokers: Brokers, topic: TopicName, query: CancelQuery) -> Cancelled:
    """Cancel all delayed messages of a topic that are due in a time."""
    if query.from_ms is None or query.to_ms is None:
        raise invalid("which delayed messages?", "give from_ms and to_ms")
    count = schedule.cancel_scheduled(
        brokers.connection,
        topic,
        partition=query.partition,
        from_ms=query.from_ms,
        to_ms=query.to_ms,
    )
    return Cancelled(cancelled=count)


def _key(each: schedule.ScheduledMessage) -> tuple[int, int, int]:
    return each.due_ms, each.partition, each.offset


def _cursor(after: str) -> tuple[int, int, int] | None:
    if not after:
        return None
    parts = after.split(":")
    if len(parts) != 3 or not all(
        each.isascii() and each.isdigit() and len(each) <= 19 for each in parts
    ):
        raise invalid(
            f"after={after[:64]!r} is no cursor", "give `next` of the page before as it is"
        )
    due_ms, partition, offset = map(int, parts)
    return min(due_ms, INT64_MAX), partition, offset


def _shown(each: schedule.ScheduledMessage) -> ScheduledMessage:
    return ScheduledMessage(
        id=each.id,
        topic=each.topic,
        partition=each.partition,
        offset=each.offset,
        due_ms=each.due_ms,
        scheduled_ms=each.scheduled_ms,
        size_bytes=each.size_bytes,
    )

"""Half messages: list and show them, and decide on those that no producer decides on."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from zhumq.admin import half_messages
from zhumq.web.brokers import Brokers
from zhumq.web.content import SHOWN_BYTES_DEFAULT, Content, Format, Header, show, show_headers
from zhumq.web.names import AnyName
from zhumq.web.paging import LIMIT_DEFAULT, Limit

State = Literal["pending", "committed", "failed", "given-up"]


class HalfQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which half messages."""

    group: Annotated[str, Meta(max_length=255, description="Only of this producer group.")] = ""
    state: list[State] = []
    limit: Limit = LIMIT_DEFAULT


class HalfMessages(msgspec.Struct, frozen=True, kw_only=True):
    """The oldest half messages. `has_more`: there are more than the limit."""

    items: list[half_messages.HalfMessageEntry]
    has_more: bool


class ShowQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the body is shown."""

    format: Format = "auto"


class HalfMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A half message with its body, as far as the caller may read its topic and it has not ended."""

    entry: half_messages.HalfMessageEntry
    has_body: bool
    key: Content | None
    value: Content | None
    headers: list[Header]


def list_half_messages(brokers: Brokers, query: HalfQuery) -> HalfMessages:
    """List half messages that have not ended, the oldest first."""
    found = half_messages.list_half_messages(
        brokers.connection, group=query.group, states=tuple(query.state), limit=query.limit
    )
    return HalfMessages(items=list(found.messages), has_more=found.has_more)


def show_half_message(brokers: Brokers, message: AnyName, query: ShowQuery) -> HalfMessage:
    """Show a half message with its body."""
    found = half_messages.show_half_message(brokers.connection, message)
    return HalfMessage(
        entry=found.entry,
        has_body=found.has_body,
        key=show(found.key, query.format, SHOWN_BYTES_DEFAULT),
        value=show(found.value, query.format, SHOWN_BYTES_DEFAULT),
        headers=show_headers(found.headers, query.format, SHOWN_BYTES_DEFAULT),
    )


def commit(brokers: Brokers, message: AnyName) -> None:
    """Commit a half message in place of its producer: consumers get it."""
    half_messages.commit_half_message(brokers.connection, message)


def roll_back(brokers: Brokers, message: AnyName) -> None:
    """Roll back a half message in place of its producer: it is deleted."""
    half_messages.roll_back_half_message(brokers.connection, message)

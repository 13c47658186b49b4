"""Subscription groups, and the sessions of push consumers: list them, resume parked ones."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from zhumq.admin import sessions, subscriptions
from zhumq.web.brokers import Brokers
from zhumq.web.names import AnyName, SearchText
from zhumq.web.paging import Page, PageQuery, page_of


class SubscriptionQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which groups."""

    search: SearchText = ""


class PushSessionQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which sessions."""

    group: Annotated[str, Meta(max_length=255, description="Only those of this group.")] = ""
    state: Literal["active", "retrying", "parked"] | None = None


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """A group of subscriptions. `mode` is null for a share group that only Kafka clients read."""

    group: str
    state: str
    mode: str | None
    claims: list[str]  # topics that it reads point-to-point
    partitions: list[subscriptions.SubscribedPartition]
    consumers: list[subscriptions.GroupConsumer]


def list_subscriptions(brokers: Brokers, query: SubscriptionQuery) -> Page[Subscription]:
    """List the groups of subscriptions by name: their claims, positions and consumers."""
    sought = query.search.lower()
    found = [
        Subscription(
            group=each.group,
            state=each.state,
            mode=each.mode,
            claims=each.claims,
            partitions=each.partitions,
            consumers=each.consumers,
        )
        for name, each in sorted(subscriptions.subscription_groups(brokers.connection).items())
        if sought in name.lower()
    ]
    return page_of(found, lambda each: each.group, limit=query.limit, after=query.after)


def list_sessions(brokers: Brokers, query: PushSessionQuery) -> Page[sessions.Session]:
    """List the sessions of push consumers by name, with their state and the reason of a parked one."""
    found = [
        each
        for each in sessions.list_sessions(brokers.connection, query.group)
        if query.state in (None, each.state)
    ]
    return page_of(found, lambda each: each.name, limit=query.limit, after=query.after)


def resume_session(brokers: Brokers, session: AnyName) -> None:
    """Resume a parked session at its position."""
    sessions.resume_session(brokers.connection, session)

"""Groups of every kind: list, show with lag, reset and delete them, and the settings of share groups."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from zhumq.admin import group_lags, groups, settings
from zhumq.admin.positions import parse_position
from zhumq.web.brokers import Brokers
from zhumq.web.names import (
    GroupName,
    PartitionNumber,
    PositionText,
    SearchText,
    SettingName,
    SettingValue,
    TopicName,
)
from zhumq.web.paging import PageQuery, page_of
from zhumq.web.resources.topics import TopicSetting, shown_settings


class GroupQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which groups."""

    search: SearchText = ""
    state: Annotated[str, Meta(max_length=64, description="Such as Stable or Empty.")] = ""
    type: Annotated[str, Meta(max_length=64, description="Consumer, Classic or Share.")] = ""


class GroupPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of groups. `warning` is why groups of subscriptions, or what is known of them, may be missing."""

    items: Sequence[groups.GroupSummary]
    next: str | None
    warning: str | None


class LagPage(msgspec.Struct, frozen=True, kw_only=True):
    """The lags of one page of groups. `left_out` are the groups of the page without one, and why."""

    items: Sequence[group_lags.GroupLag]
    left_out: Sequence[group_lags.LeftOut]
    next: str | None
    warning: str | None


class GroupReset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a group is to go on in a topic, or in one partition of it."""

    topic: TopicName
    to: PositionText
    partition: PartitionNumber | None = None
    # Only answer what would change.
    dry_run: bool = False


class ResetResult(msgspec.Struct, frozen=True, kw_only=True):
    """The offsets before and after a reset. `is_done`: they were changed."""

    is_done: bool
    changes: list[groups.OffsetChange]


class SettingsChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings to change; one of null gets its default again."""

    settings: Annotated[Mapping[SettingName, SettingValue | None], Meta(min_length=1)]


def list_groups(brokers: Brokers, query: GroupQuery) -> GroupPage:
    """List groups by name: of Kafka's consumers, share groups, and groups of subscriptions."""
    sought = query.search.lower()
    listed = groups.list_groups(brokers.connection)
    found = [
        each
        for each in listed.groups
        if sought in each.group.lower()
        and query.state.lower() in ("", each.state.lower())
        and query.type.lower() in ("", each.type.lower())
    ]
    page = page_of(found, lambda each: each.group, limit=query.limit, after=query.after)
    return GroupPage(items=page.items, next=page.next, warning=listed.warning)


def list_lags(brokers: Brokers, query: GroupQuery) -> LagPage:
    """Show the lags of a page of the list of groups: of the page that the same query lists."""
    page = list_groups(brokers, query)
    found = group_lags.group_lags(brokers.connection, [each.group for each in page.items])
    return LagPage(items=found.lags, left_out=found.left_out, next=page.next, warning=page.warning)


def describe_group(brokers: Brokers, group: GroupName) -> groups.Group:
    """Show a group: its members, its offsets, and its lag on each partition."""
    return groups.describe_group(brokers.connection, group)


def reset_group(brokers: Brokers, group: GroupName, body: GroupReset) -> ResetResult:
    """Move a group's offsets in a topic. Its consumers must be stopped.

    With `dry_run` nothing changes, and the answer says what would.
    """
    position = parse_position(body.to, name="to")
    changes = groups.reset_offsets(
        brokers.connection,
        group,
        body.topic,
        position,
        partition=body.partition,
        dry_run=body.dry_run,
    )
    return ResetResult(is_done=not body.dry_run, changes=changes)


def delete_offsets(brokers: Brokers, group: GroupName, topic: TopicName) -> None:
    """Delete a group's offsets in one topic, such as one that it no longer reads. Consumers that read it must be stopped."""
    groups.delete_offsets(brokers.connection, group, topic)


def delete_group(brokers: Brokers, group: GroupName) -> None:
    """Delete a group with its offsets. Its consumers must be stopped."""
    groups.delete_group(brokers.connection, group)


def list_settings(brokers: Brokers, group: GroupName) -> list[TopicSetting]:
    """All settings of a share group, also the defaults."""
    return shown_settings(settings.group_settings(brokers.connection, group))


def alter_settings(brokers: Brokers, group: GroupName, body: SettingsChange) -> list[TopicSetting]:
    """Change settings of a share group, such as its filter."""
    changes = {name: value for name, value in body.settings.items() if value is not None}
    unset = [name for name, value in body.settings.items() if value is None]
    settings.alter_group_settings(brokers.connection, group, changes, unset)
    return shown_settings(settings.group_settings(brokers.connection, group))

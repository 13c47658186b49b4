"""Topics: list, show, create, alter and delete them; their partitions, settings and retention."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from zhumq.admin import (
    delete_records,
    retention,
    settings,
    sizes,
    subscriptions,
    topic_figures,
    topic_groups,
    topics,
)
from zhumq.admin.positions import parse_position
from zhumq.web.brokers import Brokers
from zhumq.web.names import (
    INT32_MAX,
    Offset,
    PartitionNumber,
    PositionText,
    SearchText,
    SettingName,
    SettingValue,
    TopicName,
)
from zhumq.web.paging import Page, PageQuery, page_of
from zhumq.web.problems import invalid

PartitionCount = Annotated[int, Meta(ge=1, le=INT32_MAX)]
ReplicaCount = Annotated[int, Meta(ge=1, le=32_767)]


class TopicQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which topics."""

    search: SearchText = ""
    # Also the topics that brokers keep their own state in.
    internal: bool = False


class NewTopic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A topic to create. The brokers have defaults for what is left out."""

    topic: TopicName
    partitions: PartitionCount | None = None
    replicas: ReplicaCount | None = None
    settings: Mapping[SettingName, SettingValue] = {}


class TopicChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What changes of a topic. A setting of null gets its default again; partitions are the new total."""

    partitions: PartitionCount | None = None
    settings: Mapping[SettingName, SettingValue | None] = {}


class PartitionOffset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An offset in a partition."""

    partition: PartitionNumber
    offset: Offset


class RecordDeletion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which messages of a topic to delete: all before a position, in one partition if it is given; or, to delete what a
    dry run has shown, those before offsets."""

    before: PositionText | None = None
    partition: PartitionNumber | None = None
    offsets: Sequence[PartitionOffset] = ()
    # Only answer what would be deleted.
    dry_run: bool = False


class DeletionResult(msgspec.Struct, frozen=True, kw_only=True):
    """The earliest offsets before and after messages are deleted. `is_done`: they were."""

    is_done: bool
    changes: list[delete_records.StartChange]


class TopicSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of a topic or a group. `is_own`: it was set for this one, and is not a default."""

    name: str
    value: str | None
    is_own: bool
    default: str | None  # if no broker has another; null, too: not known
    origin: settings.Origin  # where the value comes from


class PartitionSize(msgspec.Struct, frozen=True, kw_only=True):
    """A partition with the size of each replica."""

    partition: int
    size_bytes: int | None  # of the leader's replica; null: there is none, or it did not answer
    replicas: list[sizes.ReplicaSize]


class SizeQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which partitions."""

    partition: PartitionNumber | None = None


class Released(msgspec.Struct, frozen=True, kw_only=True):
    """The group that read the topic point-to-point."""

    group: str


def list_topics(brokers: Brokers, query: TopicQuery) -> Page[topics.TopicSummary]:
    """List topics by name."""
    sought = query.search.lower()
    found = [
        each
        for each in topics.list_topics(brokers.connection)
        if (query.internal or not each.is_internal) and sought in each.topic.lower()
    ]
    return page_of(found, lambda each: each.topic, limit=query.limit, after=query.after)


def list_figures(brokers: Brokers, query: TopicQuery) -> Page[topic_figures.TopicFigures]:
    """Show messages, size and health of a page of the list of topics: of the page that the same query lists."""
    page = list_topics(brokers, query)
    names = [each.topic for each in page.items]
    return Page(items=topic_figures.topic_figures(brokers.connection, names), next=page.next)


def create_topic(brokers: Brokers, body: NewTopic) -> topics.Topic:
    """Create a topic."""
    topics.create_topic(
        brokers.connection,
        body.topic,
        partitions=body.partitions or topics.BROKER_DEFAULT,
        replicas=body.replicas or topics.BROKER_DEFAULT,
        settings=body.settings,
    )
    return topics.describe_new_topic(brokers.connection, body.topic)


def describe_topic(brokers: Brokers, topic: TopicName) -> topics.Topic:
    """Show a topic: its partitions with their offsets, and the settings that are its own."""
    return topics.describe_topic(brokers.connection, topic)


def alter_topic(brokers: Brokers, topic: TopicName, body: TopicChange) -> topics.Topic:
    """Change settings of a topic, and add partitions.

    Partitions cannot be removed. New ones change where the keys of new messages go.
    """
    if body.partitions is None and not body.settings:
        raise invalid("nothing changes", "give settings, partitions, or both")
    changes = {name: value for name, value in body.settings.items() if value is not None}
    unset = [name for name, value in body.settings.items() if value is None]
    if body.settings:
        topics.topic_partitions(brokers.connection, topic)
        settings.alter_topic_settings(brokers.connection, topic, changes, unset)
    if body.partitions is not None:
        topics.add_partitions(brokers.connection, topic, body.partitions)
    return topics.describe_topic(brokers.connection, topic)


def delete_topic(brokers: Brokers, topic: TopicName) -> None:
    """Delete a topic with all its messages."""
    topics.delete_topic(brokers.connection, topic)


def delete_messages(brokers: Brokers, topic: TopicName, body: RecordDeletion) -> DeletionResult:
    """Delete the oldest messages of a topic: all before a position. They cannot be brought back.

    With `dry_run` nothing changes, and the answer says what would. Give the `after` of its partitions as `offsets` to delete
    exactly that, also if messages have come meanwhile.
    """
    if (body.before is None) == (not body.offsets):
        raise invalid("give either before or offsets", "before=latest deletes all messages")
    if body.before is not None:
        position = parse_position(body.before, name="before")
        changes = delete_records.plan_deletion(
            brokers.connection, topic, position, partition=body.partition
        )
        offsets = {each.partition: each.after for each in changes}
    else:
        if body.partition is not None or body.dry_run:
            raise invalid("offsets are for no partition and no dry run: they say all")
        offsets = {each.partition: each.offset for each in body.offsets}
    if not body.dry_run:
        changes = delete_records.delete_before(brokers.connection, topic, offsets)
    return DeletionResult(is_done=not body.dry_run, changes=changes)


def list_settings(brokers: Brokers, topic: TopicName) -> list[TopicSetting]:
    """All settings of a topic, also the defaults."""
    topics.topic_partitions(brokers.connection, topic)
    found = settings.topic_settings(brokers.connection, topic)
    return shown_settings(found)


def list_groups(
    brokers: Brokers, topic: TopicName, query: PageQuery
) -> Page[topic_groups.TopicGroup]:
    """List the groups that read a topic by name, with their lag in it."""
    found = topic_groups.names_of_topic_groups(brokers.connection, topic)
    page = page_of(found, lambda each: each.group, limit=query.limit, after=query.after)
    items = topic_groups.topic_groups(brokers.connection, topic, page.items)
    return Page(items=items, next=page.next)


def list_sizes(brokers: Brokers, topic: TopicName, query: SizeQuery) -> list[PartitionSize]:
    """The sizes of a topic's partitions on the disks of the brokers."""
    leaders = topics.partition_leaders(brokers.connection, topic)
    numbers = [each for each in leaders if query.partition in (None, each)]
    replicas: dict[int, list[sizes.ReplicaSize]] = {number: [] for number in numbers}
    for each in sizes.replica_sizes(brokers.connection, topic, numbers) if numbers else ():
        replicas[each.partition].append(each)
    return [
        PartitionSize(
            partition=number,
            size_bytes=next(
                (each.size_bytes for each in held if each.broker == leaders[number]), None
            ),
            replicas=held,
        )
        for number, held in sorted(replicas.items())
    ]


def explain_retention(brokers: Brokers, topic: TopicName) -> retention.TopicRetention:
    """When and why the segments of a topic are deleted."""
    return retention.explain_retention(brokers.connection, topic)


def release_topic(brokers: Brokers, topic: TopicName) -> Released:
    """Let another group read the topic point-to-point. The group that does must have no consumers."""
    topics.topic_partitions(brokers.connection, topic)
    return Released(group=subscriptions.release_topic(brokers.connection, topic))


def shown_settings(found: Mapping[str, settings.Setting]) -> list[TopicSetting]:
    """Settings by name."""
    return [
        TopicSetting(
            name=name,
            value=each.value,
            is_own=each.is_own,
            default=each.default,
            origin=each.origin,
        )
        for name, each in sorted(found.items())
    ]

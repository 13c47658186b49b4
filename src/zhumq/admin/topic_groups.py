"""Who reads a topic: the groups with an offset, a member or a subscription there, and how far behind each is in it."""

from collections.abc import Iterable
from dataclasses import dataclass

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import AdminError
from zhumq.admin.group_requests import describe, fetch_offsets
from zhumq.admin.groups import Group, GroupSummary, describe_groups, list_groups
from zhumq.admin.subscriptions import known_subscriptions
from zhumq.admin.topics import topic_partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicGroup:
    """A group that reads a topic. The lag and the numbers are those of this topic alone."""

    group: str
    state: str
    type: str
    mode: str | None  # None: it has no subscriptions
    members: int  # that read the topic
    partitions: int  # of the topic, that it has an offset in or reads
    lag: int | None  # messages; None: it is not known
    idle_partitions: int  # where messages wait, and no consumer reads


def names_of_topic_groups(connection: ClusterConnection, topic: str) -> list[GroupSummary]:
    """The groups that read a topic, by name, as they are listed. Those that the caller may not describe are left out.
    Raises NotFound."""
    topic_partitions(connection, topic)
    listed = list_groups(connection).groups
    names = [each.group for each in listed]
    readers = _with_offsets(connection, names, topic)
    readers |= _with_members(connection, names, topic)
    subscriptions, _ = known_subscriptions(connection)
    for group in subscriptions.values():
        subscribed = {each.topic for each in group.partitions}
        subscribed.update(each for one in group.consumers for each in one.topics)
        if topic in subscribed or topic in group.claims:
            readers.add(group.group)
    return [each for each in listed if each.group in readers]


def topic_groups(
    connection: ClusterConnection, topic: str, groups: Iterable[GroupSummary]
) -> list[TopicGroup]:
    """How far each of these groups is in a topic; without those that were deleted meanwhile."""
    listed = {each.group: each for each in groups}
    found = describe_groups(connection, tuple(listed))
    return [
        _in_topic(topic, listed[name], each)
        for name, each in found.items()
        if not isinstance(each, AdminError)
    ]


def _in_topic(topic: str, listed: GroupSummary, group: Group) -> TopicGroup:
    offsets = [each for each in group.offsets if each.topic == topic]
    known = [each.lag for each in offsets if each.lag is not None]
    readers = {each.member for each in offsets if each.member is not None}
    readers.update(consumer for each in offsets for consumer in each.consumers)
    return TopicGroup(
        group=group.group,
        state=group.state,
        type=listed.type,
        mode=group.mode,
        members=len(readers),
        partitions=len(offsets),
        lag=sum(known) if known else None,
        idle_partitions=sum(
            bool(each.lag) and each.member is None and not each.consumers for each in offsets
        ),
    )


def _with_offsets(connection: ClusterConnection, groups: list[str], topic: str) -> set[str]:
    return {
        name
        for name, found in fetch_offsets(connection, groups).items()
        if not isinstance(found, AdminError) and any(place[0] == topic for place in found)
    }


def _with_members(connection: ClusterConnection, groups: list[str], topic: str) -> set[str]:
    """A member may read before its group has committed anything."""
    return {
        name
        for name, found in describe(connection, groups).items()
        if not isinstance(found, AdminError)
        and any(place[0] == topic for each in found.members for place in each.places)
    }

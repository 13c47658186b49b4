"""Groups of Kafka clients and of subscriptions: list, describe, reset and delete them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, ConsumerGroupListing

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import AdminError, InUse, NotFound, Refused
from zhumq.admin.offsets import LATEST, Position, committed_offsets, resolve_offsets
from zhumq.admin.subscriptions import SubscriptionGroup, known_subscriptions
from zhumq.admin.topics import led_partitions, topic_partitions

_SHARE: Final = "Share"
_CONSUMER: Final = "Consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """A group of a listing. A group that reads with a mode is a subscription group."""

    group: str
    state: str  # as Kafka's tools write it
    type: str
    mode: str | None = None
    claims: tuple[str, ...] = ()  # topics that it reads point-to-point


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupList:
    """The groups by name."""

    groups: tuple[GroupSummary, ...]
    warning: str | None  # why subscription groups are missing


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member of a Kafka group, or a consumer of a subscription group."""

    member: str
    client: str | None
    host: str | None = None
    static_id: str | None = None
    partitions: int  # how many it reads


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """A group's position in a partition. In a subscription group messages may be in flight above it."""

    topic: str
    partition: int
    committed: int | None
    latest: int | None  # None, as is the lag: the topic was deleted, or the partition has no leader
    lag: int | None
    member: str | None = None
    in_flight: int = 0
    consumers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group with its members and offsets. `mode` is None if it has no subscriptions."""

    group: str
    state: str
    protocol: str | None
    mode: str | None
    claims: tuple[str, ...]
    coordinator: int | None
    members: tuple[Member, ...]
    offsets: tuple[GroupOffset, ...]
    warning: str | None  # why the subscriptions are missing


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetChange:
    """The committed offset of a partition before and after a reset."""

    topic: str
    partition: int
    before: int | None
    after: int


def group_states(connection: ClusterConnection) -> list[GroupSummary]:
    """The groups of the brokers' listing, by name: without what only the push listeners know of subscriptions."""
    found = [
        GroupSummary(
            group=each.group_id, state=_state_name(each.state), type=_state_name(each.type)
        )
        for each in _listing(connection)
    ]
    return sorted(found, key=lambda each: each.group)


def list_groups(connection: ClusterConnection) -> GroupList:
    """All groups by name."""
    found = {each.group: each for each in group_states(connection)}
    subscriptions, warning = known_subscriptions(connection)
    for name, group in subscriptions.items():
        kind = _SHARE if group.mode in (None, "ptp-shared") else _CONSUMER
        known = found.get(name) or GroupSummary(group=name, state=group.state, type=kind)
        found[name] = replace(
            known,
            state=group.state if group.consumers else known.state,
            mode=group.mode_as(known.type),
            claims=tuple(group.claims),
        )
    return GroupList(groups=tuple(found[name] for name in sorted(found)), warning=warning)


def describe_group(connection: ClusterConnection, name: str) -> Group:
    """A group with its members, offsets and lag. Raises NotFound."""
    subscriptions, warning = known_subscriptions(connection, name)
    subscription = subscriptions.get(name)
    described = _describe(connection, name)
    # For an unknown group Kafka returns the state Dead, not an error.
    is_known = described.state != ConsumerGroupState.DEAD
    if subscription is None and not is_known:
        raise NotFound(f"there is no group {name!r}", "see `zhumq group list`")
    members: list[Member] = []
    holders: dict[tuple[str, int], str] = {}
    for each in sorted(described.members, key=lambda each: each.member_id):
        held = each.assignment.topic_partitions if each.assignment is not None else []
        holders |= {(place.topic, place.partition): each.member_id for place in held}
        members.append(
            Member(
                member=each.member_id,
                client=each.client_id,
                host=each.host,
                static_id=each.group_instance_id,
                partitions=len(held),
            )
        )
    group = Group(
        group=name,
        state=_state_name(described.state),
        protocol=described.partition_assignor or None,
        mode=None,
        claims=(),
        coordinator=described.coordinator.id if described.coordinator else None,
        members=tuple(members),
        offsets=_offsets_with_lag(connection, name, holders),
        warning=warning,
    )
    if subscription is None:
        return group
    return replace(
        group,
        state=subscription.state if subscription.consumers or not is_known else group.state,
        mode=subscription.mode_as(_CONSUMER if is_known else _SHARE),
        claims=tuple(subscription.claims),
        members=group.members or _subscription_members(subscription),
        offsets=_subscription_offsets(subscription, group.offsets),
    )


def reset_offsets(
    connection: ClusterConnection,
    group: str,
    topic: str,
    position: Position,
    *,
    partition: int | None = None,
    dry_run: bool = False,
) -> list[OffsetChange]:
    """Move a group's offsets in a topic, or in one of its partitions. Raises InUse if it has members."""
    numbers = topic_partitions(connection, topic)
    if partition is not None:
        if partition not in numbers:
            raise NotFound(f"{topic!r} has no partition {partition}")
        numbers = [partition]
    if _describe(connection, group).members:
        raise InUse(f"group {group!r} has members", "stop its consumers first")
    before = committed_offsets(connection, group)
    target = resolve_offsets(connection, topic, numbers, position)
    if not dry_run:
        places = [TopicPartition(topic, number, target[number]) for number in numbers]
        targets = [ConsumerGroupTopicPartitions(group, places)]
        doing = f"reset {group!r}"
        changed = connection.ask(doing, AdminClient.alter_consumer_group_offsets, targets)
        for entry in changed.topic_partitions:
            if entry.error is not None:
                raise Refused(
                    f"cannot reset {topic} partition {entry.partition}: {entry.error.str()}"
                )
    return [
        OffsetChange(
            topic=topic,
            partition=number,
            before=before.get((topic, number)),
            after=target[number],
        )
        for number in numbers
    ]


def delete_group(connection: ClusterConnection, name: str) -> None:
    """Delete a group with its offsets. Raises NotFound, and InUse if it has members."""
    _describe(connection, name)  # waits until the coordinator answers
    connection.change(f"delete group {name!r}", AdminClient.delete_consumer_groups, [name])


def _listing(connection: ClusterConnection) -> list[ConsumerGroupListing]:
    def request(admin: AdminClient, seconds: float) -> list[ConsumerGroupListing]:
        found = admin.list_consumer_groups(request_timeout=seconds).result()
        if found.errors:  # from some brokers
            raise KafkaException(found.errors[0])
        return list(found.valid)

    return connection.ask_with("list groups", request)


def _describe(connection: ClusterConnection, group: str) -> ConsumerGroupDescription:
    doing = f"describe group {group!r}"
    found: ConsumerGroupDescription = connection.ask(
        doing, AdminClient.describe_consumer_groups, [group]
    )
    return found


def _offsets_with_lag(
    connection: ClusterConnection, group: str, holders: dict[tuple[str, int], str]
) -> tuple[GroupOffset, ...]:
    """One for each partition with a committed offset or a member."""
    committed = committed_offsets(connection, group)
    places = sorted(set(committed) | set(holders))
    latest: dict[tuple[str, int], int] = {}
    for topic in sorted({topic for topic, _ in places}):
        try:
            led = led_partitions(connection, topic)
            numbers = [number for name, number in places if name == topic and number in led]
            found = resolve_offsets(connection, topic, numbers, LATEST)
        except AdminError:
            continue  # such as a deleted topic, whose offsets are still there: the lag is unknown
        latest |= {(topic, number): offset for number, offset in found.items()}
    offsets = []
    for place in places:
        offset, end = committed.get(place), latest.get(place)
        offsets.append(
            GroupOffset(
                topic=place[0],
                partition=place[1],
                committed=offset,
                latest=end,
                lag=None if offset is None or end is None else max(0, end - offset),
                member=holders.get(place),
            )
        )
    return tuple(offsets)


def _subscription_members(group: SubscriptionGroup) -> tuple[Member, ...]:
    """The connected consumers, or else the consumers that hold partitions."""
    clients: dict[str, str | None] = {each.consumer: each.client_id for each in group.consumers}
    names = clients or {name: None for each in group.partitions for name in each.consumers}
    return tuple(
        Member(
            member=name,
            client=client,
            partitions=sum(
                any(holder == name or holder.startswith(f"{name}.") for holder in each.consumers)
                for each in group.partitions
            ),
        )
        for name, client in sorted(names.items())
    )


def _subscription_offsets(
    group: SubscriptionGroup, committed: Iterable[GroupOffset]
) -> tuple[GroupOffset, ...]:
    """The group's positions, which may be ahead of its committed offsets."""
    found = {(each.topic, each.partition): each for each in committed}
    for each in group.partitions:
        known = found.get((each.topic, each.partition))
        found[each.topic, each.partition] = GroupOffset(
            topic=each.topic,
            partition=each.partition,
            committed=each.start_offset,
            latest=known.latest if known and each.end_offset is None else each.end_offset,
            lag=known.lag if known and each.lag is None else each.lag,
            member=known.member if known else None,
            in_flight=each.in_flight,
            consumers=each.consumers,
        )
    return tuple(found[place] for place in sorted(found))


def _state_name(state: Any) -> str:
    """`STABLE` and `PREPARING_REBALANCING` as Kafka's tools write them."""
    return "".join(part.capitalize() for part in state.name.split("_")) if state else "-"

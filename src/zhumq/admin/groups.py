"""Groups of Kafka clients and of subscriptions: list, describe, reset and delete them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConsumerGroupListing

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import AdminError, InUse, NotFound
from zhumq.admin.offsets import Position, known_ends, resolve_offsets
from zhumq.admin.subscriptions import SubscriptionGroup, known_subscriptions
from zhumq.admin.topics import led_places, topic_partitions

if TYPE_CHECKING:
    from zhumq.admin.group_requests import Description, Place

_SHARE: Final = "Share"
_CONSUMER: Final = "Consumer"
_UNKNOWN_STATE: Final = "Dead"  # as Kafka writes it


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
    # The age of the first message that it is not done with, as the brokers last sampled it; None: they do not know it.
    lag_seconds: float | None = None


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
    found = describe_groups(connection, [name])[name]
    if isinstance(found, AdminError):
        raise found
    return found


def describe_groups(
    connection: ClusterConnection, names: Sequence[str]
) -> dict[str, Group | AdminError]:
    """Groups with their members, offsets and lag, each with why it cannot be shown. A broker is asked for all of them at
    once, but for their lag in seconds."""
    from zhumq.admin.group_requests import fetch_offsets  # noqa: PLC0415 - as below

    names = tuple(dict.fromkeys(names))
    subscriptions, warning = known_subscriptions(connection, names[0] if len(names) == 1 else "")
    found: dict[str, Group | AdminError] = {}
    described: dict[str, Description] = {}
    for name, answer in _describe(connection, names).items():
        if isinstance(answer, AdminError):
            found[name] = answer
        elif answer.state is None and name not in subscriptions:
            found[name] = _no_such_group(name)
        else:
            described[name] = answer
    committed: dict[str, Mapping[Place, int]] = {}
    for name, offsets in fetch_offsets(connection, described).items():
        if isinstance(offsets, AdminError):
            found[name] = offsets
        else:
            committed[name] = offsets
    latest = _latest(
        connection,
        {place for each in committed.values() for place in each}
        | {place for name in committed for place in _holders(described[name])},
    )
    shown = []
    for name, known in committed.items():
        group = _group(name, described[name], known, latest, warning)
        subscription = subscriptions.get(name)
        if subscription is not None:
            group = _with_subscription(group, subscription, described[name])
        shown.append(group)
    found |= {each.group: each for each in _with_ages(connection, shown)}
    return {name: found[name] for name in names}


def _group(
    name: str,
    described: "Description",
    committed: "Mapping[Place, int]",
    latest: "Mapping[Place, int]",
    warning: str | None,
) -> Group:
    """A group as its coordinator knows it."""
    members = [
        Member(
            member=each.member,
            client=each.client,
            host=each.host,
            static_id=each.static_id,
            partitions=len(each.places),
        )
        for each in sorted(described.members, key=lambda each: each.member)
    ]
    return Group(
        group=name,
        state=described.state or _UNKNOWN_STATE,
        protocol=described.assignor or None,
        mode=None,
        claims=(),
        coordinator=described.coordinator,
        members=tuple(members),
        offsets=_offsets_with_lag(committed, latest, _holders(described)),
        warning=warning,
    )


def _holders(described: "Description") -> dict["Place", str]:
    """The member that reads each partition."""
    return {
        place: each.member
        for each in sorted(described.members, key=lambda each: each.member)
        for place in each.places
    }


def _with_subscription(
    group: Group, subscription: SubscriptionGroup, described: "Description"
) -> Group:
    """The group with what the push listeners know of it."""
    is_known = described.state is not None
    return replace(
        group,
        state=subscription.state if subscription.consumers or not is_known else group.state,
        mode=subscription.mode_as(_CONSUMER if is_known else _SHARE),
        claims=tuple(subscription.claims),
        members=group.members or _subscription_members(subscription),
        offsets=_subscription_offsets(subscription, group.offsets),
    )


def _with_ages(connection: ClusterConnection, groups: Sequence[Group]) -> list[Group]:
    """The groups with their lags in seconds. One that has read everything is known to be at zero before the next sample."""
    # Imported here, as the connection does: listing groups needs no codecs.
    from zhumq.admin.history import present_figures  # noqa: PLC0415

    ages: dict[str, float] = {}
    for group in groups:
        lags = [each.lag for each in group.offsets]
        if lags and not any(lags) and None not in lags:
            ages[group.group] = 0.0
    late = [each.group for each in groups if each.group not in ages]
    ages |= present_figures(connection, "group", late, "lag_seconds")
    return [replace(each, lag_seconds=ages.get(each.group)) for each in groups]


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
    if _described(connection, group).members:
        raise InUse(f"group {group!r} has members", "stop its consumers first")
    before = committed_offsets(connection, group)
    target = resolve_offsets(connection, topic, numbers, position)
    if not dry_run:
        # Imported here: listing groups needs no codecs.
        from zhumq.admin.group_requests import commit_offsets  # noqa: PLC0415

        commit_offsets(connection, group, topic, target)
    return [
        OffsetChange(
            topic=topic,
            partition=number,
            before=before.get((topic, number)),
            after=target[number],
        )
        for number in numbers
    ]


def committed_offsets(connection: ClusterConnection, group: str) -> dict[tuple[str, int], int]:
    """The committed offsets of a group by topic and partition."""
    from zhumq.admin.group_requests import fetch_offsets  # noqa: PLC0415 - as above

    found = fetch_offsets(connection, [group])[group]
    if isinstance(found, AdminError):
        raise found
    return found


def delete_offsets(connection: ClusterConnection, group: str, topic: str) -> list[int]:
    """Delete a group's offsets in one topic, which may be deleted itself; the partitions that had one.

    Raises NotFound, and InUse if members read the topic.
    """
    from zhumq.admin.group_requests import delete_in_topic  # noqa: PLC0415 - as above

    if _described(connection, group).state is None:
        raise _no_such_group(group)
    held = committed_offsets(connection, group)
    partitions = sorted(partition for name, partition in held if name == topic)
    if not partitions:
        raise NotFound(
            f"group {group!r} has no offsets in {topic!r}", f"see `zhumq group describe {group}`"
        )
    delete_in_topic(connection, group, topic, partitions)
    return partitions


def _no_such_group(name: str) -> NotFound:
    return NotFound(f"there is no group {name!r}", "see `zhumq group list`")


def delete_group(connection: ClusterConnection, name: str) -> None:
    """Delete a group with its offsets. Raises NotFound, and InUse if it has members."""
    from zhumq.admin.group_requests import delete  # noqa: PLC0415 - as above

    delete(connection, name)


def _listing(connection: ClusterConnection) -> list[ConsumerGroupListing]:
    def request(admin: AdminClient, seconds: float) -> list[ConsumerGroupListing]:
        found = admin.list_consumer_groups(request_timeout=seconds).result()
        if found.errors:  # from some brokers
            raise KafkaException(found.errors[0])
        return list(found.valid)

    return connection.ask_with("list groups", request)


def _describe(
    connection: ClusterConnection, groups: Iterable[str]
) -> "dict[str, Description | AdminError]":
    from zhumq.admin.group_requests import describe  # noqa: PLC0415 - as above

    return describe(connection, groups)


def _described(connection: ClusterConnection, group: str) -> "Description":
    """A group as its coordinator knows it. Raises AdminError."""
    found = _describe(connection, [group])[group]
    if isinstance(found, AdminError):
        raise found
    return found


def _latest(connection: ClusterConnection, places: "set[Place]") -> "dict[Place, int]":
    """The ends of partitions; a deleted topic, whose offsets are still there, has none."""
    return known_ends(connection, places & led_places(connection, {topic for topic, _ in places}))


def _offsets_with_lag(
    committed: "Mapping[Place, int]", latest: "Mapping[Place, int]", holders: "Mapping[Place, str]"
) -> tuple[GroupOffset, ...]:
    """One for each partition with a committed offset or a member."""
    offsets = []
    for place in sorted(set(committed) | set(holders)):
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

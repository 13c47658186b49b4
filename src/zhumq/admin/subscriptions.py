"""Subscription groups, merged from all brokers: claims, positions, consumers; and the release of a topic."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import InUse, NotFound
from zhumq.client.errors import ClientError, PushUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribedPartition:
    """A group's position and lag on a partition."""

    topic: str
    partition: int
    start_offset: int  # everything below is done
    end_offset: int | None  # None, as is the lag: the leader did not answer
    in_flight: int  # messages that consumers hold
    lag: int | None  # messages not done
    consumers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConsumer:
    """A connected consumer."""

    consumer: str
    client_id: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGroup:
    """A group of subscriptions. `mode` is None for a share group that only Kafka clients read."""

    group: str
    mode: str | None
    claims: list[str]  # topics that it reads point-to-point
    partitions: list[SubscribedPartition]
    consumers: list[GroupConsumer]

    @property
    def state(self) -> str:
        """The state as Kafka's tools name it."""
        is_read = self.consumers or any(each.consumers for each in self.partitions)
        return "Stable" if is_read else "Empty"

    def mode_as(self, kind: str) -> str:
        """The mode; `share` if only Kafka's share consumers read. An ordered group without a claim is psb."""
        return self.mode or ("share" if kind == "Share" else "psb")


def subscription_groups(
    connection: ClusterConnection, group: str = ""
) -> dict[str, SubscriptionGroup]:
    """All subscription groups, or the one of this name. Raises PushUnavailable without a push listener."""
    from zhumq.admin import push_calls  # noqa: PLC0415 (grpcio is an extra)

    answers = push_calls.call_all(connection, "ListGroups", group=group)
    modes: dict[str, str | None] = {}
    claims: dict[str, list[str]] = {}
    for claim in _each(answers, "claims"):
        modes[claim.group] = push_calls.mode_name(claim.mode)
        claims.setdefault(claim.group, []).append(claim.topic)
    known: dict[tuple[str, str, int], Any] = {}
    for each in _each(answers, "partitions"):
        key = (each.group, each.topic, each.partition)
        # The broker that delivers the partition is preferred, then one that has its log.
        known[key] = max(known.get(key, each), each, key=lambda one: (one.open, one.end_offset))
    partitions: dict[str, list[SubscribedPartition]] = {}
    for (name, _, _), each in sorted(known.items()):
        modes.setdefault(name, None)
        partitions.setdefault(name, []).append(_partition(each))
    connected = {(each.group, each.consumer): each for each in _each(answers, "consumers")}
    consumers: dict[str, list[GroupConsumer]] = {}
    for (name, consumer), each in sorted(connected.items()):
        modes[name] = push_calls.mode_name(each.mode)
        consumers.setdefault(name, []).append(
            GroupConsumer(consumer=consumer, client_id=each.client_id, topics=tuple(each.topics))
        )
    return {
        name: SubscriptionGroup(
            group=name,
            mode=mode,
            claims=claims.get(name, []),
            partitions=partitions.get(name, []),
            consumers=consumers.get(name, []),
        )
        for name, mode in modes.items()
    }


def known_subscriptions(
    connection: ClusterConnection, group: str = ""
) -> tuple[dict[str, SubscriptionGroup], str | None]:
    """The subscription groups for an operation that has an answer without them, and a warning if they are missing."""
    try:
        return subscription_groups(connection, group), None
    except PushUnavailable:
        return {}, None
    except ClientError as error:
        return {}, f"subscription groups are not shown: {error}"


def release_topic(connection: ClusterConnection, topic: str, group: str = "") -> str:
    """Remove the claim of a topic's point-to-point group. Returns the group.

    Raises NotFound if no group, or another than the given one, reads the topic point-to-point, and
    InUse if the group has consumers.
    """
    from zhumq.admin import push_calls  # noqa: PLC0415 (grpcio is an extra)

    groups = subscription_groups(connection)
    owner = next((each for each in groups.values() if topic in each.claims), None)
    if owner is None or group not in ("", owner.group):
        whose = f"by group {owner.group!r}" if owner is not None else "by no group"
        raise NotFound(f"topic {topic!r} is read point-to-point {whose}")
    connected = [each.consumer for each in owner.consumers if topic in each.topics]
    if connected:
        raise InUse(
            f"group {owner.group!r} has {len(connected)} consumers on {topic!r}", "stop them first"
        )
    push_calls.call_one(connection, "Release", topic=topic, group=owner.group)
    return owner.group


def _each(answers: Iterable[Any], name: str) -> Iterable[Any]:
    for answer in answers:
        yield from getattr(answer, name)


def _partition(each: Any) -> SubscribedPartition:
    is_known = each.end_offset >= 0
    return SubscribedPartition(
        topic=each.topic,
        partition=each.partition,
        start_offset=each.start_offset,
        end_offset=each.end_offset if is_known else None,
        in_flight=each.in_flight,
        lag=max(each.end_offset - each.start_offset - each.done_count, 0) if is_known else None,
        consumers=tuple(each.consumers),
    )

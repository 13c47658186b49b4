"""Subscription groups, merged from all brokers: claims, positions, consumers; and the release of a topic."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from zhumq.client import calls
from zhumq.client.errors import RequestFailed
from zhumq.client.subscribe_frame import MODE_NAMES
from zhumq.protocol.push import push_pb2 as pb


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


@dataclass(slots=True, kw_only=True)
class SubscriptionGroup:
    """A group of subscriptions. `mode` is None for a share group that only Kafka clients read."""

    group: str
    mode: str | None = None
    claims: list[str] = field(default_factory=list)  # topics that it reads point-to-point
    partitions: list[SubscribedPartition] = field(default_factory=list)
    consumers: list[GroupConsumer] = field(default_factory=list)


def list_groups(addresses: list[str], group: str = "") -> dict[str, SubscriptionGroup]:
    """All groups of the brokers, or the one of this name."""
    request = pb.ListGroupsRequest(group=group)
    answers = calls.call_all(addresses, "ListGroups", request, pb.ListGroupsResponse)
    found: dict[str, SubscriptionGroup] = {}

    def of(name: str) -> SubscriptionGroup:
        return found.setdefault(name, SubscriptionGroup(group=name))

    for claim in _each(answers, "claims"):
        of(claim.group).mode = MODE_NAMES.get(claim.mode)
        of(claim.group).claims.append(claim.topic)
    known: dict[tuple[str, str, int], Any] = {}
    for each in _each(answers, "partitions"):
        key = (each.group, each.topic, each.partition)
        # The broker that delivers the partition is preferred, then one that has its log.
        known[key] = max(known.get(key, each), each, key=lambda one: (one.open, one.end_offset))
    for (name, _, _), each in sorted(known.items()):
        of(name).partitions.append(_partition(each))
    consumers = {(each.group, each.consumer): each for each in _each(answers, "consumers")}
    for (name, consumer), each in sorted(consumers.items()):
        of(name).mode = MODE_NAMES.get(each.mode)
        of(name).consumers.append(
            GroupConsumer(consumer=consumer, client_id=each.client_id, topics=tuple(each.topics))
        )
    return found


def release(addresses: list[str], topic: str, group: str = "") -> str:
    """Remove the claim of a topic's point-to-point group. Returns the group. Raises RequestFailed."""
    groups = list_groups(addresses)
    owner = next((each for each in groups.values() if topic in each.claims), None)
    if owner is None or group not in ("", owner.group):
        whose = f"by group {owner.group!r}" if owner is not None else "by no group"
        raise RequestFailed(f"topic {topic!r} is read point-to-point {whose}")
    connected = [each.consumer for each in owner.consumers if topic in each.topics]
    if connected:
        raise RequestFailed(
            f"group {owner.group!r} has {len(connected)} consumers on {topic!r}: stop them first"
        )
    request = pb.ReleaseRequest(topic=topic, group=owner.group)
    answer = calls.call(addresses[0], "Release", request, pb.ReleaseResponse)
    if answer.code != pb.OK:
        raise RequestFailed(answer.message)
    return owner.group


def _each(answers: Iterable[Any], name: str) -> Iterable[Any]:
    for answer in answers:
        yield from getattr(answer, name)


def _partition(each: Any) -> SubscribedPartition:
    lag = None
    if each.end_offset >= 0:
        lag = max(each.end_offset - each.start_offset - each.done_count, 0)
    return SubscribedPartition(
        topic=each.topic,
        partition=each.partition,
        start_offset=each.start_offset,
        end_offset=each.end_offset if each.end_offset >= 0 else None,
        in_flight=each.in_flight,
        lag=lag,
        consumers=tuple(each.consumers),
    )

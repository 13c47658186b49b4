"""The brokers that lead partitions: where requests about these partitions go."""

from typing import Any, NamedTuple

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import NotFound, Unavailable
from zhumq.model.address import Address


class Leader(NamedTuple):
    """A broker that a request goes to."""

    broker: int
    address: str


def find_leaders(
    connection: ClusterConnection, topic: str | None, partition: int | None
) -> dict[tuple[str, int], Leader]:
    """The leaders of all partitions, or of those that are asked for; those without one are left out.

    Raises NotFound, and Unavailable if the one partition that is asked for has no leader.
    """
    metadata = connection.metadata()
    brokers: dict[int, Any] = metadata.brokers
    names = metadata.topics if topic is None else {topic: metadata.topics.get(topic)}
    leaders = {}
    for name, each in names.items():
        if each is None:
            raise NotFound(f"there is no topic {name!r}", "see `zhumq topic list`")
        indexes = each.partitions if partition is None else [partition]
        for index in indexes:
            if index not in each.partitions:
                raise NotFound(f"{name!r} has no partition {index}")
            leader = brokers.get(each.partitions[index].leader)
            if leader is not None:
                leaders[name, index] = Leader(leader.id, str(Address(leader.host, leader.port)))
            elif partition is not None:
                raise Unavailable(f"{name}-{index} has no leader")
    return leaders


def by_leader(
    leaders: dict[tuple[str, int], Leader],
) -> list[tuple[Leader, list[tuple[str, int]]]]:
    """The partitions of each leader."""
    grouped: dict[Leader, list[tuple[str, int]]] = {}
    for each, leader in sorted(leaders.items()):
        grouped.setdefault(leader, []).append(each)
    return list(grouped.items())

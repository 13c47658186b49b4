"""The brokers that lead partitions: where requests about these partitions go."""

from typing import Any, NamedTuple

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import NotFound, Unavailable
from zhumq.admin.topics import topic_description
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
    if topic is None:
        return _all_leaders(connection)
    found = {each.id: each.leader for each in topic_description(connection, topic).partitions}
    if partition is not None:
        if partition not in found:
            raise NotFound(f"{topic!r} has no partition {partition}")
        if found[partition] is None:
            raise Unavailable(f"{topic}-{partition} has no leader")
        found = {partition: found[partition]}
    return {(topic, index): leader_at(node) for index, node in found.items() if node is not None}


def _all_leaders(connection: ClusterConnection) -> dict[tuple[str, int], Leader]:
    metadata = connection.metadata()
    leaders = {node.id: leader_at(node) for node in metadata.brokers.values()}
    return {
        (name, index): leaders[each.leader]
        for name, topic in metadata.topics.items()
        for index, each in topic.partitions.items()
        if each.leader in leaders
    }


def leader_at(node: Any) -> Leader:
    """The leader that Kafka's client library describes as a node."""
    return Leader(node.id, str(Address(node.host, node.port)))


def by_leader(
    leaders: dict[tuple[str, int], Leader],
) -> list[tuple[Leader, list[tuple[str, int]]]]:
    """The partitions of each leader."""
    grouped: dict[Leader, list[tuple[str, int]]] = {}
    for each, leader in sorted(leaders.items()):
        grouped.setdefault(leader, []).append(each)
    return list(grouped.items())

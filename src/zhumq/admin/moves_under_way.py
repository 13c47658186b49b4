"""How much is copied by reassignments: by those that are under way, and by those that are proposed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import Unavailable
from zhumq.admin.reassignment import ongoing_moves
from zhumq.admin.sizes import sizes_by_replica
from zhumq.metadata.reassignment import Move
from zhumq.model.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """A partition whose replicas move."""

    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]  # that it will have
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    size_bytes: int | None  # of the leader's replica; None, as is the next: a broker did not answer
    left_bytes: int | None  # that the new replicas have yet to fetch


def list_moves(connection: ClusterConnection) -> list[Reassignment]:
    """The reassignments under way, by topic and partition.

    What is left is the difference of sizes on the disks. Messages that come meanwhile are copied, too.
    """
    ongoing = ongoing_moves(connection)
    if not ongoing:
        return []
    try:
        sizes = sizes_by_replica(connection, _by_topic(ongoing))
    except Unavailable:
        # A broker that is down is no reason to hide the moves.
        sizes = {}
    leaders = _leaders(connection)
    found = []
    for name in sorted(ongoing):
        each = ongoing[name]
        leader = leaders.get(name)
        size = None if leader is None else sizes.get((name, leader))
        left = None
        if size is not None:
            left = sum(max(0, size - sizes.get((name, new), 0)) for new in each.adding_replicas)
        found.append(
            Reassignment(
                topic=name.topic,
                partition=name.partition,
                leader=leader,
                replicas=tuple(
                    replica for replica in each.replicas if replica not in each.removing_replicas
                ),
                adding=tuple(each.adding_replicas),
                removing=tuple(each.removing_replicas),
                size_bytes=size,
                left_bytes=left,
            )
        )
    return found


def copied_bytes(connection: ClusterConnection, moves: Sequence[Move]) -> list[int] | None:
    """What the new replicas of each move will fetch; None: a broker does not answer."""
    largest: dict[TopicPartition, int] = {}
    try:
        found = sizes_by_replica(connection, _by_topic(move.topic_partition for move in moves))
    except Unavailable:
        return None
    for (name, _), size in found.items():
        # A replica that is being built is smaller.
        largest[name] = max(largest.get(name, 0), size)
    return [move.copies * largest.get(move.topic_partition, 0) for move in moves]


def _by_topic(names: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for name in names:
        topics.setdefault(name.topic, []).append(name.partition)
    return topics


def _leaders(connection: ClusterConnection) -> dict[TopicPartition, int]:
    metadata = connection.metadata()
    return {
        TopicPartition(topic, index): each.leader
        for topic, found in metadata.topics.items()
        for index, each in found.partitions.items()
        if each.leader in metadata.brokers
    }

"""Offsets of a topic's partitions: positions resolved to offsets, and where logs begin and end."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from zhumq.admin.connection import ClusterConnection
from zhumq.model.isolation import Isolation


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A position in a partition. Exactly one field is set."""

    edge: str | None = None  # earliest or latest
    offset: int | None = None
    timestamp_ms: int | None = None


EARLIEST: Final = Position(edge="earliest")
LATEST: Final = Position(edge="latest")


def resolve_offsets(
    connection: ClusterConnection,
    topic: str,
    partitions: Iterable[int],
    position: Position,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[int, int]:
    """The offset of the position in each partition, limited to the offsets of the log. At read_committed the
    log ends before open transactions.

    A leader answers for its partition: each must have one.
    """
    numbers = list(partitions)
    if position == EARLIEST:
        return _list_offsets(connection, topic, numbers, OffsetSpec.earliest())
    latest = _list_offsets(connection, topic, numbers, OffsetSpec.latest(), isolation)
    if position == LATEST:
        return latest
    if position.timestamp_ms is not None:
        spec = OffsetSpec.for_timestamp(position.timestamp_ms)
        found = _list_offsets(connection, topic, numbers, spec, isolation)
        # -1: no message is that new, so the position is the end of the log.
        return {
            partition: offset if offset >= 0 else latest[partition]
            for partition, offset in found.items()
        }
    assert position.offset is not None
    earliest = _list_offsets(connection, topic, numbers, OffsetSpec.earliest())
    return {
        partition: min(max(position.offset, earliest[partition]), latest[partition])
        for partition in numbers
    }


def known_starts(
    connection: ClusterConnection, places: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], int]:
    """The first offsets of these partitions, by one request to each leader; without those that cannot be read."""
    return _known(connection, places, OffsetSpec.earliest())


def known_ends(
    connection: ClusterConnection, places: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], int]:
    """The ends of these partitions, as `known_starts`."""
    return _known(connection, places, OffsetSpec.latest())


def _known(
    connection: ClusterConnection, places: Iterable[tuple[str, int]], spec: OffsetSpec
) -> dict[tuple[str, int], int]:
    requests = {TopicPartition(*place): spec for place in places}
    if not requests:
        return {}
    found = connection.ask_each(
        lambda admin, seconds: admin.list_offsets(requests, request_timeout=seconds)
    )
    return {(place.topic, place.partition): each.offset for place, each in found.items()}


def _list_offsets(
    connection: ClusterConnection,
    topic: str,
    partitions: Iterable[int],
    spec: OffsetSpec,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[int, int]:
    requests = {TopicPartition(topic, partition): spec for partition in partitions}
    if not requests:
        return {}

    def request(admin: AdminClient, seconds: float) -> dict[int, int]:
        futures = admin.list_offsets(
            requests, isolation_level=IsolationLevel(isolation), request_timeout=seconds
        )
        return {place.partition: future.result().offset for place, future in futures.items()}

    return connection.ask_with(f"list the offsets of {topic!r}", request)

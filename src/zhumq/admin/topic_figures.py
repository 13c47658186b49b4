"""Figures of many topics, each in few numbers: asked for together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final

from confluent_kafka import TopicPartitionInfo

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import Refused, Unavailable
from zhumq.admin.leaders import Leader, by_leader, leader_at
from zhumq.admin.sizes import sizes_by_replica
from zhumq.admin.topics import topic_descriptions
from zhumq.model.errors import ErrorCode
from zhumq.model.ids import TopicPartition
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

# The protocol's values for the two edges of a log, and for a request that is not of a replica.
_EARLIEST: Final = -2
_LATEST: Final = -1
_NO_REPLICA: Final = -1

Place = tuple[str, int]  # topic and partition


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFigures:
    """How much a topic has, and how its partitions are. What no broker answers, or the caller may not know, is None."""

    topic: str
    messages: int | None  # of the partitions that have a leader
    written: int | None  # the latest offsets, added up: two of them are a rate
    size_bytes: int | None  # of the leaders' replicas
    leaderless: int  # partitions
    underreplicated: int  # partitions


def topic_figures(connection: ClusterConnection, topics: Sequence[str]) -> list[TopicFigures]:
    """The figures of topics, in the order that they were asked for; without those that do not exist. A broker is asked for
    all of them at once."""
    described = topic_descriptions(connection, topics)
    found = {name: described[name].partitions for name in topics if name in described}
    leaders = {
        (name, each.id): leader_at(each.leader)
        for name, partitions in found.items()
        for each in partitions
        if each.leader is not None
    }
    starts = _edges(connection, leaders, _EARLIEST)
    ends = _edges(connection, leaders, _LATEST)
    sizes = _leader_sizes(connection, leaders)
    return [
        _figures(name, partitions, leaders, starts, ends, sizes)
        for name, partitions in found.items()
    ]


def _figures(
    name: str,
    partitions: Sequence[TopicPartitionInfo],
    leaders: Mapping[Place, Leader],
    starts: Mapping[Place, int],
    ends: Mapping[Place, int],
    sizes: Mapping[Place, int],
) -> TopicFigures:
    places = [(name, each.id) for each in partitions]
    known = [place for place in places if place in starts and place in ends]
    sized = [sizes[place] for place in places if place in sizes]
    return TopicFigures(
        topic=name,
        messages=sum(ends[place] - starts[place] for place in known) if known else None,
        written=sum(ends[place] for place in known) if known else None,
        size_bytes=sum(sized) if sized else None,
        leaderless=sum(place not in leaders for place in places),
        underreplicated=sum(len(each.isr) < len(each.replicas) for each in partitions),
    )


def _edges(
    connection: ClusterConnection, leaders: dict[Place, Leader], edge: int
) -> dict[Place, int]:
    """The first or the latest offsets, without those of leaders that do not answer. By our own codecs: Kafka's client library
    takes several times as long for a thousand partitions."""
    found: dict[Place, int] = {}
    for leader, places in by_leader(leaders):
        topics = [
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=partition, timestamp=edge)
                    for _, partition in of_topic
                ],
            )
            for name, of_topic in groupby(places, key=itemgetter(0))
        ]
        request = ListOffsetsRequest(replica_id=_NO_REPLICA, topics=topics)
        try:
            answer = connection.request(ApiKey.LIST_OFFSETS, request, address=leader.address)
        except Unavailable:
            continue
        found |= {
            (topic.name, each.partition_index): each.offset
            for topic in answer.topics
            for each in topic.partitions
            if each.error_code == ErrorCode.NONE
        }
    return found


def _leader_sizes(
    connection: ClusterConnection, leaders: Mapping[Place, Leader]
) -> dict[Place, int]:
    """The bytes of the leaders' replicas; none where the caller may not know them."""
    asked: dict[str, list[int]] = {}
    for topic, partition in leaders:
        asked.setdefault(topic, []).append(partition)
    if not asked:
        return {}
    try:
        held = sizes_by_replica(connection, asked)
    except Refused:
        return {}
    sizes = {
        place: held.get((TopicPartition(*place), leader.broker))
        for place, leader in leaders.items()
    }
    return {place: size for place, size in sizes.items() if size is not None}

"""The metadata of all topics for a program that asks for it again and again: only what has changed is decoded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from zhumq.protocol.api import ApiKey, decode_response_body
from zhumq.protocol.messages.metadata import MetadataResponsePartition

KEPT_MAX: Final = 4  # answers: users see different topics


class Node(NamedTuple):
    """A live broker."""

    id: int
    host: str
    port: int


class Partition(NamedTuple):
    """A partition. Its leader may be no live broker."""

    leader: int
    replicas: Sequence[int]
    isrs: Sequence[int]


class Topic(NamedTuple):
    """A topic with its partitions by number."""

    partitions: Mapping[int, Partition]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Metadata:
    """The cluster, with the names that Kafka's client library has for its parts. Not to be changed: others have it too."""

    cluster_id: str | None
    controller_id: int
    brokers: Mapping[int, Node]
    topics: Mapping[str, Topic]


@lru_cache(KEPT_MAX)
def decode_metadata(version: int, body: bytes) -> Metadata:
    """The same object for the same bytes."""
    answer = decode_response_body(ApiKey.METADATA, version, body)
    return Metadata(
        cluster_id=answer.cluster_id,
        controller_id=answer.controller_id,
        brokers={each.node_id: Node(each.node_id, each.host, each.port) for each in answer.brokers},
        topics={
            each.name: Topic({one.partition_index: _partition(one) for one in each.partitions})
            for each in answer.topics
        },
    )


def _partition(each: MetadataResponsePartition) -> Partition:
    return Partition(each.leader_id, each.replica_nodes, each.isr_nodes)

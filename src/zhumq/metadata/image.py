"""An immutable picture of the cluster: brokers, topics, partitions, leaders, settings."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from zhumq.model.ids import BrokerId, LeaderEpoch, TopicPartition

_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """One live broker and where clients reach it."""

    broker_id: BrokerId
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """Who holds a partition and who leads it."""

    replicas: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: LeaderEpoch
    # Invariant: a subset of replicas that has the leader in it.
    in_sync: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic's identity, partitions by index, and the settings it was given."""

    name: str
    topic_id: uuid.UUID
    partitions: tuple[PartitionState, ...]
    settings: Mapping[str, str] = field(default_factory=lambda: _NOTHING)


class ClusterView(Protocol):
    """What a planner looks at: a picture, or one that is just being drawn."""

    @property
    def brokers(self) -> Mapping[BrokerId, Broker]: ...
    @property
    def topics(self) -> Mapping[str, Topic]: ...
    @property
    def partition_count(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """Everything a broker needs to route, at one version. Changes make a new one."""

    version: int
    cluster_id: str
    controller_id: BrokerId
    brokers: Mapping[BrokerId, Broker]
    topics: Mapping[str, Topic]
    # Invariant: the same topics as `topics`, by id.
    topics_by_id: Mapping[uuid.UUID, Topic]
    # Invariant: the partitions of all topics together.
    partition_count: int = 0
    # The first producer id that no broker has been given yet.
    next_producer_id: int = 0

    def partition(self, topic_partition: TopicPartition) -> PartitionState | None:
        topic = self.topics.get(topic_partition.topic)
        if topic is None or not 0 <= topic_partition.partition < len(topic.partitions):
            return None
        return topic.partitions[topic_partition.partition]

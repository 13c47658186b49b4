"""An immutable picture of the cluster: brokers, topics, partitions, leaders, settings."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol

from zhumq.model.ids import BrokerId, LeaderEpoch, TopicPartition
from zhumq.model.replication_mode import Mode

_NOTHING: Mapping[str, str] = MappingProxyType({})
# Stands where a partition has no leader, or the cluster no controller.
NO_BROKER = BrokerId(-1)
# Stands for every broker where settings of one could be.
ALL_BROKERS: Final = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """One live broker and where clients reach it."""

    broker_id: BrokerId
    host: str
    port: int
    rack: str | None = None
    # Grows with every registration (KIP-380), so that an earlier life of a broker can be told apart.
    epoch: int = 0
    # Where the other brokers reach it: a listener of its own. Port 0: it is alone.
    replica_host: str = ""
    replica_port: int = 0
    # HOST:PORT where push consumers reach it; empty: it does not push.
    push_address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """Who holds a partition and who leads it."""

    # The first one is the preferred leader. While the partition moves, old and new ones together.
    replicas: tuple[BrokerId, ...]
    # Invariant: one broker leads in one epoch, or nobody does (NO_BROKER).
    leader: BrokerId
    leader_epoch: LeaderEpoch
    # Invariant: a subset of replicas, never empty, that has the leader in it.
    in_sync: tuple[BrokerId, ...]
    # Grows with every change of this state (KIP-497): the version of an in-sync set.
    partition_epoch: int = 0
    # The registration that the leader was named under. A broker that registered again since then
    # does not lead: it may have lost what it had not flushed, in this very epoch.
    leader_broker_epoch: int = 0
    # KIP-455: of the replicas, those that are on their way in, and those on their way out.
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    # How the replicas agree now. What the topic's setting asks for reaches each partition when it
    # may; a partition that moves is in fetch mode meanwhile.
    mode: Mode = Mode.RAFT
    # Fetch mode only: it comes from raft, and the named leader has to win the replicas' votes first.
    changing_mode: bool = False
    # KIP-966: left the in-sync set when it fell below min.insync.replicas. Nothing has been
    # committed since, so they are as good as those who are in it.
    eligible: tuple[BrokerId, ...] = ()
    # Where a partition of a raft topic is to move once it is in fetch mode; empty: nowhere.
    planned_replicas: tuple[BrokerId, ...] = ()
    # The last epoch whose leader was named out of the in-sync set; -1: there was none.
    unclean_epoch: int = -1

    @property
    def target_replicas(self) -> tuple[BrokerId, ...]:
        """The replicas when the move is over, or as they are if there is none."""
        return tuple(each for each in self.replicas if each not in self.removing)


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
    @property
    def broker_settings(self) -> Mapping[str, Mapping[str, str]]: ...


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
    # Grows with every election of a controller; an older one's decisions do not count.
    controller_epoch: int = 0
    # What brokers were told while running: by a broker's number, and for all of them by "".
    broker_settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def partition(self, topic_partition: TopicPartition) -> PartitionState | None:
        topic = self.topics.get(topic_partition.topic)
        if topic is None or not 0 <= topic_partition.partition < len(topic.partitions):
            return None
        return topic.partitions[topic_partition.partition]

    def broker_setting(self, broker_id: BrokerId, name: str) -> str | None:
        """What a broker was told while running; what was said to it alone comes first."""
        for who in (str(broker_id), ALL_BROKERS):
            value = self.broker_settings.get(who, _NOTHING).get(name)
            if value is not None:
                return value
        return None

    @property
    def admin_broker_id(self) -> BrokerId:
        """Whom clients are to send administrative requests to: the controller, or any other broker
        while there is none, for each can carry them out. librdkafka that is told of nobody asks
        again only with its next refresh of metadata, minutes later."""
        if self.controller_id in self.brokers:
            return self.controller_id
        return min(self.brokers, default=NO_BROKER)

    def leader_of(self, state: PartitionState) -> BrokerId:
        """Who leads the partition now: the named leader, if it has not registered again since."""
        broker = self.brokers.get(state.leader)
        if broker is None or broker.epoch != state.leader_broker_epoch:
            return NO_BROKER
        return state.leader

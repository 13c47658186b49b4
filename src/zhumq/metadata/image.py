"""The immutable metadata image of the cluster: brokers, topics, partitions, leaders, settings, security."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Protocol

from zhumq.metadata.security import SecurityImage
from zhumq.model.ids import BrokerId, LeaderEpoch, TopicPartition
from zhumq.model.replication_mode import Mode
from zhumq.model.security_protocol import SecurityProtocol

_NOTHING: Mapping[str, str] = MappingProxyType({})
# The leader of a partition without a leader, the controller of a cluster without a controller.
NO_BROKER = BrokerId(-1)
# The key of settings that apply to every broker.
ALL_BROKERS: Final = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where clients of one listener reach a broker."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """One live broker and its listeners."""

    broker_id: BrokerId
    # Of its first listener.
    host: str
    port: int
    rack: str | None = None
    # The broker epoch: grows with every registration (KIP-380), so that each session has its own.
    epoch: int = 0
    # The listener for the other brokers. Port 0: a single broker without a cluster.
    replica_host: str = ""
    replica_port: int = 0
    # HOST:PORT of the push listener; empty: push is off.
    push_address: str = ""
    # Whether the other brokers connect by TLS.
    replica_tls: bool = False
    # By the name of the listener. Empty: one PLAINTEXT listener, in a registration of an earlier release.
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)

    def endpoint(self, listener: str) -> Endpoint | None:
        """Where a client that came by this listener reaches the broker; None: it has no such listener."""
        if not self.endpoints and listener == SecurityProtocol.PLAINTEXT:
            return Endpoint(host=self.host, port=self.port)
        return self.endpoints.get(listener)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """Replicas, leader and in-sync set of a partition."""

    # The first one is the preferred leader. During a reassignment: the new and the old replicas.
    replicas: tuple[BrokerId, ...]
    # Invariant: at most one broker leads in one epoch; NO_BROKER: no broker does.
    leader: BrokerId
    leader_epoch: LeaderEpoch
    # Invariant: a subset of replicas, never empty, that includes the leader.
    in_sync: tuple[BrokerId, ...]
    # Grows with every change of this state (KIP-497): the version of an in-sync set.
    partition_epoch: int = 0
    # The leader's broker epoch when it was named. A broker that has registered again since then does
    # not lead: it may have lost unflushed records of this leader epoch.
    leader_broker_epoch: int = 0
    # KIP-455: the replicas that a reassignment adds, and those that it removes.
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    # The current replication mode. It may differ from the topic's setting until the partition can
    # change its mode. A partition is in fetch mode during a reassignment.
    mode: Mode = Mode.RAFT
    # Fetch mode only: the partition comes from raft mode, and the named leader must win votes first.
    changing_mode: bool = False
    # KIP-966: replicas that left the in-sync set when it fell below min.insync.replicas. Nothing has
    # been committed since, so each of them has everything committed.
    eligible: tuple[BrokerId, ...] = ()
    # The target of a reassignment that starts once the partition is in fetch mode; empty: none.
    planned_replicas: tuple[BrokerId, ...] = ()
    # The epoch of the last unclean election; -1: none.
    unclean_epoch: int = -1

    @property
    def target_replicas(self) -> tuple[BrokerId, ...]:
        """The replicas at the end of the reassignment; without one, the current replicas."""
        return tuple(each for each in self.replicas if each not in self.removing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic: its identity, its partitions by index, its explicit settings."""

    name: str
    topic_id: uuid.UUID
    partitions: tuple[PartitionState, ...]
    settings: Mapping[str, str] = field(default_factory=lambda: _NOTHING)


class ClusterView(Protocol):
    """What a planner reads: a metadata image or a draft of the next one."""

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
    """The metadata image at one version. A change makes a new image."""

    version: int
    cluster_id: str
    controller_id: BrokerId
    brokers: Mapping[BrokerId, Broker]
    topics: Mapping[str, Topic]
    # Invariant: the same topics as `topics`, by id.
    topics_by_id: Mapping[uuid.UUID, Topic]
    # Invariant: the partitions of all topics together.
    partition_count: int = 0
    # The first producer id that is not allocated to a broker yet.
    next_producer_id: int = 0
    # Grows with every election of a controller. Decisions of an older epoch do not count.
    controller_epoch: int = 0
    # Dynamic broker settings by broker id; under ALL_BROKERS those of every broker.
    broker_settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    security: SecurityImage = field(default_factory=SecurityImage)

    def partition(self, topic_partition: TopicPartition) -> PartitionState | None:
        topic = self.topics.get(topic_partition.topic)
        if topic is None or not 0 <= topic_partition.partition < len(topic.partitions):
            return None
        return topic.partitions[topic_partition.partition]

    def broker_setting(self, broker_id: BrokerId, name: str) -> str | None:
        """A dynamic setting of a broker. Its own value precedes the one for all brokers."""
        for who in (str(broker_id), ALL_BROKERS):
            value = self.broker_settings.get(who, _NOTHING).get(name)
            if value is not None:
                return value
        return None

    def seen_from(self, listener: str) -> "ClusterImage":
        """The image without the brokers that have no such listener: its clients cannot reach them."""
        brokers = self.brokers
        if all(broker.endpoint(listener) is not None for broker in brokers.values()):
            return self
        return replace(
            self,
            brokers={
                broker_id: broker
                for broker_id, broker in brokers.items()
                if broker.endpoint(listener) is not None
            },
        )

    @property
    def admin_broker_id(self) -> BrokerId:
        """The broker that clients send administrative requests to.

        The controller, or another broker while there is no controller: every broker accepts them.
        Without one librdkafka waits for its next metadata refresh, minutes later.
        """
        if self.controller_id in self.brokers:
            return self.controller_id
        return min(self.brokers, default=NO_BROKER)

    def leader_of(self, state: PartitionState) -> BrokerId:
        """The current leader: the named leader unless it has registered again since."""
        broker = self.brokers.get(state.leader)
        if broker is None or broker.epoch != state.leader_broker_epoch:
            return NO_BROKER
        return state.leader

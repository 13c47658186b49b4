"""The state of the cluster: its brokers, and the partitions without a leader or with lagging replicas."""

from collections import Counter
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient

from zhumq.admin.connection import ClusterConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """A live broker."""

    broker: int
    address: str
    rack: str | None
    controller: bool
    leads: int  # partitions
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnwellPartition:
    """A partition without a leader, or with replicas that are not in sync."""

    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """The cluster as one of its brokers sees it."""

    cluster: str  # its id
    topics: int
    partitions: int
    leaderless: int
    underreplicated: int
    brokers: tuple[BrokerState, ...]
    unwell: tuple[UnwellPartition, ...]  # by topic and partition


def describe_cluster(connection: ClusterConnection) -> ClusterState:
    """The brokers, how many partitions each leads, and the partitions that are unwell."""
    metadata = connection.metadata()
    described = connection.ask("describe the cluster", AdminClient.describe_cluster)
    racks = {node.id: node.rack for node in described.nodes}
    leads: Counter[int] = Counter()
    holds: Counter[int] = Counter()
    unwell = []
    for name, topic in sorted(metadata.topics.items()):
        for index, each in sorted(topic.partitions.items()):
            leads[each.leader] += 1
            holds.update(each.replicas)
            alive = each.leader in metadata.brokers
            if not alive or len(each.isrs) < len(each.replicas):
                unwell.append(
                    UnwellPartition(
                        topic=name,
                        partition=index,
                        leader=each.leader if alive else None,
                        replicas=tuple(each.replicas),
                        in_sync=tuple(each.isrs),
                    )
                )
    brokers = tuple(
        BrokerState(
            broker=broker.id,
            address=f"{broker.host}:{broker.port}",
            rack=racks.get(broker.id),
            controller=broker.id == metadata.controller_id,
            leads=leads[broker.id],
            replicas=holds[broker.id],
        )
        for broker in sorted(metadata.brokers.values(), key=lambda each: each.id)
    )
    return ClusterState(
        cluster=metadata.cluster_id or "",
        topics=len(metadata.topics),
        partitions=leads.total(),
        leaderless=sum(each.leader is None for each in unwell),
        underreplicated=sum(len(each.in_sync) < len(each.replicas) for each in unwell),
        brokers=brokers,
        unwell=tuple(unwell),
    )

"""The state of the cluster: its brokers, and the partitions without a leader or with lagging replicas."""

from collections import Counter
from dataclasses import dataclass
from itertools import chain
from typing import Final

from confluent_kafka.admin import AdminClient

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import Refused, Unavailable
from zhumq.admin.sizes import data_folders
from zhumq.model.broker_facts import VERSION_SETTING
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource

_BROKER: Final = 4  # the code of this type of resources


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
class BrokerDetails:
    """A live broker with its version and the size of its data. Of these, what the caller may not know is None."""

    broker: int
    address: str
    rack: str | None
    controller: bool
    leads: int  # partitions
    replicas: int
    version: str | None
    size_bytes: int | None  # of all its replicas


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


def cluster_id(connection: ClusterConnection) -> str:
    """The id of the cluster. Without the topics, of which there may be many."""
    return connection.ask("describe the cluster", AdminClient.describe_cluster).cluster_id or ""


def describe_cluster(connection: ClusterConnection) -> ClusterState:
    """The brokers, how many partitions each leads, and the partitions that are unwell."""
    metadata = connection.metadata()
    described = connection.ask("describe the cluster", AdminClient.describe_cluster)
    racks = {node.id: node.rack for node in described.nodes}
    # There may be tens of thousands of partitions.
    partitions = [each for topic in metadata.topics.values() for each in topic.partitions.values()]
    leads = Counter(each.leader for each in partitions)
    holds = Counter(chain.from_iterable(each.replicas for each in partitions))
    unwell = [
        UnwellPartition(
            topic=name,
            partition=index,
            leader=each.leader if each.leader in metadata.brokers else None,
            replicas=tuple(each.replicas),
            in_sync=tuple(each.isrs),
        )
        for name, topic in sorted(metadata.topics.items())
        for index, each in sorted(topic.partitions.items())
        if each.leader not in metadata.brokers or len(each.isrs) < len(each.replicas)
    ]
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
        partitions=len(partitions),
        leaderless=sum(each.leader is None for each in unwell),
        underreplicated=sum(len(each.in_sync) < len(each.replicas) for each in unwell),
        brokers=brokers,
        unwell=tuple(unwell),
    )


def describe_brokers(connection: ClusterConnection) -> list[BrokerDetails]:
    """The live brokers, each with its version and what its replicas take on its disk."""
    sizes: Counter[int] = Counter()
    try:
        for folder in data_folders(connection):
            sizes[folder.broker] += folder.size_bytes
    except (Refused, Unavailable):
        # Without the right to the cluster, or with a broker that does not answer: the rest is known all the same.
        sizes.clear()
    return [
        BrokerDetails(
            broker=each.broker,
            address=each.address,
            rack=each.rack,
            controller=each.controller,
            leads=each.leads,
            replicas=each.replicas,
            version=_version_of(connection, each),
            size_bytes=sizes.get(each.broker),
        )
        for each in describe_cluster(connection).brokers
    ]


def _version_of(connection: ClusterConnection, broker: BrokerState) -> str | None:
    resource = DescribeConfigsResource(
        resource_type=_BROKER,
        resource_name=str(broker.broker),
        configuration_keys=[VERSION_SETTING],
    )
    request = DescribeConfigsRequest(resources=[resource])
    try:
        answer = connection.request(ApiKey.DESCRIBE_CONFIGS, request, address=broker.address)
    except Unavailable:
        return None
    values = [each.value for result in answer.results for each in result.configs]
    return values[0] if values else None

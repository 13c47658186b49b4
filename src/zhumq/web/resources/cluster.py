"""The cluster: its brokers and their disks, and the partitions that need attention."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from zhumq.admin import sizes
from zhumq.admin.cluster import (
    BrokerDetails,
    BrokerState,
    UnwellPartition,
    cluster_id,
    describe_brokers,
    describe_cluster,
)
from zhumq.admin.settings import broker_settings
from zhumq.web.brokers import Brokers
from zhumq.web.names import BrokerNumber
from zhumq.web.paging import Page, PageQuery, page_of
from zhumq.web.resources.topics import TopicSetting, shown_settings

_PARTITION_DIGITS = 10


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster as one of its brokers sees it."""

    cluster: str
    bootstrap: str  # where this process reaches the brokers
    controller: int | None
    topics: int
    partitions: int
    leaderless: int
    underreplicated: int
    brokers: list[BrokerState]


class ClusterName(msgspec.Struct, frozen=True, kw_only=True):
    """The id of the cluster, and where this process reaches its brokers."""

    cluster: str
    bootstrap: str


class UnwellQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which of the partitions that need attention."""

    kind: Annotated[
        Literal["all", "leaderless", "underreplicated"],
        Meta(description="Without a leader, with replicas that are not in sync, or all."),
    ] = "all"


def show_cluster(brokers: Brokers) -> Cluster:
    """Show the brokers, the controller, and how many partitions need attention."""
    found = describe_cluster(brokers.connection)
    return Cluster(
        cluster=found.cluster,
        bootstrap=brokers.connection.bootstrap,
        controller=next((each.broker for each in found.brokers if each.controller), None),
        topics=found.topics,
        partitions=found.partitions,
        leaderless=found.leaderless,
        underreplicated=found.underreplicated,
        brokers=list(found.brokers),
    )


def show_name(brokers: Brokers) -> ClusterName:
    """Show which cluster this is. It costs as little with many topics as with few."""
    return ClusterName(
        cluster=cluster_id(brokers.connection), bootstrap=brokers.connection.bootstrap
    )


def list_brokers(brokers: Brokers) -> list[BrokerDetails]:
    """List the brokers with their version, their leaders and replicas, and the size of these."""
    return describe_brokers(brokers.connection)


def list_settings(brokers: Brokers, broker: BrokerNumber) -> list[TopicSetting]:
    """All settings of a broker, also the defaults. Secrets have no value."""
    return shown_settings(broker_settings(brokers.connection, broker))


def list_unwell(brokers: Brokers, query: UnwellQuery) -> Page[UnwellPartition]:
    """List the partitions without a leader, or with replicas that are not in sync."""
    found = [
        each for each in describe_cluster(brokers.connection).unwell if _is_of(query.kind, each)
    ]
    return page_of(found, _name, limit=query.limit, after=query.after)


def list_folders(brokers: Brokers) -> list[sizes.DataFolder]:
    """List the data folders of the brokers, with their sizes and the room on their disks."""
    return sizes.data_folders(brokers.connection)


def _name(each: UnwellPartition) -> str:
    """A name that sorts as topic and partition do: a blank is before all characters of topics."""
    return f"{each.topic} {each.partition:0{_PARTITION_DIGITS}}"


def _is_of(kind: str, each: UnwellPartition) -> bool:
    if kind == "leaderless":
        return each.leader is None
    return kind == "all" or len(each.in_sync) < len(each.replicas)

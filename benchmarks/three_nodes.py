"""Measures three brokers and three Kafka nodes: replicated topics, acknowledged once on the disks."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from rich.console import Console

from benchmarks.cases import Case, Sizes, per_unit, topic_on
from benchmarks.kafka_peer import new_cluster_id, prepare_kafka_node
from benchmarks.loaders import Figures, consume, latency, produce
from benchmarks.server import (
    CLOCK_TICKS_PER_S,
    READY_WAIT_S,
    REPOSITORY,
    Measured,
    Server,
    free_ports,
    wait_until,
)
from benchmarks.zhumq_server import prepare_zhumq
from zhumq.cluster.dev_zookeeper import DevZookeeper

NODES = 3
RATE = 1_000
ASK_WAIT_S = 5.0
WARM_MESSAGES = 200_000
NOTES = "three replicas, min.insync.replicas=2; Kafka with flush.messages=1; CPU of all nodes"
# The settings with which Kafka gives the guarantee of zhumq: a majority has the record on disk.
KAFKA_TOPIC = {"flush.messages": "1", "min.insync.replicas": "2"}
KAFKA_NODE = {
    "offsets.topic.replication.factor": "3",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}
ZHUMQ_BROKER = {"default.replication.factor": "3", "min.insync.replicas": "2"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Three running servers, measured as one: a bootstrap list, and the CPU of all."""

    name: str
    servers: Sequence[Server]
    # Further processes of the cluster that serve no client: ZooKeeper's.
    helper_pids: Sequence[int] = ()
    ca_file: str = ""

    @property
    def bootstrap(self) -> str:
        return ",".join(server.bootstrap for server in self.servers)

    def cpu_seconds(self) -> float:
        helpers = sum(_cpu_seconds(pid) for pid in self.helper_pids)
        return helpers + sum(server.cpu_seconds() for server in self.servers)

    def rss_bytes(self) -> int:
        return sum(server.rss_bytes() for server in self.servers)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS_PER_S


@contextmanager
def zhumq_cluster(
    folder: Path, *, tree: Path = REPOSITORY, name: str = "zhumq"
) -> Iterator[Cluster]:
    """Three brokers on one ZooKeeper node, whose CPU counts as the cluster's."""
    with ExitStack() as stack:
        zookeeper = DevZookeeper.start(folder / f"zookeeper-{name}", nodes=1)
        stack.callback(zookeeper.stop)
        servers = []
        for place in range(NODES):
            directory = folder / f"{name}-{place}"
            directory.mkdir(parents=True)
            prepared = prepare_zhumq(
                directory,
                tree=tree,
                settings=ZHUMQ_BROKER,
                broker_id=place,
                zookeeper=zookeeper.connect,
            )
            servers.append(stack.enter_context(prepared.launch()))
        pids = [node.pid for node in zookeeper.nodes]
        cluster = Cluster(name=name, servers=servers, helper_pids=pids)
        _wait_for_brokers(cluster)
        yield cluster


@contextmanager
def kafka_cluster(folder: Path) -> Iterator[Cluster]:
    """Three nodes, each broker and controller."""
    ports = free_ports(2 * NODES)
    cluster_id = new_cluster_id()
    with ExitStack() as stack:
        servers = []
        for place in range(NODES):
            directory = folder / f"kafka-{place}"
            directory.mkdir(parents=True)
            prepared = prepare_kafka_node(
                directory,
                port=ports[place],
                controller_ports=ports[NODES:],
                cluster_id=cluster_id,
                node_id=place,
                settings=KAFKA_NODE,
            )
            servers.append(stack.enter_context(prepared.launch()))
        cluster = Cluster(name="kafka", servers=servers)
        _wait_for_brokers(cluster)
        yield cluster


CLUSTERS: dict[str, Callable[[Path], AbstractContextManager[Cluster]]] = {
    "zhumq": zhumq_cluster,
    "kafka": kafka_cluster,
}


def _wait_for_brokers(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    def all_there() -> bool:
        with suppress(KafkaException):
            return len(admin.list_topics(timeout=ASK_WAIT_S).brokers) == NODES
        return False

    # Three nodes that start side by side take longer than one.
    wait_until(all_there, cluster.servers[0], NODES * READY_WAIT_S)


def topic_config(cluster: Measured, mode: str) -> Mapping[str, str]:
    if cluster.name == "kafka":
        return KAFKA_TOPIC
    return {"replication.mode": mode, "min.insync.replicas": "2"}


def producing(mode: str, count: int, size: int, partitions: int) -> Callable[[Measured], Figures]:
    def run(cluster: Measured) -> Figures:
        config = topic_config(cluster, mode)
        with topic_on(cluster, partitions, config, replicas=NODES) as topic:
            return per_unit(
                cluster,
                lambda: produce(
                    cluster,
                    topic,
                    partitions=partitions,
                    count=count,
                    size=size,
                    acks=-1,
                ),
            )

    return run


def answering(mode: str, seconds: int) -> Callable[[Measured], Figures]:
    """End-to-end latency, from the send call of one client until another client has the committed message."""

    def run(cluster: Measured) -> Figures:
        config = topic_config(cluster, mode)
        with topic_on(cluster, 1, config, replicas=NODES) as topic:
            os.sync()
            before = cluster.cpu_seconds()
            figures = latency(cluster, topic, rate=RATE, seconds=seconds, acks=-1)
            figures["server_cpu_seconds"] = cluster.cpu_seconds() - before
            return figures

    return run


def cases(sizes: Sizes) -> list[Case]:
    found = []
    for mode in ("raft", "fetch"):
        found += [
            Case(
                name=f"three nodes, {mode} topic, end to end at 1 k messages/s, acks -1 on disk",
                run=answering(mode, max(2, sizes.of(10))),
                main="p50_ms",
                also=("p99_ms", "p999_ms"),
                notes=NOTES,
            ),
            Case(
                name=f"three nodes, {mode} topic, produce 1 KB, acks -1 on disk",
                run=producing(mode, sizes.of(200_000), 1_000, 1),
                main="per_second",
                notes=NOTES,
            ),
            Case(
                name=f"three nodes, {mode} topic, produce 1 KB to 16 partitions, acks -1 on disk",
                run=producing(mode, sizes.of(200_000), 1_000, 16),
                main="per_second",
                notes=NOTES,
            ),
        ]
    return found


def warm(cluster: Cluster, messages: int) -> None:
    with topic_on(cluster, 3, topic_config(cluster, "raft"), replicas=NODES) as topic:
        produce(cluster, topic, partitions=3, count=messages, size=1_000, acks=-1)
        consume(cluster, topic, partitions=3, count=messages)


@contextmanager
def clusters(
    names: Sequence[str], folder: Path, sizes: Sizes, console: Console
) -> Iterator[list[Cluster]]:
    """Start and warm up both clusters, and stop them at the end of the block."""
    with ExitStack() as stack:
        running = []
        for name in names:
            cluster = stack.enter_context(CLUSTERS[name](folder))
            console.print(f"three nodes of {name} serve at {cluster.bootstrap}", style="dim")
            warm(cluster, sizes.of(WARM_MESSAGES))
            running.append(cluster)
        yield running

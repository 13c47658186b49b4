"""A real cluster whose links all go through proxies that can cut them."""

import contextlib
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from chaos.clients import FAST_RETRIES, partition_name
from chaos.network import HOST, Link, Network
from chaos.request_delays import RequestDelays
from zhumq.host.ports import free_ports
from zhumq.testing.cluster import ClusterProcesses

ASK_SECONDS: Final = 3.0
LOG_TAIL_LINES: Final = 15
OFFSETS_TOPIC: Final = "__consumer_offsets"


def broker_name(broker_id: int) -> str:
    return f"broker-{broker_id}"


def zookeeper_name(number: int) -> str:
    return f"zookeeper-{number}"


class ClusterUnderTest:
    """Brokers, ZooKeeper nodes and the network between them."""

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int,
        zookeeper_nodes: int,
        settings: Mapping[str, str] | None = None,
        delays: RequestDelays | None = None,
    ) -> None:
        """With `delays` all clients connect through proxies that hold some of their requests back."""
        self.network = Network.start()
        self._delays = delays
        self.cluster = ClusterProcesses(
            folder,
            nodes=brokers,
            zookeeper_nodes=zookeeper_nodes,
            settings={
                # Compaction makes the bytes of replicas differ, and the end phase compares them.
                "log.cleaner.enable": "false",
                "auto.create.topics.enable": "false",
                **(settings or {}),
            },
            settings_of=self._settings_of,
            connect_of=self._connect_of,
        )
        self._admin: AdminClient | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        try:
            self.cluster.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.cluster.stop()
        finally:
            self.network.stop()

    @property
    def broker_ids(self) -> list[int]:
        return sorted(self.cluster.brokers)

    @property
    def admin(self) -> AdminClient:
        """Created at first use, when the addresses are known."""
        with self._lock:
            if self._admin is None:
                self._admin = AdminClient(
                    {**FAST_RETRIES, "bootstrap.servers": self.cluster.bootstrap}
                )
            return self._admin

    @property
    def delayed_requests(self) -> int:
        return 0 if self._delays is None else self._delays.delayed

    def leaders(self) -> dict[str, int]:
        """The current leader of each partition, from the brokers' metadata."""
        with contextlib.suppress(KafkaException):
            topics = self.admin.list_topics(timeout=ASK_SECONDS).topics
            return {
                partition_name(name, number): int(partition.leader)
                for name, topic in topics.items()
                for number, partition in topic.partitions.items()
                if partition.leader in self.cluster.brokers
            }
        return {}

    def holders(self) -> dict[str, tuple[int, ...]]:
        """The replicas of each partition."""
        with contextlib.suppress(KafkaException):
            topics = self.admin.list_topics(timeout=ASK_SECONDS).topics
            return {
                partition_name(name, number): tuple(partition.replicas)
                for name, topic in topics.items()
                for number, partition in topic.partitions.items()
            }
        return {}

    def in_sync(self, topics: Mapping[str, int]) -> bool:
        """Whether every replica of these topics (with their partitions) is in sync."""
        with contextlib.suppress(KafkaException):
            known = self.admin.list_topics(timeout=ASK_SECONDS).topics
            return all(
                name in known
                and len(known[name].partitions) == count
                and all(
                    each.leader in self.cluster.brokers and len(each.isrs) == len(each.replicas)
                    for each in known[name].partitions.values()
                )
                for name, count in topics.items()
            )
        return False

    def describe(self, topics: Iterable[str]) -> str:
        """Leader, replicas and in-sync replicas of each partition, for a report."""
        try:
            known = self.admin.list_topics(timeout=ASK_SECONDS).topics
        except KafkaException as exception:
            return f"no broker answers: {exception.args[0]}"
        return ", ".join(
            f"{name}-{number}: leader {each.leader}, in sync {sorted(each.isrs)}"
            f" of {sorted(each.replicas)}"
            for name in topics
            if name in known
            for number, each in sorted(known[name].partitions.items())
            if each.leader not in self.cluster.brokers or len(each.isrs) != len(each.replicas)
        )

    def controller(self) -> int | None:
        """The controller, from the brokers' metadata."""
        with contextlib.suppress(KafkaException):
            found = int(self.admin.list_topics(timeout=ASK_SECONDS).controller_id)
            return found if found in self.cluster.brokers else None
        return None

    def group_coordinator(self, group: str) -> int | None:
        """The leader of the group's partition of `__consumer_offsets`."""
        # Computed, not looked up: the library's admin calls fail when a coordinator dies.
        with contextlib.suppress(KafkaException):
            topic = self.admin.list_topics(timeout=ASK_SECONDS).topics.get(OFFSETS_TOPIC)
            if topic is not None and topic.partitions:
                number = _string_hash(group) % len(topic.partitions)
                leader = int(topic.partitions[number].leader)
                return leader if leader in self.cluster.brokers else None
        return None

    def set_links(self, broker_id: int, others: list[int], link: Link) -> None:
        """Set both directions between a broker and others."""
        for other in others:
            self.set_link(broker_id, other, link)
            self.set_link(other, broker_id, link)

    def set_link(self, source: int, target: int, link: Link) -> None:
        self.network.set_link(broker_name(source), broker_name(target), link)

    def set_zookeeper_links(self, broker_id: int, link: Link, *, both_ways: bool = True) -> None:
        """Set the links between a broker and every ZooKeeper node."""
        for node in self.cluster.zookeeper.nodes:
            self.network.set_link(broker_name(broker_id), zookeeper_name(node.number), link)
            if both_ways:
                self.network.set_link(zookeeper_name(node.number), broker_name(broker_id), link)

    def folders(self, partition: str) -> dict[str, Path]:
        """The folder of a partition on each broker."""
        return {
            broker_name(broker_id): broker.data_dir / partition
            for broker_id, broker in self.cluster.brokers.items()
        }

    def log_tail(self, broker_id: int) -> str:
        """The end of a broker's log."""
        return "\n".join(self.cluster.brokers[broker_id].log.splitlines()[-LOG_TAIL_LINES:])

    def _settings_of(self, broker_id: int) -> Mapping[str, str]:
        port = int(self.cluster.inter_broker[broker_id].rpartition(":")[2])
        proxy = self.network.open_common_proxy(broker_name(broker_id), port, self._processes)
        settings = {"inter.broker.advertised": proxy.address}
        if self._delays is not None:
            (listen_port,) = free_ports(1)
            clients = self.network.open_proxy(
                broker_name(broker_id),
                listen_port,
                source="clients",
                delay_of=self._delays.seconds_of,
            )
            settings["listeners"] = f"PLAINTEXT://{HOST}:{listen_port}"
            settings["advertised.listeners"] = f"PLAINTEXT://{clients.address}"
        return settings

    def _connect_of(self, broker_id: int, _connect: str) -> str:
        proxies = [
            self.network.open_proxy(
                zookeeper_name(node.number), node.port, source=broker_name(broker_id)
            )
            for node in self.cluster.zookeeper.nodes
        ]
        return ",".join(proxy.address for proxy in proxies)

    def _processes(self) -> Mapping[str, int]:
        return {
            broker_name(broker_id): broker.pid
            for broker_id, broker in tuple(self.cluster.brokers.items())
            if broker.running
        }


def _string_hash(text: str) -> int:
    """Java's hash of an ASCII string, without its sign: a group's partition is this modulo the partition count."""
    result = 0
    for character in text:
        result = (31 * result + ord(character)) & 0xFFFF_FFFF
    return result & 0x7FFF_FFFF

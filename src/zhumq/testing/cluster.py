"""A real cluster for tests: a ZooKeeper ensemble and brokers, each in its own process."""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from zhumq.cluster.dev_zookeeper import DevZookeeper
from zhumq.host.ports import HOST, free_ports
from zhumq.testing.process import NO_WATERMARKS, BrokerProcess

WAIT_SECONDS_MAX: Final = 45.0
LOOK_AGAIN_SECONDS: Final = 0.1
ASK_SECONDS_MAX: Final = 5.0
Fact = TypeVar("Fact")
# Small numbers, so that a test cluster starts and moves replicas quickly.
SETTINGS: Final = {
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.num.partitions": "8",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "zookeeper.connection.timeout.ms": "30000",
    **NO_WATERMARKS,
}


class ClusterProcesses:
    """Brokers 1 to `nodes` and their ensemble. Every broker keeps its ports across restarts.

    To put a proxy between brokers, or between one and ZooKeeper: `inter_broker[id]` is a
    broker's inter-broker listener, `settings_of(id)` may set `inter.broker.advertised`, and
    `connect_of(id)` is the ZooKeeper connect string for that broker.
    """

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 3,
        zookeeper_nodes: int = 1,
        settings: Mapping[str, str] | None = None,
        settings_of: Callable[[int], Mapping[str, str]] = lambda _: {},
        connect_of: Callable[[int, str], str] = lambda _, connect: connect,
    ) -> None:
        self.folder = folder
        self.nodes = nodes
        self.brokers: dict[int, BrokerProcess] = {}
        ports = free_ports(nodes)
        self.inter_broker = {index + 1: f"{HOST}:{port}" for index, port in enumerate(ports)}
        self._zookeeper_nodes = zookeeper_nodes
        self._settings = {**SETTINGS, **(settings or {})}
        self._settings_of = settings_of
        self._connect_of = connect_of
        self._zookeeper: DevZookeeper | None = None

    @property
    def zookeeper(self) -> DevZookeeper:
        assert self._zookeeper is not None, "start it first"
        return self._zookeeper

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, also of those that are down."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def start_zookeeper(self) -> DevZookeeper:
        self._zookeeper = DevZookeeper.start(self.folder / "zookeeper", nodes=self._zookeeper_nodes)
        return self._zookeeper

    def start(self) -> None:
        """Start the ensemble, then all brokers in parallel, and wait until they serve."""
        if self._zookeeper is None:
            self.start_zookeeper()
        for broker_id in range(1, self.nodes + 1):
            self.add(broker_id).launch()
        for broker in self.brokers.values():
            broker.wait_until_ready()
        self.wait_for_brokers(self.brokers)

    def add(self, broker_id: int) -> BrokerProcess:
        """Add a broker without starting it."""
        if broker_id not in self.inter_broker:
            (port,) = free_ports(1)
            self.inter_broker[broker_id] = f"{HOST}:{port}"
        settings = {
            **self._settings,
            "inter.broker.listener": self.inter_broker[broker_id],
            **self._settings_of(broker_id),
        }
        broker = BrokerProcess(
            self.folder / f"broker-{broker_id}",
            settings=settings,
            broker_id=broker_id,
            zookeeper=self._connect_of(broker_id, self.zookeeper.connect),
        )
        self.brokers[broker_id] = broker
        return broker

    def kill(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.brokers[broker_id].kill()

    def restart(self, *broker_ids: int) -> None:
        """Start killed brokers in parallel, and wait until they serve."""
        for broker_id in broker_ids:
            self.brokers[broker_id].launch()
        for broker_id in broker_ids:
            self.brokers[broker_id].wait_until_ready()

    def stop(self) -> None:
        """Kill the brokers and stop the ensemble; the folder stays."""
        with contextlib.ExitStack() as stack:
            if self._zookeeper is not None:
                stack.callback(self._zookeeper.stop)
            # All of them, also if one cannot be ended.
            for broker in self.brokers.values():
                stack.callback(broker.kill)

    # Metadata

    def admin(self, bootstrap: str | None = None) -> AdminClient:
        return AdminClient({"bootstrap.servers": bootstrap or self.bootstrap, "log_level": 0})

    def leader_of(
        self, topic: str, partition: int = 0, *, bootstrap: str | None = None
    ) -> int | None:
        """The id of the current leader from the brokers' metadata; None if there is none."""
        with contextlib.suppress(KafkaException):
            metadata = self.admin(bootstrap).list_topics(topic, timeout=ASK_SECONDS_MAX)
            found = metadata.topics[topic].partitions.get(partition)
            if found is not None and found.leader in self.brokers:
                return int(found.leader)
        return None

    def wait_for_leader(
        self, topic: str, partition: int = 0, *, other_than: int | None = None
    ) -> int:
        """Wait for a leader other than `other_than` and return it."""

        def leader() -> int | None:
            found = self.leader_of(topic, partition)
            return None if found == other_than else found

        return wait_for(leader, f"a leader of {topic}-{partition} other than {other_than}")

    def wait_for_brokers(self, broker_ids: Iterable[int]) -> None:
        """Return when the metadata of every running broker lists exactly these brokers."""
        expected = set(broker_ids)

        def agreed() -> bool | None:
            running = [each.bootstrap for each in self.brokers.values() if each.running]
            return all(self._alive_to(each) == expected for each in running) or None

        wait_for(agreed, f"brokers {sorted(expected)}")

    def _alive_to(self, bootstrap: str) -> set[int]:
        """The brokers in this broker's metadata."""
        with contextlib.suppress(KafkaException):
            return set(self.admin(bootstrap).list_topics(timeout=ASK_SECONDS_MAX).brokers)
        return set()


@contextlib.contextmanager
def cluster_processes(
    *,
    nodes: int = 3,
    zookeeper_nodes: int = 1,
    folder: Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[ClusterProcesses]:
    """A running cluster, killed at the end of the block."""
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zhumq-cluster-")))
        cluster = ClusterProcesses(
            folder, nodes=nodes, zookeeper_nodes=zookeeper_nodes, settings=settings
        )
        stack.callback(cluster.stop)
        cluster.start()
        yield cluster


def wait_for(look: Callable[[], Fact | None], what: str, seconds: float = WAIT_SECONDS_MAX) -> Fact:
    """Call `look` until it returns a value. Raises AssertionError at the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found is not None:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"no {what} within {seconds:g} s")
        time.sleep(LOOK_AGAIN_SECONDS)

"""The brokers of `make delays`: one, which is killed and started, or three, of which a coordinator of delayed messages is killed."""

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from benchmarks.cluster_size import cpu_seconds
from benchmarks.lookup import status_mb
from zhumq.model.ids import DELAYED_MESSAGES_TOPIC
from zhumq.testing.cluster import ClusterProcesses, cluster_processes
from zhumq.testing.process import BrokerProcess, broker_process

# Of a cluster. Each of its brokers coordinates some.
SHARDS: Final = 4
ALONE: Final = 1


class Memory(NamedTuple):
    """What a broker holds, in MB."""

    resident: int
    anonymous: int  # without the pages of files, which are those of programs and libraries
    most: int  # resident, since its start

    @classmethod
    def of(cls, broker: BrokerProcess) -> "Memory":
        names = ("VmRSS", "RssAnon", "VmHWM")
        return cls(*(status_mb(broker.pid, name) for name in names))

    def __str__(self) -> str:
        return f"{self.resident} MB ({self.anonymous} MB anonymous)"


class Brokers(Protocol):
    """What `make delays` loads."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def replicas(self) -> int:
        """Of the topic."""

    def metric(self, name: str) -> float:
        """The sum over all brokers that serve."""

    def memory(self) -> Memory:
        """Of the largest broker."""

    def cpu_seconds(self) -> float: ...

    def kill(self, number: int) -> BrokerProcess:
        """Send SIGKILL to a coordinator, and return once delayed messages have another or the same again."""

    def bring_back(self, killed: BrokerProcess) -> None:
        """Start it again if it does not run."""


class OneBroker:
    """A broker alone: while it is dead nothing is delivered."""

    replicas = ALONE

    def __init__(self, process: BrokerProcess) -> None:
        self._process = process

    @property
    def bootstrap(self) -> str:
        return self._process.bootstrap

    def metric(self, name: str) -> float:
        return metric(self._process, name)

    def memory(self) -> Memory:
        return Memory.of(self._process)

    def cpu_seconds(self) -> float:
        return cpu_seconds(self._process.pid)

    def kill(self, number: int) -> BrokerProcess:  # noqa: ARG002 - there is only this one
        self._process.kill()
        self._process.start()
        return self._process

    def bring_back(self, killed: BrokerProcess) -> None:
        pass


class ThreeBrokers:
    """A cluster: another broker takes over from each that is killed."""

    def __init__(self, cluster: ClusterProcesses) -> None:
        self._cluster = cluster
        self.replicas = cluster.nodes

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    def _running(self) -> list[BrokerProcess]:
        return [each for each in self._cluster.brokers.values() if each.running]

    def metric(self, name: str) -> float:
        return sum(metric(each, name) for each in self._running())

    def memory(self) -> Memory:
        return max(map(Memory.of, self._running()))

    def cpu_seconds(self) -> float:
        return sum(cpu_seconds(each.pid) for each in self._running())

    def kill(self, number: int) -> BrokerProcess:
        shard = number % SHARDS
        leader = self._cluster.wait_for_leader(DELAYED_MESSAGES_TOPIC, shard)
        self._cluster.kill(leader)
        self._cluster.wait_for_leader(DELAYED_MESSAGES_TOPIC, shard, other_than=leader)
        return self._cluster.brokers[leader]

    def bring_back(self, killed: BrokerProcess) -> None:
        self._cluster.restart(killed.broker_id)


def metric(broker: BrokerProcess, name: str) -> float:
    with urllib.request.urlopen(f"http://{broker.http}/metrics") as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
    raise RuntimeError(f"there is no metric {name}")


@contextmanager
def brokers(count: int, folder: Path) -> Iterator[Brokers]:
    """One or three running brokers, killed at the end of the block."""
    if count == ALONE:
        with broker_process(folder / "data") as process:
            yield OneBroker(process)
    else:
        settings = {"delayed.message.topic.num.partitions": str(SHARDS)}
        with cluster_processes(nodes=count, folder=folder, settings=settings) as cluster:
            yield ThreeBrokers(cluster)

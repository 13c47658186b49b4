"""Membership of a broker in its cluster, or in the cluster of one broker that it is by itself."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from zhumq.cluster.local_store import BROKER_EPOCH, LocalStore
from zhumq.cluster.store import MetadataStore
from zhumq.metadata.image import Broker
from zhumq.model.address import Address
from zhumq.model.metric import Metric
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.replication.replication import Replication


class Membership(Protocol):
    """How a broker takes part in its cluster."""

    @property
    def store(self) -> MetadataStore: ...

    @property
    def replication(self) -> Replication: ...

    def secret(self) -> bytes:
        """A secret that all brokers of the cluster share, and no client knows."""

    async def listen(self, parts: contextlib.AsyncExitStack) -> Address | None:
        """Listen for the other brokers until `parts` close; None: there are none. Raises SettingInvalid."""

    async def join(self, broker: Broker, replicas: ReplicaManager) -> None:
        """Register, and serve the partitions that the metadata assigns to this broker."""

    def metrics(self, replicas: ReplicaManager) -> Iterable[Metric]: ...

    def problems(self, replicas: ReplicaManager) -> Iterable[str]:
        """Problems with this broker's membership for /healthz, one line each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoleMember:
    """The membership of a single node: it is registered as long as it runs, and has no peers."""

    store: LocalStore
    replication: Replication

    def secret(self) -> bytes:
        return self.store.secret()

    async def listen(self, parts: contextlib.AsyncExitStack) -> Address | None:  # noqa: ARG002
        return None

    async def join(self, broker: Broker, replicas: ReplicaManager) -> None:
        await self.store.register(broker)
        replicas.on_registered(BROKER_EPOCH)

    def metrics(self, replicas: ReplicaManager) -> Iterable[Metric]:  # noqa: ARG002
        return ()

    def problems(self, replicas: ReplicaManager) -> Iterable[str]:  # noqa: ARG002
        return ()

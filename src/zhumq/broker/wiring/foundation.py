"""What every coordinator stands on: settings, metadata, partitions, the way to their leaders, time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from zhumq.cluster.metadata_client import MetadataClient
from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.internal_topic import InternalTopic, state_topic
from zhumq.coordinators.router import LeaderRouter
from zhumq.coordinators.runtime import CoordinatorRuntime
from zhumq.host.clock import Clock
from zhumq.model.ids import BrokerId
from zhumq.model.settings import Settings
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.replication.replication import PartitionSettings, Replication
from zhumq.storage.due_runs import DueRuns

STATE_BATCH_BYTES_MAX: Final = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Foundation:
    """The parts of a broker below its coordinators."""

    broker_id: BrokerId
    settings: Settings
    partition_settings: Callable[[Mapping[str, str]], PartitionSettings]
    store: MetadataStore
    metadata_client: MetadataClient
    replication: Replication
    replicas: ReplicaManager
    router: LeaderRouter
    clock: Clock
    due_runs: DueRuns

    def internal_topic(
        self, name: str, setting_prefix: str, runtime: CoordinatorRuntime[Any, Any]
    ) -> InternalTopic:
        """The topic that keeps a runtime's records. `setting_prefix` begins the names of its settings."""
        return InternalTopic(
            state_topic(
                name,
                partitions=self.settings.integer(f"{setting_prefix}.num.partitions"),
                replication_factor=self.settings.integer(f"{setting_prefix}.replication.factor"),
                batch_bytes_max=STATE_BATCH_BYTES_MAX,
                segment_bytes=self.settings.text(f"{setting_prefix}.segment.bytes"),
            ),
            store=self.store,
            metadata_client=self.metadata_client,
            replicas=self.replicas,
            runtime=runtime,
        )

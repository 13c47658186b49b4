"""Wiring of the transaction coordinator: state topic, runtime, service; and of the markers it writes."""

from collections.abc import Iterable, Iterator

from zhumq.broker.http import Metric
from zhumq.broker.metrics import transaction_metrics
from zhumq.broker.wiring.group_coordinator import GroupCoordinator
from zhumq.cluster.metadata_client import MetadataClient
from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.internal_topic import InternalTopic, state_topic
from zhumq.coordinators.marker_writer import MarkerWriter
from zhumq.coordinators.markers import MarkerAppender
from zhumq.coordinators.router import LeaderRouter
from zhumq.coordinators.runtime import CoordinatorRuntime
from zhumq.coordinators.transaction_route import RoutedTransactions
from zhumq.coordinators.transaction_service import TransactionRuntime, TransactionService, refusal
from zhumq.host.clock import Clock
from zhumq.model.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, BrokerId
from zhumq.model.settings import Settings
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.replication.replication import Replication
from zhumq.transactions.shard import TransactionSettings, TransactionShard

_BATCH_BYTES_MAX = 8 << 20


class TransactionCoordinator:
    """Coordinates the transactions of the partitions of `__transaction_state` that this broker leads."""

    def __init__(
        self,
        settings: Settings,
        store: MetadataStore,
        metadata_client: MetadataClient,
        replicas: ReplicaManager,
        router: LeaderRouter,
        clock: Clock,
    ) -> None:
        limits = TransactionSettings(
            timeout_ms_max=settings.integer("transaction.max.timeout.ms"),
            id_expiration_ms=settings.integer("transactional.id.expiration.ms"),
            allow_two_phase_commit=settings.boolean("transaction.two.phase.commit.enable"),
        )
        self.runtime: TransactionRuntime = CoordinatorRuntime(
            name="transaction",
            make_shard=lambda: TransactionShard(limits),
            refuse=refusal,
            clock=clock,
            batch_bytes_max=_BATCH_BYTES_MAX,
        )
        self.topic = InternalTopic(
            state_topic(
                TRANSACTION_STATE_TOPIC,
                partitions=settings.integer("transaction.state.log.num.partitions"),
                replication_factor=settings.integer("transaction.state.log.replication.factor"),
                batch_bytes_max=_BATCH_BYTES_MAX,
                segment_bytes=settings.text("transaction.state.log.segment.bytes"),
            ),
            store=store,
            metadata_client=metadata_client,
            replicas=replicas,
            runtime=self.runtime,
        )
        self.service = TransactionService(
            self.runtime,
            partition_count=lambda: self.topic.partition_count,
            next_producer_id=metadata_client.next_producer_id,
        )
        self.routed = RoutedTransactions(router, self.service, store)
        self._clock = clock

    def metrics(self, markers: MarkerWriter) -> Iterable[Metric]:
        return transaction_metrics(self._shards(), markers, self._clock.now_ms())

    def _shards(self) -> Iterator[TransactionShard]:
        for shard in self.runtime.shards:
            assert isinstance(shard, TransactionShard)
            yield shard

    async def close(self) -> None:
        await self.topic.close()


def open_markers(
    transactions: TransactionCoordinator,
    groups: GroupCoordinator,
    store: MetadataStore,
    replicas: ReplicaManager,
    replication: Replication,
    broker_id: BrokerId,
    clock: Clock,
) -> MarkerWriter:
    """Writes the markers of transactions, from now on. The markers of offsets are for the group coordinator."""
    appender = MarkerAppender(replicas, clock, {CONSUMER_OFFSETS_TOPIC: groups.runtime})
    return MarkerWriter(
        transactions.runtime,
        transactions.service,
        appender,
        store,
        replicas,
        replication,
        broker_id,
    )

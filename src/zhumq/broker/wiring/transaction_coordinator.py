"""Wiring of the transaction coordinator: state topic, runtime, service; and of the markers it writes."""

from collections.abc import Iterable, Iterator, Mapping

from zhumq.broker.metrics import transaction_metrics
from zhumq.broker.wiring.foundation import STATE_BATCH_BYTES_MAX, Foundation
from zhumq.coordinators.broker_transactions import BrokerTransactions
from zhumq.coordinators.marker_writer import MarkerWriter
from zhumq.coordinators.markers import MarkedShards, MarkerAppender
from zhumq.coordinators.runtime import CoordinatorRuntime
from zhumq.coordinators.transaction_route import RoutedTransactions
from zhumq.coordinators.transaction_service import TransactionRuntime, TransactionService, refusal
from zhumq.model.ids import TRANSACTION_STATE_TOPIC
from zhumq.model.metric import Metric
from zhumq.transactions.shard import TransactionSettings, TransactionShard

_OWN_TIMEOUT_MS = 60_000


class TransactionCoordinator:
    """Coordinates the transactions of the partitions of `__transaction_state` that this broker leads."""

    def __init__(self, base: Foundation) -> None:
        settings = base.settings
        limits = TransactionSettings(
            timeout_ms_max=settings.integer("transaction.max.timeout.ms"),
            id_expiration_ms=settings.integer("transactional.id.expiration.ms"),
            allow_two_phase_commit=settings.boolean("transaction.two.phase.commit.enable"),
        )
        self.runtime: TransactionRuntime = CoordinatorRuntime(
            name="transaction",
            make_shard=lambda: TransactionShard(limits),
            refuse=refusal,
            clock=base.clock,
            batch_bytes_max=STATE_BATCH_BYTES_MAX,
        )
        self.topic = base.internal_topic(
            TRANSACTION_STATE_TOPIC, "transaction.state.log", self.runtime
        )
        self.service = TransactionService(
            self.runtime,
            partition_count=lambda: self.topic.partition_count,
            next_producer_id=base.metadata_client.next_producer_id,
        )
        self.routed = RoutedTransactions(base.router, self.service, base.store)
        # Those that brokers begin themselves, to move staged messages into their topics.
        self.of_brokers = BrokerTransactions(
            base.router, self.service, self.routed, self.topic, base.replicas, base.clock
        )
        self.own_timeout_ms = min(_OWN_TIMEOUT_MS, limits.timeout_ms_max)
        self._clock = base.clock

    def metrics(self, markers: MarkerWriter) -> Iterable[Metric]:
        return transaction_metrics(self._shards(), markers, self._clock.now_ms())

    def _shards(self) -> Iterator[TransactionShard]:
        for shard in self.runtime.shards:
            assert isinstance(shard, TransactionShard)
            yield shard

    async def close(self) -> None:
        await self.topic.close()
        await self.service.close()


def open_markers(
    base: Foundation, transactions: TransactionCoordinator, shards: Mapping[str, MarkedShards]
) -> MarkerWriter:
    """Writes the markers of transactions, from now on. Those of internal topics are for their coordinators."""
    return MarkerWriter(
        transactions.runtime,
        transactions.service,
        MarkerAppender(base.replicas, base.clock, shards),
        base.store,
        base.replicas,
        base.replication,
        base.broker_id,
    )

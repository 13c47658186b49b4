"""Wiring of delayed messages: state topic, runtime, service, intake, mover, metrics."""

from collections.abc import Iterable, Iterator

from zhumq.broker.delay_metrics import delay_metrics
from zhumq.broker.wiring.foundation import Foundation
from zhumq.broker.wiring.transaction_coordinator import TransactionCoordinator
from zhumq.coordinators.delay_intake import DelayIntake
from zhumq.coordinators.delay_mover import DelayMover
from zhumq.coordinators.delay_routes import RoutedDelays
from zhumq.coordinators.delay_service import STAGED_BATCH_BYTES_MAX, DelayRuntime, DelayService
from zhumq.coordinators.runtime import CoordinatorRuntime
from zhumq.delays.due_index import DueIndex
from zhumq.delays.requests import refusal
from zhumq.delays.shard import DelayShard
from zhumq.metadata.image import ClusterImage
from zhumq.model.ids import DELAYED_MESSAGES_TOPIC
from zhumq.model.metric import Metric


class DelayCoordinator:
    """Keeps the delayed messages of the partitions of `__delayed_messages` that this broker leads."""

    def __init__(self, base: Foundation, transactions: TransactionCoordinator) -> None:
        self.runtime: DelayRuntime = CoordinatorRuntime(
            name="delayed message",
            make_shard=lambda: DelayShard(DueIndex(base.due_runs.new_store())),
            refuse=refusal,
            clock=base.clock,
            batch_bytes_max=STAGED_BATCH_BYTES_MAX,
            with_offsets=True,
        )
        self.topic = base.internal_topic(
            DELAYED_MESSAGES_TOPIC, "delayed.message.topic", self.runtime
        )
        self._clock = base.clock
        service = DelayService(self.runtime, self.topic, base.replicas, base.clock)
        self.routed = RoutedDelays(base.router, service, base.store)
        self._intake = DelayIntake(base.replicas, self.routed, self.topic)
        self._mover = DelayMover(
            self.runtime,
            service,
            transactions.of_brokers,
            base.store,
            base.replicas,
            base.clock,
            timeout_ms=transactions.own_timeout_ms,
        )

    def apply(self, image: ClusterImage) -> None:
        """Called with every new metadata image."""
        self._intake.apply(image)

    def metrics(self) -> Iterable[Metric]:
        return delay_metrics(tuple(self._shards()), self._mover, self._clock.now_ms())

    def _shards(self) -> Iterator[DelayShard]:
        for shard in self.runtime.shards:
            assert isinstance(shard, DelayShard)
            yield shard

    async def close(self) -> None:
        await self._intake.close()
        await self._mover.close()
        await self.topic.close()

"""Wiring of half messages: state topic, runtime, service, mover, metrics."""

from collections.abc import Iterable, Iterator, Mapping

from zhumq.broker.metrics import half_message_metrics
from zhumq.broker.wiring.foundation import STATE_BATCH_BYTES_MAX, Foundation
from zhumq.broker.wiring.transaction_coordinator import TransactionCoordinator
from zhumq.coordinators.half_message_mover import HalfMessageMover
from zhumq.coordinators.half_message_service import HalfMessageService, HalfRuntime, TargetLimits
from zhumq.coordinators.runtime import CoordinatorRuntime
from zhumq.half_messages.requests import refusal
from zhumq.half_messages.settings import HalfSettings
from zhumq.half_messages.shard import HalfShard
from zhumq.model.ids import HALF_MESSAGES_TOPIC
from zhumq.model.metric import Metric
from zhumq.storage.schema_ids import KnownSchemas

_TOPICS_REMEMBERED_MAX = 10_000


class HalfMessageCoordinator:
    """Coordinates the producer groups of the partitions of `__half_messages` that this broker leads."""

    def __init__(
        self, base: Foundation, transactions: TransactionCoordinator, schemas: KnownSchemas
    ) -> None:
        settings = base.settings
        limits = HalfSettings(
            first_check_ms=settings.integer("half.message.check.first.ms"),
            check_interval_ms=settings.integer("half.message.check.interval.ms"),
            checks_max=settings.integer("half.message.check.max"),
            pending_max=settings.integer("half.message.pending.max"),
            retention_ms=settings.integer("half.message.retention.ms"),
        )
        self.runtime: HalfRuntime = CoordinatorRuntime(
            name="half message",
            make_shard=lambda: HalfShard(limits),
            refuse=refusal,
            clock=base.clock,
            batch_bytes_max=STATE_BATCH_BYTES_MAX,
            with_offsets=True,
        )
        self.topic = base.internal_topic(HALF_MESSAGES_TOPIC, "half.message.topic", self.runtime)

        # Reading all settings of a topic takes longer than storing a message.
        known: dict[str, tuple[Mapping[str, str], TargetLimits]] = {}

        def limits_of(name: str) -> TargetLimits:
            of_topic = base.store.image.topics[name].settings
            found = known.get(name)
            if found is not None and found[0] is of_topic:
                return found[1]
            config = base.partition_settings(of_topic).log_config
            accepted = TargetLimits(
                message_bytes_max=config.max_message_bytes,
                needs_keys=config.is_compacted,
                schema_rule=config.schema_rule,
            )
            if len(known) >= _TOPICS_REMEMBERED_MAX:
                known.clear()
            known[name] = (of_topic, accepted)
            return accepted

        self.service = HalfMessageService(
            self.runtime,
            self.topic,
            base.store,
            base.replicas,
            base.broker_id,
            limits_of,
            schemas,
        )
        self._mover = HalfMessageMover(
            self.runtime,
            transactions.of_brokers,
            base.store,
            base.replicas,
            base.clock,
            timeout_ms=transactions.own_timeout_ms,
        )

    def metrics(self) -> Iterable[Metric]:
        return half_message_metrics(tuple(self._shards()), self.service, self._mover)

    def _shards(self) -> Iterator[HalfShard]:
        for shard in self.runtime.shards:
            assert isinstance(shard, HalfShard)
            yield shard

    async def close(self) -> None:
        await self._mover.close()
        await self.service.close()
        await self.topic.close()

"""Wiring of delivery: state topic and shards, dead letters, delivery service, Kafka handlers."""

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator

from zhumq.broker.delivery_metrics import Behind, delivery_metrics, share_partitions_behind
from zhumq.broker.dispatch import Handler
from zhumq.broker.handlers.configs import ConfigsHandler
from zhumq.broker.handlers.group_configs import GroupConfigsHandler, ShareGroupSettings
from zhumq.broker.handlers.share import ShareHandler
from zhumq.broker.handlers.share_groups import ShareGroupsHandler
from zhumq.broker.handlers.share_offsets import ShareOffsetsHandler
from zhumq.broker.settings import BROKER_SETTINGS
from zhumq.broker.share_sessions import ShareSessions
from zhumq.broker.subscription_ages import SubscriptionAges
from zhumq.broker.wiring.foundation import STATE_BATCH_BYTES_MAX, Foundation
from zhumq.broker.wiring.group_coordinator import GroupCoordinator
from zhumq.coordinators.dead_letters import DeadLetterWriter
from zhumq.coordinators.delivery_service import DeliveryService
from zhumq.coordinators.delivery_settings import DeliverySettings
from zhumq.coordinators.delivery_state import DeliveryStateClient
from zhumq.coordinators.group_positions import GroupPositions
from zhumq.coordinators.runtime import CoordinatorRuntime
from zhumq.metadata.image import ClusterImage
from zhumq.model.ids import SHARE_GROUP_STATE_TOPIC
from zhumq.model.metric import Metric
from zhumq.model.settings import Settings
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.delivery_state import (
    ListGroupSettingsRequest,
    ListGroupSettingsResponse,
)
from zhumq.share.requests import DeliveryRequest, DeliveryResponse, refusal
from zhumq.share.shard import DeliveryShard


class DeliveryCoordinator:
    """Follows the metadata image: loads shards, closes share partitions that other brokers lead."""

    def __init__(self, base: Foundation, groups: GroupCoordinator) -> None:
        settings = base.settings
        self._store = base.store
        self._replicas = base.replicas
        self.ages = SubscriptionAges(self._behind, groups.times, base.clock)
        # The loaded shards, for metrics.
        self._shards: weakref.WeakSet[DeliveryShard] = weakref.WeakSet()
        runtime: CoordinatorRuntime[DeliveryRequest, DeliveryResponse] = CoordinatorRuntime(
            name="delivery",
            make_shard=self._make_shard,
            refuse=refusal,
            clock=base.clock,
            batch_bytes_max=STATE_BATCH_BYTES_MAX,
        )
        self.topic = base.internal_topic(
            SHARE_GROUP_STATE_TOPIC, "share.coordinator.state.topic", runtime
        )
        self._states = DeliveryStateClient(base.router, runtime, self.topic)
        retention_ms = settings.integer("delivery.dead.letter.retention.ms")
        self.service = DeliveryService(
            _delivery_settings(settings),
            store=base.store,
            metadata_client=base.metadata_client,
            replicas=base.replicas,
            states=self._states,
            dead_letters=DeadLetterWriter(
                base.store,
                base.metadata_client,
                base.replicas,
                base.router,
                base.clock,
                retention_ms=retention_ms,
            ),
            positions=GroupPositions(groups.routed),
            clock=base.clock,
        )
        self._group_settings = ShareGroupSettings(
            settings, BROKER_SETTINGS, self.service, self._groups_with_settings
        )
        self._share = ShareHandler(
            self.service,
            base.store,
            ShareSessions(settings.integer("group.share.max.share.sessions")),
            self._group_settings,
            answer_bytes_max=settings.integer("fetch.max.bytes"),
        )
        self._share_groups = ShareGroupsHandler(self.service, groups.service)
        self._share_offsets = ShareOffsetsHandler(
            self.service, groups.service, base.store, base.replicas, self._share_groups
        )

    def _make_shard(self) -> DeliveryShard:
        shard = DeliveryShard()
        self._shards.add(shard)
        return shard

    async def _groups_with_settings(self) -> list[str]:
        if SHARE_GROUP_STATE_TOPIC not in self._store.image.topics:
            return []
        answers = await self._states.ask_all(ListGroupSettingsRequest(), ListGroupSettingsResponse)
        return sorted(group for answer in answers for group in answer.group_ids)

    def metrics(self) -> Iterable[Metric]:
        yield from delivery_metrics(self.service, tuple(self._shards), self._store, self._replicas)
        yield from self.ages.metrics()

    def _behind(self) -> list[Behind]:
        return share_partitions_behind(
            self.service, tuple(self._shards), self._store, self._replicas
        )

    def lags(self) -> Iterator[tuple[str, int, float | None]]:
        """The groups of subscriptions, each with its lag in messages and in seconds."""
        found: Counter[str] = Counter()
        for each in self._behind():
            found[each.group] += each.messages
        for group, messages in found.items():
            yield group, messages, self.ages.of_group(group)

    def connection_lost(self, connection_id: int) -> None:
        self._share.connection_lost(connection_id)

    def handlers(self, configs: ConfigsHandler) -> dict[ApiKey, Handler]:
        """Handlers of share requests, of group settings, and of requests about groups of any type that
        concern delivery state too (ListGroups, DeleteGroups)."""
        return (
            self._share.handlers()
            | self._share_groups.handlers()
            | self._share_offsets.handlers()
            | GroupConfigsHandler(self._group_settings, configs).handlers()
        )

    def apply(self, image: ClusterImage) -> None:
        """Called with every new metadata image."""
        self.service.apply(image)

    async def close(self) -> None:
        await self._share.close()
        await self.service.close()
        await self.topic.close()


def _delivery_settings(settings: Settings) -> DeliverySettings:
    return DeliverySettings(
        max_deliveries=settings.integer("delivery.max.deliveries"),
        lock_ms=settings.integer("delivery.lock.ms"),
        in_flight_max=settings.integer("delivery.in.flight.max"),
        backoff_ms=settings.integer("delivery.backoff.ms"),
        backoff_ms_max=settings.integer("delivery.backoff.max.ms"),
    )

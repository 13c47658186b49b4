"""Wiring of the group coordinator: offsets topic, runtime, service, lag metrics."""

import asyncio
import uuid
from collections.abc import Iterator

from zhumq.broker.group_lag import GroupLags
from zhumq.broker.handlers.groups import StoreTopics
from zhumq.broker.wiring.foundation import STATE_BATCH_BYTES_MAX, Foundation
from zhumq.coordinators.group_route import RoutedGroups
from zhumq.coordinators.group_service import GroupService, TransactionVerifier
from zhumq.coordinators.offset_times import OffsetTimes
from zhumq.coordinators.runtime import CoordinatorRuntime
from zhumq.groups.offsets import CommittedOffsets
from zhumq.groups.requests import GroupRequest, GroupResponse, refusal
from zhumq.groups.settings import GroupSettings, MigrationPolicy
from zhumq.groups.shard import GroupShard
from zhumq.metadata.image import ClusterImage
from zhumq.model.ids import CONSUMER_OFFSETS_TOPIC
from zhumq.model.settings import Settings

_MINUTE_MS = 60_000
_RECORD_BYTES_MAX = STATE_BATCH_BYTES_MAX - 1_024  # what is left in a batch for one key and value


class GroupCoordinator:
    """Follows the metadata image: loads shards, and drops the offsets of deleted topics."""

    def __init__(self, base: Foundation, transactions: TransactionVerifier) -> None:
        group_settings = _group_settings(base.settings)
        topics = StoreTopics(base.store)
        self.runtime: CoordinatorRuntime[GroupRequest, GroupResponse] = CoordinatorRuntime(
            name="group",
            make_shard=lambda: GroupShard(
                group_settings, draw_member_suffix=lambda: str(uuid.uuid4()), topics=topics
            ),
            refuse=refusal,
            clock=base.clock,
            batch_bytes_max=STATE_BATCH_BYTES_MAX,
        )
        self.topic = base.internal_topic(CONSUMER_OFFSETS_TOPIC, "offsets.topic", self.runtime)
        self.service = GroupService(
            self.runtime,
            partition_count=lambda: self.topic.partition_count,
            topics=topics,
            verifier=transactions,
        )
        self.routed = RoutedGroups(base.router, self.service, self.topic)
        self.times = OffsetTimes(base.router, base.replicas, base.store)
        self.lags = GroupLags(self._committed, base.replicas, base.store, self.times, base.clock)
        self._topics = frozenset(base.store.image.topics)
        self._forgetting: set[asyncio.Task[int]] = set()

    def apply(self, image: ClusterImage) -> None:
        """Called with every new metadata image."""
        gone = self._topics.difference(image.topics)
        self._topics = frozenset(image.topics)
        if gone:
            task = asyncio.get_running_loop().create_task(self.service.topics_deleted(gone))
            self._forgetting.add(task)
            task.add_done_callback(self._forgetting.discard)

    def _committed(self) -> Iterator[CommittedOffsets]:
        for shard in self.runtime.shards:
            assert isinstance(shard, GroupShard)
            yield shard.committed

    async def close(self) -> None:
        await self.lags.close()
        await asyncio.gather(*self._forgetting, return_exceptions=True)
        await self.topic.close()


def _group_settings(settings: Settings) -> GroupSettings:
    return GroupSettings(
        session_timeout_ms_min=settings.integer("group.min.session.timeout.ms"),
        session_timeout_ms_max=settings.integer("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=settings.integer("group.initial.rebalance.delay.ms"),
        members_max=settings.integer("group.max.size"),
        group_record_bytes_max=_RECORD_BYTES_MAX,
        offset_metadata_bytes_max=settings.integer("offset.metadata.max.bytes"),
        offsets_retention_ms=settings.integer("offsets.retention.minutes") * _MINUTE_MS,
        offsets_retention_check_interval_ms=settings.integer("offsets.retention.check.interval.ms"),
        consumer_protocol_enabled="consumer"
        in settings.elements("group.coordinator.rebalance.protocols"),
        consumer_session_timeout_ms=settings.integer("group.consumer.session.timeout.ms"),
        consumer_heartbeat_interval_ms=settings.integer("group.consumer.heartbeat.interval.ms"),
        consumer_members_max=settings.integer("group.consumer.max.size"),
        consumer_assignors=settings.elements("group.consumer.assignors") or ("uniform",),
        consumer_migration_policy=MigrationPolicy(settings.text("group.consumer.migration.policy")),
        share_session_timeout_ms=settings.integer("group.share.session.timeout.ms"),
        share_heartbeat_interval_ms=settings.integer("group.share.heartbeat.interval.ms"),
        share_members_max=settings.integer("group.share.max.size"),
    )

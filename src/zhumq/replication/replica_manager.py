"""The partitions that this broker serves: opens and drops logs as the metadata image changes."""

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from zhumq.consensus.contract import Role
from zhumq.metadata.image import ClusterImage, PartitionState, Topic
from zhumq.metadata.leadership import LogEnds
from zhumq.model.errors import (
    BrokerError,
    DiskFull,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
)
from zhumq.model.ids import INTERNAL_TOPICS, BrokerId, TopicPartition
from zhumq.replication.flush_levels import levels_of
from zhumq.replication.partition import Partition
from zhumq.replication.pending import LeadershipCallback
from zhumq.replication.replica_lifecycle import ReplicaLifecycle
from zhumq.replication.replication import PartitionSettings, Replication
from zhumq.storage.flusher import Flusher
from zhumq.storage.log import Log
from zhumq.storage.log_manager import LogManager
from zhumq.storage.retention import ReplicaFacts

logger = logging.getLogger(__name__)

NO_TOPICS: Mapping[str, Topic] = MappingProxyType({})


class ReplicaManager:
    """The partitions of this broker by name. Changes only by `apply`.

    Nothing is served before the first `on_registered`.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        logs: LogManager,
        flusher: Flusher,
        settings_of: Callable[[Mapping[str, str]], PartitionSettings],
        replication: Replication,
    ) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._settings_of = settings_of
        self._partitions: dict[tuple[str, int], Partition] = {}
        # Partitions of this broker whose log could not be opened, and why.
        self._offline: dict[TopicPartition, BrokerError] = {}
        self._topics = NO_TOPICS
        self._watchers: list[LeadershipCallback] = []
        self._write_refusal = ""
        self._replication = replication
        self.lifecycle = ReplicaLifecycle(
            broker_id, logs, flusher, replication, self._leadership_changed
        )

    def __iter__(self) -> Iterator[Partition]:
        return iter(tuple(self._partitions.values()))

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def offline(self) -> Mapping[TopicPartition, BrokerError]:
        """The partitions of this broker whose log could not be opened, and why."""
        return self._offline

    def find(self, topic: str, partition: int) -> Partition | None:
        return self._partitions.get((topic, partition))

    def partition(self, topic: str, partition: int) -> Partition:
        """The partition. Raises the reason if this broker does not have it."""
        found = self._partitions.get((topic, partition))
        if found is None:
            raise self.absence(topic, partition)
        return found

    def absence(self, topic: str, partition: int) -> BrokerError:
        """Why this broker does not serve a partition: it does not exist, or other brokers have it."""
        known = self._topics.get(topic)
        if known is not None and 0 <= partition < len(known.partitions):
            return NotLeaderOrFollower(f"this broker has no replica of {topic}-{partition}")
        if known is not None and partition >= 0:
            return UnknownTopicOrPartition(
                f"topic {topic!r} has {len(known.partitions)} partitions, and no partition {partition}:"
                f" `zhumq topic alter {topic} --partitions {partition + 1}` would add it"
            )
        return UnknownTopicOrPartition(f"there is no partition {topic}-{partition} here")

    def watch_leadership(self, callback: LeadershipCallback) -> None:
        """Call back on the event loop whenever this broker starts or stops serving a partition, with
        the leader epoch. Also calls back for the partitions that it serves already."""
        self._watchers.append(callback)
        for partition in self:
            if partition.is_current:
                callback(partition.topic_partition, True, partition.leader_epoch)

    def apply(self, image: ClusterImage) -> None:
        """Serve the partitions that the metadata image assigns to this broker, and no others."""
        self.lifecycle.on_new_image(image)
        if not self.lifecycle.is_active:
            return
        before, self._topics = self._topics, image.topics
        for name, topic in before.items():
            present = image.topics.get(name)
            if present is None or present.topic_id != topic.topic_id:
                self._drop(topic)
        for name, topic in image.topics.items():
            known = before.get(name)
            if known is not topic:
                self._serve(topic, known)
        self.lifecycle.on_image_applied()

    # The broker's registration

    def on_registered(self, broker_epoch: int) -> None:
        """The broker is registered, for the first time or after its session was lost."""
        lifecycle = self.lifecycle
        was_active = lifecycle.is_active
        lifecycle.on_registered(broker_epoch)
        if not was_active and lifecycle.image is not None:
            self.apply(lifecycle.image)
            self._set_aside_strays(lifecycle.image)

    def on_session_lost(self) -> None:
        """The session is lost: the controller may name other leaders for this broker's partitions."""
        self.lifecycle.on_session_lost()

    async def ask_log_ends(self, partitions: Sequence[TopicPartition]) -> LogEnds:
        """The log ends of the live replicas."""
        return await self._replication.log_ends.ask(partitions)

    async def elect_preferred(
        self, partitions: Sequence[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, BrokerError | None]:
        """Elect the preferred leaders of these raft partitions, whatever brokers lead them. The outcome is
        None if the preferred replica leads; otherwise ElectionNotNeeded, PreferredLeaderNotAvailable or
        another error."""
        return await self.lifecycle.preferred_leaders.elect(partitions, timeout_ms)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """High watermarks for the checkpoint: what is committed and on the disk."""
        return {
            each.topic_partition: min(each.high_watermark, each.log.flushed_offset)
            for each in self._partitions.values()
        }

    def facts_of(self, log: Log) -> ReplicaFacts:
        """The replica that a log belongs to, for its retention and compaction."""
        partition = self._partitions.get(log.topic_partition)
        if partition is None or partition.log is not log:
            return ReplicaFacts(high_watermark=log.log_start_offset, is_leader=False, is_sole=False)
        high_watermark = partition.high_watermark
        return ReplicaFacts(
            high_watermark=high_watermark,
            first_unstable_offset=log.producer_state.first_unstable_offset(high_watermark),
            is_leader=partition.driver.core.role is Role.LEADER,
            is_sole=partition.is_sole,
        )

    def set_write_refusal(self, reason: str) -> None:
        """Refuse messages of clients to all partitions because of the disk; empty: take them. Consumers go on:
        offsets are committed, and deliveries acknowledged."""
        if reason == self._write_refusal:
            return
        self._write_refusal = reason
        for topic_partition, partition in self._partitions.items():
            if topic_partition[0] not in INTERNAL_TOPICS:
                partition.set_write_refusal(reason)

    async def close(self) -> None:
        """Stop replicating. The logs stay open."""
        await self.lifecycle.close()

    # Metadata changes

    def _serve(self, topic: Topic, known: Topic | None) -> None:
        settings = self._settings_of(topic.settings)
        for index, state in enumerate(topic.partitions):
            serving = self._partitions.get((topic.name, index))
            if self._broker_id not in state.replicas:
                self._offline.pop(TopicPartition(topic.name, index), None)
                if serving is not None:
                    self._move_away(serving)
                continue
            if serving is not None:
                if known is None or known.settings != topic.settings:
                    serving.log.update_config(settings.log_config)
                    serving.min_in_sync_replicas = settings.min_in_sync_replicas
                    serving.use_flush_levels(levels_of(serving.driver, settings.log_config))
                self.lifecycle.update(serving, state)
                continue
            self._begin(TopicPartition(topic.name, index), topic.topic_id, state, settings)

    def _begin(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        state: PartitionState,
        settings: PartitionSettings,
    ) -> None:
        """Open a partition and serve it. If that fails the partition is offline; others are not affected."""
        was_offline = topic_partition in self._offline
        try:
            self._set_aside_another(topic_partition, topic_id)
            partition = self.lifecycle.open(topic_partition, topic_id, state, settings)
        except BrokerError as reason:
            if not was_offline:
                logger.error("partition %s is offline: %s", topic_partition, reason)  # noqa: TRY400
            self._offline[topic_partition] = reason
            return
        if was_offline:
            del self._offline[topic_partition]
            logger.warning("partition %s is online again", topic_partition)
        self._partitions[topic_partition] = partition
        partition.use_flush_levels(levels_of(partition.driver, settings.log_config))
        if topic_partition.topic not in INTERNAL_TOPICS:
            partition.set_write_refusal(self._write_refusal)
        self.lifecycle.start(partition, state)

    def retry_offline(self) -> None:
        """Try again to open partitions that are offline because the disk was full."""
        for topic_partition, reason in tuple(self._offline.items()):
            topic = self._topics.get(topic_partition.topic)
            if topic is None or not isinstance(reason, DiskFull):
                continue
            state = topic.partitions[topic_partition.partition]
            settings = self._settings_of(topic.settings)
            self._begin(topic_partition, topic.topic_id, state, settings)

    def _set_aside_strays(self, image: ClusterImage) -> None:
        """Set aside logs of topics that were deleted or moved while this broker was down. They are not
        deleted: the metadata may be an old backup that an operator restored."""
        for topic_partition in tuple(self._logs.logs):
            state = image.partition(topic_partition)
            if state is None or self._broker_id not in state.replicas:
                self._logs.set_aside_log(topic_partition)

    def _set_aside_another(self, topic_partition: TopicPartition, topic_id: uuid.UUID) -> None:
        log = self._logs.logs.get(topic_partition)
        if log is not None and log.topic_id not in (None, topic_id):
            # An earlier topic of this name left its folder behind.
            self._logs.set_aside_log(topic_partition)

    def _drop(self, topic: Topic) -> None:
        gone = UnknownTopicOrPartition(f"topic {topic.name!r} was deleted")
        for index in range(len(topic.partitions)):
            self._offline.pop(TopicPartition(topic.name, index), None)
            partition = self._partitions.pop((topic.name, index), None)
            if partition is not None:
                self._retire(partition, gone)
        logger.info("dropped topic %s", topic.name)

    def _move_away(self, partition: Partition) -> None:
        name, index = partition.topic_partition
        del self._partitions[name, index]
        reason = UnknownTopicOrPartition(f"{partition.topic_partition} moved to other brokers")
        self._retire(partition, reason)
        logger.info("%s is on other brokers now", partition.topic_partition)

    def _retire(self, partition: Partition, reason: BrokerError) -> None:
        partition.retire(reason)
        self.lifecycle.forget(partition)
        self._logs.delete_log(partition.topic_partition)

    def _leadership_changed(
        self, topic_partition: TopicPartition, leads: bool, leader_epoch: int
    ) -> None:
        for watcher in self._watchers:
            try:
                watcher(topic_partition, leads, leader_epoch)
            except Exception:
                # A watcher's failure must not stop the replica in the middle of a change.
                logger.exception("%s: a watcher of leadership changes failed", topic_partition)

"""Which partitions this broker serves: follows the cluster's picture, opens and drops logs."""

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from zhumq.metadata.image import ClusterImage, Topic
from zhumq.model.errors import BrokerError, InconsistentTopicId, UnknownTopicOrPartition
from zhumq.model.ids import BrokerId, TopicPartition
from zhumq.replication.partition import Partition, PartitionSettings
from zhumq.storage.flusher import Flusher
from zhumq.storage.log_config import LogConfig
from zhumq.storage.log_manager import LogManager
from zhumq.storage.partition_log import PartitionLog

logger = logging.getLogger(__name__)


class ReplicaManager:
    """The partitions of this broker by name. Changes only by `apply`."""

    def __init__(
        self,
        broker_id: BrokerId,
        logs: LogManager,
        flusher: Flusher,
        settings_of: Callable[[Mapping[str, str]], PartitionSettings],
    ) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._flusher = flusher
        self._settings_of = settings_of
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._topics: Mapping[str, Topic] = MappingProxyType({})

    def __iter__(self) -> Iterator[Partition]:
        return iter(tuple(self._partitions.values()))

    def __len__(self) -> int:
        return len(self._partitions)

    def find(self, topic: str, partition: int) -> Partition | None:
        return self._partitions.get((topic, partition))

    def partition(self, topic: str, partition: int) -> Partition:
        """The partition, or UnknownTopicOrPartition."""
        found = self._partitions.get((topic, partition))
        if found is None:
            raise UnknownTopicOrPartition(f"there is no partition {topic}-{partition} here")
        return found

    def apply(self, image: ClusterImage) -> None:
        """Serve what the picture gives to this broker, and nothing else."""
        before, self._topics = self._topics, image.topics
        for name, topic in before.items():
            present = image.topics.get(name)
            if present is None or present.topic_id != topic.topic_id:
                self._drop(topic)
        for name, topic in image.topics.items():
            known = before.get(name)
            if known is not topic:
                self._serve(topic, known)

    def _serve(self, topic: Topic, known: Topic | None) -> None:
        settings = self._settings_of(topic.settings)
        for index, state in enumerate(topic.partitions):
            if self._broker_id not in state.replicas:
                continue
            serving = self._partitions.get((topic.name, index))
            if serving is not None:
                if known is None or known.settings != topic.settings:
                    serving.log.update_config(settings.log)
                    serving.min_in_sync_replicas = settings.min_in_sync_replicas
                serving.leader_epoch = state.leader_epoch
                serving.in_sync_replicas = len(state.in_sync)
                continue
            topic_partition = TopicPartition(topic.name, index)
            try:
                log = self._open_log(topic_partition, topic.topic_id, settings.log)
            except BrokerError as reason:
                # This one partition stays offline; the broker lives on for all the others.
                logger.error("partition %s is offline: %s", topic_partition, reason)  # noqa: TRY400
                continue
            self._partitions[topic.name, index] = Partition(
                topic_partition,
                topic.topic_id,
                state.leader_epoch,
                log,
                self._flusher,
                in_sync_replicas=len(state.in_sync),
                min_in_sync_replicas=settings.min_in_sync_replicas,
            )

    def _open_log(
        self, topic_partition: TopicPartition, topic_id: uuid.UUID, config: LogConfig
    ) -> PartitionLog:
        try:
            return self._logs.create_log(topic_partition, topic_id, config)
        except InconsistentTopicId:
            # An earlier topic of this name left its folder behind.
            self._logs.set_aside_log(topic_partition)
            return self._logs.create_log(topic_partition, topic_id, config)

    def _drop(self, topic: Topic) -> None:
        gone = UnknownTopicOrPartition(f"topic {topic.name!r} was deleted")
        for index in range(len(topic.partitions)):
            partition = self._partitions.pop((topic.name, index), None)
            if partition is not None:
                partition.retire(gone)
                self._logs.delete_log(partition.topic_partition)
        logger.info("dropped topic %s", topic.name)

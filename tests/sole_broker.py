"""Partitions of a broker without a cluster, for tests that need a real Partition and no store."""

import uuid
from collections.abc import Mapping

from zhumq.host.clock import Clock, SystemClock
from zhumq.metadata.changes import BrokerRegistered, TopicCreated, apply_changes
from zhumq.metadata.image import Broker, ClusterImage, PartitionState, Topic
from zhumq.model.ids import BrokerId, LeaderEpoch
from zhumq.model.replication_mode import Mode
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.replication.replication import PartitionSettings, Replication
from zhumq.storage.flusher import Flusher
from zhumq.storage.log_config import LogConfig
from zhumq.storage.log_manager import LogManager

BROKER = BrokerId(0)
BROKER_EPOCH = 0
LED = PartitionState(
    replicas=(BROKER,),
    leader=BROKER,
    leader_epoch=LeaderEpoch(0),
    in_sync=(BROKER,),
    mode=Mode.FETCH,
)


def image_of(topics: Mapping[str, uuid.UUID], partitions: int = 1) -> ClusterImage:
    """The metadata of one broker that leads the partitions of these topics."""
    empty = ClusterImage(
        version=0,
        cluster_id="of one",
        controller_id=BROKER,
        brokers={},
        topics={},
        topics_by_id={},
    )
    created = [
        TopicCreated(topic=Topic(name=name, topic_id=topic_id, partitions=(LED,) * partitions))
        for name, topic_id in topics.items()
    ]
    broker = Broker(broker_id=BROKER, host="127.0.0.1", port=1, epoch=BROKER_EPOCH)
    return apply_changes(empty, [BrokerRegistered(broker=broker), *created])


def serve(
    logs: LogManager,
    flusher: Flusher,
    image: ClusterImage,
    *,
    config: LogConfig | None = None,
    clock: Clock | None = None,
) -> ReplicaManager:
    """A ReplicaManager that serves the partitions of the image."""
    settings = PartitionSettings(log_config=config or LogConfig(), min_in_sync_replicas=1)
    replicas = ReplicaManager(
        BROKER,
        logs,
        flusher,
        lambda _: settings,
        Replication.of_one(BROKER, lambda: image, clock or SystemClock()),
    )
    replicas.apply(image)
    replicas.on_registered(BROKER_EPOCH)
    return replicas

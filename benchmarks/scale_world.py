"""Builds synthetic clusters of any size: brokers, placed topics and their metadata images."""

import uuid
from dataclasses import dataclass, field
from functools import cached_property

from zhumq.metadata.changes import BrokerRegistered, Change, TopicCreated, apply_changes
from zhumq.metadata.image import Broker, ClusterImage, PartitionState, Topic
from zhumq.metadata.placement import place
from zhumq.metadata.topics import FIRST_LEADER_EPOCH
from zhumq.model.ids import BrokerId
from zhumq.model.replication_mode import Mode

REPLICAS = 3
SESSION_EPOCH = 1_000_000  # of a broker: the version of the metadata image it registered in


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large a cluster is. Partitions are counted once, not per replica."""

    brokers: int
    partitions_per_broker: int = 1_000
    partitions_per_topic: int = 100

    @property
    def partitions(self) -> int:
        return self.brokers * self.partitions_per_broker

    @property
    def topics(self) -> int:
        return max(1, self.partitions // self.partitions_per_topic)


@dataclass(frozen=True, kw_only=True)
class World:
    """A cluster of one size, placed by the ring."""

    size: Size
    members: list[Broker] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "members", members(self.size.brokers))

    @cached_property
    def placed(self) -> list[list[tuple[BrokerId, ...]]]:
        """The replicas of each partition, by topic."""
        return placement(self.members, self.size)

    def image(self, mode: Mode) -> ClusterImage:
        """The metadata image, with every partition led by its first replica and all replicas in sync."""
        registered: list[Change] = [BrokerRegistered(broker=each) for each in self.members]
        topics: list[Change] = [
            TopicCreated(topic=self._topic(number, mode)) for number in range(self.size.topics)
        ]
        return apply_changes(empty_image(), [*registered, *topics])

    def _topic(self, number: int, mode: Mode) -> Topic:
        placed = self.placed[number]
        return Topic(
            name=topic_name(number),
            topic_id=uuid.UUID(int=number + 1),
            partitions=tuple(led_partition(replicas, mode) for replicas in placed),
        )


def members(count: int, racks: int = 0) -> list[Broker]:
    """Brokers with addresses as long as real ones."""
    return [
        Broker(
            broker_id=BrokerId(number),
            host=f"broker-{number}.zhumq.example.net",
            port=9_092,
            rack=f"rack-{number % racks}" if racks else None,
            epoch=SESSION_EPOCH + number,
            replica_host=f"broker-{number}.zhumq.example.net",
            replica_port=9_093,
        )
        for number in range(count)
    ]


def placement(
    brokers: list[Broker], size: Size, partitions_max: int | None = None
) -> list[list[tuple[BrokerId, ...]]]:
    """The replicas of each partition of each topic, or of the first topics."""
    limit = size.partitions if partitions_max is None else min(size.partitions, partitions_max)
    copies = min(REPLICAS, len(brokers))
    return [
        place(brokers, topic_name(number), size.partitions_per_topic, copies)
        for number in range(max(1, limit // size.partitions_per_topic))
    ]


def topic_name(number: int) -> str:
    return f"orders.region-{number:06d}"


def led_partition(replicas: tuple[BrokerId, ...], mode: Mode) -> PartitionState:
    return PartitionState(
        replicas=replicas,
        leader=replicas[0],
        leader_epoch=FIRST_LEADER_EPOCH,
        # A separate tuple with equal contents, as in a metadata image that was read.
        in_sync=tuple([*replicas]),  # noqa: C409
        leader_broker_epoch=SESSION_EPOCH + replicas[0],
        mode=mode,
    )


def empty_image() -> ClusterImage:
    return ClusterImage(
        version=0,
        cluster_id="scale",
        controller_id=BrokerId(0),
        brokers={},
        topics={},
        topics_by_id={},
    )

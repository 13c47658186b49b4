"""Positions of subscription groups, as one broker knows them."""

import uuid
from collections.abc import Iterable, Mapping

from zhumq.coordinators.delivery_seam import GroupPosition
from zhumq.coordinators.share_partition_delivery import SharePartitionDelivery
from zhumq.metadata.image import Topic
from zhumq.protocol.messages.delivery_state import DescribedSharePartition
from zhumq.replication.replica_manager import ReplicaManager


def group_positions(
    opened: Iterable[SharePartitionDelivery],
    kept: Iterable[DescribedSharePartition],
    *,
    topics: Mapping[uuid.UUID, Topic],
    replicas: ReplicaManager,
) -> list[GroupPosition]:
    """Open share partitions of this broker, and persisted positions of those that are not open."""
    found = {
        (
            share_partition.group,
            share_partition.key.topic_id,
            share_partition.partition,
        ): GroupPosition(
            group=share_partition.group,
            topic=share_partition.topic,
            partition=share_partition.partition,
            start_offset=share_partition.start_offset,
            done_count=share_partition.done_count,
            end_offset=share_partition.served.high_watermark,
            in_flight=share_partition.in_flight,
            is_open=True,
            consumers=tuple(sorted(share_partition.members)),
        )
        for share_partition in opened
    }
    for share_partition in kept:
        topic = topics.get(share_partition.topic_id)
        key = (share_partition.group_id, share_partition.topic_id, share_partition.partition)
        if topic is None or key in found:
            continue
        served = replicas.find(topic.name, share_partition.partition)
        found[key] = GroupPosition(
            group=share_partition.group_id,
            topic=topic.name,
            partition=share_partition.partition,
            start_offset=share_partition.start_offset,
            done_count=share_partition.done_count,
            end_offset=None if served is None else served.high_watermark,
        )
    return list(found.values())

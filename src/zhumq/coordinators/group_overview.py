"""Where the groups of subscriptions stand, as one broker knows it: what it serves, and what it keeps."""

import uuid
from collections.abc import Iterable, Mapping

from zhumq.coordinators.delivery_seam import GroupPosition
from zhumq.coordinators.delivery_window import WindowDelivery
from zhumq.metadata.image import Topic
from zhumq.protocol.messages.delivery_state import DescribedWindow
from zhumq.replication.replica_manager import ReplicaManager


def group_positions(
    opened: Iterable[WindowDelivery],
    kept: Iterable[DescribedWindow],
    *,
    topics: Mapping[uuid.UUID, Topic],
    replicas: ReplicaManager,
) -> list[GroupPosition]:
    """Partitions that consumers read through this broker, and positions written down on it that they do not."""
    found = {
        (window.group, window.key.topic_id, window.partition): GroupPosition(
            group=window.group,
            topic=window.topic,
            partition=window.partition,
            start_offset=window.start_offset,
            done_count=window.done_count,
            end_offset=window.served.high_watermark,
            in_flight=window.in_flight,
            is_open=True,
            consumers=tuple(sorted(window.members)),
        )
        for window in opened
    }
    for window in kept:
        topic = topics.get(window.topic_id)
        key = (window.group_id, window.topic_id, window.partition)
        if topic is None or key in found:
            continue
        served = replicas.find(topic.name, window.partition)
        found[key] = GroupPosition(
            group=window.group_id,
            topic=topic.name,
            partition=window.partition,
            start_offset=window.start_offset,
            done_count=window.done_count,
            end_offset=None if served is None else served.high_watermark,
        )
    return list(found.values())

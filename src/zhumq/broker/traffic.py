"""Traffic by topic: messages and bytes in and out of the partitions that this broker leads, from counters of their logs."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from zhumq.model.ids import TopicPartition
from zhumq.model.metric import Metric
from zhumq.replication.partition import Partition
from zhumq.replication.replica_manager import ReplicaManager

PARTITIONS_PER_TURN: Final = 200  # looked at before others have the event loop


class _Seen(NamedTuple):
    """The counters of a partition when they were last read."""

    partition: Partition
    log_end_offset: int
    bytes_written: int
    sent_messages: int
    sent_bytes: int

    @classmethod
    def of(cls, partition: Partition) -> "_Seen":
        return cls(
            partition,
            partition.log_end_offset,
            partition.bytes_written,
            partition.sent_messages,
            partition.sent_bytes,
        )


@dataclass(slots=True, kw_only=True)
class TopicTraffic:
    """What a topic received and sent here since the start. Partitions count while this broker leads them."""

    received_messages: int = 0
    received_bytes: int = 0
    sent_messages: int = 0
    sent_bytes: int = 0
    size_bytes: int = 0  # of the led partitions, when they were last read


class Traffic:
    """Reads the counters of all partitions from time to time. Requests cost nothing extra."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._seen: dict[TopicPartition, _Seen] = {}
        self._topics: dict[str, TopicTraffic] = {}

    @property
    def topics(self) -> Mapping[str, TopicTraffic]:
        """The topics of which this broker has replicas."""
        return self._topics

    async def look(self) -> None:
        """Read the counters."""
        seen: dict[TopicPartition, _Seen] = {}
        sizes: dict[str, int] = {}
        for number, partition in enumerate(self._replicas, start=1):
            name = partition.topic_partition
            now = seen[name] = _Seen.of(partition)
            sizes.setdefault(name.topic, 0)
            # Consumers may read from a follower as well.
            topic = self._topics.setdefault(name.topic, TopicTraffic())
            before = self._seen.get(name)
            if before is None or before.partition is not partition:
                before = _first_seen(now)
            topic.sent_messages += now.sent_messages - before.sent_messages
            topic.sent_bytes += now.sent_bytes - before.sent_bytes
            if partition.leads:
                sizes[name.topic] += partition.size_bytes
                topic.received_bytes += now.bytes_written - before.bytes_written
                topic.received_messages += max(now.log_end_offset - before.log_end_offset, 0)
            if number % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
        self._seen = seen
        self._topics = {name: self._topics[name] for name in sizes}
        for topic_name, size_bytes in sizes.items():
            self._topics[topic_name].size_bytes = size_bytes

    def metrics(self) -> Iterable[Metric]:
        for name, help_text in (
            ("received_messages", "Messages that a topic received, at the leader."),
            ("received_bytes", "Bytes that a topic received, at the leader, as stored."),
            (
                "sent_messages",
                "Messages of a topic that were sent to consumers, repetitions included.",
            ),
            ("sent_bytes", "Bytes of a topic that were sent to consumers, as stored."),
        ):
            yield Metric(
                name=f"zhumq_topic_{name}_total",
                kind="counter",
                help=f"{help_text} Counted every ten seconds.",
                labels=("topic",),
                samples=[
                    (f'{{topic="{topic}"}}', getattr(traffic, name))
                    for topic, traffic in self._topics.items()
                ],
            )


def _first_seen(now: _Seen) -> _Seen:
    """The counters before a partition was seen first: of a new one, all that is in it is new."""
    partition = now.partition
    is_new = now.bytes_written == partition.size_bytes
    end_offset = partition.log_start_offset if is_new else now.log_end_offset
    return now._replace(log_end_offset=end_offset, bytes_written=0, sent_messages=0, sent_bytes=0)

"""Limits the rate at which a leader copies partitions to brokers that a reassignment adds."""

from typing import Final

from zhumq.host.clock import Clock
from zhumq.metadata.image import ClusterImage
from zhumq.model.ids import TopicPartition
from zhumq.model.settings import INT64_MAX

UNLIMITED: Final = INT64_MAX


class MoveThrottle:
    """Bytes per second that this broker, as leader, sends to replicas that are being added.

    The bytes are accounted for after they are sent: one read may exceed the rate, and the next read
    waits longer.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._image: ClusterImage | None = None
        self._bytes_per_second = UNLIMITED
        self._owed_bytes = 0.0
        self._owed_since_ms = 0

    def see(self, image: ClusterImage, bytes_per_second: int) -> None:
        """Set the metadata image and the rate."""
        self._settle()
        self._image = image
        self._bytes_per_second = bytes_per_second

    def pause_ms(self, topic_partition: TopicPartition, broker_id: int) -> int:
        """How long that broker has to wait for records of the partition; 0: it may have some now."""
        if not self._counts(topic_partition, broker_id):
            return 0
        self._settle()
        return int(self._owed_bytes * 1000 / self._bytes_per_second)

    def sent(self, topic_partition: TopicPartition, broker_id: int, size: int) -> None:
        if self._counts(topic_partition, broker_id):
            self._settle()
            self._owed_bytes += size

    def _counts(self, topic_partition: TopicPartition, broker_id: int) -> bool:
        if self._bytes_per_second == UNLIMITED or self._image is None:
            return False
        state = self._image.partition(topic_partition)
        if state is None or broker_id in state.in_sync:
            # Producers wait for in-sync replicas: those are not throttled.
            return False
        # A broker that is no replica in this image has learned of its reassignment before this leader.
        return broker_id in state.adding or broker_id not in state.replicas

    def _settle(self) -> None:
        now_ms = self._clock.monotonic_ms()
        paid = (now_ms - self._owed_since_ms) * self._bytes_per_second / 1000
        self._owed_bytes = max(self._owed_bytes - paid, 0.0)
        self._owed_since_ms = now_ms

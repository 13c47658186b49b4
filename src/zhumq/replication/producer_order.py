"""Keeps the batches of idempotent producers in order while the leader of a partition changes."""

from collections.abc import Mapping
from typing import Final

from zhumq.model.errors import BrokerError, NotLeaderOrFollower, OutOfOrderSequenceNumber
from zhumq.model.ids import TopicPartition
from zhumq.replication.refused_batches import RefusedBatches
from zhumq.storage.producer_state import ProducerEntry

# For how long after the first append of its epoch a leader treats a sequence gap as a batch on its way.
SETTLING_MS: Final = 10_000


class ProducerOrder:
    """Refuses batches that overtook others which the last leader, or this one before it served, refused."""

    __slots__ = ("_epoch", "_refused", "_settled_at_ms", "_topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self._topic_partition = topic_partition
        self._refused = RefusedBatches()
        # The epoch of the last append, and until when a sequence gap is retriable in it.
        self._epoch = -1
        self._settled_at_ms = 0

    def refuse(self, batches: bytes | memoryview, now_ms: int) -> None:
        """The producer got a retriable error for these batches."""
        self._refused.add(batches, now_ms)

    def begin(self, leader_epoch: int, now_ms: int) -> bool:
        """Begin an append. The first one of an epoch starts the settling time, in which producers find this
        leader. Returns whether refused batches have to come first: then each append has to be checked."""
        if self._epoch != leader_epoch:
            self._epoch = leader_epoch
            self._settled_at_ms = now_ms + SETTLING_MS
        return bool(self._refused) and self._refused.any_left(now_ms)

    def check(self, batches: bytes | memoryview, producers: Mapping[int, ProducerEntry]) -> None:
        """NotLeaderOrFollower if an earlier batch of this producer was refused and is not written yet."""
        if self._refused.holds_back(batches, producers):
            raise NotLeaderOrFollower(
                f"{self._topic_partition}: an earlier batch of this producer was refused, and the"
                " producer has not sent it again yet"
            )

    def error_for(self, gap: OutOfOrderSequenceNumber, now_ms: int) -> BrokerError:
        """The error for a producer whose sequence has a gap."""
        if now_ms >= self._settled_at_ms:
            return gap
        # The last leader may have refused the batch before this one: the producer sends both
        # again, in order. RefusedBatches says what OutOfOrderSequenceNumber would cost.
        return NotLeaderOrFollower(
            f"{self._topic_partition} has just changed its leader, and {gap}"
        )

"""Keeps the key indexes of the partitions that this broker leads, a little work at a time, behind the log."""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from typing import Final

from zhumq.coordinators.background_pace import BackgroundPace
from zhumq.coordinators.changed_settings import ChangedSettings
from zhumq.metadata.image import ClusterImage
from zhumq.model.errors import BrokerError, CorruptMessage
from zhumq.model.ids import TopicPartition
from zhumq.replication.partition import Partition
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.replication.tail import Tail
from zhumq.storage.key_indexes import KeyIndexes

logger = logging.getLogger(__name__)

READ_BYTES: Final = 64 * 1024
STEPS_PER_TURN: Final = 4  # of at most 128 records, or 64 pages
# From the first new record to the next look: all others come without a call.
WAKE_SECONDS: Final = 0.1
RETRY_SECONDS: Final = 10.0


class _Followed:
    """A partition whose index is kept."""

    __slots__ = ("indexes", "is_failing", "partition", "tail", "timer", "work")

    def __init__(self, partition: Partition, indexes: KeyIndexes) -> None:
        self.partition = partition
        self.indexes = indexes
        self.work: Iterator[None] | None = indexes.resume()
        self.tail: Tail | None = None  # while everything is indexed
        self.timer: asyncio.TimerHandle | None = None  # until it is looked at again
        self.is_failing = False


class KeyIndexer:
    """Follows the partitions of this broker whose topics set index.keys. Only leaders keep indexes."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._loop = asyncio.get_running_loop()
        self._settings = ChangedSettings()
        self._followed: dict[TopicPartition, _Followed] = {}
        self._queue: deque[_Followed] = deque()
        self._turns: asyncio.Handle | None = None
        self._pace = BackgroundPace()
        replicas.watch_leadership(self._on_leadership)

    def apply(self, image: ClusterImage) -> None:
        """The settings of topics may have changed. Called after the partitions have got them."""
        for topic_partition in self._settings.apply(image):
            partition = self._replicas.find(*topic_partition)
            if partition is not None:
                self._follow_or_not(partition, leads=partition.is_current)

    def wake(self, topic_partition: TopicPartition) -> None:
        """A part of the index was found to be damaged: build it again."""
        followed = self._followed.get(topic_partition)
        if followed is not None and followed.tail is not None:
            self._enqueue(followed)

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def lag(self) -> int:
        """How many offsets are not indexed yet."""
        return sum(
            max(
                each.partition.high_watermark
                - each.indexes.next_offset(each.partition.log_start_offset),
                0,
            )
            for each in self._followed.values()
        )

    def close(self) -> None:
        if self._turns is not None:
            self._turns.cancel()
            self._turns = None
        for topic_partition in tuple(self._followed):
            self._unfollow(topic_partition)

    def _on_leadership(self, topic_partition: TopicPartition, leads: bool, _epoch: int) -> None:
        partition = self._replicas.find(*topic_partition)
        if partition is None:
            self._unfollow(topic_partition)
        else:
            self._follow_or_not(partition, leads=leads)

    def _follow_or_not(self, partition: Partition, *, leads: bool) -> None:
        topic_partition = partition.topic_partition
        indexes = partition.key_indexes if leads else None
        known = self._followed.get(topic_partition)
        if known is not None and (indexes is None or known.partition is not partition):
            self._unfollow(topic_partition)
            known = None
        if indexes is not None and known is None:
            followed = self._followed[topic_partition] = _Followed(partition, indexes)
            self._enqueue(followed)

    def _unfollow(self, topic_partition: TopicPartition) -> None:
        followed = self._followed.pop(topic_partition, None)
        if followed is None:
            return
        if followed.tail is not None:
            followed.tail.close()
        if followed.timer is not None:
            followed.timer.cancel()
        if followed in self._queue:
            self._queue.remove(followed)
        followed.work = None
        followed.indexes.close()

    # Turns

    def _enqueue(self, followed: _Followed) -> None:
        if followed.tail is not None:
            followed.tail.close()
            followed.tail = None
        followed.timer = None
        self._queue.append(followed)
        if self._turns is None:
            self._turns = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        followed = self._queue.popleft()
        self._pace.begin()
        try:
            is_behind = self._advance(followed)
        except BrokerError as reason:
            self._put_off(followed, reason)
        else:
            followed.is_failing = False
            if is_behind:
                self._queue.append(followed)
            else:
                self._watch(followed)
        pause = self._pace.end()
        self._turns = self._loop.call_later(pause, self._turn) if self._queue else None

    def _advance(self, followed: _Followed) -> bool:
        """Do a turn's share of the work. False if there is none left."""
        for _ in range(STEPS_PER_TURN):
            if followed.work is None:
                followed.work = self._next_work(followed)
                if followed.work is None:
                    return False
            try:
                next(followed.work)
            except StopIteration:
                followed.work = None
            except BaseException:
                followed.work = None
                raise
        return True

    def _next_work(self, followed: _Followed) -> Iterator[None] | None:
        partition, indexes = followed.partition, followed.indexes
        offset = indexes.next_offset(partition.log_start_offset)
        if offset >= partition.high_watermark:
            return None
        try:
            part = partition.read(offset, READ_BYTES)
        except CorruptMessage:
            behind = _end_of_damage(partition, offset)
            if behind is None:
                raise
            return indexes.absorb(b"", offset, behind)
        if part.next_offset <= offset:
            return None
        return indexes.absorb(part.read_bytes(), offset, part.next_offset)

    def _put_off(self, followed: _Followed, reason: BrokerError) -> None:
        if not followed.is_failing:
            followed.is_failing = True
            logger.warning(
                "%s: not indexed for now, lookups scan it: %s",
                followed.partition.topic_partition,
                reason,
            )
        followed.timer = self._loop.call_later(RETRY_SECONDS, self._enqueue, followed)

    def _watch(self, followed: _Followed) -> None:
        """Everything is indexed: wait for the next record. Its append makes the only call on its way."""

        def on_records() -> None:
            if followed.tail is not None:
                followed.tail.close()
                followed.tail = None
                followed.timer = self._loop.call_later(WAKE_SECONDS, self._enqueue, followed)

        partition = followed.partition
        followed.tail = partition.observe(
            partition.high_watermark, on_records=on_records, on_closed=lambda: None
        )


def _end_of_damage(partition: Partition, offset: int) -> int | None:
    for bad in partition.corrupt_ranges:
        if bad.first_offset <= offset < bad.next_offset:
            return bad.next_offset
    return None

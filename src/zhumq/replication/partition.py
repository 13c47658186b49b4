"""One partition as this broker serves it: its log, its high watermark, the requests that wait for it."""

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from zhumq.model.errors import (
    BrokerError,
    FencedLeaderEpoch,
    NotEnoughReplicas,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from zhumq.model.ids import LeaderEpoch, TopicPartition
from zhumq.model.isolation import Isolation
from zhumq.replication.pending import DurabilityWaiters, DurableCallback, Watcher
from zhumq.replication.tail import Tail
from zhumq.storage.flusher import Flusher
from zhumq.storage.leader_epochs import EpochStart
from zhumq.storage.log import Log
from zhumq.storage.log_config import LogConfig
from zhumq.storage.log_slice import Appended, AppendedRun, CorruptRange, LogSlice
from zhumq.storage.producer_state import ProducerEntry
from zhumq.storage.time_lookup import TimestampedOffset
from zhumq.storage.validator import WalkBudget

# How long an append waits for other replicas by default: as long as most producers do.
DURABLE_TIMEOUT_MS: Final = 30_000
READ_COMMITTED: Final = Isolation.READ_COMMITTED


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSettings:
    """What a topic's settings mean for its partitions."""

    log_config: LogConfig
    min_in_sync_replicas: int


class Partition:
    """The leader's view of a partition with one replica.

    The only replica is always in sync, so a record is visible as soon as it is in the log;
    acks=-1 is answered when it is on the disk as well.
    """

    __slots__ = (
        "_durable",
        "_flush_requested",
        "_flusher",
        "_loop",
        "_watchers",
        "in_sync_replicas",
        "leader_epoch",
        "log",
        "min_in_sync_replicas",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        leader_epoch: LeaderEpoch,
        log: Log,
        flusher: Flusher,
        *,
        in_sync_replicas: int,
        min_in_sync_replicas: int,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.log = log
        self.in_sync_replicas = in_sync_replicas
        self.min_in_sync_replicas = min_in_sync_replicas
        self._watchers: set[Watcher] = set()
        self._flusher = flusher
        self._loop = asyncio.get_running_loop()
        self._durable = DurabilityWaiters()
        self._flush_requested = False

    @property
    def leads(self) -> bool:
        """Whether this broker serves the partition to clients."""
        return True

    @property
    def is_current(self) -> bool:
        """Whether it leads and has every committed record: state machines run only then."""
        return True

    @property
    def is_intact(self) -> bool:
        """Whether the replica is not recovering lost data."""
        return True

    def check_leads(self) -> None:
        """NotLeaderOrFollower unless this broker serves the partition."""

    @property
    def waiters_count(self) -> int:
        """How many appends wait until they are durable."""
        return len(self._durable)

    @property
    def high_watermark(self) -> int:
        """Where consumers have to stop."""
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """Where consumers that read committed records have to stop."""
        return self.high_watermark

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    def end_offset(self, isolation: Isolation) -> int:
        """Where consumers of this isolation level have to stop."""
        return self.last_stable_offset if isolation is READ_COMMITTED else self.high_watermark

    # Facts of the log, for requests and metrics

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return self.log.size_bytes

    @property
    def corrupt_ranges(self) -> tuple[CorruptRange, ...]:
        """Damaged ranges, which readers are refused."""
        return self.log.corrupt_ranges

    @property
    def failure(self) -> BrokerError | None:
        """Why the log is offline; None while it works."""
        return self.log.failure

    @property
    def producers(self) -> Mapping[int, ProducerEntry]:
        """The idempotent producers whose last batches are remembered, by producer id."""
        return self.log.producer_state.producers

    def epoch_of(self, offset: int) -> int:
        """The leader epoch in which this offset was written; -1 if it is not known."""
        return self.log.epoch_of(offset)

    def end_offset_for_epoch(self, epoch: int) -> EpochStart:
        """The largest known epoch not above this one, and the offset where it ends."""
        return self.log.end_offset_for_epoch(epoch)

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first record that is not older than this timestamp."""
        return self.log.offset_for_timestamp(timestamp)

    def max_timestamp_offset(self) -> TimestampedOffset | None:
        """The record with the largest timestamp."""
        return self.log.max_timestamp_offset()

    # Appending and reading

    def append(
        self, batches: bytes | memoryview, now_ms: int, budget: WalkBudget | None = None
    ) -> Appended:
        """Append whole batches as the leader, and notify the watchers."""
        appended = self.log.append(
            batches, leader_epoch=self.leader_epoch, now_ms=now_ms, budget=budget
        )
        if self._watchers and not appended.duplicate:
            self._notify_watchers(len(batches))
        return appended

    def append_each(self, batches: Sequence[memoryview], now_ms: int) -> AppendedRun:
        """Append the first of several requests in one write, up to one that is refused or a repeat.

        Raises what refuses them all.
        """
        appended = self.log.append_each(batches, leader_epoch=self.leader_epoch, now_ms=now_ms)
        if self._watchers and appended.size:
            self._notify_watchers(appended.size)
        return appended

    def remember_refused(
        self, batches: bytes | memoryview, reason: BrokerError, now_ms: int
    ) -> None:
        """Remember batches that were not appended: the producer got this error."""

    def check_enough_replicas(self) -> None:
        """Refuse acks=-1 while fewer than min.insync.replicas are in sync."""
        if self.in_sync_replicas < self.min_in_sync_replicas:
            raise NotEnoughReplicas(
                f"{self.topic_partition}: {self.in_sync_replicas} replicas are in sync,"
                f" min.insync.replicas is {self.min_in_sync_replicas}"
            )

    def is_durable(self, next_offset: int) -> bool:
        return self.log.flushed_offset >= next_offset

    def call_when_durable(
        self,
        next_offset: int,
        callback: DurableCallback,
        timeout_ms: int = DURABLE_TIMEOUT_MS,  # noqa: ARG002 (for other replicas; the disk always answers)
    ) -> None:
        """Call back once everything below the offset is on the disk. Waiters share flushes."""
        self._durable.add(next_offset, callback)
        if not self._flush_requested:
            self._flush_requested = True
            self._flusher.request(self.log, self._flushed)

    def when_durable(self, next_offset: int) -> asyncio.Future[None]:
        """The same as a future."""
        future: asyncio.Future[None] = self._loop.create_future()
        if self.is_durable(next_offset):
            future.set_result(None)
            return future

        def settle(failure: BrokerError | None) -> None:
            if future.done():
                return
            if failure is None:
                future.set_result(None)
            else:
                future.set_exception(failure)

        self.call_when_durable(next_offset, settle)
        return future

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        isolation: Isolation | None = None,
        at_least_one: bool = True,
    ) -> LogSlice:
        """Whole batches from an offset up to where this isolation level ends.

        A consumer gets no batches without records, so the result may be empty while the offset is
        below the high watermark. The broker's own readers give no level and get every batch.
        """
        high_watermark = self.high_watermark
        if not self.log.log_start_offset <= offset <= high_watermark:
            raise OffsetOutOfRange(
                f"{self.topic_partition}: offset {offset} is outside of"
                f" {self.log.log_start_offset} to {high_watermark}"
            )
        end = self.last_stable_offset if isolation is READ_COMMITTED else high_watermark
        return self.log.read(
            offset,
            max_bytes=max_bytes,
            up_to_offset=end,
            at_least_one=at_least_one and offset < end,
            for_consumer=isolation is not None,
        )

    def observe(
        self, offset: int, *, on_records: Callable[[], None], on_closed: Callable[[], None]
    ) -> Tail:
        """Follow the partition from an offset on. Records that are visible already are not announced."""
        tail = Tail(self, offset, on_records, on_closed)
        self.watch(tail)
        return tail

    def watch(self, watcher: Watcher) -> None:
        self._watchers.add(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)

    def delete_records_before(self, offset: int) -> int:
        """Raise the log start offset to `offset`, which is not above the high watermark; returns it."""
        return self.log.delete_records_before(offset)

    def check_leader_epoch(self, known_epoch: int) -> None:
        """Refuse a client that knows an older or a newer leader epoch. -1: the client does not name one."""
        if known_epoch < 0 or known_epoch == self.leader_epoch:
            return
        if known_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(
                f"{self.topic_partition}: epoch {known_epoch} is over, now {self.leader_epoch}"
            )
        raise UnknownLeaderEpoch(
            f"{self.topic_partition}: epoch {known_epoch} is not known, now {self.leader_epoch}"
        )

    def retire(self, reason: BrokerError) -> None:
        """Stop serving the partition: fail the waiting appends, retire the watchers."""
        self._durable.failed(reason)
        self._retire_watchers()

    def _notify_watchers(self, size: int) -> None:
        for watcher in tuple(self._watchers):
            if watcher in self._watchers:  # Another one may have ended its watch.
                watcher.on_bytes(size)

    def _retire_watchers(self) -> None:
        for watcher in tuple(self._watchers):
            if watcher in self._watchers:
                watcher.on_retired()

    def _flushed(self, failure: BrokerError | None) -> None:
        self._flush_requested = False
        if failure is not None:
            self._durable.failed(failure)
            return
        self._durable.reached(self.log.flushed_offset)
        if self._durable:
            self._flush_requested = True
            self._flusher.request(self.log, self._flushed)

"""One partition as this broker serves it: its log, its high watermark, the requests that wait for it."""

import asyncio
import uuid
from collections.abc import Sequence
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
from zhumq.replication.pending import DurabilityWaiters, DurableCallback, ParkedFetch
from zhumq.storage.flusher import Flusher
from zhumq.storage.log_config import LogConfig
from zhumq.storage.log_slice import Appended, LogSlice
from zhumq.storage.partition_log import PartitionLog
from zhumq.storage.validator import WalkBudget

# How long an append waits for other replicas by default: as long as most producers do.
DURABLE_TIMEOUT_MS: Final = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSettings:
    """What a topic's settings mean for its partitions."""

    log: LogConfig
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
        "in_sync_replicas",
        "leader_epoch",
        "log",
        "min_in_sync_replicas",
        "parked_fetches",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        leader_epoch: LeaderEpoch,
        log: PartitionLog,
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
        self.parked_fetches: set[ParkedFetch] = set()
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

    def append(
        self, batches: bytes | memoryview, now_ms: int, budget: WalkBudget | None = None
    ) -> Appended:
        """Append whole batches as the leader, and notify the fetches that wait for them."""
        appended = self.log.append(
            batches, leader_epoch=self.leader_epoch, now_ms=now_ms, budget=budget
        )
        if self.parked_fetches and not appended.duplicate:
            self._notify_fetches(len(batches))
        return appended

    def append_each(self, batches: Sequence[memoryview], now_ms: int) -> list[int] | None:
        """Append in one write. Returns the offsets; None if each batch has to go through `append`."""
        offsets = self.log.append_each(batches, leader_epoch=self.leader_epoch, now_ms=now_ms)
        if self.parked_fetches and offsets is not None:
            self._notify_fetches(sum(map(len, batches)))
        return offsets

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
        self, offset: int, max_bytes: int, *, at_least_one: bool = True, for_consumer: bool = False
    ) -> LogSlice:
        """Whole batches from an offset up to the high watermark.

        A consumer gets no batches without records, so the result may be empty while the offset is
        below the high watermark. The broker's own readers get every batch.
        """
        high_watermark = self.high_watermark
        if not self.log.log_start_offset <= offset <= high_watermark:
            raise OffsetOutOfRange(
                f"{self.topic_partition}: offset {offset} is outside of"
                f" {self.log.log_start_offset} to {high_watermark}"
            )
        return self.log.read(
            offset,
            max_bytes=max_bytes,
            up_to_offset=high_watermark,
            at_least_one=at_least_one,
            for_consumer=for_consumer,
        )

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
        """Stop serving the partition: fail the waiting appends, wake the parked fetches."""
        self._durable.failed(reason)
        for parked in tuple(self.parked_fetches):
            parked.wake()

    def _notify_fetches(self, size: int) -> None:
        for parked in tuple(self.parked_fetches):
            parked.bytes_arrived(size)

    def _flushed(self, failure: BrokerError | None) -> None:
        self._flush_requested = False
        if failure is not None:
            self._durable.failed(failure)
            return
        self._durable.reached(self.log.flushed_offset)
        if self._durable:
            self._flush_requested = True
            self._flusher.request(self.log, self._flushed)

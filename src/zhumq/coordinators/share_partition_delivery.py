"""An open share partition: reads the log, delivers records, persists acknowledgements, writes dead letters."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from zhumq.coordinators.batch_reader import BatchReader
from zhumq.coordinators.dead_letters import DeadLetterWriter, plan_dead_letters
from zhumq.coordinators.delivery_seam import NO_EPOCH, Delivered, Owner
from zhumq.coordinators.delivery_state import SharePartitionStore
from zhumq.coordinators.filtered_batches import FilteredBatches
from zhumq.coordinators.filtered_progress import FilteredProgress
from zhumq.coordinators.filtered_reader import FilteredReader
from zhumq.coordinators.group_positions import PositionMirror
from zhumq.filters.filter import Filter
from zhumq.host.clock import Clock
from zhumq.host.deadline_timer import DeadlineTimer
from zhumq.model.errors import (
    BrokerError,
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
    NotLeaderOrFollower,
)
from zhumq.replication.partition import Partition
from zhumq.share.acknowledgement import AckKind, Acknowledgement
from zhumq.share.partition_state import SharePartitionUpdate
from zhumq.share.persisted import SharePartitionKey
from zhumq.share.share_partition import SharePartition, SharePartitionLimits
from zhumq.share.subscription import PartitionTaken

logger = logging.getLogger(__name__)

READS_PER_ACQUIRE_MAX: Final = 16
DEAD_LETTER_RETRY_SECONDS: Final = 2.0


class SharePartitionDelivery:
    """A `Delivery` of the seam."""

    def __init__(
        self,
        key: SharePartitionKey,
        partition: Partition,
        share_partition: SharePartition,
        store: SharePartitionStore,
        *,
        dead_letters: DeadLetterWriter,
        filtered_batches: FilteredBatches,
        clock: Clock,
        on_closed: Callable[["SharePartitionDelivery"], None],
    ) -> None:
        self.key = key
        self.leader_epoch = partition.leader_epoch
        self.served = partition
        self._share_partition = share_partition
        self._store = store
        self._dead_letters = dead_letters
        self._clock = clock
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._owner: Owner | None = None
        self._failure: BrokerError | None = None
        self._watchers: dict[int, Callable[[], None]] = {}
        self._watchers_count = 0
        self._wake_scheduled = False
        self._timer = DeadlineTimer(clock.monotonic_ms, self._expire)
        # Updates that are not persisted yet, and the futures that wait for them. One write at a time.
        self._unwritten: SharePartitionUpdate | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._writer: asyncio.Task[None] | None = None
        self._dead_lettering: asyncio.Task[None] | None = None
        self._reader = BatchReader(partition)
        self._filtered_batches = filtered_batches
        self._filtered_reader: FilteredReader | None = None
        self._filtered_progress = FilteredProgress(
            lambda: share_partition.filtered, lambda: self._apply(share_partition.skipped())
        )
        self.members: set[str] = set()
        self.opened_count = 0  # how often it was opened
        # Set if the owner's position is also committed to `__consumer_offsets`.
        self.mirror: PositionMirror | None = None
        self._mirrored_offset = share_partition.start_offset
        self.acquired_total = 0
        self.acknowledged_total = 0
        self.nacked_total = 0
        self.rejected_total = 0
        self.dead_letters_total = 0
        self._tail = partition.observe(
            share_partition.start_offset,
            on_records=self._on_records,
            on_closed=self._on_partition_retired,
        )
        self._set_timer()
        self._dead_letter_if_due()

    # Facts

    @property
    def group(self) -> str:
        return self.key.group_id

    @property
    def topic(self) -> str:
        return self.served.topic_partition.topic

    @property
    def partition(self) -> int:
        return self.key.partition

    @property
    def is_closed(self) -> bool:
        return self._failure is not None

    @property
    def start_offset(self) -> int:
        return self._share_partition.start_offset

    @property
    def lag(self) -> int:
        share_partition = self._share_partition
        return max(
            self.served.high_watermark - share_partition.start_offset - share_partition.done_count,
            0,
        )

    @property
    def done_count(self) -> int:
        """Number of done records above the start offset."""
        return self._share_partition.done_count

    @property
    def in_flight(self) -> int:
        return self._share_partition.acquired_count

    @property
    def is_idle(self) -> bool:
        """No member has acquired records of it or watches it."""
        return not (self.members or self._watchers or self._share_partition.acquired_count)

    @property
    def redeliveries(self) -> int:
        return self._share_partition.redeliveries

    @property
    def limits(self) -> SharePartitionLimits:
        return self._share_partition.limits

    @limits.setter
    def limits(self, limits: SharePartitionLimits) -> None:
        self._share_partition.limits = limits

    @property
    def filtered_total(self) -> int:
        """Number of messages that a filter excluded."""
        return self._share_partition.filtered

    def held_by(self, member: str) -> int:
        return self._share_partition.held_by(member)

    # Called by the push and share-fetch services

    def take_over(self, owner: Owner, *, waits_for_chooser: bool = False) -> None:
        """Make `owner` the only member that may acquire.

        Raises FencedLeaderEpoch if the current owner has a later epoch. With `waits_for_chooser`, raises
        PartitionTaken if one of both members chose the partition and the current owner is still there.
        """
        before = self._owner
        if before is not None and before.member != owner.member:
            chosen = NO_EPOCH in (owner.epoch, before.epoch)
            if waits_for_chooser and chosen and before.member in self.members:
                raise PartitionTaken(
                    f"{self.topic}-{self.partition} has its consumer in group {self.group!r}"
                    " already: choose another partition, or stop that consumer"
                )
            if NO_EPOCH < owner.epoch < before.epoch:
                raise FencedLeaderEpoch(
                    f"{before.member!r} owns this partition since epoch {before.epoch}:"
                    f" epoch {owner.epoch} is fenced"
                )
            self._wake_soon()
        self._owner = owner
        self._apply(self._share_partition.take_over(owner.member, self._clock.monotonic_ms()))

    def acquire(
        self,
        member: str,
        *,
        records_max: int,
        bytes_max: int = 1 << 20,
        lock_ms: int | None = None,
        whole_batches: bool = False,
        message_filter: Filter | None = None,
    ) -> list[Delivered]:
        self._check_open()
        now_ms = self._clock.monotonic_ms()
        share_partition = self._share_partition
        if self.served.log_start_offset > share_partition.start_offset:
            self._apply(share_partition.skip_to(self.served.log_start_offset))
        self.members.add(member)
        delivered: list[Delivered] = []
        records_left, bytes_left, from_offset = records_max, bytes_max, 0
        isolation = share_partition.limits.isolation
        end_offset = self.served.end_offset(isolation)
        reader = self._reader if message_filter is None else self._reader_of(message_filter)
        for _ in range(READS_PER_ACQUIRE_MAX):
            offset = share_partition.next_fetch_offset(now_ms, from_offset)
            if offset is None or offset >= end_offset:
                break
            read = reader.read(
                offset, records_left, bytes_left, at_least_one=not delivered, isolation=isolation
            )
            if not read.spans:
                break
            ranges = share_partition.acquire(
                member,
                read.spans,
                from_offset=offset,
                records_max=records_left,
                now_ms=now_ms,
                lock_ms=lock_ms,
                whole_batches=whole_batches,
            )
            from_offset = read.spans[-1].last_offset + 1
            if not ranges:
                continue  # nothing for consumers, or records that other members have acquired
            records = reader.cut_out(read, ranges)
            given = Delivered(records=records, ranges=tuple(ranges))
            delivered.append(given)
            records_left -= given.record_count
            bytes_left -= len(records)
            if records_left <= 0 or bytes_left <= 0:
                break
        self.acquired_total += records_max - records_left
        self.served.sent_messages += records_max - records_left
        self.served.sent_bytes += bytes_max - bytes_left
        self._set_timer()
        if message_filter is not None and self._filtered_progress.note() and not delivered:
            # There may be more to look at. The caller begins to watch before the loop goes on.
            self._loop.call_soon(self._wake)
        return delivered

    def _reader_of(self, message_filter: Filter) -> FilteredReader:
        reader = self._filtered_reader
        if reader is None or reader.filter is not message_filter:
            shared = self._filtered_batches
            reader = FilteredReader(self.served, message_filter, shared, self._wake_soon)
            self._filtered_reader = reader
        reader.begin()
        return reader

    async def acknowledge(
        self, member: str, acknowledgements: Sequence[Acknowledgement]
    ) -> list[BrokerError | None]:
        self._check_open()
        now_ms = self._clock.monotonic_ms()
        results: list[BrokerError | None] = []
        # One write for all: with a filter, nearly every message is a range of its own.
        updates: SharePartitionUpdate | None = None
        for each in acknowledgements:
            try:
                update = self._share_partition.acknowledge(member, each, now_ms)
            except BrokerError as reason:
                results.append(reason)
                continue
            results.append(None)
            self._count(each)
            if update:
                updates = update if updates is None else updates.merged_with(update)
        # Merged they may have no runs left, if all is below the new start offset: that is to be written, too.
        durable = None if updates is None else self._persist(updates)
        self._set_timer()
        self._wake_soon()
        if durable is not None:
            await durable
        return results

    def _count(self, acknowledgement: Acknowledgement) -> None:
        messages = acknowledgement.last_offset - acknowledgement.first_offset + 1
        match acknowledgement.kind:
            case AckKind.ACCEPT:
                self.acknowledged_total += messages
            case AckKind.REJECT:
                self.rejected_total += messages
            case AckKind.RELEASE if acknowledgement.counts:
                self.nacked_total += messages

    async def release_member(self, member: str, reason: str = "", *, counts: bool = True) -> None:
        self.members.discard(member)
        if self._failure is not None:
            return
        now_ms = self._clock.monotonic_ms()
        durable = self._apply(
            self._share_partition.release_member(member, reason, now_ms, counts=counts)
        )
        self._set_timer()
        if durable is not None:
            self._wake_soon()
            await durable
        if self.mirror is not None:
            await self.drain()
            # The next owner may read the position there.
            await self.mirror.flush()

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        self._watchers_count += 1
        number = self._watchers_count
        self._watchers[number] = callback

        def unwatch() -> None:
            self._watchers.pop(number, None)

        return unwatch

    def close(self, failure: BrokerError) -> None:
        """Stop deliveries; later calls raise `failure`."""
        # Also those of a write that failed after the share partition was closed.
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_exception(failure)
        if self._failure is not None:
            return
        self._failure = failure
        self._tail.close()
        self._timer.cancel()
        self._filtered_progress.cancel()
        if self._dead_lettering is not None:
            self._dead_lettering.cancel()
        if self.mirror is not None:
            self.mirror.close()
        self._on_closed(self)
        self._loop.call_soon(self._wake)

    async def drain(self) -> None:
        """Wait until pending updates are persisted or have failed."""
        self._filtered_progress.flush()
        while self._writer is not None:
            await asyncio.wait([self._writer])

    async def settle(self) -> None:
        """Wait until pending updates and dead letters are written."""
        self._filtered_progress.flush()
        while (work := self._dead_lettering or self._writer) is not None:
            await asyncio.wait([work])
            await asyncio.sleep(0)

    # Writing

    def _apply(self, update: SharePartitionUpdate) -> "asyncio.Future[None] | None":
        """Persist an update; the future completes when it is durable. None: there is nothing to write."""
        return self._persist(update) if update and self._failure is None else None

    def _persist(self, update: SharePartitionUpdate) -> "asyncio.Future[None]":
        unwritten = self._unwritten
        self._unwritten = update if unwritten is None else unwritten.merged_with(update)
        durable: asyncio.Future[None] = self._loop.create_future()
        # A failure closes the share partition, also if no caller awaits the future.
        durable.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._waiting.append(durable)
        if self._writer is None:
            self._writer = self._loop.create_task(self._write())
            self._writer.add_done_callback(self._on_writer_done)
        self._dead_letter_if_due()
        return durable

    def _on_writer_done(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            logger.error("writing the state of group %s failed", self.group, exc_info=failure)
            self.close(CoordinatorNotAvailable("the delivery state could not be written"))

    async def _write(self) -> None:
        try:
            while self._unwritten is not None:
                update, self._unwritten = self._unwritten, None
                waiting, self._waiting = self._waiting, []
                try:
                    await self._store.write(update)
                except BrokerError as reason:
                    logger.warning(
                        "group %s: closing the share partition on %s: %s",
                        self.group,
                        self.served.topic_partition,
                        reason,
                    )
                    self._waiting += waiting
                    self.close(reason)
                    return
                except BaseException:
                    self._waiting += waiting
                    raise
                for future in waiting:
                    if not future.done():
                        future.set_result(None)
                self._mirror(update.start_offset)
        finally:
            self._writer = None

    def _mirror(self, start_offset: int) -> None:
        owner = self._owner
        if self.mirror is not None and owner is not None and start_offset != self._mirrored_offset:
            self._mirrored_offset = start_offset
            self.mirror.moved(start_offset, owner)

    def skip_to(self, offset: int) -> None:
        """Archive what is below: a consumer that does not use this share partition has processed it."""
        self._apply(self._share_partition.skip_to(min(offset, self.served.high_watermark)))

    # Dead letters

    def _dead_letter_if_due(self) -> None:
        if (
            self._dead_lettering is None
            and self._failure is None
            and self._share_partition.archiving_count
        ):
            self._dead_lettering = self._loop.create_task(self._write_dead_letters())
            self._dead_lettering.add_done_callback(self._on_dead_lettering_done)

    def _on_dead_lettering_done(self, task: "asyncio.Task[None]") -> None:
        self._dead_lettering = None
        if not task.cancelled() and (failure := task.exception()) is not None:
            logger.error("dead letters of %s failed", self.topic, exc_info=failure)
            return
        if not task.cancelled():
            self._dead_letter_if_due()

    async def _write_dead_letters(self) -> None:
        share_partition = self._share_partition
        while self._failure is None and share_partition.archiving_count:
            dead_letter = share_partition.dead_lettering()
            try:
                if dead_letter is None:
                    dead_letter = share_partition.next_dead_letter()
                    assert dead_letter is not None
                    planned = plan_dead_letters(self.served, dead_letter)
                    self._apply(
                        share_partition.begin_dead_lettering(
                            dead_letter.first_offset, planned.last_offset
                        )
                    )
                else:
                    planned = plan_dead_letters(self.served, dead_letter)
                # The offsets are persisted before their dead letters are written: after a crash the same ones are
                # written again under the same sequence numbers, and none is delivered again.
                await self.drain()
                if self._failure is None:
                    await self._dead_letters.write(
                        self.served,
                        self.group,
                        dead_letter,
                        planned,
                        producer_id=share_partition.dead_letter_producer_id,
                        dead_letters_written=share_partition.dead_letters_written,
                    )
            except BrokerError as reason:
                logger.warning(
                    "cannot write dead letters of %s, will retry: %s", self.topic, reason
                )
                await asyncio.sleep(DEAD_LETTER_RETRY_SECONDS)
                continue
            self.dead_letters_total += len(planned.records)
            self._apply(share_partition.end_dead_lettering(len(planned.records)))
            self._wake_soon()

    # Time

    def _set_timer(self) -> None:
        if self._failure is None:
            self._timer.set(self._share_partition.next_deadline_ms)

    def _expire(self, now_ms: int) -> None:
        self._apply(self._share_partition.expire(now_ms))
        self._set_timer()
        self._wake_soon()

    # Watchers

    def _check_open(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _on_partition_retired(self) -> None:
        where = self.served.topic_partition
        self.close(NotLeaderOrFollower(f"{where} is no longer served by this broker"))

    def _on_records(self) -> None:
        if self._filtered_reader is None or not self._filtered_reader.is_waiting:
            self._wake_soon()

    def _wake_soon(self) -> None:
        if self._watchers and not self._wake_scheduled:
            self._wake_scheduled = True
            self._loop.call_soon(self._wake)

    def _wake(self) -> None:
        self._wake_scheduled = False
        for callback in tuple(self._watchers.values()):
            callback()

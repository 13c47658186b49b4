"""An open window: reads the log, hands out records, writes down what members say, and buries dead letters."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from zhumq.coordinators.batch_reader import BatchReader
from zhumq.coordinators.dead_letters import DeadLetterWriter, plan_dead_letters
from zhumq.coordinators.delivery_seam import NO_EPOCH, Delivered, Owner
from zhumq.coordinators.delivery_state import SharePartitionStore
from zhumq.coordinators.group_positions import PositionMirror
from zhumq.host.clock import Clock
from zhumq.model.errors import (
    BrokerError,
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
    NotLeaderOrFollower,
)
from zhumq.replication.partition import Partition
from zhumq.replication.pending import ParkedFetch
from zhumq.share.acknowledgement import AckKind, Acknowledgement
from zhumq.share.partition_state import SharePartitionUpdate
from zhumq.share.persisted import SharePartitionKey
from zhumq.share.share_partition import SharePartition, SharePartitionLimits
from zhumq.share.subscription import PartitionTaken

logger = logging.getLogger(__name__)

READS_PER_ACQUIRE_MAX: Final = 16
LATE_MS: Final = 1_000  # a timer this late means that the whole process stood still
CATCH_UP_SECONDS: Final = 0.2  # in which acknowledgements that lie unread are heard first
DEAD_LETTER_RETRY_SECONDS: Final = 2.0


class _Arrivals(ParkedFetch):
    """Stays parked at a partition for good, and passes on that there is something new."""

    __slots__ = ("_closed", "_notify")

    def __init__(self, notify: Callable[[], None], closed: Callable[[], None]) -> None:
        self._notify = notify
        self._closed = closed

    def bytes_arrived(self, count: int) -> None:  # noqa: ARG002  any news will do
        self._notify()

    def wake(self) -> None:
        """The partition is not served from here any more."""
        self._closed()


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
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._is_catching_up = False
        # What is decided but not written yet, and who waits for it. One write at a time.
        self._unwritten: SharePartitionUpdate | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._writer: asyncio.Task[None] | None = None
        self._dead_lettering: asyncio.Task[None] | None = None
        self._reader = BatchReader(partition)
        self.members: set[str] = set()
        self.opened_count = 0  # how often somebody asked for it
        # Set by whoever wants the position of an owner known elsewhere as well.
        self.mirror: PositionMirror | None = None
        self._mirrored_offset = share_partition.start_offset
        self.acquired_total = 0
        self.acknowledged_total = 0
        self.nacked_total = 0
        self.rejected_total = 0
        self.dead_letters_total = 0
        self._arrivals = _Arrivals(self._wake_soon, self._partition_retired)
        partition.parked_fetches.add(self._arrivals)
        self._arm()
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
        """Records from the start on that are done with already."""
        return self._share_partition.done_count

    @property
    def in_flight(self) -> int:
        return self._share_partition.acquired_count

    @property
    def is_idle(self) -> bool:
        """Nobody holds anything of it, and nobody waits for anything."""
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

    def held_by(self, member: str) -> int:
        return self._share_partition.held_by(member)

    # What the doors call

    def take_over(self, owner: Owner, *, waits_for_chooser: bool = False) -> None:
        """From now on only this owner is given anything. Raises where a later one has it, and with
        `waits_for_chooser` where one of both has chosen the partition and the other still has it."""
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
                    f"{before.member!r} owns this partition since epoch {before.epoch},"
                    f" later than {owner.epoch}"
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
    ) -> list[Delivered]:
        self._check_open()
        now_ms = self._clock.monotonic_ms()
        share_partition = self._share_partition
        if self.served.log_start_offset > share_partition.start_offset:
            self._apply(share_partition.skip_to(self.served.log_start_offset))
        self.members.add(member)
        delivered: list[Delivered] = []
        records_left, bytes_left, from_offset = records_max, bytes_max, 0
        for _ in range(READS_PER_ACQUIRE_MAX):
            wanted = share_partition.wants_from(now_ms, from_offset)
            if wanted is None or wanted >= self.served.high_watermark:
                break
            read = self._reader.read(wanted, records_left, bytes_left, at_least_one=not delivered)
            if not read.spans:
                break
            ranges = share_partition.acquire(
                member,
                read.spans,
                from_offset=wanted,
                records_max=records_left,
                now_ms=now_ms,
                lock_ms=lock_ms,
                whole_batches=whole_batches,
            )
            from_offset = read.spans[-1].last_offset + 1
            if not ranges:
                continue  # only control batches, or what another one is not done with
            records = self._reader.cut_out(read, ranges[0].first_offset, ranges[-1].last_offset)
            given = Delivered(records=records, ranges=tuple(ranges))
            delivered.append(given)
            records_left -= given.record_count
            bytes_left -= len(records)
            if records_left <= 0 or bytes_left <= 0:
                break
        self.acquired_total += records_max - records_left
        self._arm()
        return delivered

    async def acknowledge(
        self, member: str, acknowledgements: Sequence[Acknowledgement]
    ) -> list[BrokerError | None]:
        self._check_open()
        now_ms = self._clock.monotonic_ms()
        results: list[BrokerError | None] = []
        durable: asyncio.Future[None] | None = None
        for each in acknowledgements:
            try:
                update = self._share_partition.acknowledge(member, each, now_ms)
            except BrokerError as reason:
                results.append(reason)
                continue
            results.append(None)
            self._count(each)
            durable = self._apply(update) or durable
        self._arm()
        self._wake_soon()
        if durable is not None:
            await durable
        return results

    def _count(self, answer: Acknowledgement) -> None:
        messages = answer.last_offset - answer.first_offset + 1
        match answer.kind:
            case AckKind.ACCEPT:
                self.acknowledged_total += messages
            case AckKind.REJECT:
                self.rejected_total += messages
            case AckKind.RELEASE if answer.counts:
                self.nacked_total += messages

    async def release_member(self, member: str, reason: str = "", *, counts: bool = True) -> None:
        self.members.discard(member)
        if self._failure is not None:
            return
        now_ms = self._clock.monotonic_ms()
        durable = self._apply(
            self._share_partition.release_member(member, reason, now_ms, counts=counts)
        )
        self._arm()
        if durable is not None:
            self._wake_soon()
            await durable
        if self.mirror is not None:
            await self.drain()
            # Whoever owns the partition next may read the position there.
            await self.mirror.flush()

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        self._watchers_count += 1
        number = self._watchers_count
        self._watchers[number] = callback

        def unwatch() -> None:
            self._watchers.pop(number, None)

        return unwatch

    def close(self, failure: BrokerError) -> None:
        """Nothing is given out any more, and nothing said about it is heard."""
        if self._failure is not None:
            return
        self._failure = failure
        self.served.parked_fetches.discard(self._arrivals)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._dead_lettering is not None:
            self._dead_lettering.cancel()
        if self.mirror is not None:
            self.mirror.close()
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_exception(failure)
        self._on_closed(self)
        self._loop.call_soon(self._wake)

    async def drain(self) -> None:
        """Done when what was decided so far is written, or never will be."""
        while self._writer is not None:
            await asyncio.wait([self._writer])

    async def settle(self) -> None:
        """Done when everything is written, dead letters too."""
        while (work := self._dead_lettering or self._writer) is not None:
            await asyncio.wait([work])
            await asyncio.sleep(0)

    # Writing

    def _apply(self, update: SharePartitionUpdate) -> "asyncio.Future[None] | None":
        """Have an update written; the future is done when it is. None: there is nothing to write."""
        if not update or self._failure is not None:
            return None
        unwritten = self._unwritten
        self._unwritten = update if unwritten is None else unwritten.followed_by(update)
        durable: asyncio.Future[None] = self._loop.create_future()
        # Whoever does not wait for it does not hear of its failure: the window closes.
        durable.add_done_callback(_look_at)
        self._waiting.append(durable)
        if self._writer is None:
            self._writer = self._loop.create_task(self._write())
            self._writer.add_done_callback(self._writer_over)
        self._dead_letter_if_due()
        return durable

    def _writer_over(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            logger.error("the state of group %s was not written", self.group, exc_info=failure)
            self.close(CoordinatorNotAvailable("its state could not be written"))

    async def _write(self) -> None:
        try:
            while self._unwritten is not None:
                update, self._unwritten = self._unwritten, None
                waiting, self._waiting = self._waiting, []
                try:
                    await self._store.write(update)
                except BrokerError as reason:
                    logger.warning(
                        "group %s loses its window on %s: %s",
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
        """What is below was done by somebody who reads without this window."""
        self._apply(self._share_partition.skip_to(min(offset, self.served.high_watermark)))

    # Dead letters

    def _dead_letter_if_due(self) -> None:
        if (
            self._dead_lettering is None
            and self._failure is None
            and self._share_partition.archiving_count
        ):
            self._dead_lettering = self._loop.create_task(self._write_dead_letters())
            self._dead_lettering.add_done_callback(self._dead_lettering_over)

    def _dead_lettering_over(self, task: "asyncio.Task[None]") -> None:
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
                # What is going to be written has to be known before it is: after a crash the same is
                # written under the same numbers, and none of it is delivered again.
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
                logger.warning("dead letters of %s have to wait: %s", self.topic, reason)
                await asyncio.sleep(DEAD_LETTER_RETRY_SECONDS)
                continue
            self.dead_letters_total += len(planned.records)
            self._apply(share_partition.end_dead_lettering(len(planned.records)))
            self._wake_soon()

    # Time

    def _arm(self) -> None:
        deadline_ms = self._share_partition.next_deadline_ms
        if deadline_ms is None or self._failure is not None:
            return
        if self._timer is not None:
            if self._timer_at_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_at_ms = deadline_ms
        delay_ms = max(deadline_ms - self._clock.monotonic_ms(), 0)
        self._timer = self._loop.call_later(delay_ms / 1000, self._deadline_passed)

    def _deadline_passed(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._timer_at_ms:
            # libuv's timers may come a millisecond early, when nothing is due yet.
            self._arm()
            return
        if now_ms - self._timer_at_ms > LATE_MS and not self._is_catching_up:
            # A broker that was paused must not blame its consumers: their answers may lie unread.
            self._is_catching_up = True
            self._timer = self._loop.call_later(CATCH_UP_SECONDS, self._deadline_passed)
            return
        self._is_catching_up = False
        self._apply(self._share_partition.expire(now_ms))
        self._arm()
        self._wake_soon()

    # Watchers

    def _check_open(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _partition_retired(self) -> None:
        where = self.served.topic_partition
        self.close(NotLeaderOrFollower(f"{where} is not served from here any more"))

    def _wake_soon(self) -> None:
        if self._watchers and not self._wake_scheduled:
            self._wake_scheduled = True
            self._loop.call_soon(self._wake)

    def _wake(self) -> None:
        self._wake_scheduled = False
        for callback in tuple(self._watchers.values()):
            callback()


def _look_at(future: "asyncio.Future[None]") -> None:
    if not future.cancelled():
        future.exception()

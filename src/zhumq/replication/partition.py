"""One partition as this broker serves it, as leader or follower: its log, its replica, the requests that wait for it."""

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from zhumq.consensus.contract import Role, RoleChange
from zhumq.model.errors import (
    BrokerError,
    CorruptMessage,
    DiskFull,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
    RequestTimedOut,
)
from zhumq.model.ids import LeaderEpoch, TopicPartition
from zhumq.model.isolation import Isolation
from zhumq.records.control import MARKER_BATCH_BYTES, EndMarker
from zhumq.replication.driver import Core, ReplicaDriver
from zhumq.replication.driver_seam import DriverHost
from zhumq.replication.leadership_transfer import resigned_in_time
from zhumq.replication.partition_log import PartitionLog
from zhumq.replication.pending import (
    DurabilityWaiters,
    DurableCallback,
    LeadershipCallback,
    future_of,
)
from zhumq.replication.producer_order import ProducerOrder
from zhumq.replication.refusals import another_epoch, not_leader
from zhumq.replication.tail import Tail
from zhumq.storage.log import Log
from zhumq.storage.log_slice import Appended, AppendedRun, LogSlice
from zhumq.storage.validator import COORDINATOR, PLAIN_CLIENT, AppendOrigin, WalkBudget

# How long an append waits for other replicas by default: as long as most producers do.
DURABLE_TIMEOUT_MS: Final = 30_000
READ_COMMITTED: Final = Isolation.READ_COMMITTED
UNCOUNTED_BYTES: Final = 2**31  # as much as any fetch waits for


class Partition(PartitionLog):
    """A partition whose replicas agree on what is committed. The only way to its log.

    Consumers see what is committed, whatever acks the producer asked for. A leader serves once its high watermark
    has reached the start of its epoch, and so covers everything that was committed before it. In fetch mode, a leader
    with fewer than min.insync.replicas in sync serves clients too (KIP-966): its high watermark stays where it is.

    The only replica of a partition is always in sync: a record is visible as soon as it is in the log, and acks=-1
    is answered when it is on the disk as well. Such a log is flushed when an append waits for it.
    """

    __slots__ = (
        "_clock",
        "_durable",
        "_holds_appends",
        "_is_isolated",
        "_is_transferring",
        "_loop",
        "_on_leadership",
        "_order",
        "_serving_epoch",
        "_unseen",
        "_write_refusal",
        "damaged_from",
        "driver",
        "is_sole",
        "leader_epoch",
        "min_in_sync_replicas",
        "rebuilds",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        log: Log,
        host: DriverHost,
        make_core: Callable[[ReplicaDriver], Core],
        on_leadership: LeadershipCallback,
        *,
        min_in_sync_replicas: int,
        damaged_from: int | None = None,
    ) -> None:
        super().__init__(log)
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.min_in_sync_replicas = min_in_sync_replicas
        self.rebuilds = 0
        self.damaged_from = damaged_from  # found when the log was opened
        self._clock = host.clock
        self._loop = asyncio.get_running_loop()
        self._durable = DurabilityWaiters()
        self._is_isolated = self._is_transferring = False
        self._write_refusal = ""
        self._holds_appends = False  # while one of these three is set
        self._serving_epoch: int | None = None
        self._on_leadership = on_leadership
        # Appends that consumers do not see yet: (next offset, bytes).
        self._unseen: deque[tuple[int, int]] = deque()
        self._order = ProducerOrder(topic_partition)
        self.driver = ReplicaDriver(topic_partition, log, host, self, make_core)
        self.is_sole = self.driver.is_sole  # whether there is no other replica
        # Not at once: the caller is in the middle of reading the log.
        log.on_damage = lambda offset: self._loop.call_soon(self.driver.on_damaged, offset)
        self.leader_epoch = LeaderEpoch(self.driver.core.epoch)

    # Leadership

    @property
    def leads(self) -> bool:
        """Whether this broker serves the partition to clients."""
        driver = self.driver
        return driver.core.admits_clients and not driver.is_stopped and not self._is_isolated

    @property
    def is_current(self) -> bool:
        """Whether it leads and has every committed record: state machines run only then."""
        return self.leads and (self.is_sole or self.driver.core.serving)

    @property
    def follows(self) -> bool:
        """Whether it follows a leader, and has what it fetched: consumers may read it up to its high watermark."""
        core = self.driver.core
        follows = core.role is Role.FOLLOWER and core.leader_id is not None
        return follows and self.is_intact and not self.driver.is_stopped

    @property
    def is_intact(self) -> bool:
        """Whether the replica is not recovering lost data."""
        return not self.driver.core.quorum_state.recovering

    @property
    def leader_id(self) -> int | None:
        """The leader that this replica knows of."""
        return self.driver.core.leader_id

    def check_leads(self) -> None:
        """NotLeaderOrFollower unless this broker serves the partition."""
        if not self.leads:
            raise self._not_leader()

    def _not_leader(self) -> BrokerError:
        return not_leader(self.driver, is_sole=self.is_sole, is_isolated=self._is_isolated)

    def set_isolated(self, is_isolated: bool) -> None:
        """Refuse clients while this leader has neither a session nor an in-sync follower, because another
        replica may lead; or serve them again."""
        if is_isolated == self._is_isolated:
            return
        self._is_isolated = is_isolated
        self._update_holds()
        if is_isolated:
            self._on_leadership_lost()
        elif self.is_current:
            self._notify_leadership(leads=True)

    def set_write_refusal(self, reason: str) -> None:
        """Refuse messages of clients because of the disk; empty: take them. Markers are taken all the same."""
        self._write_refusal = reason
        self._update_holds()

    def _update_holds(self) -> None:
        refuses = bool(self._write_refusal)
        self._holds_appends = refuses or self._is_isolated or self._is_transferring

    def replicas_changed(self) -> None:
        """The replicas of the partition may have changed: whether there are others decides what consumers see."""
        if self.is_sole == self.driver.is_sole:
            return
        self.is_sole = self.driver.is_sole
        if self.is_sole:
            self._show_up_to(self.log.log_end_offset)
            self.on_flushed(self.log.flushed_offset)
        else:
            self.driver.appended()

    # Offsets

    @property
    def high_watermark(self) -> int:
        """Where consumers have to stop."""
        return self.log.log_end_offset if self.is_sole else self.driver.core.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Where consumers that read committed records have to stop: before the oldest transaction that is
        open, or whose marker is not committed."""
        high_watermark = self.log.log_end_offset if self.is_sole else self.high_watermark
        producers = self.log.producer_state
        if not producers.has_unstable:
            return high_watermark
        unstable = producers.first_unstable_offset(high_watermark)
        if unstable is None or unstable >= high_watermark:
            return high_watermark
        return max(unstable, self.log.log_start_offset)

    def end_offset(self, isolation: Isolation) -> int:
        """Where consumers of this isolation level have to stop."""
        return self.last_stable_offset if isolation is READ_COMMITTED else self.high_watermark

    @property
    def waiters_count(self) -> int:
        """How many appends wait until they are durable."""
        return len(self._durable)

    # Appending and reading

    def append(
        self,
        batches: bytes | memoryview,
        now_ms: int,
        budget: WalkBudget | None = None,
        origin: AppendOrigin = PLAIN_CLIENT,
    ) -> Appended:
        """Append whole batches as the leader."""
        driver = self.driver
        if driver.is_stopped or self._holds_appends or not driver.core.admits_clients:
            raise self._refusal()
        if (
            not self.is_sole
            and origin is not COORDINATOR
            and self._order.begin(self.leader_epoch, now_ms)
        ):
            self._order.check(batches, self.log.producer_state.producers)
        try:
            appended = self.log.append(
                batches, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=origin, budget=budget
            )
        except OutOfOrderSequenceNumber as gap:
            if self.is_sole:
                raise
            raise self._order.error_for(gap, now_ms) from None
        if not appended.duplicate and (self._watchers or not self.is_sole):
            self._written(len(batches))
        return appended

    def append_own(self, batches: bytes, now_ms: int) -> Appended:
        """Append whole batches of one of this broker's coordinators as the leader."""
        return self.append(batches, now_ms, None, COORDINATOR)

    def append_marker(
        self,
        marker: EndMarker,
        *,
        producer_id: int,
        producer_epoch: int,
        transaction_version: int,
        now_ms: int,
    ) -> Appended:
        """End the transaction of a producer as the leader, for its coordinator."""
        if not self.leads or self._is_transferring:
            raise self._refusal()
        appended = self.log.append_marker(
            marker,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_version=transaction_version,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
        )
        self._written(MARKER_BATCH_BYTES)
        return appended

    def append_each(self, batches: Sequence[bytes | memoryview], now_ms: int) -> AppendedRun:
        """Append the first of several requests in one write, up to one that is refused or a repeat.

        Raises what refuses them all.
        """
        driver = self.driver
        if driver.is_stopped or self._holds_appends or not driver.core.admits_clients:
            raise self._refusal()
        if not self.is_sole and self._order.begin(self.leader_epoch, now_ms):
            return self._append_first(batches, now_ms)
        run = self.log.append_each(batches, leader_epoch=self.leader_epoch, now_ms=now_ms)
        if run.size and (self._watchers or not self.is_sole):
            self._written(run.size)
        if not self.is_sole and isinstance(run.last, OutOfOrderSequenceNumber):
            return run._replace(last=self._order.error_for(run.last, now_ms))
        return run

    def _append_first(self, batches: Sequence[bytes | memoryview], now_ms: int) -> AppendedRun:
        """Append one by one: each request may have to wait for a batch that was refused before."""
        try:
            first = self.append(batches[0], now_ms)
        except BrokerError as refusal:
            return AppendedRun([], -1, self.log_start_offset, 0, refusal)
        return AppendedRun([], -1, self.log_start_offset, 0, first)

    def remember_refused(
        self, batches: bytes | memoryview, reason: BrokerError, now_ms: int
    ) -> None:
        """Remember batches that were not appended: the producer got this error."""
        if reason.retriable and not self.is_sole:
            self._order.refuse(batches, now_ms)

    def _refusal(self) -> BrokerError:
        if not self.leads:
            return self._not_leader()
        if self._write_refusal:
            return DiskFull(self._write_refusal)
        return NotLeaderOrFollower(f"{self.topic_partition}: a leadership transfer is running")

    async def transfer_leadership(self, replica_id: int) -> bool:
        """Refuse appends until another replica has everything, then resign in its favour.

        Returns False, and stays leader, if the replica does not catch up in time.
        """
        if not self.leads or self._is_transferring:
            return False
        self._is_transferring = self._holds_appends = True
        try:
            return await resigned_in_time(self.driver, replica_id)
        finally:
            self._is_transferring = False
            self._update_holds()

    def _written(self, size: int) -> None:
        if not self.is_sole:
            self._unseen.append((self.log.log_end_offset, size))
            self.driver.appended()
        else:
            self._watchers.on_bytes(size, self)

    def check_enough_replicas(self) -> None:
        """Refuse acks=-1 while fewer than min.insync.replicas are in sync."""
        self.check_leads()
        if not self.driver.core.accepts_all_acks:
            raise NotEnoughReplicas(
                f"{self.topic_partition}: fewer replicas are in sync than min.insync.replicas,"
                f" which is {self.min_in_sync_replicas}"
            )

    def is_durable(self, next_offset: int) -> bool:
        """Whether everything below the offset is committed, and on the disk."""
        end = self.log.flushed_offset if self.is_sole else self.driver.core.high_watermark
        return end >= next_offset and self.leads

    def call_when_durable(
        self, next_offset: int, callback: DurableCallback, timeout_ms: int = DURABLE_TIMEOUT_MS
    ) -> None:
        """Call back once everything below the offset is committed and on the disk. Call back with an error
        when leadership ends before that (the outcome is unknown), or when too few replicas answer in time."""
        if not self.leads:
            callback(self._not_leader())
        elif self.is_sole:
            self._durable.add(next_offset, callback)
            self.driver.request_flush()
        elif self.high_watermark >= next_offset:
            callback(None)
        else:
            self._durable.add(next_offset, callback, self._clock.monotonic_ms() + timeout_ms)

    def fail_overdue(self, now_ms: int) -> None:
        """Fail appends whose timeout has passed. Their producers may send them again."""
        if self._durable.is_any_overdue(now_ms):
            self._durable.failed_overdue(
                now_ms,
                RequestTimedOut(f"{self.topic_partition}: not enough replicas answered in time"),
            )

    def when_durable(self, next_offset: int) -> asyncio.Future[None]:
        """The same as a future."""
        return future_of(lambda settle: self.call_when_durable(next_offset, settle))

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        isolation: Isolation | None = None,
        at_least_one: bool = True,
        as_follower: bool = False,
    ) -> LogSlice:
        """Whole batches from an offset up to where this isolation level ends; at read_committed with the
        aborted transactions among them.

        A consumer gets no batches without records, so the result may be empty while the offset is
        below the high watermark. The broker's own readers give no level and get every batch, of a leader only.
        """
        if not (as_follower and self.follows):
            self.check_leads()
        log = self.log
        high_watermark = self.high_watermark
        if high_watermark < offset <= log.log_end_offset:
            # An earlier leader had a higher high watermark: there is nothing new to read yet.
            return log.read(offset, max_bytes=max_bytes, up_to_offset=offset, at_least_one=False)
        if not log.log_start_offset <= offset <= high_watermark:
            raise OffsetOutOfRange(
                f"{self.topic_partition}: offset {offset} is outside of"
                f" {log.log_start_offset} to {high_watermark}"
            )
        end = self.last_stable_offset if isolation is READ_COMMITTED else high_watermark
        try:
            part = log.read(
                offset,
                max_bytes=max_bytes,
                up_to_offset=end,
                at_least_one=at_least_one and offset < end,
                for_consumer=isolation is not None,
            )
        except CorruptMessage:
            if self.is_sole:
                raise
            # Another replica has the record: the client tries again, and finds the new leader.
            self.driver.on_damaged(offset)
            raise self._not_leader() from None
        if isolation is READ_COMMITTED and part.regions:
            part.aborted = log.aborted_transactions(offset, part.next_offset)
        return part

    def observe(
        self, offset: int, *, on_records: Callable[[], None], on_closed: Callable[[], None]
    ) -> Tail:
        """Follow the partition from an offset on. Records that are visible already are not announced."""
        tail = Tail(self, offset, on_records, on_closed)
        self.watch(tail)
        return tail

    def delete_records_before(self, offset: int) -> int:
        """Raise the log start offset to `offset`, which is not above the high watermark; returns it."""
        self.check_leads()
        start_offset = self.log.delete_records_before(offset)
        self.driver.notify_followers()
        return start_offset

    def check_leader_epoch(self, known_epoch: int, *, as_follower: bool = False) -> None:
        """Refuse a client that knows an older or a newer leader epoch. -1: the client does not name one."""
        if not (as_follower and self.follows):
            self.check_leads()
        if known_epoch >= 0 and known_epoch != self.leader_epoch:
            raise another_epoch(self.driver, known_epoch, self.leader_epoch)

    def retire(self, reason: BrokerError) -> None:
        """Stop serving the partition: fail the waiting appends, retire the watchers."""
        self.driver.close()
        self._durable.failed(reason)
        self._watchers.on_retired()
        self._notify_leadership(leads=False)

    # ReplicaCallbacks

    def on_flushed(self, flushed_offset: int) -> None:
        if self.flush_levels is not None:
            self.flush_levels.on_flushed(flushed_offset)
        if self.is_sole:
            self._durable.reached(flushed_offset)
            if self._durable:
                self.driver.request_flush()

    def on_high_watermark_raised(self, high_watermark: int) -> None:
        self.log.producer_state.forget_ended(high_watermark)
        if self.driver.core.serving and not self.is_sole:
            self._durable.reached(high_watermark)
            self._show_up_to(high_watermark)
        elif self._watchers and self.driver.core.role is Role.FOLLOWER:
            # Consumers of a follower: how many bytes they see more is not counted.
            self._watchers.on_bytes(UNCOUNTED_BYTES, self)

    def _show_up_to(self, offset: int) -> None:
        unseen = self._unseen
        size = 0
        while unseen and unseen[0][0] <= offset:
            size += unseen.popleft()[1]
        if size:
            self._watchers.on_bytes(size, self)

    def on_role_changed(self, change: RoleChange) -> None:
        self._is_isolated = self._is_transferring = False
        self._update_holds()
        self.leader_epoch = LeaderEpoch(change.epoch)
        if change.role is Role.LEADER:
            if change.serving:
                self._notify_leadership(leads=True)
            return
        self._on_leadership_lost()

    def on_offline(self, reason: BrokerError) -> None:
        self._durable.failed(reason)
        self._on_leadership_lost()

    def _on_leadership_lost(self) -> None:
        self._unseen.clear()
        self._durable.failed(self._not_leader())
        self._watchers.on_retired()
        self._notify_leadership(leads=False)

    def _notify_leadership(self, *, leads: bool) -> None:
        epoch = self.leader_epoch if leads else None
        if epoch != self._serving_epoch:
            self._serving_epoch = epoch
            self._on_leadership(self.topic_partition, leads, self.leader_epoch)

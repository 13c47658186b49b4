"""One replicated partition as this broker serves it, as leader or follower."""

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from zhumq.consensus.contract import Role, RoleChange
from zhumq.model.errors import (
    BrokerError,
    CorruptMessage,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    RequestTimedOut,
)
from zhumq.model.ids import LeaderEpoch, TopicPartition
from zhumq.model.isolation import Isolation
from zhumq.replication.driver import Core, ReplicaDriver
from zhumq.replication.driver_seam import DriverHost
from zhumq.replication.partition import DURABLE_TIMEOUT_MS, Partition
from zhumq.replication.pending import DurableCallback
from zhumq.replication.refused_batches import RefusedBatches
from zhumq.storage.flusher import Flusher
from zhumq.storage.log import Log
from zhumq.storage.log_slice import Appended, AppendedRun, LogSlice
from zhumq.storage.validator import WalkBudget

# How long a leader refuses appends while the next leader catches up: checks times interval.
TRANSFER_CHECKS_MAX: Final = 40
TRANSFER_CHECK_SECONDS: Final = 0.005
# For how long after the first append of its epoch a leader treats a sequence gap as a batch on its way.
SETTLING_MS: Final = 10_000

# (the partition, whether this broker leads and serves it from now on, in which epoch)
LeadershipCallback = Callable[[TopicPartition, bool, int], None]


class ReplicatedPartition(Partition):
    """A partition whose replicas agree on what is committed.

    A leader serves once its high watermark has reached the start of its epoch, and so covers everything
    that was committed before it. In fetch mode, a leader with fewer than min.insync.replicas in sync serves
    clients too (KIP-966): its high watermark stays where it is. Consumers see what is committed, whatever
    acks the producer asked for.
    """

    __slots__ = (
        "_clock",
        "_is_isolated",
        "_is_transferring",
        "_on_leadership",
        "_refused",
        "_serving_epoch",
        "_settling",
        "_unseen",
        "damaged_from",
        "driver",
        "rebuilds",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        log: Log,
        flusher: Flusher,
        host: DriverHost,
        make_core: Callable[[ReplicaDriver], Core],
        on_leadership: LeadershipCallback,
        *,
        min_in_sync_replicas: int,
        damaged_from: int | None = None,
    ) -> None:
        super().__init__(
            topic_partition,
            topic_id,
            LeaderEpoch(0),
            log,
            flusher,
            in_sync_replicas=1,
            min_in_sync_replicas=min_in_sync_replicas,
        )
        self.rebuilds = 0
        self._clock = host.clock
        self._is_transferring = False
        self._is_isolated = False
        # Found when the log was opened.
        self.damaged_from = damaged_from
        self._serving_epoch: int | None = None
        self._on_leadership = on_leadership
        # Appends that consumers do not see yet: (next offset, bytes).
        self._unseen: deque[tuple[int, int]] = deque()
        self._refused = RefusedBatches()
        # The epoch of the last append, and until when a sequence gap is retriable in it.
        self._settling = (-1, 0)
        self.driver = ReplicaDriver(topic_partition, log, host, self, make_core)
        # Not at once: the caller is in the middle of reading the log.
        log.on_damage = lambda offset: self._loop.call_soon(self.driver.on_damaged, offset)
        self.leader_epoch = LeaderEpoch(self.driver.core.epoch)

    # Leadership

    @property
    def leads(self) -> bool:
        driver = self.driver
        return driver.core.admits_clients and not driver.is_stopped and not self._is_isolated

    @property
    def is_current(self) -> bool:
        return self.driver.core.serving and self.leads

    @property
    def is_intact(self) -> bool:
        return not self.driver.core.quorum_state.recovering

    @property
    def leader_id(self) -> int | None:
        """The leader that this replica knows of."""
        return self.driver.core.leader_id

    def check_leads(self) -> None:
        if not self.leads:
            raise self._not_leader()

    def _not_leader(self) -> BrokerError:
        if self.driver.failure is not None:
            return NotLeaderOrFollower(f"{self.topic_partition}: {self.driver.failure}")
        if self._is_isolated:
            return NotLeaderOrFollower(
                f"{self.topic_partition}: this broker has no session with ZooKeeper, and no in-sync"
                " follower fetches from it: another broker may lead"
            )
        leader_id = self.leader_id
        known = "it has no leader yet" if leader_id is None else f"its leader is broker {leader_id}"
        return NotLeaderOrFollower(f"this broker does not serve {self.topic_partition}: {known}")

    def set_isolated(self, is_isolated: bool) -> None:
        """Refuse clients while this leader has neither a session nor an in-sync follower, because another
        replica may lead; or serve them again."""
        if is_isolated == self._is_isolated:
            return
        self._is_isolated = is_isolated
        if is_isolated:
            self._on_leadership_lost()
        elif self.is_current:
            self._notify_leadership(leads=True)

    @property
    def high_watermark(self) -> int:
        return self.driver.core.high_watermark

    # Client requests

    def append(
        self, batches: bytes | memoryview, now_ms: int, budget: WalkBudget | None = None
    ) -> Appended:
        self._check_appends()
        refused = self._refused
        if (
            refused
            and refused.any_left(now_ms)
            and refused.holds_back(batches, self.log.producer_state.producers)
        ):
            raise NotLeaderOrFollower(
                f"{self.topic_partition}: an earlier batch of this producer was refused, and the"
                " producer has not sent it again yet"
            )
        self._settle(now_ms)
        try:
            appended = self.log.append(
                batches, leader_epoch=self.leader_epoch, now_ms=now_ms, budget=budget
            )
        except OutOfOrderSequenceNumber as gap:
            raise self._settled(gap, now_ms) from None
        if not appended.duplicate:
            self._written(len(batches))
        return appended

    def append_each(self, batches: Sequence[memoryview], now_ms: int) -> AppendedRun:
        self._check_appends()
        last: Appended | BrokerError | None
        if self._refused and self._refused.any_left(now_ms):
            # One by one: each may have to wait for a batch that was refused before.
            try:
                last = self.append(batches[0], now_ms)
            except BrokerError as refusal:
                last = refusal
            return AppendedRun([], -1, self.log_start_offset, 0, last)
        self._settle(now_ms)
        appended = self.log.append_each(batches, leader_epoch=self.leader_epoch, now_ms=now_ms)
        if appended.size:
            self._written(appended.size)
        last = appended.last
        if isinstance(last, OutOfOrderSequenceNumber):
            return appended._replace(last=self._settled(last, now_ms))
        return appended

    def _settled(self, gap: OutOfOrderSequenceNumber, now_ms: int) -> BrokerError:
        """The error for a sequence gap, which is retriable in the settling time."""
        if now_ms >= self._settling[1]:
            return gap
        # The last leader may have refused the batch before this one: the producer sends both
        # again, in order. RefusedBatches says what OutOfOrderSequenceNumber would cost.
        return NotLeaderOrFollower(f"{self.topic_partition} has just changed its leader, and {gap}")

    def _settle(self, now_ms: int) -> None:
        """The first append of an epoch starts the settling time, in which producers find this leader."""
        if self._settling[0] != self.leader_epoch:
            self._settling = (self.leader_epoch, now_ms + SETTLING_MS)

    def remember_refused(
        self, batches: bytes | memoryview, reason: BrokerError, now_ms: int
    ) -> None:
        if reason.retriable:
            self._refused.add(batches, now_ms)

    def _check_appends(self) -> None:
        self.check_leads()
        if self._is_transferring:
            raise NotLeaderOrFollower(f"{self.topic_partition}: a leadership transfer is running")

    async def transfer_leadership(self, replica_id: int) -> bool:
        """Refuse appends until another replica has everything, then resign in its favour.

        Returns False, and stays leader, if the replica does not catch up in time.
        """
        if not self.leads or self._is_transferring:
            return False
        self._is_transferring = True
        try:
            for _ in range(TRANSFER_CHECKS_MAX):
                if self.driver.resign_for(replica_id):
                    return True
                await asyncio.sleep(TRANSFER_CHECK_SECONDS)
        finally:
            self._is_transferring = False
        return False

    def _written(self, size: int) -> None:
        self._unseen.append((self.log.log_end_offset, size))
        self.driver.appended()

    def check_enough_replicas(self) -> None:
        self.check_leads()
        if not self.driver.core.accepts_all_acks:
            raise NotEnoughReplicas(
                f"{self.topic_partition}: fewer replicas are in sync than min.insync.replicas,"
                f" which is {self.min_in_sync_replicas}"
            )

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        isolation: Isolation | None = None,
        at_least_one: bool = True,
    ) -> LogSlice:
        self.check_leads()
        if self.high_watermark < offset <= self.log_end_offset:
            # An earlier leader had a higher high watermark: there is nothing new to read yet.
            return self.log.read(
                offset, max_bytes=max_bytes, up_to_offset=offset, at_least_one=False
            )
        try:
            return super().read(offset, max_bytes, isolation=isolation, at_least_one=at_least_one)
        except CorruptMessage:
            if len(self.driver.core.voters.ids) == 1:
                raise
            # Another replica has the record: the client tries again, and finds the new leader.
            self.driver.on_damaged(offset)
            raise self._not_leader() from None

    def delete_records_before(self, offset: int) -> int:
        self.check_leads()
        start_offset = super().delete_records_before(offset)
        self.driver.notify_followers()
        return start_offset

    def check_leader_epoch(self, known_epoch: int) -> None:
        self.check_leads()
        super().check_leader_epoch(known_epoch)

    def is_durable(self, next_offset: int) -> bool:
        return self.driver.core.high_watermark >= next_offset and self.leads

    def call_when_durable(
        self, next_offset: int, callback: DurableCallback, timeout_ms: int = DURABLE_TIMEOUT_MS
    ) -> None:
        """Call back once everything below the offset is committed. Call back with an error when
        leadership ends before that (the outcome is unknown), or when too few replicas answer in time."""
        if not self.leads:
            callback(self._not_leader())
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

    def retire(self, reason: BrokerError) -> None:
        self.driver.close()
        super().retire(reason)
        self._notify_leadership(leads=False)

    # ReplicaCallbacks

    def on_high_watermark_raised(self, high_watermark: int) -> None:
        if not self.driver.core.serving:
            return
        self._durable.reached(high_watermark)
        unseen = self._unseen
        size = 0
        while unseen and unseen[0][0] <= high_watermark:
            size += unseen.popleft()[1]
        if self._watchers and size:
            self._notify_watchers(size)

    def on_role_changed(self, change: RoleChange) -> None:
        self._is_isolated = False
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
        self._retire_watchers()
        self._notify_leadership(leads=False)

    def _notify_leadership(self, *, leads: bool) -> None:
        epoch = self.leader_epoch if leads else None
        if epoch != self._serving_epoch:
            self._serving_epoch = epoch
            self._on_leadership(self.topic_partition, leads, self.leader_epoch)

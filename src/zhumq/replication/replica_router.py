"""Routes messages between this broker's replicas and other brokers, and persists quorum states."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from zhumq.consensus.assigned import AssignedReplica
from zhumq.consensus.contract import BrokerLost, FetchArrived, Message, Outgoing, QuorumState
from zhumq.consensus.progress import NEVER_MS
from zhumq.consensus.raft import RaftReplica
from zhumq.host.clock import Clock
from zhumq.model.errors import BrokerError, DiskFull
from zhumq.protocol.messages.replicas import (
    ReplicaFetchRequest,
    ReplicaFetchResponse,
    ReplicaMessagesRequest,
    ReplicaMessagesResponse,
)
from zhumq.replication.controller_requests import ControllerRequests
from zhumq.replication.driver import ReplicaDriver
from zhumq.replication.inter_broker.fetcher import REPLICA_FETCH, LeaderFetcher
from zhumq.replication.inter_broker.follower_session import FollowerSession, PartitionKey
from zhumq.replication.inter_broker.outbox import BACKOFF_MAX_MS, REPLICA_MESSAGES, Outbox, deliver
from zhumq.replication.inter_broker.peer_service import PeerConnection
from zhumq.replication.inter_broker.peers import Peers, TaskKeeper
from zhumq.replication.move_throttle import MoveThrottle
from zhumq.replication.replication import Replication
from zhumq.replication.timers import Timers
from zhumq.storage.flusher import Flusher
from zhumq.storage.quorum_journal import QuorumJournal

logger = logging.getLogger(__name__)

# Vote messages about partitions that this broker has not opened yet: other brokers apply a metadata
# image a moment earlier.
EARLY_MESSAGES_MAX: Final = 10_000
EARLY_MS_MAX: Final = 1_000

NO_ROOM_RETRY_SECONDS: Final = 0.5

PersistedCallback = Callable[[BrokerError | None], None]
_StateWrite = tuple[PartitionKey, QuorumState | None, PersistedCallback]


class ReplicaRouter:
    """This broker's replicas by topic id and partition, and their channels to other brokers."""

    def __init__(self, replication: Replication, flusher: Flusher, journal: QuorumJournal) -> None:
        self._replication = replication
        self._journal = journal
        self._loop = asyncio.get_running_loop()
        self._drivers: dict[PartitionKey, ReplicaDriver] = {}
        self._keys: dict[ReplicaDriver, PartitionKey] = {}
        self._sessions: dict[int, FollowerSession] = {}
        self._fetchers: dict[int, LeaderFetcher] = {}
        self._outboxes: dict[int, Outbox] = {}
        self._state_writes: list[_StateWrite] = []
        self._is_writing_states = False
        # A thread of its own: quorum states must not wait behind the syncs of a hundred logs.
        self._state_flusher = Flusher(
            self._loop.call_soon_threadsafe, name="zhumq-quorum-states", threads=1
        )
        self._early: dict[tuple[PartitionKey, int], tuple[int, Message]] = {}
        self._tasks = TaskKeeper()
        self.flusher = flusher
        self.timers = Timers(replication.clock)
        replication.service.register(REPLICA_FETCH, self._on_fetch)
        replication.service.register(REPLICA_MESSAGES, self._on_messages)
        replication.service.watch_lost(self._on_peer_lost)

    @property
    def clock(self) -> Clock:
        return self._replication.clock

    @property
    def peers(self) -> Peers:
        return self._replication.peers

    @property
    def controller_requests(self) -> ControllerRequests:
        return self._replication.controller_requests

    @property
    def throttle(self) -> MoveThrottle:
        return self._replication.throttle

    @property
    def fetchers(self) -> Iterable[LeaderFetcher]:
        return self._fetchers.values()

    @property
    def outboxes(self) -> Iterable[Outbox]:
        return self._outboxes.values()

    def begin_new_sessions(self) -> None:
        """Fetch in new sessions, which begin with the positions of all replicas."""
        for fetcher in self._fetchers.values():
            fetcher.reconnect("this broker has registered again")

    def driver(self, key: PartitionKey) -> ReplicaDriver | None:
        return self._drivers.get(key)

    def add(self, key: PartitionKey, driver: ReplicaDriver) -> None:
        self._drivers[key] = driver
        self._keys[driver] = key

    def remove(self, driver: ReplicaDriver) -> None:
        key = self._keys.pop(driver, None)
        if key is not None and self._drivers.get(key) is driver:
            del self._drivers[key]
            if driver.is_in_journal:
                self._forget_state(key)

    async def close(self) -> None:
        self.timers.close()
        for driver in self._drivers.values():
            driver.stop()
        for fetcher in self._fetchers.values():
            fetcher.close()
        await self._tasks.close()
        for outbox in self._outboxes.values():
            await outbox.close()
        for session in self._sessions.values():
            session.close()
        self._state_flusher.close()
        self._journal.close()

    # Called by drivers

    def persist(self, driver: ReplicaDriver, state: QuorumState, done: PersistedCallback) -> None:
        """Persist a quorum state. States of one turn of the event loop share a sync, as do those that
        arrive while the previous sync runs."""
        key = self._keys.get(driver)
        if key is None:
            return
        try:
            # A replica that has voted has a log: without one, the next start fetches everything.
            driver.log.make_files()
        except DiskFull as reason:
            logger.warning(
                "no room for the log of %s, trying again: %s", driver.topic_partition, reason
            )
            self._loop.call_later(NO_ROOM_RETRY_SECONDS, self.persist, driver, state, done)
            return
        except BrokerError as reason:
            done(reason)
            return
        if not self._state_writes and not self._is_writing_states:
            self._loop.call_soon(self._persist_all)
        self._state_writes.append((key, state, done))

    def _forget_state(self, key: PartitionKey) -> None:
        """The partition is no longer this broker's."""
        if not self._state_writes and not self._is_writing_states:
            self._loop.call_soon(self._persist_all)
        self._state_writes.append((key, None, _no_callback))

    def _persist_all(self) -> None:
        writes, self._state_writes = self._state_writes, []
        if not writes:
            return
        self._is_writing_states = True
        failures: list[BrokerError] = []

        def write() -> None:
            try:
                self._journal.write((key, state) for key, state, _ in writes)
            except BrokerError as error:
                failures.append(error)

        def finish() -> None:
            self._is_writing_states = False
            if failures and isinstance(failures[0], DiskFull):
                # Nothing is answered before the states are on the disk.
                logger.warning("no room to persist quorum states, trying again: %s", failures[0])
                self._state_writes[:0] = writes
                self._loop.call_later(NO_ROOM_RETRY_SECONDS, self._persist_all)
                self._is_writing_states = True
                return
            self._persist_all()
            for _, _, done in writes:
                done(failures[0] if failures else None)

        self._state_flusher.run(write, finish)

    def send(self, driver: ReplicaDriver, outgoing: Outgoing) -> None:
        key = self._keys.get(driver)
        if key is None:
            return
        if isinstance(outgoing.message, FetchArrived):
            self._fetcher(outgoing.to).update(driver, key, outgoing.message)
            return
        outbox = self._outboxes.get(outgoing.to)
        if outbox is None:
            channel = self.peers.new_channel(outgoing.to, "votes", backoff_max_ms=BACKOFF_MAX_MS)
            outbox = Outbox(channel)
            self._outboxes[outgoing.to] = outbox
        outbox.put(key, outgoing.message)

    def follow(self, driver: ReplicaDriver, leader_id: int | None) -> None:
        for broker_id, fetcher in self._fetchers.items():
            if broker_id != leader_id:
                fetcher.forget(driver)

    def leader_contact_ms(self, driver: ReplicaDriver, leader_id: int) -> int:
        fetcher = self._fetchers.get(leader_id)
        return NEVER_MS if fetcher is None else fetcher.last_contact_ms(driver)

    def leader_unreachable(self, broker_id: int, drivers: Iterable[ReplicaDriver]) -> None:
        """A broker refuses connections: elect other leaders before a timeout or the end of its session."""
        logger.info("broker %d refuses connections", broker_id)
        for driver in drivers:
            if isinstance(driver.core, RaftReplica):
                driver.step(BrokerLost(broker_id=broker_id))
        for driver in tuple(self._drivers.values()):
            # A leader here removes it from the in-sync set and does not wait for its fetches.
            if isinstance(driver.core, AssignedReplica) and broker_id in driver.core.voters:
                driver.step(BrokerLost(broker_id=broker_id))
        self.controller_requests.report_unreachable(broker_id)

    def _fetcher(self, broker_id: int) -> LeaderFetcher:
        fetcher = self._fetchers.get(broker_id)
        if fetcher is None:
            fetcher = self._fetchers[broker_id] = LeaderFetcher(broker_id, self)
            task = self._loop.create_task(fetcher.run(), name=f"fetch from broker {broker_id}")
            self._tasks.start(task)
        return fetcher

    # Called by other brokers

    def receive(self, key: PartitionKey, message: Message, sender_id: int) -> None:
        driver = self._drivers.get(key)
        if driver is not None:
            driver.step(message)
        elif len(self._early) < EARLY_MESSAGES_MAX:
            self._early[key, sender_id] = (self.clock.monotonic_ms(), message)

    def deliver_early(self, driver: ReplicaDriver, voter_ids: Iterable[int]) -> None:
        """Deliver messages that arrived just before this broker opened the partition."""
        key = self._keys[driver]
        now_ms = self.clock.monotonic_ms()
        for voter_id in voter_ids:
            at_ms, message = self._early.pop((key, voter_id), (0, None))
            if message is not None and now_ms - at_ms <= EARLY_MS_MAX:
                driver.step(message)

    def forget_early(self) -> None:
        """Drop early messages whose senders no longer wait for an answer."""
        limit_ms = self.clock.monotonic_ms() - EARLY_MS_MAX
        for key in [key for key, (at_ms, _) in self._early.items() if at_ms < limit_ms]:
            del self._early[key]

    def _on_fetch(
        self, connection: PeerConnection, request: ReplicaFetchRequest
    ) -> "asyncio.Future[ReplicaFetchResponse]":
        session = self._sessions.get(connection.id)
        if session is None:
            session = FollowerSession(connection.peer.broker_id, self)
            self._sessions[connection.id] = session
        return session.fetch(request)

    def _on_messages(
        self, connection: PeerConnection, request: ReplicaMessagesRequest
    ) -> ReplicaMessagesResponse:
        deliver(request, connection.peer.broker_id, self)
        return ReplicaMessagesResponse()

    def _on_peer_lost(self, connection: PeerConnection) -> None:
        session = self._sessions.pop(connection.id, None)
        if session is not None:
            session.close()


def _no_callback(_: BrokerError | None) -> None:
    """The callback for states that are deleted."""

"""The follower's side of a fetch session: one for each leader broker, for all partitions it leads."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final, Protocol

from zhumq.consensus.contract import EpochEnd, FetchAnswered, FetchArrived, Mode
from zhumq.consensus.progress import NEVER_MS
from zhumq.consensus.replica import FETCHES_PER_INCARNATION_MAX
from zhumq.host.clock import Clock
from zhumq.model.errors import BrokerError, ErrorCode
from zhumq.net.channel import PeerUnavailable
from zhumq.protocol.messages.replicas import (
    ForgottenReplica,
    ReplicaFetchAnswer,
    ReplicaFetchPartition,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
)
from zhumq.protocol.peer_api import PeerApi
from zhumq.replication.driver import ReplicaDriver
from zhumq.replication.driver_seam import FetchedRecords
from zhumq.replication.inter_broker.follower_session import RESPONSE_BYTES_MAX, PartitionKey
from zhumq.replication.inter_broker.peers import Peers

logger = logging.getLogger(__name__)

REPLICA_FETCH: Final = PeerApi(ReplicaFetchRequest, ReplicaFetchResponse)
# One that the leader holds, and one that tells it something new meanwhile.
FETCHES_IN_FLIGHT_MAX: Final = 2
# Longer than a leader ever holds a fetch, and than its answer takes on a slow line.
FETCH_TIMEOUT_MS: Final = 10_000


class FetcherHost(Protocol):
    """What a fetcher shares with all the others of its broker."""

    @property
    def clock(self) -> Clock: ...
    @property
    def peers(self) -> Peers: ...

    def driver(self, key: PartitionKey) -> ReplicaDriver | None: ...

    def leader_unreachable(self, broker_id: int, drivers: Iterable[ReplicaDriver]) -> None:
        """A broker that was there closed its connections, and takes no new ones."""


class _Entry:
    """What this broker has to say of one partition."""

    __slots__ = ("fetch", "key", "stands")

    def __init__(self, key: PartitionKey, fetch: FetchArrived) -> None:
        self.key = key
        self.fetch = fetch
        # The leader has it, and has not answered it with anything that moves this replica.
        self.stands = False


class LeaderFetcher:
    """Fetches from one leader broker. `run` is a task for as long as there is something to fetch."""

    def __init__(self, broker_id: int, host: FetcherHost) -> None:
        self.broker_id = broker_id
        self.session_contact_ms = NEVER_MS
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._channel = host.peers.new_channel(broker_id, "fetch", self._connection_lost)
        self._entries: dict[ReplicaDriver, _Entry] = {}
        # What the leader does not know yet.
        self._unsaid: dict[ReplicaDriver, None] = {}
        self._forgotten: dict[PartitionKey, None] = {}
        self._in_flight = 0
        self._is_pumping = False
        self._wake = asyncio.Event()
        self.fetches_count = 0

    def __len__(self) -> int:
        return len(self._entries)

    def say(self, driver: ReplicaDriver, key: PartitionKey, fetch: FetchArrived) -> None:
        """Tell the leader where a replica is, with the next fetch."""
        entry = self._entries.get(driver)
        if entry is None:
            entry = self._entries[driver] = _Entry(key, fetch)
            self._forgotten.pop(key, None)
            self._wake.set()
        elif entry.stands and _says_the_same(entry.fetch, fetch) and not driver.saw_corrupt:
            return
        entry.fetch = fetch
        entry.stands = False
        self._unsaid[driver] = None
        self._pump_soon()

    def forget(self, driver: ReplicaDriver) -> None:
        """The replica follows somebody else, or nobody."""
        entry = self._entries.pop(driver, None)
        if entry is None:
            return
        self._unsaid.pop(driver, None)
        if self._channel.is_connected:
            self._forgotten[entry.key] = None
            self._pump_soon()

    def last_contact_ms(self, driver: ReplicaDriver) -> int:
        entry = self._entries.get(driver)
        return self.session_contact_ms if entry is not None and entry.stands else NEVER_MS

    async def run(self) -> None:
        """Keep a session as long as there is something to fetch."""
        was_connected = False
        while True:
            if not self._entries or self._channel.is_connected:
                self._wake.clear()
                await self._wake.wait()
                continue
            await asyncio.sleep(0)
            # A loop that counts whole milliseconds wakes a moment early, and the channel would refuse.
            while (pause := self._channel.retry_seconds) > 0:  # noqa: ASYNC110 (it is time that passes)
                await asyncio.sleep(pause)
            try:
                await self._channel.connect()
            except PeerUnavailable as reason:
                refused = isinstance(reason.__cause__, ConnectionRefusedError)
                if was_connected and refused:
                    self._host.leader_unreachable(self.broker_id, tuple(self._entries))
                was_connected = False
                continue
            if not was_connected:
                logger.info("fetching from broker %d", self.broker_id)
            was_connected = True
            self._session_begun()

    def close(self) -> None:
        self._entries.clear()
        self._channel.close()

    def _session_begun(self) -> None:
        """A new connection knows nothing of what was said on the last one."""
        self._in_flight = 0
        self._forgotten.clear()
        self._unsaid = dict.fromkeys(self._entries)
        self._pump()

    def _connection_lost(self) -> None:
        for entry in self._entries.values():
            entry.stands = False
        self._in_flight = 0
        self._wake.set()

    # Asking

    def _pump_soon(self) -> None:
        """At the end of this turn of the loop, so that many partitions share a request."""
        if not self._is_pumping:
            self._is_pumping = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pumping = False
        if not self._channel.is_connected or self._in_flight >= FETCHES_IN_FLIGHT_MAX:
            return
        has_updates = bool(self._unsaid or self._forgotten)
        if not has_updates and (self._in_flight or not self._entries):
            return
        request = self._request()
        try:
            answer = self._channel.start(REPLICA_FETCH, request, timeout_ms=FETCH_TIMEOUT_MS)
        except PeerUnavailable:
            return
        self._in_flight += 1
        self.fetches_count += 1
        answer.add_done_callback(self._answered)

    def _request(self) -> ReplicaFetchRequest:
        said: list[ReplicaFetchPartition] = []
        for driver in self._unsaid:
            entry = self._entries[driver]
            entry.stands = True
            encoded = _encode(entry.key, entry.fetch)
            if not entry.fetch.recovering:
                # One that heals has to hear from a leader that serves, be it nothing new.
                encoded.high_watermark = driver.core.known_high_watermark
            encoded.was_corrupt = driver.saw_corrupt
            driver.saw_corrupt = False
            said.append(encoded)
        forgotten = [ForgottenReplica(topic_id=key[0], partition=key[1]) for key in self._forgotten]
        self._unsaid.clear()
        self._forgotten.clear()
        return ReplicaFetchRequest(
            max_bytes=RESPONSE_BYTES_MAX, partitions=said, forgotten=forgotten
        )

    # Being answered

    def _answered(self, answer: "asyncio.Future[ReplicaFetchResponse]") -> None:
        if answer.cancelled() or (failure := answer.exception()) is not None:
            if isinstance(failure, BrokerError) and not isinstance(failure, PeerUnavailable):
                # A leader that does not take a fetch will not take the next one either.
                self._channel.reset(f"refused a fetch: {failure}")
            return
        self._in_flight = max(self._in_flight - 1, 0)
        self.session_contact_ms = self._host.clock.monotonic_ms()
        for each in answer.result().answers:
            try:
                self._take(each)
            except Exception:
                # One partition's failure must not stop all the others of this leader.
                logger.exception("partition %d of %s failed", each.partition, each.topic_id)
        self._pump_soon()

    def _take(self, encoded: ReplicaFetchAnswer) -> None:
        driver = self._host.driver((encoded.topic_id, encoded.partition))
        if driver is None:
            return
        answer = self._decode(encoded)
        entry = self._entries.get(driver)
        if entry is not None and entry.fetch.sequence == answer.sequence and not encoded.stands:
            entry.stands = False
        if encoded.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            # It has not heard of the partition yet: the replica asks again in a while.
            return
        driver.step(answer)
        if encoded.error_code == ErrorCode.NONE and encoded.log_start_offset >= 0:
            driver.leader_starts_at(encoded.log_start_offset)

    def _decode(self, encoded: ReplicaFetchAnswer) -> FetchAnswered:
        diverging = None
        if encoded.diverging_epoch >= 0:
            diverging = EpochEnd(encoded.diverging_epoch, encoded.diverging_end_offset)
        records = encoded.records
        return FetchAnswered(
            responder_id=self.broker_id,
            epoch=encoded.epoch,
            leader_id=None if encoded.leader_id < 0 else encoded.leader_id,
            error=ErrorCode(encoded.error_code),
            fetch_offset=encoded.fetch_offset,
            last_fetched_epoch=encoded.last_fetched_epoch,
            sequence=encoded.incarnation * FETCHES_PER_INCARNATION_MAX + encoded.sequence,
            high_watermark=encoded.high_watermark,
            serving=encoded.serving,
            epoch_start_offset=encoded.epoch_start_offset,
            diverging=diverging,
            start_over_at=None if encoded.start_over_at < 0 else encoded.start_over_at,
            records=(
                FetchedRecords(records, encoded.gaps_allowed)
                if isinstance(records, memoryview) and records
                else None
            ),
        )


def _says_the_same(said: FetchArrived, fetch: FetchArrived) -> bool:
    """Whether the leader would learn nothing. The sequence alone says nothing about the log."""
    return (
        said.epoch == fetch.epoch
        and said.fetch_offset == fetch.fetch_offset
        and said.last_fetched_epoch == fetch.last_fetched_epoch
        and said.flushed_offset == fetch.flushed_offset
        and said.mode is fetch.mode
        and said.recovering == fetch.recovering
        and said.accepted_epoch == fetch.accepted_epoch
    )


def _encode(key: PartitionKey, fetch: FetchArrived) -> ReplicaFetchPartition:
    incarnation, sequence = divmod(fetch.sequence, FETCHES_PER_INCARNATION_MAX)
    return ReplicaFetchPartition(
        topic_id=key[0],
        partition=key[1],
        epoch=fetch.epoch,
        fetch_offset=fetch.fetch_offset,
        last_fetched_epoch=fetch.last_fetched_epoch,
        flushed_offset=fetch.flushed_offset,
        is_raft=fetch.mode is Mode.RAFT,
        recovering=fetch.recovering,
        incarnation=incarnation,
        sequence=sequence,
        accepted_epoch=fetch.accepted_epoch,
    )

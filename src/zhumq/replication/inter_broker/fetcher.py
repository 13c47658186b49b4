"""The follower's side of a fetch session: one per leader broker, for all partitions that it leads."""

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
# One fetch that the leader holds, and one that brings it newer positions meanwhile.
FETCHES_IN_FLIGHT_MAX: Final = 2
# Longer than a leader holds a fetch, plus the time of its answer on a slow network.
FETCH_TIMEOUT_MS: Final = 10_000


class FetcherHost(Protocol):
    """What all fetchers of a broker share."""

    @property
    def clock(self) -> Clock: ...
    @property
    def peers(self) -> Peers: ...

    def driver(self, key: PartitionKey) -> ReplicaDriver | None: ...

    def leader_unreachable(self, broker_id: int, drivers: Iterable[ReplicaDriver]) -> None:
        """A broker that was connected closed its connections, and refuses new ones."""


class _Entry:
    """The fetch of one partition."""

    __slots__ = ("fetch", "is_outstanding", "key")

    def __init__(self, key: PartitionKey, fetch: FetchArrived) -> None:
        self.key = key
        self.fetch = fetch
        # The leader has the fetch, and no answer has changed this replica's position yet.
        self.is_outstanding = False


class LeaderFetcher:
    """Fetches from one leader broker. `run` is its task."""

    def __init__(self, broker_id: int, host: FetcherHost) -> None:
        self.broker_id = broker_id
        self.session_contact_ms = NEVER_MS
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._channel = host.peers.new_channel(broker_id, "fetch", self._on_connection_lost)
        self._entries: dict[ReplicaDriver, _Entry] = {}
        # Replicas whose latest fetch is not sent to the leader yet.
        self._unsent: dict[ReplicaDriver, None] = {}
        self._forgotten: dict[PartitionKey, None] = {}
        self._in_flight = 0
        self._is_pumping = False
        self._wake = asyncio.Event()
        self.fetches_count = 0

    def __len__(self) -> int:
        return len(self._entries)

    def update(self, driver: ReplicaDriver, key: PartitionKey, fetch: FetchArrived) -> None:
        """Send a replica's position to the leader with the next request."""
        entry = self._entries.get(driver)
        if entry is None:
            entry = self._entries[driver] = _Entry(key, fetch)
            self._forgotten.pop(key, None)
            self._wake.set()
        elif entry.is_outstanding and _is_unchanged(entry.fetch, fetch) and not driver.saw_corrupt:
            return
        entry.fetch = fetch
        entry.is_outstanding = False
        self._unsent[driver] = None
        self._pump_soon()

    def reconnect(self, reason: str) -> None:
        """Close the connection, and with it the fetch session; the next fetch begins new ones."""
        self._channel.reset(reason)

    def forget(self, driver: ReplicaDriver) -> None:
        """The replica follows another leader, or none."""
        entry = self._entries.pop(driver, None)
        if entry is None:
            return
        self._unsent.pop(driver, None)
        if self._channel.is_connected:
            self._forgotten[entry.key] = None
            self._pump_soon()

    def last_contact_ms(self, driver: ReplicaDriver) -> int:
        entry = self._entries.get(driver)
        return self.session_contact_ms if entry is not None and entry.is_outstanding else NEVER_MS

    async def run(self) -> None:
        """Keep a session while there is something to fetch."""
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
            self._on_connected()

    def close(self) -> None:
        self._entries.clear()
        self._channel.close()

    def _on_connected(self) -> None:
        """Send everything again: the leader's session ends with its connection."""
        self._in_flight = 0
        self._forgotten.clear()
        self._unsent = dict.fromkeys(self._entries)
        self._pump()

    def _on_connection_lost(self) -> None:
        for entry in self._entries.values():
            entry.is_outstanding = False
        self._in_flight = 0
        self._wake.set()

    # Requests

    def _pump_soon(self) -> None:
        """At the end of this turn of the loop, so that many partitions share a request."""
        if not self._is_pumping:
            self._is_pumping = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pumping = False
        if not self._channel.is_connected or self._in_flight >= FETCHES_IN_FLIGHT_MAX:
            return
        has_updates = bool(self._unsent or self._forgotten)
        if not has_updates and (self._in_flight or not self._entries):
            return
        request = self._request()
        try:
            answer = self._channel.start(REPLICA_FETCH, request, timeout_ms=FETCH_TIMEOUT_MS)
        except PeerUnavailable:
            return
        self._in_flight += 1
        self.fetches_count += 1
        answer.add_done_callback(self._on_response)

    def _request(self) -> ReplicaFetchRequest:
        partitions: list[ReplicaFetchPartition] = []
        for driver in self._unsent:
            entry = self._entries[driver]
            entry.is_outstanding = True
            encoded = _encode(entry.key, entry.fetch)
            if not entry.fetch.recovering:
                # A recovering replica needs an answer of a serving leader, even without new data.
                encoded.high_watermark = driver.core.known_high_watermark
            encoded.was_corrupt = driver.saw_corrupt
            driver.saw_corrupt = False
            partitions.append(encoded)
        forgotten = [ForgottenReplica(topic_id=key[0], partition=key[1]) for key in self._forgotten]
        self._unsent.clear()
        self._forgotten.clear()
        return ReplicaFetchRequest(
            max_bytes=RESPONSE_BYTES_MAX, partitions=partitions, forgotten=forgotten
        )

    # Responses

    def _on_response(self, answer: "asyncio.Future[ReplicaFetchResponse]") -> None:
        if answer.cancelled() or (failure := answer.exception()) is not None:
            if isinstance(failure, BrokerError) and not isinstance(failure, PeerUnavailable):
                # A leader that refuses a fetch refuses the next one as well.
                self._channel.reset(f"refused a fetch: {failure}")
            return
        self._in_flight = max(self._in_flight - 1, 0)
        self.session_contact_ms = self._host.clock.monotonic_ms()
        for each in answer.result().answers:
            try:
                self._on_answer(each)
            except Exception:
                # One partition's failure must not stop all the others of this leader.
                logger.exception("partition %d of %s failed", each.partition, each.topic_id)
        self._pump_soon()

    def _on_answer(self, encoded: ReplicaFetchAnswer) -> None:
        driver = self._host.driver((encoded.topic_id, encoded.partition))
        if driver is None:
            return
        answer = self._decode(encoded)
        entry = self._entries.get(driver)
        if entry is not None and entry.fetch.sequence == answer.sequence and not encoded.stands:
            entry.is_outstanding = False
        if encoded.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            # The leader has not opened the partition yet: the replica fetches again later.
            return
        driver.step(answer)
        if encoded.error_code == ErrorCode.NONE and encoded.log_start_offset >= 0:
            driver.on_leader_log_start(encoded.log_start_offset)

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


def _is_unchanged(sent: FetchArrived, fetch: FetchArrived) -> bool:
    """Whether a fetch has nothing new for the leader. A new sequence number alone is nothing new."""
    return (
        sent.epoch == fetch.epoch
        and sent.fetch_offset == fetch.fetch_offset
        and sent.last_fetched_epoch == fetch.last_fetched_epoch
        and sent.flushed_offset == fetch.flushed_offset
        and sent.mode is fetch.mode
        and sent.recovering == fetch.recovering
        and sent.accepted_epoch == fetch.accepted_epoch
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

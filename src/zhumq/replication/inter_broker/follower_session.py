"""The leader's side of a fetch session: the fetches of one follower broker, for all its partitions."""

import asyncio
import logging
import uuid
from dataclasses import dataclass
from typing import Final, Protocol

from zhumq.consensus.contract import FetchAnswered, FetchArrived, Mode, Role
from zhumq.consensus.replica import FETCHES_PER_INCARNATION_MAX
from zhumq.host.clock import Clock
from zhumq.model.errors import BrokerError, CorruptMessage, ErrorCode
from zhumq.protocol.messages.replicas import (
    ReplicaFetchAnswer,
    ReplicaFetchPartition,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
)
from zhumq.replication.driver import ReplicaDriver
from zhumq.replication.driver_seam import FollowerFetchState, is_plain
from zhumq.replication.move_throttle import MoveThrottle

logger = logging.getLogger(__name__)

# How long a fetch is held while there is no update: one small request per interval is the heartbeat of
# all idle partitions between two brokers.
BEAT_MS: Final = 400
# Bytes of records in one response, and per partition, so that no partition delays the others.
RESPONSE_BYTES_MAX: Final = 4 * 1024 * 1024
PARTITION_BYTES_MAX: Final = 1024 * 1024
# Partitions in one response; the rest goes with the next one.
ANSWERS_MAX: Final = 10_000
# The longest time until a throttled copy is checked again: the rate may have changed.
PAUSE_MS_MAX: Final = 1_000

PartitionKey = tuple[uuid.UUID, int]


class SessionHost(Protocol):
    """What all sessions of a broker share."""

    @property
    def clock(self) -> Clock: ...
    @property
    def throttle(self) -> MoveThrottle: ...

    def driver(self, key: PartitionKey) -> ReplicaDriver | None: ...


@dataclass(slots=True)
class _Held:
    """A fetch that is not answered yet."""

    answer: "asyncio.Future[ReplicaFetchResponse]"
    bytes_max: int
    timer: asyncio.TimerHandle


class FollowerSession:
    """One connection of a follower broker. The fetch of a partition is valid until it is answered.

    At most one request is held: a newer one releases it.
    """

    def __init__(self, broker_id: int, host: SessionHost) -> None:
        self.broker_id = broker_id
        self.session_contact_ms = host.clock.monotonic_ms()
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._fetch_states: dict[PartitionKey, tuple[ReplicaDriver, FollowerFetchState]] = {}
        self._key_of: dict[ReplicaDriver, PartitionKey] = {}
        # Partitions that may have an update, in the order in which they are checked.
        self._marked: dict[ReplicaDriver, None] = {}
        self._too_large: list[ReplicaDriver] = []
        # Answers that are ready: for partitions that this broker does not have.
        self._ready: list[ReplicaFetchAnswer] = []
        # Throttled copies to a broker that a reassignment adds.
        self._paused: dict[ReplicaDriver, None] = {}
        self._pause: asyncio.TimerHandle | None = None
        self._held: _Held | None = None
        self._is_answering = False
        self._is_closed = False

    def fetch(self, request: ReplicaFetchRequest) -> "asyncio.Future[ReplicaFetchResponse]":
        """Take the follower's positions; the response follows when there is an update."""
        self.session_contact_ms = self._host.clock.monotonic_ms()
        answer: asyncio.Future[ReplicaFetchResponse] = self._loop.create_future()
        self._release()
        timer = self._loop.call_later(BEAT_MS / 1000, self._answer_empty, answer)
        bytes_max = min(max(request.max_bytes, 1), RESPONSE_BYTES_MAX)
        self._held = _Held(answer, bytes_max, timer)
        for forgotten in request.forgotten:
            self._forget((forgotten.topic_id, forgotten.partition))
        for asked in request.partitions:
            self._on_partition_fetch(asked)
        if self._marked or self._ready:
            self._answer_soon()
        return answer

    def mark(self, driver: ReplicaDriver) -> None:
        """The partition may have an update for this follower."""
        self._marked[driver] = None
        if self._held is not None and not self._is_answering:
            self._answer_soon()

    def close(self) -> None:
        """The follower's connection is lost."""
        self._is_closed = True
        if self._pause is not None:
            self._pause.cancel()
        if self._held is not None:
            self._held.timer.cancel()
            self._held = None
        for driver, _ in self._fetch_states.values():
            driver.forget_follower(self)
        self._fetch_states.clear()
        self._key_of.clear()
        self._marked.clear()

    def _on_partition_fetch(self, asked: ReplicaFetchPartition) -> None:
        key = (asked.topic_id, asked.partition)
        driver = self._host.driver(key)
        if driver is None:
            self._forget(key)
            self._ready.append(_unknown(asked))
            return
        found = self._fetch_states.get(key)
        if found is None or found[0] is not driver:
            self._forget(key)
            found = (driver, FollowerFetchState(session=self, fetch=None))
            self._fetch_states[key] = found
            self._key_of[driver] = key
        found[1].sent_high_watermark = asked.high_watermark
        found[1].sent_epoch_start = False
        fetch = FetchArrived(
            # The id from the handshake: a broker cannot fetch in the name of another one.
            replica_id=self.broker_id,
            epoch=asked.epoch,
            fetch_offset=asked.fetch_offset,
            last_fetched_epoch=asked.last_fetched_epoch,
            flushed_offset=asked.flushed_offset,
            mode=Mode.RAFT if asked.is_raft else Mode.FETCH,
            recovering=asked.recovering,
            sequence=asked.incarnation * FETCHES_PER_INCARNATION_MAX + asked.sequence,
            accepted_epoch=asked.accepted_epoch,
        )
        if asked.was_corrupt and driver.core.role is Role.LEADER:
            driver.scan_for_damage(asked.fetch_offset)
        driver.fetch_arrived(found[1], fetch)

    def _forget(self, key: PartitionKey) -> None:
        found = self._fetch_states.pop(key, None)
        if found is not None:
            self._marked.pop(found[0], None)
            self._key_of.pop(found[0], None)
            found[0].forget_follower(self)

    # Answers

    def _answer_soon(self) -> None:
        """At the end of this turn of the event loop: many partitions have updates at the same time."""
        self._is_answering = True
        self._loop.call_soon(self._answer_if_updates)

    def _answer_if_updates(self) -> None:
        self._is_answering = False
        held = self._held
        if held is None or self._is_closed:
            return
        response = self._response(held.bytes_max)
        if response.answers:
            self._settle(held, response)

    def _answer_empty(self, answer: "asyncio.Future[ReplicaFetchResponse]") -> None:
        held = self._held
        if held is not None and held.answer is answer:
            self._settle(held, ReplicaFetchResponse())

    def _release(self) -> None:
        if self._held is not None:
            self._settle(self._held, self._response(self._held.bytes_max))

    def _settle(self, held: _Held, response: ReplicaFetchResponse) -> None:
        held.timer.cancel()
        self._held = None
        if not held.answer.done():
            held.answer.set_result(response)

    def _response(self, bytes_max: int) -> ReplicaFetchResponse:
        """All updates that fit; the rest keeps its place in the queue."""
        answers, self._ready = self._ready, []
        bytes_left = bytes_max
        self._too_large.clear()
        while self._marked and bytes_left > 0 and len(answers) < ANSWERS_MAX:
            driver = next(iter(self._marked))
            del self._marked[driver]
            key = self._key_of.get(driver)
            if key is None:
                continue
            fetch_state = self._fetch_states[key][1]
            answer = self._answer_of(
                driver, fetch_state, key, bytes_left, first=bytes_left == bytes_max
            )
            if answer is None:
                # A busy driver marks itself again when it is done.
                continue
            bytes_left -= len(answer.records or b"")
            answers.append(answer)
        # First in the next response, whose first batch is sent whatever its size.
        self._marked = dict.fromkeys(self._too_large) | self._marked
        return ReplicaFetchResponse(answers=answers)

    def _answer_of(
        self,
        driver: ReplicaDriver,
        fetch_state: FollowerFetchState,
        key: PartitionKey,
        bytes_left: int,
        *,
        first: bool,
    ) -> ReplicaFetchAnswer | None:
        """The update of one partition; None if there is none."""
        fetch = fetch_state.fetch
        answer = driver.answer(fetch_state)
        if answer is None or fetch is None:
            return None
        if driver.is_closed:
            fetch_state.fetch = None
            return _encode(key, answer, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        encoded = _encode(key, answer)
        encoded.log_start_offset = driver.log.log_start_offset
        if not is_plain(answer):
            fetch_state.fetch = None
            return encoded
        if fetch.fetch_offset < driver.log.log_end_offset:
            if self._is_held_back(driver) or not self._add_records(
                driver, fetch, encoded, bytes_left, first=first
            ):
                return None
            fetch_state.fetch = None
        elif not fetch_state.has_update(fetch, answer):
            return None
        else:
            encoded.stands = True
        fetch_state.sent_high_watermark = answer.high_watermark
        fetch_state.sent_serving = answer.serving
        fetch_state.sent_epoch_start = True
        return encoded

    def _is_held_back(self, driver: ReplicaDriver) -> bool:
        """Whether the throttle delays this copy; if so, it is checked again later."""
        pause_ms = self._host.throttle.pause_ms(driver.topic_partition, self.broker_id)
        if not pause_ms:
            return False
        self._paused[driver] = None
        if self._pause is None:
            self._pause = self._loop.call_later(
                min(pause_ms, PAUSE_MS_MAX) / 1000, self._resume_paused
            )
        return True

    def _resume_paused(self) -> None:
        self._pause = None
        paused, self._paused = self._paused, {}
        for driver in paused:
            self.mark(driver)

    def _add_records(
        self,
        driver: ReplicaDriver,
        fetch: FetchArrived,
        encoded: ReplicaFetchAnswer,
        bytes_left: int,
        *,
        first: bool,
    ) -> bool:
        log = driver.log
        try:
            records = log.read(
                fetch.fetch_offset,
                max_bytes=min(bytes_left, PARTITION_BYTES_MAX),
                up_to_offset=log.log_end_offset,
                at_least_one=first,
            )
        except CorruptMessage as reason:
            # This replica is damaged, and must not lead.
            logger.warning("%s: %s", driver.topic_partition, reason)
            driver.on_damaged(fetch.fetch_offset)
            return False
        except BrokerError as reason:
            driver.fail(reason)
            return False
        if not records.regions:
            self._too_large.append(driver)
            return False
        encoded.records = records.regions[0]
        self._host.throttle.sent(driver.topic_partition, self.broker_id, len(records.regions[0]))
        encoded.gaps_allowed = log.may_have_gaps
        return True


def _encode(
    key: PartitionKey, answer: FetchAnswered, error: ErrorCode | None = None
) -> ReplicaFetchAnswer:
    incarnation, sequence = divmod(answer.sequence, FETCHES_PER_INCARNATION_MAX)
    encoded = ReplicaFetchAnswer(
        topic_id=key[0],
        partition=key[1],
        error_code=answer.error if error is None else error,
        epoch=answer.epoch,
        leader_id=-1 if answer.leader_id is None else answer.leader_id,
        fetch_offset=answer.fetch_offset,
        last_fetched_epoch=answer.last_fetched_epoch,
        incarnation=incarnation,
        sequence=sequence,
        high_watermark=answer.high_watermark,
        serving=answer.serving,
        epoch_start_offset=answer.epoch_start_offset,
    )
    if answer.diverging is not None:
        encoded.diverging_epoch, encoded.diverging_end_offset = answer.diverging
    if answer.start_over_at is not None:
        encoded.start_over_at = answer.start_over_at
    return encoded


def _unknown(asked: ReplicaFetchPartition) -> ReplicaFetchAnswer:
    return ReplicaFetchAnswer(
        topic_id=asked.topic_id,
        partition=asked.partition,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        epoch=asked.epoch,
        incarnation=asked.incarnation,
        sequence=asked.sequence,
    )

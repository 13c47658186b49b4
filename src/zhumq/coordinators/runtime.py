"""Runs replicated state machines: loads them from their logs, appends what they decide, holds replies until durable."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from zhumq.host.clock import Clock
from zhumq.model.errors import BrokerError, ErrorCode, NotLeaderOrFollower
from zhumq.model.state_machine import Outcome, Reply, ReplyToken, StateRecord
from zhumq.records.batch import Record, batches
from zhumq.records.builder import build_batch

logger = logging.getLogger(__name__)

LOAD_BYTES_MAX = 1 << 20  # read from the log at a time; the loop gets a turn in between
RELOAD_DELAY_S = 1.0  # between two loads of a shard whose log refuses
LATE_MS = 1_000  # a timer this late means that the whole process stood still
CATCH_UP_S = 0.2  # in which requests that arrived meanwhile are heard before anybody is given up
BATCH_OVERHEAD_BYTES = 61
RECORD_OVERHEAD_BYTES = 40  # varints of one record, at their longest

Request = TypeVar("Request")
Response = TypeVar("Response")
RequestIn = TypeVar("RequestIn", contravariant=True)
ResponseOut = TypeVar("ResponseOut", covariant=True)


class AppendedRange(Protocol):
    """Where an append went."""

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""


class LogPart(Protocol):
    """A piece of a log that is still on the disk."""

    def read_bytes(self) -> bytes | memoryview:
        """Its batches."""


class StatePartition(Protocol):
    """What the runtime needs of the partition that holds a shard's log."""

    @property
    def log_start_offset(self) -> int:
        """The first offset there is."""

    @property
    def log_end_offset(self) -> int:
        """Where the next record goes. What is below and not durable yet may still be lost."""

    def append(self, batches: bytes, now_ms: int) -> AppendedRange:
        """Append whole batches, all or nothing. Raises BrokerError."""

    def when_durable(self, next_offset: int) -> "asyncio.Future[None]":
        """Done when everything below is durable, or failed with a BrokerError if it never will be."""

    def read(self, offset: int, max_bytes: int) -> LogPart:
        """Whole batches from the one that holds this offset on, at least one if there is one."""


class LoadableShard(Protocol[RequestIn, ResponseOut]):
    """A shard that is told when its log has been read to the end (see model.state_machine.Shard)."""

    @property
    def next_deadline_ms(self) -> int | None: ...

    def handle(
        self, request: RequestIn, token: ReplyToken, now_ms: int
    ) -> Outcome[ResponseOut]: ...

    def expire(self, now_ms: int) -> Outcome[ResponseOut]: ...

    def replay(self, record: StateRecord, now_ms: int) -> None: ...

    def loaded(self, now_ms: int) -> Outcome[ResponseOut]: ...


@dataclass(slots=True, kw_only=True)
class _Running(Generic[Request, Response]):
    """A shard that serves."""

    index: int
    shard: LoadableShard[Request, Response]
    partition: StatePartition
    # Everything the shard knows lies below this offset of its log.
    next_offset: int
    # Invariant: durable_offset <= next_offset.
    durable_offset: int
    loaded_at_ms: int
    next_token: int = 0
    waiting: dict[ReplyToken, tuple[Request, "asyncio.Future[Response]"]] = field(
        default_factory=dict
    )
    timer: asyncio.TimerHandle | None = None
    timer_at_ms: int = 0
    is_catching_up: bool = False


@dataclass(slots=True)
class _NotYet:
    """A shard that is on its way; its requests are answered with the reason. One for each load."""

    code: ErrorCode = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class CoordinatorRuntime(Generic[Request, Response]):
    """The shards this broker leads, each on its partition of one internal topic."""

    def __init__(
        self,
        *,
        name: str,
        make_shard: Callable[[], LoadableShard[Request, Response]],
        refuse: Callable[[Request, ErrorCode], Response],
        clock: Clock,
        batch_bytes_max: int,
    ) -> None:
        self._name = name
        self._make_shard = make_shard
        self._refuse = refuse
        self._clock = clock
        self._batch_bytes_max = batch_bytes_max
        # Deadlines must not jump with the wall clock, but what is recorded must be wall time: so time
        # is the wall's at the start, and goes on with the monotonic clock.
        self._wall_minus_monotonic_ms = clock.now_ms() - clock.monotonic_ms()
        self._running: dict[int, _Running[Request, Response]] = {}
        # Partitions that are led but do not serve yet.
        self._not_yet: dict[int, _NotYet] = {}
        self._reloads: dict[int, asyncio.Task[None]] = {}

    @property
    def led(self) -> list[int]:
        """The partitions this broker leads, whether they serve already or not."""
        return sorted({*self._running, *self._not_yet})

    @property
    def shards(self) -> list[LoadableShard[Request, Response]]:
        """Those that serve."""
        return [running.shard for running in self._running.values()]

    def expect(self, index: int) -> None:
        """A shard is about to be loaded: its requests are told to come again, not to go elsewhere."""
        self._not_yet[index] = _NotYet()

    async def load(self, index: int, partition: StatePartition) -> None:
        """Take over a shard: read its log, then serve. Raises BrokerError if the log cannot be read."""
        loading = self._not_yet[index] = _NotYet()
        try:
            running = await self._read_shard(index, partition)
        except BrokerError:
            loading.code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            raise
        if self._not_yet.get(index) is not loading:
            # Leadership went elsewhere while the log was read, and perhaps came back since.
            return
        del self._not_yet[index]
        self._running[index] = running
        now_ms = self._now_ms()
        self._carry_out(running, running.shard.loaded(now_ms), now_ms)

    def unload(self, index: int) -> None:
        """Another broker leads this partition now: forget the shard and send everybody there."""
        self._not_yet.pop(index, None)
        reload = self._reloads.pop(index, None)
        if reload is not None:
            reload.cancel()
        running = self._running.pop(index, None)
        if running is not None:
            self._turn_away(running, ErrorCode.NOT_COORDINATOR)

    async def close(self) -> None:
        """Stop serving. Whoever waits is told that the coordinator is gone."""
        reloads = list(self._reloads.values())
        for index in self.led:
            self.unload(index)
        await asyncio.gather(*reloads, return_exceptions=True)

    def submit(self, index: int, request: Request) -> "asyncio.Future[Response]":
        """Hand a request to a shard. The answer comes when what it rests on is durable."""
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        running = self._running.get(index)
        if running is None:
            not_yet = self._not_yet.get(index)
            code = ErrorCode.NOT_COORDINATOR if not_yet is None else not_yet.code
            answer.set_result(self._refuse(request, code))
            return answer
        token = ReplyToken(running.next_token)
        running.next_token += 1
        running.waiting[token] = (request, answer)
        now_ms = self._now_ms()
        self._decide(running, lambda: running.shard.handle(request, token, now_ms), now_ms)
        return answer

    # Serving

    def _decide(
        self,
        running: _Running[Request, Response],
        decide: Callable[[], Outcome[Response]],
        now_ms: int,
    ) -> None:
        try:
            outcome = decide()
        except BaseException:
            # A bug: nobody knows how far the decision got, so nothing may be built upon it.
            self._throw_away(running, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            raise
        self._carry_out(running, outcome, now_ms)

    def _carry_out(
        self, running: _Running[Request, Response], outcome: Outcome[Response], now_ms: int
    ) -> None:
        if outcome.records:
            data = b"".join(self._batches_of(outcome.records, now_ms))
            try:
                appended = running.partition.append(data, now_ms)
            except BrokerError as error:
                logger.warning("%s shard %d could not append: %s", self._name, running.index, error)
                self._throw_away(running, _code_for(error))
                return
            running.next_offset = appended.last_offset + 1
            for record in outcome.records:
                running.shard.replay(record, now_ms)
        if outcome.replies:
            self._release_when_durable(running, outcome.replies)
        self._arm(running, now_ms)

    def _batches_of(self, state: Iterable[StateRecord], now_ms: int) -> Iterator[bytes]:
        """As few batches as the topic's limit allows: one, for all but the largest outcomes."""
        pending: list[Record] = []
        size = BATCH_OVERHEAD_BYTES
        for each in state:
            record_bytes = len(each.key) + len(each.value or b"") + RECORD_OVERHEAD_BYTES
            if pending and size + record_bytes > self._batch_bytes_max:
                yield build_batch(pending)
                pending = []
                size = BATCH_OVERHEAD_BYTES
            pending.append(Record(key=each.key, value=each.value, timestamp=now_ms))
            size += record_bytes
        yield build_batch(pending)

    def _release_when_durable(
        self, running: _Running[Request, Response], replies: tuple[Reply[Response], ...]
    ) -> None:
        """Hold replies, also those without records of their own: they may tell of earlier ones."""
        next_offset = running.next_offset
        if running.durable_offset >= next_offset:
            self._release(running, replies)
            return
        durable = running.partition.when_durable(next_offset)
        if durable.done():
            self._became_durable(running, next_offset, replies, durable)
        else:
            durable.add_done_callback(
                lambda done: self._became_durable(running, next_offset, replies, done)
            )

    def _became_durable(
        self,
        running: _Running[Request, Response],
        next_offset: int,
        replies: tuple[Reply[Response], ...],
        done: "asyncio.Future[None]",
    ) -> None:
        error: BaseException | None
        if done.cancelled():
            error = NotLeaderOrFollower("the partition was closed")
        else:
            error = done.exception()
        if error is not None:
            if self._running.get(running.index) is running:
                logger.error("%s shard %d lost its log: %s", self._name, running.index, error)
                self._throw_away(running, _code_for(error))
            return
        running.durable_offset = max(running.durable_offset, next_offset)
        self._release(running, replies)

    def _release(
        self, running: _Running[Request, Response], replies: tuple[Reply[Response], ...]
    ) -> None:
        for reply in replies:
            waiting = running.waiting.pop(reply.token, None)
            # Not there: the shard was thrown away and the sender told so. Done: the sender is gone.
            if waiting is not None and not waiting[1].done():
                waiting[1].set_result(reply.response)

    # Deadlines

    def _arm(self, running: _Running[Request, Response], now_ms: int) -> None:
        deadline_ms = running.shard.next_deadline_ms
        if deadline_ms is None:
            return
        if running.timer is not None:
            if running.timer_at_ms <= deadline_ms:
                # It fires early, finds nothing due, and is set again: cheaper than moving it each time.
                return
            running.timer.cancel()
        running.timer_at_ms = deadline_ms
        running.timer = asyncio.get_running_loop().call_later(
            max(deadline_ms - now_ms, 0) / 1000, self._deadline_passed, running
        )

    def _deadline_passed(self, running: _Running[Request, Response]) -> None:
        running.timer = None
        late_ms = self._now_ms() - running.timer_at_ms
        if late_ms > LATE_MS and not running.is_catching_up:
            # A broker that was paused must not blame its members: their heartbeats may lie unread.
            running.is_catching_up = True
            running.timer = asyncio.get_running_loop().call_later(
                CATCH_UP_S, self._deadline_passed, running
            )
            return
        running.is_catching_up = False
        # Timers are more precise than milliseconds and may fire a fraction early.
        now_ms = max(self._now_ms(), running.timer_at_ms)
        self._decide(running, lambda: running.shard.expire(now_ms), now_ms)

    def _now_ms(self) -> int:
        return self._clock.monotonic_ms() + self._wall_minus_monotonic_ms

    # Loading, and starting over

    async def _read_shard(
        self, index: int, partition: StatePartition
    ) -> _Running[Request, Response]:
        shard = self._make_shard()
        # What is in the log but not durable yet may have been decided by the shard before this one.
        end_offset = partition.log_end_offset
        await partition.when_durable(end_offset)
        offset = partition.log_start_offset
        now_ms = self._now_ms()
        while offset < end_offset:
            next_offset = offset
            for batch in batches(partition.read(offset, LOAD_BYTES_MAX).read_bytes()):
                next_offset = batch.header.next_offset
                if not batch.header.is_control:
                    for record in batch.records():
                        if record.key is not None:
                            shard.replay(StateRecord(key=record.key, value=record.value), now_ms)
            if next_offset <= offset:
                break  # nothing but compacted-away offsets up to the end
            offset = next_offset
            await asyncio.sleep(0)
        logger.debug("%s shard %d loaded up to offset %d", self._name, index, end_offset)
        return _Running(
            index=index,
            shard=shard,
            partition=partition,
            next_offset=end_offset,
            durable_offset=end_offset,
            loaded_at_ms=self._now_ms(),
        )

    def _throw_away(self, running: _Running[Request, Response], code: ErrorCode) -> None:
        """The shard no longer is what its log says: turn everybody away and read the log again."""
        index = running.index
        if self._running.get(index) is not running:
            return
        del self._running[index]
        self._turn_away(running, code)
        self._not_yet[index] = _NotYet()
        # A disk that stays full fails every append: do not read the log over and over meanwhile.
        served_s = (self._now_ms() - running.loaded_at_ms) / 1000
        task = asyncio.get_running_loop().create_task(
            self._reload(index, running.partition, delay_s=max(RELOAD_DELAY_S - served_s, 0)),
            name=f"{self._name}-reload-{index}",
        )
        self._reloads[index] = task

    async def _reload(self, index: int, partition: StatePartition, *, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        while True:
            try:
                await self.load(index, partition)
            except BrokerError as error:
                logger.warning("%s shard %d cannot be loaded: %s", self._name, index, error)
                await asyncio.sleep(RELOAD_DELAY_S)
            else:
                if self._reloads.get(index) is asyncio.current_task():
                    del self._reloads[index]
                return

    def _turn_away(self, running: _Running[Request, Response], code: ErrorCode) -> None:
        if running.timer is not None:
            running.timer.cancel()
            running.timer = None
        for request, answer in running.waiting.values():
            if not answer.done():
                answer.set_result(self._refuse(request, code))
        running.waiting.clear()


def _code_for(error: BaseException) -> ErrorCode:
    """What a client of the coordinator is told when the log fails it."""
    if isinstance(error, NotLeaderOrFollower):
        return ErrorCode.NOT_COORDINATOR
    return ErrorCode.COORDINATOR_NOT_AVAILABLE

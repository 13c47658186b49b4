"""Runs replicated state machines: loads them from their logs, appends their records, delays replies until durable."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Generic, Protocol, TypeVar

from zhumq.coordinators.state_log import (
    StatePartition,
    batches_of,
    end_transaction,
    replay,
    replay_batch,
)
from zhumq.host.clock import Clock
from zhumq.host.deadline_timer import DeadlineTimer
from zhumq.model.errors import (
    BrokerError,
    ErrorCode,
    InvalidProducerEpoch,
    InvalidTxnState,
    NotLeaderOrFollower,
)
from zhumq.model.state_machine import (
    ClosableShard,
    Outcome,
    Producer,
    Reply,
    ReplyToken,
    Shard,
    StateRecord,
)
from zhumq.model.transaction_errors import TransactionCoordinatorFenced
from zhumq.records.batch import batches
from zhumq.records.control import EndMarker
from zhumq.transactions.transaction import VERIFICATIONS_MAX

logger = logging.getLogger(__name__)

LOAD_BYTES_MAX = 1 << 20  # read from the log at a time; the event loop runs in between
RELOAD_DELAY_S = 1.0  # between two loads of a shard whose log fails
# The log has written nothing, because of the state of a producer: it works, and so does the shard.
FENCED = (InvalidProducerEpoch, InvalidTxnState, TransactionCoordinatorFenced)

Request = TypeVar("Request")
Response = TypeVar("Response")
RequestIn = TypeVar("RequestIn", contravariant=True)
ResponseOut = TypeVar("ResponseOut", covariant=True)


class LoadableShard(Shard[RequestIn, ResponseOut], Protocol[RequestIn, ResponseOut]):
    """A shard with a callback for the end of its log."""

    def loaded(self, now_ms: int) -> Outcome[ResponseOut]: ...


@dataclass(slots=True, kw_only=True)
class _Running(Generic[Request, Response]):
    """A shard that serves requests."""

    index: int
    shard: LoadableShard[Request, Response]
    partition: StatePartition
    # The shard's state covers its log up to this offset.
    next_offset: int
    # Invariant: durable_offset <= next_offset.
    durable_offset: int
    loaded_at_ms: int
    next_token: int = 0
    # The requests without an answer, and what to call with it.
    waiting: dict[ReplyToken, tuple[Request, Callable[[Response], None]]] = field(
        default_factory=dict
    )
    timer: DeadlineTimer | None = None


@dataclass(slots=True)
class _Loading:
    """A shard that is being loaded; its requests are refused with `code`. One object for each load."""

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
        with_offsets: bool = False,
    ) -> None:
        self._name = name
        self._make_shard = make_shard
        self._refuse = refuse
        self._clock = clock
        self._batch_bytes_max = batch_bytes_max
        self._with_offsets = with_offsets  # whether the shards refer to their records by offset
        # Deadlines must not jump with the wall clock, but recorded times must be wall time. So time starts at the
        # wall clock and advances with the monotonic clock.
        self._wall_minus_monotonic_ms = clock.now_ms() - clock.monotonic_ms()
        self._running: dict[int, _Running[Request, Response]] = {}
        # Shards of led partitions that do not serve yet.
        self._loading: dict[int, _Loading] = {}
        self._reloads: dict[int, asyncio.Task[None]] = {}

    @property
    def led(self) -> list[int]:
        """The partitions this broker leads, whether their shards serve already or not."""
        return sorted({*self._running, *self._loading})

    @property
    def loading_count(self) -> int:
        """How many of these shards do not serve yet."""
        return len(self._loading)

    @property
    def shards(self) -> list[LoadableShard[Request, Response]]:
        """The shards that serve."""
        return [running.shard for running in self._running.values()]

    def expect(self, index: int) -> None:
        """Announce a load: requests are refused with COORDINATOR_LOAD_IN_PROGRESS, not with NOT_COORDINATOR."""
        self._loading[index] = _Loading()

    async def load(self, index: int, partition: StatePartition) -> None:
        """Read a shard's log, then serve. Raises BrokerError if the log cannot be read."""
        loading = self._loading[index] = _Loading()
        try:
            running = await self._read_shard(index, partition)
        except BrokerError:
            loading.code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            raise
        if self._loading.get(index) is not loading:
            # Leadership changed while the log was read, and may have come back since.
            _close(running.shard)
            return
        del self._loading[index]
        self._running[index] = running
        now_ms = self._now_ms()
        self._apply(running, running.shard.loaded(now_ms), now_ms)

    def unload(self, index: int) -> None:
        """Drop a shard that another broker leads now; its requests are refused with NOT_COORDINATOR."""
        self._loading.pop(index, None)
        reload = self._reloads.pop(index, None)
        if reload is not None:
            reload.cancel()
        running = self._running.pop(index, None)
        if running is not None:
            self._refuse_waiting(running, ErrorCode.NOT_COORDINATOR)
            _close(running.shard)

    async def close(self) -> None:
        """Stop serving. Waiting requests are refused with NOT_COORDINATOR."""
        reloads = list(self._reloads.values())
        for index in self.led:
            self.unload(index)
        await asyncio.gather(*reloads, return_exceptions=True)

    def submit(self, index: int, request: Request) -> "asyncio.Future[Response]":
        """Pass a request to a shard. The answer completes when the records it depends on are durable."""
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.call(index, request, partial(_settle, answer))
        return answer

    def call(self, index: int, request: Request, on_answer: Callable[[Response], None]) -> None:
        """Pass a request to a shard, and call back with the answer when the records it depends on are durable."""
        running = self._running.get(index)
        if running is None:
            loading = self._loading.get(index)
            code = ErrorCode.NOT_COORDINATOR if loading is None else loading.code
            on_answer(self._refuse(request, code))
            return
        token = ReplyToken(running.next_token)
        running.next_token += 1
        running.waiting[token] = (request, on_answer)
        now_ms = self._now_ms()
        self._apply(running, self._handle(running, request, token, now_ms), now_ms)

    def report(self, index: int, request: Request) -> None:
        """Pass a request whose answer is not needed. Its records are flushed with later ones."""
        running = self._running.get(index)
        if running is None:
            return
        token = ReplyToken(running.next_token)
        running.next_token += 1
        now_ms = self._now_ms()
        outcome = self._handle(running, request, token, now_ms)
        if not outcome.records and len(outcome.replies) == 1 and outcome.replies[0].token == token:
            self._set_timer(running)
            return
        others = tuple(reply for reply in outcome.replies if reply.token != token)
        self._apply(running, replace(outcome, replies=others), now_ms)

    def shard(self, index: int) -> LoadableShard[Request, Response] | None:
        """A shard to ask without a request, if it serves. Its decisions may not be durable before they are answered."""
        running = self._running.get(index)
        return None if running is None else running.shard

    async def submit_in_transaction(
        self,
        index: int,
        request: Request,
        producer: Producer,
        verify: Callable[[], Awaitable[ErrorCode]],
        *,
        has_own_epoch: bool = True,
    ) -> Response:
        """Pass a request whose records belong to a producer's transaction. If they begin it in the shard's
        partition, its coordinator has to confirm first that the partition is in it. `has_own_epoch`: the transaction
        has an epoch that no other one of the producer has."""
        running = self._running.get(index)
        if running is None:
            return await self.submit(index, request)
        if running.partition.has_transaction(*producer):
            return await self.submit(index, request)
        for _ in range(VERIFICATIONS_MAX if has_own_epoch else 1):
            verification = running.partition.verification(producer.producer_id)
            code = await verify()
            if code is not ErrorCode.NONE:
                return self._refuse(request, code)
            if running.partition.verification(producer.producer_id) == verification:
                break
            # A marker came meanwhile: that of the transaction before, or the records are of one that is over by now.
        else:
            return self._refuse(request, ErrorCode.INVALID_TXN_STATE)
        running.partition.allow_transaction(producer.producer_id, producer.epoch, verification)
        return await self.submit(index, request)

    def append_marker(
        self,
        index: int,
        marker: EndMarker,
        *,
        producer_id: int,
        producer_epoch: int,
        transaction_version: int,
    ) -> "asyncio.Future[None]":
        """End the transaction of a producer in a shard; completes when the marker is durable. Markers may be
        repeated.

        Raises BrokerError: NotLeaderOrFollower also while the shard is being loaded, or what refuses the marker.
        """
        running = self._running.get(index)
        if running is None:
            raise NotLeaderOrFollower(f"{self._name} shard {index} does not serve here")
        now_ms = self._now_ms()
        try:
            appended = running.partition.append_marker(
                marker,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transaction_version=transaction_version,
                now_ms=now_ms,
            )
        except FENCED:
            raise
        except BrokerError as error:
            self._note_failed_append(running, error)
            raise
        next_offset = running.next_offset = appended.last_offset + 1
        end_transaction(running.shard, marker, producer_id, now_ms)
        self._set_timer(running)

        def settled(done: "asyncio.Future[None]") -> None:
            if not done.cancelled():  # by the caller, who does not wait any more
                self._on_durable(running, next_offset, (), done.exception())

        durable = running.partition.when_durable(next_offset)
        durable.add_done_callback(settled)
        return durable

    # Serving

    def _handle(
        self,
        running: _Running[Request, Response],
        request: Request,
        token: ReplyToken,
        now_ms: int,
    ) -> Outcome[Response]:
        try:
            return running.shard.handle(request, token, now_ms)
        except BaseException:
            # A bug: the shard may have changed in part, so it must not be used any more.
            self._discard(running, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            raise

    def _apply(
        self, running: _Running[Request, Response], outcome: Outcome[Response], now_ms: int
    ) -> None:
        if outcome.records:
            data = batches_of(outcome, now_ms, self._batch_bytes_max)
            try:
                appended = running.partition.append_own(data, now_ms)
            except BrokerError as error:
                if outcome.producer is not None and isinstance(error, FENCED):
                    self._refuse_replies(running, outcome.replies, error.code)
                else:
                    self._note_failed_append(running, error)
                return
            running.next_offset = appended.last_offset + 1
            records = outcome.records
            if self._with_offsets:
                first_offset = running.next_offset - len(records)
                records = tuple(
                    StateRecord(key=each.key, value=each.value, offset=offset)
                    for offset, each in enumerate(records, first_offset)
                )
            replay(running.shard, records, outcome.producer, now_ms)
        if outcome.replies:
            self._release_when_durable(running, outcome.replies)
        self._set_timer(running)

    def _release_when_durable(
        self, running: _Running[Request, Response], replies: tuple[Reply[Response], ...]
    ) -> None:
        """Delay replies until durable, also those without records: they may depend on earlier records."""
        next_offset = running.next_offset
        if running.durable_offset >= next_offset:
            self._release(running, replies)
            return
        running.partition.call_when_durable(
            next_offset, partial(self._on_durable, running, next_offset, replies)
        )

    def _on_durable(
        self,
        running: _Running[Request, Response],
        next_offset: int,
        replies: tuple[Reply[Response], ...],
        error: BaseException | None,
    ) -> None:
        if error is not None:
            # Where the partition has another leader now, the shard is unloaded first.
            asyncio.get_running_loop().call_soon(self._lose, running, error)
            return
        running.durable_offset = max(running.durable_offset, next_offset)
        self._release(running, replies)

    def _release(
        self, running: _Running[Request, Response], replies: tuple[Reply[Response], ...]
    ) -> None:
        for reply in replies:
            waiting = running.waiting.pop(reply.token, None)
            if waiting is None:
                continue  # The shard was discarded and the request refused.
            try:
                waiting[1](reply.response)
            except Exception:
                # A bug in one answer must not reach the others, nor the code that finishes the flush.
                logger.exception("%s shard %d could not answer", self._name, running.index)

    # Deadlines

    def _set_timer(self, running: _Running[Request, Response]) -> None:
        if running.timer is None:
            running.timer = DeadlineTimer(
                self._now_ms, lambda now_ms: self._expire(running, now_ms)
            )
        running.timer.set(running.shard.next_deadline_ms)

    def _expire(self, running: _Running[Request, Response], now_ms: int) -> None:
        try:
            outcome = running.shard.expire(now_ms)
        except BaseException:
            self._discard(running, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            raise
        self._apply(running, outcome, now_ms)

    def _now_ms(self) -> int:
        return self._clock.monotonic_ms() + self._wall_minus_monotonic_ms

    # Loading and reloading

    async def _read_shard(
        self, index: int, partition: StatePartition
    ) -> _Running[Request, Response]:
        shard = self._make_shard()
        # Records that are not durable yet may have been written by the previous leader's shard.
        end_offset = partition.log_end_offset
        await partition.when_durable(end_offset)
        offset = partition.log_start_offset
        now_ms = self._now_ms()
        while offset < end_offset:
            next_offset = offset
            for batch in batches(partition.read(offset, LOAD_BYTES_MAX).read_bytes()):
                next_offset = batch.header.next_offset
                replay_batch(shard, batch, now_ms)
            if next_offset <= offset:
                break  # only compacted-away offsets are left
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

    def _note_failed_append(self, running: _Running[Request, Response], error: BrokerError) -> None:
        logger.warning("%s shard %d could not append: %s", self._name, running.index, error)
        self._discard(running, _code_for(error))

    def _lose(self, running: _Running[Request, Response], error: BaseException) -> None:
        """Records of a shard will never be durable."""
        if self._running.get(running.index) is running:
            logger.error("%s shard %d lost its log: %s", self._name, running.index, error)
            self._discard(running, _code_for(error))

    def _discard(self, running: _Running[Request, Response], code: ErrorCode) -> None:
        """Discard a shard whose state differs from its log: refuse its waiting requests and load it again."""
        index = running.index
        if self._running.get(index) is not running:
            return
        del self._running[index]
        self._refuse_waiting(running, code)
        _close(running.shard)
        self._loading[index] = _Loading()
        # A full disk fails every append: do not read the log over and over meanwhile.
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

    def _refuse_replies(
        self,
        running: _Running[Request, Response],
        replies: tuple[Reply[Response], ...],
        code: ErrorCode,
    ) -> None:
        for reply in replies:
            request, on_answer = running.waiting.pop(reply.token)
            on_answer(self._refuse(request, code))

    def _refuse_waiting(self, running: _Running[Request, Response], code: ErrorCode) -> None:
        if running.timer is not None:
            running.timer.cancel()
        refused, running.waiting = running.waiting, {}
        for request, on_answer in refused.values():
            on_answer(self._refuse(request, code))


def _settle(answer: "asyncio.Future[Response]", response: Response) -> None:
    if not answer.done():  # Done: the sender is gone.
        answer.set_result(response)


def _close(shard: object) -> None:
    if isinstance(shard, ClosableShard):
        shard.unloaded()


def _code_for(error: BaseException) -> ErrorCode:
    """The error code for the coordinator's clients when its log fails."""
    if isinstance(error, NotLeaderOrFollower):
        return ErrorCode.NOT_COORDINATOR
    return ErrorCode.COORDINATOR_NOT_AVAILABLE

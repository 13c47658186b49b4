"""Delayed messages on their way out of a shard: once, and in due order in each partition, whatever fails."""

import asyncio
import contextlib
import random
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from delay_shard_driver import DrivenDelayShard
from tests.manual_time import ManualClock, advance, run_in_manual_time

from zhumq.coordinators.delay_mover import DueMessage, StagedDelays
from zhumq.coordinators.mover import Mover
from zhumq.coordinators.shard_moves import AVOID_SECONDS_MAX, ShardMoves
from zhumq.delays.persisted import Position, Source
from zhumq.delays.requests import DelayRequest, DelayResponse, Ended, Stage, Staged
from zhumq.model.errors import (
    ErrorCode,
    InvalidProducerEpoch,
    MessageTooLarge,
    NotEnoughReplicas,
    RequestTimedOut,
)
from zhumq.model.ids import TopicPartition
from zhumq.model.state_machine import Producer, StateRecord
from zhumq.protocol.messages.delays import DelayedRecord
from zhumq.records.batch import Record, batches

TOPIC_ID = uuid.UUID(int=7)
PRODUCER_ID = 1
PARTITIONS = [TopicPartition("orders", each) for each in range(3)]
P0, P1, _ = PARTITIONS


class Transactions:
    """A coordinator of one transactional id, and partitions: `TransactionCalls` in memory, with faults."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._epoch = 0
        self._open = False
        self._are_markers_due = False
        self._decided: dict[int, bool] = {}  # epoch -> whether its transaction was committed
        self._written: dict[TopicPartition, list[tuple[int, bytes]]] = defaultdict(list)
        self.appends = 0

    def delivered(self, partition: TopicPartition) -> list[bytes]:
        """What consumers at read_committed see."""
        return [value for epoch, value in self._written[partition] if self._decided.get(epoch)]

    async def init(self, _transactional_id: str, _timeout_ms: int) -> tuple[ErrorCode, Producer]:
        if self._open:
            self._decide(is_commit=False)
        if self._are_markers_due:
            return ErrorCode.CONCURRENT_TRANSACTIONS, Producer(-1, -1)
        return self._next()

    async def append(
        self, _transactional_id: str, producer: Producer, partition: TopicPartition, data: bytes
    ) -> None:
        self.appends += 1
        await self._begin(producer)
        self._world.check(partition, data)
        for batch in batches(data):
            for record in batch.records():
                self._written[partition].append((producer.epoch, record.value or b""))

    async def join(
        self, _transactional_id: str, producer: Producer, _partition: TopicPartition
    ) -> ErrorCode:
        await self._begin(producer)
        return ErrorCode.NONE

    async def end(
        self, _transactional_id: str, producer: Producer, *, is_commit: bool
    ) -> tuple[ErrorCode, Producer]:
        draw = self._world.random.random() if self._world.has_faults else 1.0
        if producer.epoch in self._decided:  # It asks again.
            return ErrorCode.NONE, Producer(PRODUCER_ID, self._epoch)
        assert producer.epoch == self._epoch
        if draw < 0.05:  # It took too long.
            self._decide(is_commit=False)
            self._next()
            return ErrorCode.INVALID_PRODUCER_EPOCH, Producer(-1, -1)
        self._decide(is_commit=is_commit)
        following = self._next()
        if draw < 0.1:
            raise RequestTimedOut("the answer is lost")
        return following

    async def _begin(self, producer: Producer) -> None:
        while self._are_markers_due:
            await asyncio.sleep(0.02)
        if producer.epoch != self._epoch:
            raise InvalidProducerEpoch("fenced")
        self._open = True

    def _decide(self, *, is_commit: bool) -> None:
        self._decided[self._epoch] = is_commit
        self._open = False
        self._are_markers_due = True
        delay = self._world.random.random() if self._world.has_faults else 0
        asyncio.get_running_loop().call_later(delay, self._write_markers, is_commit)

    def _write_markers(self, is_commit: bool) -> None:
        self._are_markers_due = False
        self._world.driven.end(is_commit=is_commit, producer_id=PRODUCER_ID)

    def _next(self) -> tuple[ErrorCode, Producer]:
        self._epoch += 1
        return ErrorCode.NONE, Producer(PRODUCER_ID, self._epoch)


class World:
    """A shard with its log, and the broker that leads it: also its `DelayRuntime` and its `DelayService`."""

    def __init__(self, clock: ManualClock, seed: int = 0) -> None:
        self.clock = clock
        self.random = random.Random(seed)
        self.has_faults = False
        self.driven = DrivenDelayShard(run_entries_min=self.random.choice((4, 50)))
        self.transactions = Transactions(self)
        self.broken: set[TopicPartition] = set()
        self.missing: set[TopicPartition] = set()
        self.refused: set[bytes] = set()  # values that their partitions do not take
        self.sent: dict[TopicPartition, list[tuple[int, bytes]]] = defaultdict(list)
        self._positions: dict[TopicPartition, Position] = {}
        self._woken = asyncio.Event()
        self._moves = self._start()

    def _start(self) -> asyncio.Task[None]:
        staged = StagedDelays(cast("Any", self), cast("Any", self), self.clock, 0, lambda: None)
        staging = TopicPartition("staging", 0)
        mover = Mover(
            self.transactions, transactional_id="staging-0", staging=staging, timeout_ms=1_000
        )
        moves = ShardMoves[DueMessage](staged, mover, self._exists, lambda _moved: None)
        return asyncio.get_running_loop().create_task(moves.run())

    async def crash(self) -> None:
        """kill -9, and a restart."""
        await self.stop()
        self.driven.crash()
        self._moves = self._start()

    async def stop(self) -> None:
        self._moves.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._moves

    def send(self, partition: TopicPartition, *delays_ms: int) -> None:
        """Stage messages that are due so long from now."""
        source = Source(TOPIC_ID, partition.partition)
        begins = self._positions.get(partition)
        if begins is None:
            begins = Position(0)
            self._stage(Stage(source=source, topic=partition.topic, begins=None, until=begins))
        records = []
        for delay_ms in delays_ms:
            due_ms, value = self.clock.ms + delay_ms, b"%d" % len(self.sent[partition])
            self.sent[partition].append((due_ms, value))
            records.append(DelayedRecord(due_ms=due_ms, offset=0, value=value, headers=[]))
        until = Position(begins.offset + len(records))
        self._stage(
            Stage(
                source=source,
                topic=partition.topic,
                begins=begins,
                until=until,
                records=tuple(records),
            )
        )
        self._positions[partition] = until
        self._woken.set()

    def _stage(self, request: Stage) -> None:
        answer = self.driven.ask(request)
        assert isinstance(answer, Staged)
        assert answer.position == request.until

    def expected(self, partition: TopicPartition) -> list[bytes]:
        """Those that are due at the same time come as they were sent."""
        return [value for _, value in sorted(self.sent[partition], key=lambda each: each[0])]

    async def deliver_all(self) -> None:
        """Everything works again, for longer than any pause."""
        self.has_faults = False
        self.broken, self.missing = set(), set()
        for _ in range(20):
            await advance(int(AVOID_SECONDS_MAX * 1_000))
        await self.stop()

    def check(self, partition: TopicPartition, data: bytes) -> None:
        if partition in self.broken or (self.has_faults and self.random.random() < 0.02):
            raise NotEnoughReplicas("it cannot be written to")
        values = {record.value for batch in batches(data) for record in batch.records()}
        if values & self.refused:
            raise MessageTooLarge("it takes none so large")

    def _exists(self, message: DueMessage) -> bool:
        return message.target not in self.missing

    # What the mover needs of a runtime and of a service

    def woken(self, _index: int) -> asyncio.Event:
        return self._woken

    def reader(self, _index: int) -> "World":
        return self

    def read(self, offset: int) -> Record:
        _, entry = self.driven.log[offset]
        assert isinstance(entry, StateRecord)
        return Record(timestamp=0, key=entry.key, value=entry.value)

    async def submit(self, _index: int, request: DelayRequest) -> DelayResponse:
        await asyncio.sleep(0)
        return self.driven.ask(request)

    async def submit_in_transaction(
        self,
        index: int,
        request: DelayRequest,
        _producer: Producer,
        verify: Callable[[], Awaitable[ErrorCode]],
    ) -> DelayResponse:
        code = await verify()
        draw = self.random.random() if self.has_faults else 1.0
        if code is not ErrorCode.NONE or draw < 0.04:
            return Ended(code=code or ErrorCode.COORDINATOR_NOT_AVAILABLE)
        answer = await self.submit(index, request)
        if draw < 0.08:  # The marks are in the log, and the mover does not know.
            self.driven.crash()
            return Ended(code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return answer


def test_what_waited_for_a_partition_comes_in_the_order_of_its_due_times() -> None:
    async def scenario(clock: ManualClock) -> None:
        world = World(clock)
        world.broken = {P0}
        # The later one was staged the sooner it is due; and they are more than one answer takes.
        for delay_ms in range(3_000, 0, -2):
            world.send(P0, delay_ms)
            world.send(P1, delay_ms)
        await advance(2_000)
        world.send(P0, *range(1_500, 20_000, 700))
        await advance(5_000)
        assert world.transactions.delivered(P0) == []
        assert world.transactions.delivered(P1) == world.expected(P1)  # It does not wait.
        await world.deliver_all()
        assert world.transactions.delivered(P0) == world.expected(P0)

    run_in_manual_time(scenario)


def test_an_attempt_looks_at_a_few_of_those_that_wait() -> None:
    async def scenario(clock: ManualClock) -> None:
        world = World(clock)
        world.broken = {P0}
        world.send(P0, *range(5_000))
        await advance(30_000)
        shard = world.driven.shard
        taken = 0
        take = shard.index.take

        def counting(now_ms: int, limit: int) -> list[Any]:
            nonlocal taken
            found = take(now_ms, limit)
            taken += len(found)
            return found

        shard.index.take = counting  # type: ignore[method-assign]
        appends = world.transactions.appends
        await advance(100_000)
        assert world.transactions.appends > appends  # It was tried.
        assert taken == 0
        assert shard.pending == 5_000
        await world.deliver_all()
        assert world.transactions.delivered(P0) == world.expected(P0)

    run_in_manual_time(scenario)


def test_a_message_that_is_refused_lets_the_others_of_its_partition_pass() -> None:
    async def scenario(clock: ManualClock) -> None:
        world = World(clock)
        world.send(P0, 100, 200, 300)
        world.refused = {b"1"}
        await advance(5_000)
        assert world.transactions.delivered(P0) == [b"0", b"2"]
        world.refused = set()
        await world.deliver_all()
        assert world.transactions.delivered(P0) == [b"0", b"2", b"1"]

    run_in_manual_time(scenario)


@pytest.mark.parametrize("seed", range(8))
def test_each_partition_gets_its_messages_once_and_in_due_order_whatever_fails(seed: int) -> None:
    """Random due times, partitions that cannot be written to or are not known yet, lost answers, transactions that time
    out, marks that are written and not answered, late markers, and crashes at any time."""

    async def scenario(clock: ManualClock) -> None:
        world = World(clock, seed)
        draw = world.random
        world.has_faults = True
        for _ in range(150):
            for partition in PARTITIONS:
                # Before they are due: who sends late is late.
                delays = [draw.randrange(1, 8_000) for _ in range(draw.randrange(0, 4))]
                world.send(partition, *delays)
            step = draw.random()
            if step < 0.1:
                await world.crash()
            elif step < 0.2:
                world.broken ^= {draw.choice(PARTITIONS)}
            elif step < 0.25:
                world.missing = {draw.choice(PARTITIONS)}
            await advance(100 * draw.randrange(1, 8))
            world.missing = set()  # For three seconds it would count as deleted.
        await world.deliver_all()
        for partition in PARTITIONS:
            assert world.transactions.delivered(partition) == world.expected(partition)
        assert world.driven.shard.pending == 0

    run_in_manual_time(scenario)

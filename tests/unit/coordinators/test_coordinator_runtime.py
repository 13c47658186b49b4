"""The runtime with a partition in memory: durability before answers, and reloading after failures."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

import pytest
from memory_partition import MemoryPartition
from tests.manual_time import ManualClock

from zhumq.coordinators import runtime as runtime_module
from zhumq.coordinators.runtime import CoordinatorRuntime
from zhumq.host.clock import Clock, SystemClock
from zhumq.host.deadline_timer import CATCH_UP_MS
from zhumq.model.errors import ErrorCode, NotLeaderOrFollower, StorageFailed
from zhumq.model.state_machine import Outcome, Reply, ReplyToken, StateRecord
from zhumq.records.batch import batches


@dataclass
class CounterShard:
    """Counts words. "?word" queries a count, "park" is answered at the deadline, "bug" raises."""

    counts: dict[bytes, int] = field(default_factory=dict)
    parked: list[ReplyToken] = field(default_factory=list)
    next_deadline_ms: int | None = None

    def handle(self, request: str, token: ReplyToken, now_ms: int) -> Outcome[str]:
        if request.startswith("?"):
            return Outcome(replies=(Reply(token, str(self.counts.get(request[1:].encode(), 0))),))
        if request == "park":
            self.parked.append(token)
            self.next_deadline_ms = now_ms + 5
            return Outcome()
        if request == "bug":
            raise RuntimeError("a bug")
        records = tuple(
            StateRecord(key=word.encode(), value=str(count).encode())
            for word, count in self._counted(request).items()
        )
        return Outcome(records=records, replies=(Reply(token, "ok"),))

    def _counted(self, request: str) -> dict[str, int]:
        counted: dict[str, int] = {}
        for word in request.split():
            counted[word] = counted.get(word, self.counts.get(word.encode(), 0)) + 1
        return counted

    def expire(self, now_ms: int) -> Outcome[str]:
        if self.next_deadline_ms is None or self.next_deadline_ms > now_ms:
            return Outcome()
        replies = tuple(Reply(token, "expired") for token in self.parked)
        self.parked = []
        self.next_deadline_ms = None
        return Outcome(replies=replies)

    def replay(self, record: StateRecord, now_ms: int) -> None:
        if record.value is None:
            self.counts.pop(record.key, None)
        else:
            self.counts[record.key] = int(record.value)

    def loaded(self, now_ms: int) -> Outcome[str]:
        return Outcome()


@pytest.fixture(autouse=True)
def _quick_reloads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_module, "RELOAD_DELAY_S", 0.002)


def make_runtime(
    batch_bytes_max: int = 1_000_000, clock: Clock | None = None
) -> CoordinatorRuntime[str, str]:
    return CoordinatorRuntime(
        name="counter",
        make_shard=CounterShard,
        refuse=lambda _request, code: ErrorCode(code).name,
        clock=clock or SystemClock(),
        batch_bytes_max=batch_bytes_max,
    )


def run(scenario: Callable[[], Coroutine[None, None, None]]) -> None:
    async def with_deadline() -> None:
        async with asyncio.timeout(20):
            await scenario()

    asyncio.run(with_deadline())


async def until(fact: Callable[[], bool]) -> None:
    while not fact():
        await asyncio.sleep(0.001)


def test_a_request_to_a_partition_that_is_not_led_is_sent_elsewhere() -> None:
    async def scenario() -> None:
        assert await make_runtime().submit(3, "a") == "NOT_COORDINATOR"

    run(scenario)


def test_no_answer_leaves_before_its_records_are_durable() -> None:
    async def scenario() -> None:
        runtime, partition = make_runtime(), MemoryPartition(holds_flushes=True)
        await runtime.load(0, partition)
        answer = runtime.submit(0, "a")
        await asyncio.sleep(0)
        assert partition.high_watermark == 1
        assert not answer.done()
        partition.flush()
        assert await answer == "ok"

    run(scenario)


def test_an_answer_without_records_waits_for_the_records_it_tells_of() -> None:
    async def scenario() -> None:
        runtime, partition = make_runtime(), MemoryPartition(holds_flushes=True)
        await runtime.load(0, partition)
        write, read = runtime.submit(0, "a"), runtime.submit(0, "?a")
        await asyncio.sleep(0)
        assert not read.done()
        partition.flush()
        assert (await write, await read) == ("ok", "1")
        assert runtime.submit(0, "?a").done(), "nothing is in flight, nothing to wait for"

    run(scenario)


def test_a_report_is_applied_at_once_and_answers_behind_it_wait_for_its_record() -> None:
    async def scenario() -> None:
        runtime, partition = make_runtime(), MemoryPartition(holds_flushes=True)
        runtime.report(0, "a")  # Nothing is led here: it is dropped.
        await runtime.load(0, partition)
        runtime.report(0, "a")
        assert partition.log_end_offset == 1
        answer = runtime.submit(0, "?a")
        await asyncio.sleep(0)
        assert not answer.done()
        partition.flush()
        assert await answer == "1"

    run(scenario)


def test_many_requests_are_in_flight_over_one_flush() -> None:
    async def scenario() -> None:
        runtime, partition = make_runtime(), MemoryPartition(holds_flushes=True)
        await runtime.load(0, partition)
        answers = [runtime.submit(0, "a") for _ in range(100)]
        assert partition.appends == 100
        partition.flush()
        assert await asyncio.gather(*answers) == ["ok"] * 100
        assert await runtime.submit(0, "?a") == "100"

    run(scenario)


def test_a_fresh_runtime_knows_what_the_log_says() -> None:
    async def scenario() -> None:
        partition = MemoryPartition()
        first = make_runtime()
        await first.load(0, partition)
        await first.submit(0, "a b a")
        await first.submit(0, "b")
        second = make_runtime()
        await second.load(0, partition)
        assert await second.submit(0, "?a") == "2"
        assert await second.submit(0, "?b") == "2"

    run(scenario)


def test_a_log_larger_than_one_read_is_loaded_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_module, "LOAD_BYTES_MAX", 200)

    async def scenario() -> None:
        partition = MemoryPartition()
        first = make_runtime()
        await first.load(0, partition)
        for number in range(50):
            await first.submit(0, f"word{number} a")
        second = make_runtime()
        await second.load(0, partition)
        assert await second.submit(0, "?a") == "50"
        assert await second.submit(0, "?word0") == "1"

    run(scenario)


def test_while_the_log_is_read_the_answer_is_that_it_is_being_loaded() -> None:
    async def scenario() -> None:
        runtime, partition = make_runtime(), MemoryPartition(holds_flushes=True)
        partition.high_watermark = 1
        load = asyncio.ensure_future(runtime.load(0, partition))
        await asyncio.sleep(0)
        assert await runtime.submit(0, "a") == "COORDINATOR_LOAD_IN_PROGRESS"
        assert runtime.led == [0]
        partition.flush()
        await load
        assert runtime.submit(0, "?a").done()

    run(scenario)


def test_an_outcome_larger_than_a_batch_may_be_is_split() -> None:
    async def scenario() -> None:
        runtime, partition = make_runtime(batch_bytes_max=400), MemoryPartition()
        await runtime.load(0, partition)
        await runtime.submit(0, " ".join(f"word{number}" for number in range(40)))
        assert partition.appends == 1, "all or nothing"
        sizes = [len(data) for _, data in partition.stored]
        assert len(sizes) > 1
        assert max(sizes) <= 400
        assert (
            sum(
                batch.header.records_count
                for _, data in partition.stored
                for batch in batches(data)
            )
            == 40
        )

    run(scenario)


def test_a_failed_append_refuses_all_waiting_requests_and_reloads_the_shard() -> None:
    async def scenario() -> None:
        runtime, partition = make_runtime(), MemoryPartition()
        await runtime.load(0, partition)
        await runtime.submit(0, "a")
        parked = runtime.submit(0, "park")
        partition.append_error = StorageFailed("the disk is full")
        assert await runtime.submit(0, "a") == "COORDINATOR_NOT_AVAILABLE"
        assert await parked == "COORDINATOR_NOT_AVAILABLE"
        partition.append_error = None
        await until(lambda: runtime.submit(0, "?a").result() != "COORDINATOR_LOAD_IN_PROGRESS")
        assert await runtime.submit(0, "?a") == "1", "the failed request has no effect"
        assert await runtime.submit(0, "a") == "ok"

    run(scenario)


def test_a_flush_that_fails_is_never_answered_as_done() -> None:
    async def scenario() -> None:
        runtime, partition = make_runtime(), MemoryPartition(holds_flushes=True)
        await runtime.load(0, partition)
        first, second = runtime.submit(0, "a"), runtime.submit(0, "b")
        partition.read_error = StorageFailed("offline")
        partition.fail_flush(StorageFailed("fsync failed"))
        assert await first == "COORDINATOR_NOT_AVAILABLE"
        assert await second == "COORDINATOR_NOT_AVAILABLE"
        await runtime.close()

    run(scenario)


def test_a_shard_whose_log_cannot_be_read_is_tried_again() -> None:
    async def scenario() -> None:
        runtime, partition = make_runtime(), MemoryPartition()
        await runtime.load(0, partition)
        await runtime.submit(0, "a")
        partition.append_error = partition.read_error = StorageFailed("gone for a while")
        await runtime.submit(0, "a")
        await until(lambda: runtime.submit(0, "?a").result() == "COORDINATOR_NOT_AVAILABLE")
        partition.append_error = partition.read_error = None
        await until(lambda: runtime.submit(0, "?a").result() == "1")

    run(scenario)


def test_a_bug_in_a_shard_reaches_the_caller_and_nothing_is_built_upon_it() -> None:
    async def scenario() -> None:
        runtime, partition = make_runtime(), MemoryPartition()
        await runtime.load(0, partition)
        parked = runtime.submit(0, "park")
        with pytest.raises(RuntimeError, match="a bug"):
            runtime.submit(0, "bug")
        assert await parked == "COORDINATOR_NOT_AVAILABLE"
        await until(lambda: runtime.submit(0, "?a").result() == "0")

    run(scenario)


def test_a_parked_request_is_answered_at_its_deadline() -> None:
    async def scenario() -> None:
        runtime = make_runtime()
        await runtime.load(0, MemoryPartition())
        assert await runtime.submit(0, "park") == "expired"

    run(scenario)


def test_after_a_pause_of_the_process_requests_that_arrived_meanwhile_are_served_first() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        runtime = make_runtime(clock=clock)
        await runtime.load(0, MemoryPartition())
        parked = runtime.submit(0, "park")
        clock.ms += 60_000
        # Between the timer, which is 60 s late now, and the end of the time for what lies unread.
        between: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(
            CATCH_UP_MS / 2000, lambda: between.set_result(parked.done())
        )
        assert not await between, "the request is not expired yet"
        assert runtime.submit(0, "?a").done(), "requests are served"
        assert await parked == "expired"

    run(scenario)


def test_losing_leadership_sends_waiting_requests_to_the_new_leader() -> None:
    async def scenario() -> None:
        runtime, partition = make_runtime(), MemoryPartition(holds_flushes=True)
        await runtime.load(0, partition)
        parked, unflushed = runtime.submit(0, "park"), runtime.submit(0, "a")
        runtime.unload(0)
        assert await parked == await unflushed == "NOT_COORDINATOR"
        assert runtime.led == []
        partition.flush()
        await asyncio.sleep(0)

    run(scenario)


def test_a_partition_that_is_closed_under_a_flush_is_no_longer_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        runtime, partition = make_runtime(), MemoryPartition(holds_flushes=True)
        await runtime.load(0, partition)
        answer = runtime.submit(0, "a")
        partition.fail_flush(NotLeaderOrFollower("retired"))
        assert await answer == "NOT_COORDINATOR"
        await runtime.close()

    with caplog.at_level(logging.ERROR):
        run(scenario)


def test_a_shard_with_another_leader_has_not_lost_its_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        runtime, partition = make_runtime(), MemoryPartition(holds_flushes=True)
        await runtime.load(0, partition)
        answer = runtime.submit(0, "a")
        # A partition that loses its leadership fails what waits, and then says so.
        partition.fail_flush(NotLeaderOrFollower("another broker leads"))
        runtime.unload(0)
        assert await answer == "NOT_COORDINATOR"
        await asyncio.sleep(0)
        assert runtime.led == []
        assert not caplog.records

    run(scenario)


def test_leadership_lost_while_loading_stays_lost() -> None:
    async def scenario() -> None:
        runtime, partition = make_runtime(), MemoryPartition(holds_flushes=True)
        partition.high_watermark = 1
        load = asyncio.ensure_future(runtime.load(0, partition))
        await asyncio.sleep(0)
        runtime.unload(0)
        partition.flush()
        await load
        assert await runtime.submit(0, "a") == "NOT_COORDINATOR"

    run(scenario)


def test_a_sender_that_is_gone_does_not_disturb() -> None:
    async def scenario() -> None:
        runtime, partition = make_runtime(), MemoryPartition(holds_flushes=True)
        await runtime.load(0, partition)
        gone, stays = runtime.submit(0, "a"), runtime.submit(0, "a")
        gone.cancel()
        partition.flush()
        assert await stays == "ok"

    run(scenario)

import asyncio
import gc
from collections.abc import Callable, Coroutine
from functools import partial

import pytest
from tests.manual_time import ManualClock, advance, run_in_manual_time

from zhumq.model.errors import BrokerError, StorageFailed
from zhumq.replication.pending import (
    DurabilityWaiters,
    DurableCallback,
    ParkedFetch,
    Watcher,
    future_of,
)


class Source:
    def __init__(self) -> None:
        self.watchers: set[Watcher] = set()

    def watch(self, watcher: Watcher) -> None:
        self.watchers.add(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        self.watchers.discard(watcher)


def run(scenario: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(scenario())


def test_a_fetch_wakes_when_enough_bytes_came_from_all_its_partitions() -> None:
    async def scenario() -> None:
        sources = [Source(), Source()]
        parked = ParkedFetch(sources, 100, 60_000)
        for source in sources:
            assert source.watchers == {parked}
        parked.on_bytes(60, sources[0])
        assert not parked.done.done()
        parked.on_bytes(40, sources[1])
        assert parked.done.done()
        assert all(not source.watchers for source in sources)

    run(scenario)


def test_bytes_that_a_fetch_would_not_get_do_not_wake_it() -> None:
    async def scenario() -> None:
        open_, committed = sources = [Source(), Source()]
        parked = ParkedFetch(sources, 100, 60_000, lambda source: source is committed)
        parked.on_bytes(200, open_)
        assert not parked.done.done()
        parked.on_bytes(1, committed)
        assert parked.done.done()

    run(scenario)


def test_bytes_that_a_fetch_would_get_wake_it_when_enough_others_came() -> None:
    async def scenario() -> None:
        open_, committed = sources = [Source(), Source()]
        parked = ParkedFetch(sources, 100, 60_000, lambda source: source is committed)
        parked.on_bytes(50, committed)
        assert not parked.done.done()
        parked.on_bytes(50, open_)
        assert parked.done.done()

    run(scenario)


def test_a_fetch_wakes_when_its_time_is_up() -> None:
    async def scenario(_: ManualClock) -> None:
        source = Source()
        parked = ParkedFetch([source], 100, 500)
        await advance(499)
        assert not parked.done.done()
        await advance(1)
        assert parked.done.done()
        assert not source.watchers

    run_in_manual_time(scenario)


def test_a_cancelled_fetch_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        source = Source()
        parked = ParkedFetch([source], 100, 60_000)
        parked.done.cancel()
        parked.wake()
        parked.wake()
        assert not source.watchers

    run(scenario)


def test_waiters_complete_up_to_the_flushed_offset() -> None:
    waiters = DurabilityWaiters()
    results: dict[int, BrokerError | None] = {}
    # The third is the duplicate of an earlier append, so its offset is behind the others'.
    for next_offset in (5, 9, 3, 12):
        waiters.add(next_offset, partial(results.__setitem__, next_offset))
    waiters.reached(4)
    assert results == {}
    waiters.reached(9)
    assert results == {5: None, 9: None, 3: None}
    assert len(waiters) == 1
    broken = StorageFailed("broken")
    waiters.failed(broken)
    assert results[12] is broken
    assert len(waiters) == 0


def test_a_waiter_that_fails_keeps_no_other_from_its_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answered: list[tuple[int, BrokerError | None]] = []

    def broken(_failure: BrokerError | None) -> None:
        raise RuntimeError("a bug")

    late = StorageFailed("late")
    for settle, expected in (
        (lambda waiters: waiters.reached(9), None),
        (lambda waiters: waiters.failed(late), late),
        (lambda waiters: waiters.failed_overdue(100, late), late),
    ):
        waiters = DurabilityWaiters()
        waiters.add(5, broken, 50)
        waiters.add(6, lambda failure: answered.append((6, failure)), 50)
        settle(waiters)
        assert answered.pop() == (6, expected)
        assert len(waiters) == 0
        assert "a bug" in (caplog.records.pop().exc_text or "")


def test_a_waiter_fails_when_its_own_timeout_is_over() -> None:
    waiters = DurabilityWaiters()
    results: dict[int, BrokerError | None] = {}
    for next_offset, give_up_at_ms in ((5, 300), (6, 100), (7, 200)):
        waiters.add(next_offset, partial(results.__setitem__, next_offset), give_up_at_ms)
    waiters.add(8, partial(results.__setitem__, 8))
    assert not waiters.is_any_overdue(99)
    assert waiters.is_any_overdue(200)
    late = StorageFailed("late")
    waiters.failed_overdue(200, late)
    assert results == {6: late, 7: late}
    # The remaining waiters are still in the order of their offsets.
    waiters.reached(5)
    assert results[5] is None
    assert not waiters.is_any_overdue(1 << 60)
    assert len(waiters) == 1


def test_a_failure_without_a_waiter_is_no_error_of_the_loop() -> None:
    async def scenario() -> None:
        settles: list[DurableCallback] = []
        logged: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: logged.append(context))
        awaited = future_of(settles.append)
        settles.pop()(StorageFailed("the disk is gone"))
        with pytest.raises(StorageFailed):
            await awaited
        abandoned = future_of(settles.append)
        settles.pop()(StorageFailed("the disk is gone"))
        assert abandoned.done()
        del abandoned
        gc.collect()
        assert logged == []

    run(scenario)

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from zhumq.model.errors import StorageFailed
from zhumq.replication.pending import DurabilityWaiters, ParkedFetch


class Source:
    def __init__(self) -> None:
        self.parked_fetches: set[ParkedFetch] = set()


def run(scenario: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(scenario())


def test_a_fetch_wakes_when_enough_bytes_came_from_all_its_partitions() -> None:
    async def scenario() -> None:
        sources = [Source(), Source()]
        parked = ParkedFetch(sources, 100, 60_000, asyncio.get_running_loop())
        for source in sources:
            assert source.parked_fetches == {parked}
        parked.bytes_arrived(60)
        assert not parked.done.done()
        parked.bytes_arrived(40)
        assert parked.done.done()
        assert all(not source.parked_fetches for source in sources)

    run(scenario)


def test_a_fetch_wakes_when_its_time_is_up() -> None:
    async def scenario() -> None:
        source = Source()
        parked = ParkedFetch([source], 100, 1, asyncio.get_running_loop())
        async with asyncio.timeout(10):
            await parked.done
        assert not source.parked_fetches

    run(scenario)


def test_a_fetch_that_was_given_up_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        source = Source()
        parked = ParkedFetch([source], 100, 60_000, asyncio.get_running_loop())
        parked.done.cancel()
        parked.wake()
        parked.wake()
        assert not source.parked_fetches

    run(scenario)


def test_waiters_are_released_up_to_what_is_on_disk() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        waiters = DurabilityWaiters()
        futures = [loop.create_future() for _ in range(4)]
        # The third is the duplicate of an earlier append, so its offset is behind the others'.
        for next_offset, future in zip((5, 9, 3, 12), futures, strict=True):
            waiters.add(next_offset, future)
        waiters.reached(4)
        assert [future.done() for future in futures] == [False] * 4
        waiters.reached(9)
        assert [future.done() for future in futures] == [True, True, True, False]
        assert len(waiters) == 1
        waiters.failed(StorageFailed("broken"))
        with pytest.raises(StorageFailed):
            await futures[3]
        assert len(waiters) == 0

    run(scenario)


def test_a_waiter_that_left_does_not_disturb_the_others() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        waiters = DurabilityWaiters()
        gone, stays = loop.create_future(), loop.create_future()
        waiters.add(1, gone)
        waiters.add(2, stays)
        gone.cancel()
        waiters.reached(2)
        assert stays.done()
        assert not stays.cancelled()

    run(scenario)

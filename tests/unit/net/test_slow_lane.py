"""Requests that take long do not keep the others waiting, however many connections send them."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

from net_support import ScriptedService, connected, framed, listening, until

from zhumq.net.service import Answer
from zhumq.net.slow_lane import (
    LONG_SECONDS,
    NEW,
    QUICK,
    SLOW,
    SLOW_SECONDS,
    SUSPECT,
    SlowLane,
    next_pace,
)

Run = Callable[[Coroutine[Any, Any, None]], None]


def burn(seconds: float) -> None:
    """Keeps the CPU busy, as a large request does."""
    begun = time.thread_time()
    while time.thread_time() - begun < seconds:
        pass


def test_a_connection_is_slow_by_the_time_of_its_thread_alone() -> None:
    long, short = SLOW_SECONDS * 2, SLOW_SECONDS / 2
    # On a busy machine any request can take long by wall-clock time.
    assert [next_pace(pace, long) for pace in (QUICK, NEW, SUSPECT, SLOW)] == [
        SUSPECT,
        SLOW,
        SLOW,
        SLOW,
    ]
    assert {next_pace(pace, short) for pace in (QUICK, NEW, SUSPECT, SLOW)} == {QUICK}


def test_between_two_slow_requests_every_quick_one_is_served(run: Run) -> None:
    served: list[bytes] = []

    def script(frame: bytes) -> Answer:
        served.append(frame)
        if frame == b"slow":
            burn(SLOW_SECONDS * 2)
        return [framed(frame)]

    async def scenario() -> None:
        async with listening(ScriptedService(script)) as listener, AsyncExitStack() as stack:
            slow = [await stack.enter_async_context(connected(listener)) for _ in range(5)]
            quick = await stack.enter_async_context(connected(listener))
            assert await quick.ask(b"quick") == b"quick"
            for client in slow:
                assert await client.ask(b"slow") == b"slow"
            served.clear()
            for client in slow:
                await client.send(framed(b"slow") * 20)
            await until(lambda: len(served) > 2)
            for _ in range(10):
                before = len(served)
                assert await quick.ask(b"quick") == b"quick"
                # One before it was read, one until it was answered, and one that had begun.
                assert len(served) - before <= 4
            for client in slow:
                for _ in range(20):
                    assert await client.read_frame() == b"slow"

    run(scenario())


def test_new_connections_that_all_begin_with_a_slow_request_do_not_have_the_loop_in_one_turn(
    run: Run,
) -> None:
    slow, crowd = SLOW_SECONDS * 3, 100

    async def scenario() -> None:
        def serve(frame: bytes) -> Answer:
            served.append(frame)
            if frame == b"slow":
                burn(slow)
            return [framed(frame)]

        served: list[bytes] = []
        async with listening(ScriptedService(serve)) as listener, AsyncExitStack() as stack:
            quick = await stack.enter_async_context(connected(listener))
            assert await quick.ask(b"quick") == b"quick"
            attackers = [await stack.enter_async_context(connected(listener)) for _ in range(crowd)]
            served.clear()
            for attacker in attackers:
                await attacker.send(framed(b"slow"))
            assert await quick.ask(b"quick") == b"quick"
            assert served.count(b"slow") < crowd / 4
            await until(lambda: served.count(b"slow") == crowd)

    run(scenario())


def test_the_newest_of_those_not_served_yet_comes_first() -> None:
    async def scenario() -> None:
        lane = SlowLane(asyncio.get_running_loop())
        order: list[str] = []

        class Waiting:
            def __init__(self, name: str) -> None:
                self._name = name

            def serve_one(self) -> None:
                order.append(self._name)

        for name in ("slow-1", "slow-2"):
            lane.enter(Waiting(name), is_new=False)
        for name in ("new-1", "new-2"):
            lane.enter(Waiting(name), is_new=True)
        gone = Waiting("gone")
        lane.enter(gone, is_new=True)
        lane.leave(gone)
        assert lane.is_busy
        await until(lambda: len(order) == 4)
        assert order == ["new-2", "new-1", "slow-1", "slow-2"]
        lane.close()

    asyncio.run(scenario())


def test_after_a_long_request_the_others_have_as_much_time() -> None:
    async def scenario() -> None:
        lane = SlowLane(asyncio.get_running_loop())
        times: list[tuple[float, float]] = []

        class Long:
            def serve_one(self) -> None:
                begun = time.monotonic()
                burn(LONG_SECONDS * 2)
                times.append((begun, time.monotonic()))

        lane.enter(Long(), is_new=False)
        lane.enter(Long(), is_new=False)
        await until(lambda: len(times) == 2)
        (begun, ended), (next_begun, _) = times
        assert next_begun - ended >= (ended - begun) * 0.9
        lane.close()

    asyncio.run(scenario())

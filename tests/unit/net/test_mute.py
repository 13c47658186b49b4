"""A throttled connection: its answer is sent at once, and the next request is served after the time is over."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from net_support import ScriptedService, connected, echo, framed, listening, until

from zhumq.net.mute import Mute
from zhumq.net.service import Answer, ConnectionInfo

Run = Callable[[Coroutine[Any, Any, None]], None]
MUTE_MS = 300


class Throttling(ScriptedService):
    """Mutes a connection for a request that begins with `much`, when it is handled or answered."""

    def __init__(self) -> None:
        super().__init__(echo)
        self.served: list[tuple[bytes, float]] = []

    def handle(self, frames: Sequence[bytes], connection: ConnectionInfo) -> tuple[int, Answer]:
        frame = bytes(frames[0])
        self.served.append((frame, time.monotonic()))
        if frame.startswith(b"much later"):
            answer: asyncio.Future[list[Any] | None] = asyncio.get_running_loop().create_future()

            def finish() -> None:
                connection.mute(MUTE_MS)
                answer.set_result([framed(frame)])

            asyncio.get_running_loop().call_later(0.01, finish)
            return 1, answer
        if frame.startswith(b"much"):
            connection.mute(MUTE_MS)
        return super().handle(frames, connection)


@pytest.mark.parametrize("first", [b"much", b"much later"])
def test_the_next_request_of_a_throttled_client_waits_and_its_answer_does_not(
    run: Run, first: bytes
) -> None:
    async def scenario() -> None:
        service = Throttling()
        async with listening(service) as listener, connected(listener) as client:
            assert await client.ask(first) == first
            await client.send(framed(b"next"))
            async with connected(listener) as other:
                assert await other.ask(b"other") == b"other"
            assert await client.read_frame() == b"next"
            assert [frame for frame, _ in service.served] == [first, b"other", b"next"]
            assert service.served[2][1] - service.served[0][1] >= MUTE_MS / 1_000 - 0.05
            assert listener.counters.reading_paused == 0

    run(scenario())


def test_requests_that_arrived_together_wait_as_well(run: Run) -> None:
    async def scenario() -> None:
        service = Throttling()
        async with listening(service) as listener, connected(listener) as client:
            await client.send(framed(b"much") + framed(b"next"))
            assert await client.read_frame() == b"much"
            assert await client.read_frame() == b"next"
            assert service.served[1][1] - service.served[0][1] >= MUTE_MS / 1_000 - 0.05

    run(scenario())


def test_a_client_that_leaves_while_it_is_throttled_leaves_nothing_behind(run: Run) -> None:
    async def scenario() -> None:
        service = Throttling()
        async with listening(service) as listener:
            async with connected(listener) as client:
                await client.ask(b"much")
                assert listener.counters.reading_paused == 1
            await until(lambda: listener.counters.connections_open == 0)
            assert listener.counters.reading_paused == 0

    run(scenario())


def test_a_second_throttle_time_does_not_shorten_the_first() -> None:
    async def scenario() -> None:
        ended: list[float] = []
        loop = asyncio.get_running_loop()
        mute = Mute(loop, lambda: ended.append(loop.time()))
        begun = loop.time()
        mute.extend(200)
        mute.extend(1)
        assert mute.is_on
        await until(lambda: bool(ended))
        assert ended[0] - begun >= 0.19
        assert not mute.is_on
        mute.extend(10_000)
        mute.cancel()
        assert not mute.is_on

    asyncio.run(scenario())


def test_an_address_that_opens_connections_too_fast_is_refused_after_a_delay(run: Run) -> None:
    async def scenario() -> None:
        asked: list[str] = []

        def delay_ms(address: str) -> int:
            asked.append(address)
            return 200 if len(asked) == 2 else 0

        async with listening(ScriptedService(echo), delay_ms_of=delay_ms) as listener:
            async with connected(listener) as first:
                assert await first.ask(b"a") == b"a"
                begun = time.monotonic()
                async with connected(listener) as second:
                    await second.send(framed(b"b"))
                    assert await second.is_closed_by_server()
                assert time.monotonic() - begun >= 0.15
                async with connected(listener) as third:
                    assert await third.ask(b"c") == b"c"
            assert asked == ["127.0.0.1"] * 3
            assert listener.counters.connections_refused == 1

    run(scenario())

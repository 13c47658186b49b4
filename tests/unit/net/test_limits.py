"""Every limit of a listener holds, and a connection at a limit goes on once there is room."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from net_support import READ_BYTES, ScriptedService, connected, echo, framed, listening, until

from zhumq.net.limits import Admission, Limits
from zhumq.net.service import Answer

Run = Callable[[Coroutine[Any, Any, None]], None]


class Promises:
    """A script whose answers all complete at `keep_all`."""

    def __init__(self) -> None:
        self.waiting: list[tuple[bytes, asyncio.Future[list[Any] | None]]] = []

    def __call__(self, frame: bytes) -> Answer:
        future = asyncio.get_running_loop().create_future()
        self.waiting.append((frame[:8], future))
        return future

    def keep_all(self) -> None:
        waiting, self.waiting = self.waiting, []
        for frame, future in waiting:
            future.set_result([framed(frame)])


def test_requests_in_flight_stop_at_their_limit(run: Run) -> None:
    async def scenario() -> None:
        promises = Promises()
        service = ScriptedService(promises)
        limits = Limits(requests_in_flight_max=3)
        async with listening(service, limits) as listener, connected(listener) as client:
            await client.send(b"".join(framed(b"%d" % number) for number in range(8)))
            await until(lambda: listener.counters.requests_received == 8)
            assert len(service.frames) == 3
            assert listener.counters.reading_paused == 1
            promises.keep_all()
            await until(lambda: len(service.frames) == 6)
            promises.keep_all()
            await until(lambda: len(service.frames) == 8)
            promises.keep_all()
            assert [await client.read_frame() for _ in range(8)] == [b"%d" % n for n in range(8)]
            assert listener.counters.reading_paused == 0

    run(scenario())


def test_request_bytes_of_one_connection_stop_at_their_limit(run: Run) -> None:
    async def scenario() -> None:
        promises = Promises()
        service = ScriptedService(promises)
        limits = Limits(request_bytes_max=100_000)
        async with listening(service, limits) as listener, connected(listener) as client:
            # A frame above the limit is served, alone.
            sending = asyncio.create_task(client.send(framed(b"large   " * 100_000) * 10))
            for _ in range(10):
                await until(lambda: len(promises.waiting) == 1)
                assert listener.counters.reading_paused == 1
                assert listener.memory.bytes_used <= 800_004 + READ_BYTES
                promises.keep_all()
                assert await client.read_frame() == b"large   "
            await sending
            assert listener.memory.bytes_used == 0

    run(scenario())


def test_request_bytes_of_all_connections_stop_at_their_limit(run: Run) -> None:
    async def scenario() -> None:
        promises = Promises()
        service = ScriptedService(promises)
        limits = Limits(request_bytes_total_max=4_000_000)
        async with listening(service, limits) as listener, connected(listener) as first:
            await first.send(framed(b"first   " * 480_000))
            await until(lambda: len(promises.waiting) == 1)
            async with connected(listener) as second:
                sending = asyncio.create_task(second.send(framed(b"second  " * 100_000)))
                await until(lambda: listener.counters.reading_paused == 1)
                assert listener.memory.readers_waiting == 1
                assert listener.memory.bytes_used <= 3_840_004 + READ_BYTES
                promises.keep_all()
                assert await first.read_frame() == b"first   "
                await sending
                await until(lambda: len(promises.waiting) == 1)
                promises.keep_all()
                assert await second.read_frame() == b"second  "
                assert listener.memory.bytes_used == 0
                assert listener.memory.readers_waiting == 0

    run(scenario())


def test_half_frames_that_fill_the_memory_finish_one_by_one(run: Run) -> None:
    async def scenario() -> None:
        service = ScriptedService(lambda frame: [framed(frame[:8])])
        limits = Limits(request_bytes_total_max=3_000_000)
        frame = framed(b"abcdefgh" * 125_000)

        async def ask_slowly(number: int) -> bytes:
            async with connected(listener) as client:
                await client.send(frame[:400_000])
                started.append(number)
                await all_started.wait()
                await client.send(frame[400_000:])
                return await client.read_frame()

        started: list[int] = []
        all_started = asyncio.Event()
        async with listening(service, limits) as listener:
            asking = [asyncio.create_task(ask_slowly(number)) for number in range(6)]
            await until(lambda: listener.memory.readers_waiting > 0)
            all_started.set()
            assert await asyncio.gather(*asking) == [b"abcdefgh"] * 6
            await until(lambda: listener.counters.connections_open == 0)
            assert listener.counters.connections_cut_off == 0
            assert listener.memory.bytes_used == 0

    run(scenario())


def test_a_slow_reader_stops_being_served_and_its_answers_stay_bounded(run: Run) -> None:
    answer = framed(b"x" * 100_000)

    async def scenario() -> None:
        service = ScriptedService(lambda frame: [answer])
        limits = Limits(answer_bytes_max=300_000)
        async with (
            listening(service, limits) as listener,
            connected(listener, receive_bytes=65_536) as slow,
        ):
            asking = asyncio.create_task(slow.send(framed(b"more") * 300))
            await until(lambda: listener.counters.reading_paused == 1)
            await asking
            # The bytes in the two socket buffers, and no more than the limit beyond them.
            served = len(service.frames)
            assert served < 150
            assert listener.counters.answer_bytes_queued <= 400_000
            for _ in range(300):
                assert await slow.read(len(answer)) == answer
            assert len(service.frames) == 300
            assert listener.counters.answer_bytes_queued == 0

    run(scenario())


def test_an_idle_connection_is_closed_and_a_busy_one_is_not(run: Run) -> None:
    async def scenario() -> None:
        promises = Promises()
        service = ScriptedService(
            lambda frame: promises(frame) if frame == b"park" else echo(frame)
        )
        limits = Limits(idle_ms=200)
        async with (
            listening(service, limits) as listener,
            connected(listener) as idle,
            connected(listener) as parked,
        ):
            assert await idle.ask(b"hello") == b"hello"
            await parked.send(framed(b"park"))
            assert await idle.is_closed_by_server()
            assert listener.counters.connections_expired == 1
            promises.keep_all()
            assert await parked.read_frame() == b"park"
            assert await parked.is_closed_by_server()

    run(scenario())


def test_a_connection_without_a_whole_first_frame_is_closed(run: Run) -> None:
    async def scenario() -> None:
        limits = Limits(first_frame_ms=200)
        async with (
            listening(ScriptedService(echo), limits) as listener,
            connected(listener) as silent,
            connected(listener) as half,
            connected(listener) as whole,
        ):
            await half.send(framed(b"half")[:-1])
            assert await whole.ask(b"whole") == b"whole"
            assert await silent.is_closed_by_server()
            assert await half.is_closed_by_server()
            assert await whole.ask(b"whole") == b"whole"
            assert listener.counters.connections_expired == 2

    run(scenario())


def test_a_connection_that_stops_inside_a_later_frame_is_closed(run: Run) -> None:
    async def scenario() -> None:
        limits = Limits(half_frame_ms=200)
        async with (
            listening(ScriptedService(echo), limits) as listener,
            connected(listener) as half,
        ):
            await half.send(framed(b"whole") + framed(b"half")[:-1])
            assert await half.read_frame() == b"whole"
            assert await half.is_closed_by_server()
            assert listener.memory.bytes_used == 0

    run(scenario())


def test_a_peer_that_does_not_read_its_answers_is_cut_off(run: Run) -> None:
    async def scenario() -> None:
        service = ScriptedService(lambda frame: [framed(b"x" * 50_000_000)])
        limits = Limits(idle_ms=200, close_ms=200)
        async with (
            listening(service, limits) as listener,
            connected(listener, receive_bytes=65_536) as client,
        ):
            await client.send(framed(b"more"))
            await until(lambda: len(service.lost) == 1)
            assert listener.counters.connections_expired == 1

    run(scenario())


def test_admission_counts_in_all_and_by_address() -> None:
    admission = Admission(Limits(connections_max=3, connections_per_address_max=2))
    assert admission.enter("a")
    assert admission.enter("a")
    assert not admission.enter("a")
    assert admission.enter("b")
    assert not admission.enter("c")
    admission.leave("a")
    assert admission.enter("c")
    assert admission.connections == 3

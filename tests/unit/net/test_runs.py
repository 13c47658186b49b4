"""Requests that are served together: the same answers in the same order, the same limits."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from net_support import ScriptedService, connected, echo, framed, listening, until

from zhumq.model.errors import MalformedFrame
from zhumq.net.limits import Limits
from zhumq.net.service import Answer, ConnectionInfo

Run = Callable[[Coroutine[Any, Any, None]], None]


class Runs(ScriptedService):
    """Serves frames with the same first byte together; with a future if that is upper case, and
    alone if it is a dash."""

    def __init__(self) -> None:
        super().__init__(echo)
        self.sizes: list[int] = []
        self.promises: list[tuple[bytes, asyncio.Future[list[Any] | None]]] = []

    def handle(self, frames: Sequence[bytes], connection: ConnectionInfo) -> tuple[int, Answer]:
        first_byte = frames[0][:1]
        if first_byte == b"-":
            return super().handle(frames, connection)
        if first_byte == b"!":
            raise MalformedFrame("this one is bad")
        run = []
        for frame in frames:
            if frame[:1] != first_byte:
                break
            run.append(framed(frame))
        self.sizes.append(len(run))
        if not first_byte.isupper():
            return len(run), [b"".join(run)]
        promise: asyncio.Future[list[Any] | None] = asyncio.get_running_loop().create_future()
        self.promises.append((b"".join(run), promise))
        return len(run), promise

    def keep(self) -> None:
        for answers, promise in self.promises:
            promise.set_result([answers])
        self.promises.clear()


def test_runs_and_single_requests_are_answered_in_order(run: Run) -> None:
    async def scenario() -> None:
        runs = Runs()
        payloads = [b"%c%d" % (b"aab-cB-Ba"[n % 9], n) for n in range(3_000)]
        async with listening(runs) as listener, connected(listener) as client:
            sending = asyncio.create_task(client.send(b"".join(map(framed, payloads))))
            received = []
            for _ in payloads:
                reading = asyncio.create_task(client.read_frame())
                while not reading.done():
                    runs.keep()
                    await asyncio.sleep(0)
                received.append(reading.result())
            await sending
            assert received == payloads
            assert max(runs.sizes) > 1
            assert runs.frames == [each for each in payloads if each.startswith(b"-")]
            assert listener.counters.requests_in_flight == 0
            assert listener.memory.bytes_used == 0

    run(scenario())


def test_requests_of_a_run_count_one_by_one_against_the_limit(run: Run) -> None:
    async def scenario() -> None:
        runs = Runs()
        limits = Limits(requests_in_flight_max=10)
        async with (
            listening(runs, limits) as listener,
            connected(listener) as client,
        ):
            payloads = [b"P%d" % number for number in range(25)]
            await client.send(b"".join(map(framed, payloads)))
            for expected in (10, 20, 25):
                await until(lambda expected=expected: sum(runs.sizes) >= expected)  # type: ignore[misc]
                assert sum(runs.sizes) == expected
                runs.keep()
            assert [await client.read_frame() for _ in payloads] == payloads

    run(scenario())


def test_a_bad_frame_behind_a_run_closes_after_the_answers_before_it(run: Run) -> None:
    async def scenario() -> None:
        async with (
            listening(Runs()) as listener,
            connected(listener) as client,
        ):
            await client.send(b"".join(map(framed, (b"a1", b"a2", b"!", b"a3"))))
            assert [await client.read_frame() for _ in range(2)] == [b"a1", b"a2"]
            assert await client.read(1) == b""
            assert listener.counters.connections_malformed == 1
            await until(lambda: listener.counters.requests_in_flight == 0)
            assert listener.memory.bytes_used == 0

    run(scenario())


def test_a_client_that_leaves_cancels_the_future_of_its_run(run: Run) -> None:
    async def scenario() -> None:
        runs = Runs()
        async with listening(runs) as listener:
            async with connected(listener) as client:
                await client.send(b"".join(map(framed, (b"P1", b"P2", b"P3"))))
                await until(lambda: sum(runs.sizes) == 3)
            await until(lambda: listener.counters.connections_open == 0)
            assert all(promise.cancelled() for _, promise in runs.promises)
            assert listener.counters.requests_in_flight == 0
            assert listener.memory.bytes_used == 0

    run(scenario())

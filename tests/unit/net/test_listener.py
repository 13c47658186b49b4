"""Answers in order over real sockets; how connections open and close."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from net_support import ScriptedService, connected, echo, framed, listening, until

from zhumq.model.errors import MalformedFrame
from zhumq.net.limits import Limits
from zhumq.net.listener import Endpoint, Listener
from zhumq.net.service import Answer

Run = Callable[[Coroutine[Any, Any, None]], None]


class Promises:
    """A script whose answers complete when the test calls `keep`."""

    def __init__(self) -> None:
        self.futures: dict[bytes, asyncio.Future[list[Any] | None]] = {}

    def __call__(self, frame: bytes) -> Answer:
        if frame.startswith(b"now"):
            return [framed(frame)]
        if frame.startswith(b"silent"):
            return None
        self.futures[frame] = asyncio.get_running_loop().create_future()
        return self.futures[frame]

    def keep(self, frame: bytes) -> None:
        self.futures[frame].set_result([framed(frame)])


def test_a_request_is_answered(run: Run) -> None:
    async def scenario() -> None:
        service = ScriptedService(echo)
        async with listening(service) as listener, connected(listener) as client:
            assert await client.ask(b"hello") == b"hello"
            assert await client.ask(b"again") == b"again"
            assert listener.counters.requests_received == 2
            assert listener.counters.requests_in_flight == 0
            assert listener.memory.bytes_used == 0

    run(scenario())


def test_answers_keep_the_order_of_requests_when_futures_finish_out_of_order(run: Run) -> None:
    async def scenario() -> None:
        promises = Promises()
        service = ScriptedService(promises)
        async with listening(service) as listener, connected(listener) as client:
            await client.send(framed(b"first") + framed(b"now a") + framed(b"second"))
            await client.send(framed(b"silent") + framed(b"third") + framed(b"now b"))
            await until(lambda: len(service.frames) == 6)
            for frame in (b"third", b"second"):
                promises.keep(frame)
            assert listener.counters.requests_in_flight == 6
            promises.keep(b"first")
            answers = [await client.read_frame() for _ in range(5)]
            assert answers == [b"first", b"now a", b"second", b"third", b"now b"]
            assert listener.counters.requests_in_flight == 0

    run(scenario())


def test_a_future_may_end_without_an_answer(run: Run) -> None:
    async def scenario() -> None:
        promises = Promises()
        service = ScriptedService(promises)
        async with listening(service) as listener, connected(listener) as client:
            await client.send(framed(b"produce") + framed(b"now"))
            await until(lambda: len(service.frames) == 2)
            promises.futures[b"produce"].set_result(None)
            assert await client.read_frame() == b"now"

    run(scenario())


def test_an_answer_of_many_parts_arrives_whole(run: Run) -> None:
    async def scenario() -> None:
        parts = [b"\x00\x04\x00\x00", bytearray(b"a" * 70_000), memoryview(b"b" * 192_144)]
        service = ScriptedService(lambda frame: list(parts))
        async with listening(service) as listener, connected(listener) as client:
            assert await client.ask(b"x") == b"a" * 70_000 + b"b" * 192_144

    run(scenario())


def test_a_frame_may_arrive_byte_by_byte(run: Run) -> None:
    async def scenario() -> None:
        service = ScriptedService(echo)
        async with listening(service) as listener, connected(listener) as client:
            for count, byte in enumerate(framed(b"slow"), start=1):
                await client.send(bytes([byte]))
                await until(lambda: listener.counters.bytes_received == count)  # noqa: B023 (awaited at once)
            assert await client.read_frame() == b"slow"

    run(scenario())


def test_thousands_of_pipelined_requests_are_answered_in_order(run: Run) -> None:
    async def scenario() -> None:
        service = ScriptedService(echo)
        async with listening(service) as listener, connected(listener) as client:
            payloads = [b"%d" % number for number in range(5_000)]
            sending = asyncio.create_task(client.send(b"".join(map(framed, payloads))))
            assert [await client.read_frame() for _ in payloads] == payloads
            await sending

    run(scenario())


def test_a_malformed_frame_closes_its_connection_and_no_other(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    def script(frame: bytes) -> Answer:
        if frame == b"bad":
            raise MalformedFrame("bad frame")
        return [framed(frame)]

    async def scenario() -> None:
        service = ScriptedService(script)
        async with (
            listening(service) as listener,
            connected(listener) as healthy,
            connected(listener) as broken,
            connected(listener) as lying,
        ):
            await broken.send(framed(b"good") + framed(b"bad") + framed(b"never seen"))
            assert await broken.read_frame() == b"good"
            assert await broken.is_closed_by_server()
            await lying.send(b"\xff\xff\xff\xff")
            assert await lying.is_closed_by_server()
            assert await healthy.ask(b"alive") == b"alive"
            await until(lambda: len(service.lost) == 2)
            assert b"never seen" not in service.frames
            assert listener.counters.connections_malformed == 2
            assert listener.memory.bytes_used == 0
            assert listener.counters.requests_in_flight == 0

    with caplog.at_level(logging.WARNING, logger="zhumq.net.listener"):
        run(scenario())
    # The second warning came within a second of the first, so it was suppressed.
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "bad frame" in caplog.text


def test_a_service_that_fails_costs_one_connection(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail_later() -> list[Any]:
        raise ZeroDivisionError

    def script(frame: bytes) -> Answer:
        if frame == b"now":
            raise ZeroDivisionError
        if frame == b"later":
            return asyncio.ensure_future(fail_later())
        return [framed(frame)]

    async def scenario() -> None:
        service = ScriptedService(script)
        async with (
            listening(service) as listener,
            connected(listener) as healthy,
            connected(listener) as one,
            connected(listener) as other,
        ):
            await one.send(framed(b"now"))
            await other.send(framed(b"later"))
            assert await one.is_closed_by_server()
            assert await other.is_closed_by_server()
            assert await healthy.ask(b"alive") == b"alive"
            assert listener.counters.connections_failed == 2

    run(scenario())
    assert caplog.text.count("ZeroDivisionError") >= 2


def test_a_cancelled_answer_closes_the_connection(run: Run) -> None:
    async def scenario() -> None:
        promises = Promises()
        service = ScriptedService(promises)
        async with listening(service) as listener, connected(listener) as client:
            await client.send(framed(b"promise"))
            await until(lambda: len(service.frames) == 1)
            promises.futures[b"promise"].cancel()
            assert await client.is_closed_by_server()

    run(scenario())


def test_the_service_is_notified_once_that_a_client_left_and_its_answers_are_cancelled(
    run: Run,
) -> None:
    async def scenario() -> None:
        promises = Promises()
        service = ScriptedService(promises)
        async with listening(service) as listener:
            async with connected(listener) as client:
                await client.send(framed(b"one") + framed(b"two") + framed(b"three") + b"\x00\x00")
                await until(lambda: len(service.frames) == 3)
            await until(lambda: len(service.lost) == 1)
            assert service.lost[0].client_host == "127.0.0.1"
            assert service.lost[0].listener == "PLAINTEXT"
            assert listener.counters.connections_open == 0
            assert listener.counters.requests_in_flight == 0
            assert listener.memory.bytes_used == 0
            assert all(promise.cancelled() for promise in promises.futures.values())
        assert len(service.lost) == 1

    run(scenario())


def test_an_address_in_use_is_refused_with_the_systems_error(run: Run) -> None:
    async def scenario() -> None:
        async with listening(ScriptedService(echo)) as listener:
            host, port = listener.address
            with pytest.raises(OSError, match="in use"):
                await Listener.open(Endpoint(host=host, port=port), service=ScriptedService(echo))

    run(scenario())


def test_closing_lets_answers_under_way_go_out(run: Run) -> None:
    async def scenario() -> None:
        promises = Promises()
        service = ScriptedService(promises)
        listener = await Listener.open(Endpoint(host="127.0.0.1", port=0), service=service)
        async with connected(listener) as busy, connected(listener) as idle:
            assert await idle.ask(b"now") == b"now"
            await busy.send(framed(b"slow"))
            await until(lambda: len(service.frames) == 2)
            closing = asyncio.create_task(listener.close(drain_seconds=20.0))
            assert await idle.is_closed_by_server()
            assert not closing.done()
            promises.keep(b"slow")
            assert await busy.read_frame() == b"slow"
            assert await busy.is_closed_by_server()
            await closing
        assert len(service.lost) == 2
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*listener.address)

    run(scenario())


def test_closing_cuts_off_what_does_not_drain(run: Run) -> None:
    async def scenario() -> None:
        service = ScriptedService(Promises())
        listener = await Listener.open(Endpoint(host="127.0.0.1", port=0), service=service)
        async with connected(listener) as client:
            await client.send(framed(b"never answered"))
            await until(lambda: len(service.frames) == 1)
            await listener.close(drain_seconds=0.01)
            assert await client.is_closed_by_server()
        assert len(service.lost) == 1
        await listener.close()

    run(scenario())


def test_connections_over_the_caps_are_closed_at_once(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(limits: Limits) -> None:
        service = ScriptedService(echo)
        async with (
            listening(service, limits) as listener,
            connected(listener) as one,
            connected(listener) as two,
        ):
            assert await one.ask(b"1") == b"1"
            assert await two.ask(b"2") == b"2"
            async with connected(listener) as third:
                assert await third.is_closed_by_server()
            assert listener.counters.connections_refused == 1
            assert listener.counters.connections_open == 2
            one.close()
            await until(lambda: len(service.lost) == 1)
            async with connected(listener) as third:
                assert await third.ask(b"3") == b"3"

    run(scenario(Limits(connections_max=2)))
    run(scenario(Limits(connections_per_address_max=2)))
    assert "refused 127.0.0.1" in caplog.text

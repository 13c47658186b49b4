"""/healthz answers whatever other clients do, and clients hold neither memory nor a stop."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

import pytest
import uvloop

from zhumq.broker import http
from zhumq.broker.http import CONNECTIONS_MAX, HttpServer
from zhumq.model.metric import Metric

DEADLINE_SECONDS = 20.0
MANY = CONNECTIONS_MAX + 20


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await scenario()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(limited())


class LargeMetrics:
    """Metrics of a broker with many partitions; counts how often they were asked for."""

    def __init__(self) -> None:
        self.rendered = 0

    def __call__(self) -> list[Metric]:
        self.rendered += 1
        samples = [(f'{{partition="{number}"}}', float(number)) for number in range(50_000)]
        return [Metric(name="size", kind="gauge", help="Sizes.", samples=samples)]


async def connect(server: HttpServer, stack: ExitStack, request: bytes = b"") -> socket.socket:
    client = socket.socket()
    stack.callback(client.close)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, server.address)
    if request:
        await loop.sock_sendall(client, request)
    return client


async def get(server: HttpServer, path: str) -> bytes:
    reader, writer = await asyncio.open_connection(*server.address)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer


async def is_cut_off(client: socket.socket) -> bool:
    try:
        return not await asyncio.get_running_loop().sock_recv(client, 1)
    except ConnectionError:
        return True


def test_idle_connections_do_not_keep_healthz_from_answering() -> None:
    async def scenario() -> None:
        server = await HttpServer.open("127.0.0.1", 0, list)
        with ExitStack() as stack:
            idle = [await connect(server, stack) for _ in range(MANY)]
            for _ in range(10):
                assert (await get(server, "/healthz")).endswith(b"\r\n\r\nok\n")
            assert server.connections_open <= CONNECTIONS_MAX
            assert await is_cut_off(idle[0]), "the oldest goes first"
        await server.close()

    run(scenario)


def test_clients_that_never_read_their_metrics_share_them_and_hold_up_no_stop() -> None:
    async def scenario() -> None:
        metrics = LargeMetrics()
        server = await HttpServer.open("127.0.0.1", 0, metrics)
        with ExitStack() as stack:
            for _ in range(MANY):
                await connect(server, stack, b"GET /metrics HTTP/1.1\r\n\r\n")
            assert (await get(server, "/healthz")).endswith(b"ok\n")
            assert server.connections_open <= CONNECTIONS_MAX
            # A page is in memory once, and is rendered at most once a second.
            assert metrics.rendered <= DEADLINE_SECONDS
            await server.close()
            assert server.connections_open == 0

    run(scenario)


def test_metrics_that_are_cheap_are_of_the_moment_they_are_asked_for() -> None:
    async def scenario() -> None:
        count = 0

        def metrics() -> list[Metric]:
            nonlocal count
            count += 1
            return [Metric(name="count", kind="counter", help="C.", samples=[("", float(count))])]

        server = await HttpServer.open("127.0.0.1", 0, metrics)
        try:
            first = await get(server, "/metrics")
            while await get(server, "/metrics") == first:
                pass
        finally:
            await server.close()

    run(scenario)


def test_a_request_has_a_time_and_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_SECONDS_MAX", 0.2)

    async def scenario() -> None:
        server = await HttpServer.open("127.0.0.1", 0, LargeMetrics())
        with ExitStack() as stack:
            silent = await connect(server, stack)
            endless = await connect(server, stack, b"GET /" + b"x" * 10_000)
            unread = await connect(server, stack, b"GET /metrics HTTP/1.1\r\n\r\n")
            assert await is_cut_off(silent)
            assert await is_cut_off(endless)
            while server.connections_open:
                await asyncio.sleep(0)
            del unread
        await server.close()

    run(scenario)


def test_unknown_paths_and_methods_are_refused() -> None:
    async def scenario() -> None:
        server = await HttpServer.open("127.0.0.1", 0, list)
        assert b" 404 " in await get(server, "/elsewhere?x=1")
        reader, writer = await asyncio.open_connection(*server.address)
        writer.write(b"POST /metrics HTTP/1.1\r\n\r\n")
        assert b" 405 " in await reader.read()
        writer.close()
        await server.close()

    run(scenario)

"""The HTTP listener of a broker: /healthz and /readyz for supervisors, /metrics for Prometheus."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, Self, cast

from zhumq.model.metric import Metric
from zhumq.net.handshakes import Handshakes
from zhumq.net.tls_context import TlsSource
from zhumq.net.tls_stream import TlsStream

logger = logging.getLogger(__name__)

REQUEST_BYTES_MAX: Final = 8 * 1024
END_OF_HEAD: Final = b"\r\n\r\n"
# From the connect until the client has read the answer.
REQUEST_SECONDS_MAX: Final = 5.0
# A connection above this closes the oldest one.
CONNECTIONS_MAX: Final = 100
ACCEPT_BACKLOG: Final = 1_024
AUTHORIZATION: Final = "authorization"
REALM: Final = "zhumq"
# Rendering metrics takes at most a tenth of the time. A large page is rendered at most once a second,
# so that clients which do not read hold at most one page for each second of REQUEST_SECONDS_MAX.
PAGE_REST: Final = 10
PAGE_PACE_SECONDS: Final = 1.0
SMALL_PAGE_BYTES: Final = 256 * 1024


class Refused(Exception):
    """A request that is answered with this status and reason."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Guard(Protocol):
    """Who may read /metrics."""

    async def check(self, header: str, host: str) -> None:
        """Takes the `Authorization` header of a request, or an empty text, and its client. Raises Refused."""


class HttpServer:
    """Answers GET, one request per connection."""

    def __init__(self, server: asyncio.Server, pages: "_Pages", handshakes: Handshakes) -> None:
        bound = server.sockets[0].getsockname()
        self.address: tuple[str, int] = (bound[0], bound[1])
        self._server = server
        self._pages = pages
        self._handshakes = handshakes

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        metrics: Callable[[], Iterable[Metric]],
        problems: Callable[[], Sequence[str]] = list,
        *,
        obstacles: Callable[[], Sequence[str]] = list,
        tls: TlsSource | None = None,
        guard: Guard | None = None,
    ) -> Self:
        """Serve current metrics, the problems that a restart would not solve, and the obstacles for which clients
        are not served."""
        loop = asyncio.get_running_loop()
        pages = _Pages(loop, metrics, problems, obstacles, guard)
        handshakes = Handshakes(loop, count_max=CONNECTIONS_MAX, seconds_max=REQUEST_SECONDS_MAX)
        server = await loop.create_server(
            lambda: _Connection(pages) if tls is None else _TlsConnection(pages, tls, handshakes),
            host,
            port,
            backlog=ACCEPT_BACKLOG,
            reuse_address=True,
        )
        return cls(server, pages, handshakes)

    @property
    def connections_open(self) -> int:
        return len(self._pages.connections)

    async def close(self) -> None:
        self._server.close()
        self._handshakes.close()
        for connection in tuple(self._pages.connections):
            connection.abort()
        await self._server.wait_closed()


class _Connection(asyncio.Protocol):
    """One client: reads the head of a request, sends one answer, and closes at a deadline."""

    def __init__(self, pages: "_Pages") -> None:
        self._pages = pages
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._answering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._deadline = self._pages.loop.call_later(REQUEST_SECONDS_MAX, self.abort)
        self._pages.enter(self)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        if self._answering is not None:
            return
        self._received += data
        end = self._received.find(END_OF_HEAD)
        if end >= 0:
            head = bytes(self._received[:end])
            self._answering = self._pages.loop.create_task(self._answer(head, self._transport))
        elif len(self._received) > REQUEST_BYTES_MAX:
            self.abort()

    async def _answer(self, head: bytes, transport: asyncio.Transport) -> None:
        peer = transport.get_extra_info("peername")
        try:
            transport.write(await self._pages.answer(head, peer[0] if peer is not None else ""))
        except Exception:
            logger.exception("an HTTP request failed")
        # Closes once the client has read its answer, or at the deadline.
        transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self._deadline is not None:
            self._deadline.cancel()
        if self._answering is not None:
            self._answering.cancel()
        self._pages.connections.pop(self, None)

    def abort(self) -> None:
        self._pages.connections.pop(self, None)
        if self._transport is not None:
            self._transport.abort()


class _TlsConnection(asyncio.Protocol):
    """One client that has yet to complete its TLS handshake. It has the time of a request for that."""

    def __init__(self, pages: "_Pages", tls: TlsSource, handshakes: Handshakes) -> None:
        self._pages = pages
        self._tls = tls
        self._handshakes = handshakes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        TlsStream(
            cast("asyncio.Transport", transport),
            self._tls.current().server,
            self._handshakes,
            client_host=peer[0] if peer is not None else "",
            on_open=self._serve,
            on_failed=lambda reason: logger.debug("an HTTP client was refused: %s", reason),
        )

    def _serve(self, stream: TlsStream) -> "_Connection":
        connection = _Connection(self._pages)
        connection.connection_made(stream)
        return connection


class _Pages:
    """The pages and the open connections."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        metrics: Callable[[], Iterable[Metric]],
        problems: Callable[[], Sequence[str]],
        obstacles: Callable[[], Sequence[str]],
        guard: Guard | None,
    ) -> None:
        self.loop = loop
        self._guard = guard
        self.connections: dict[_Connection, None] = {}  # the oldest first
        self._metrics = metrics
        self._problems = problems
        self._obstacles = obstacles
        self._metrics_page = b""
        self._page_until = float("-inf")

    def enter(self, connection: _Connection) -> None:
        """Admits every client; over the limit the oldest goes. So a probe of /healthz is answered."""
        if len(self.connections) >= CONNECTIONS_MAX:
            next(iter(self.connections)).abort()
        self.connections[connection] = None

    async def answer(self, head: bytes, host: str) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method != b"GET":
            return _response("405 Method Not Allowed", "only GET is served here\n")
        if path == b"/healthz":
            # 200 even when degraded: a restart does not solve these problems.
            problems = self._problems()
            return _response(
                "200 OK", "\n".join(["degraded", *problems, ""] if problems else ["ok", ""])
            )
        if path == b"/readyz":
            obstacles = self._obstacles()
            if obstacles:
                return _response(
                    "503 Service Unavailable", "\n".join(["not ready", *obstacles, ""])
                )
            return _response("200 OK", "ready\n")
        if path == b"/metrics":
            if self._guard is not None:
                try:
                    await self._guard.check(_header(head, AUTHORIZATION), host)
                except Refused as refused:
                    return _response(refused.status, f"{refused}\n")
            return self._metrics_now()
        return _response("404 Not Found", "try /healthz, /readyz or /metrics\n")

    def _metrics_now(self) -> bytes:
        """The current page. A page that is slow or large is cached and shared for a while.

        Clients that do not read hold their page in memory, so there are never many different ones.
        """
        begun = self.loop.time()
        if begun >= self._page_until:
            text = "\n".join(metric.render() for metric in self._metrics())
            page = _response("200 OK", text + "\n", "text/plain; version=0.0.4; charset=utf-8")
            now = self.loop.time()
            pace = PAGE_PACE_SECONDS if len(page) > SMALL_PAGE_BYTES else 0.0
            self._page_until = now + max(pace, (now - begun) * PAGE_REST)
            self._metrics_page = page
        return self._metrics_page


def _header(head: bytes, name: str) -> str:
    """The value of the first header of this name; empty without one."""
    for line in head.decode("latin-1").split("\r\n")[1:]:
        key, _, value = line.partition(":")
        if key.strip().lower() == name:
            return value.strip()
    return ""


def _response(status: str, body: str, kind: str = "text/plain; charset=utf-8") -> bytes:
    data = body.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n"
        "X-Content-Type-Options: nosniff\r\nConnection: close\r\n"
    )
    if status.startswith("401"):
        head += f'WWW-Authenticate: Basic realm="{REALM}"\r\n'
    head += "\r\n"
    return head.encode() + data

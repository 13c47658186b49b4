"""The HTTP side of a broker: /healthz for whoever restarts it, /metrics for Prometheus."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

logger = logging.getLogger(__name__)

REQUEST_BYTES_MAX: Final = 8 * 1024
REQUEST_SECONDS_MAX: Final = 5.0
CONNECTIONS_MAX: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One figure at this moment, as Prometheus wants it."""

    name: str
    kind: str  # counter or gauge
    help: str
    samples: list[tuple[str, float]] = field(default_factory=list)

    def render(self) -> str:
        lines = [f"# HELP {self.name} {self.help}", f"# TYPE {self.name} {self.kind}"]
        lines.extend(f"{self.name}{labels} {value:g}" for labels, value in self.samples)
        return "\n".join(lines)


class HttpServer:
    """Answers GET, one request a connection. Anything larger belongs to the console."""

    def __init__(self, server: asyncio.Server, address: tuple[str, int]) -> None:
        self._server = server
        self.address = address

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        metrics: Callable[[], Iterable[Metric]],
        problems: Callable[[], Sequence[str]] = list,
    ) -> Self:
        """Serve the metrics of each moment, and what is not well that a restart would not heal."""
        pages = _Pages(metrics, problems)
        server = await asyncio.start_server(
            pages.serve, host, port, limit=REQUEST_BYTES_MAX, reuse_address=True
        )
        bound = server.sockets[0].getsockname()
        return cls(server, (bound[0], bound[1]))

    async def close(self) -> None:
        self._server.close()
        await self._server.wait_closed()


class _Pages:
    def __init__(
        self,
        metrics: Callable[[], Iterable[Metric]],
        problems: Callable[[], Sequence[str]],
    ) -> None:
        self._metrics = metrics
        self._problems = problems
        self._open_connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._open_connections >= CONNECTIONS_MAX:
            writer.close()
            return
        self._open_connections += 1
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head))
                await writer.drain()
        except (
            TimeoutError,
            ConnectionError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
        ):
            pass  # Not a browser, or one that left: there is nobody to tell.
        except Exception:
            logger.exception("an HTTP request failed")
        finally:
            self._open_connections -= 1
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method != b"GET":
            return _response("405 Method Not Allowed", "only GET is served here\n")
        if path == b"/healthz":
            # 200 all the same: whoever restarts what is not well would not help here.
            problems = self._problems()
            return _response(
                "200 OK", "\n".join(["degraded", *problems, ""] if problems else ["ok", ""])
            )
        if path == b"/metrics":
            text = "\n".join(metric.render() for metric in self._metrics())
            return _response("200 OK", text + "\n", "text/plain; version=0.0.4; charset=utf-8")
        return _response("404 Not Found", "try /healthz or /metrics\n")


def _response(status: str, body: str, kind: str = "text/plain; charset=utf-8") -> bytes:
    data = body.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n"
        "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + data

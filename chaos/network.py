"""A network with faults: TCP proxies between named machines, with one link per direction."""

import asyncio
import contextlib
import logging
import struct
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self, TypeVar

import uvloop

from chaos.socket_owner import owner_of

HOST: Final = "127.0.0.1"
CHUNK_BYTES: Final = 1 << 16
CHUNKS_ON_THE_WAY_MAX: Final = 64  # per connection and direction; then the sender has to wait
CONTROL_SECONDS_MAX: Final = 60.0  # enough for an overloaded machine

# A request of Kafka's protocol begins with its size, its API key and the version.
REQUEST_SIZE: Final = struct.Struct(">i")
API_AND_VERSION: Final = struct.Struct(">hh")

DelayOf = Callable[[int, int], float]
logger = logging.getLogger(__name__)
_Result = TypeVar("_Result")


class LinkState(StrEnum):
    """What happens to bytes on a link."""

    OPEN = "open"
    # As when packets are dropped: neither side gets an error, new connections hang, and bytes in flight
    # arrive once the link heals, if the connection is still open.
    CUT = "cut"
    # As when a firewall rejects: connections are reset, new ones are closed.
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One direction between two machines."""

    state: LinkState = LinkState.OPEN
    delay_ms: int = 0


OPEN: Final = Link()
CUT: Final = Link(state=LinkState.CUT)
REFUSED: Final = Link(state=LinkState.REFUSED)


class _Gate:
    """A link and the connections that use it. Belongs to the event loop."""

    def __init__(self) -> None:
        self.link = OPEN
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.connections: set[_Connection] = set()

    def change(self, link: Link) -> None:
        self.link = link
        if link.state is LinkState.CUT:
            self.is_open.clear()
        else:
            self.is_open.set()
        if link.state is LinkState.REFUSED:
            for connection in tuple(self.connections):
                connection.abort()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyListener:
    """A proxy in front of one machine's port."""

    target: str
    port: int

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"


class Network:
    """Proxies and the links behind them, on an event loop in its own thread. Thread-safe."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        self._loop = loop
        self._thread = thread
        self._gates: dict[tuple[str, str], _Gate] = {}
        self._servers: list[_ProxyServer] = []
        self._connections: set[_Connection] = set()
        self.unknown_callers = 0

    @classmethod
    def start(cls) -> Self:
        loop = uvloop.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="chaos-network", daemon=True)
        thread.start()
        return cls(loop, thread)

    def open_proxy(
        self, target: str, port: int, *, source: str, delay_of: DelayOf | None = None
    ) -> ProxyListener:
        """Open a proxy to `target`, which listens on `port`, for the machine `source` alone.

        With `delay_of` the source is a client of Kafka's protocol, and each of its requests is held back for so many
        seconds, by its API key and version; those behind it on the same connection wait, too. Requests that were sent
        arrive also after the client has closed the connection.
        """
        return self._open(target, port, lambda _caller, _proxy: source, delay_of)

    def open_common_proxy(
        self, target: str, port: int, processes: Callable[[], Mapping[str, int]]
    ) -> ProxyListener:
        """Open a proxy for several machines, identified by the process (name to pid) that connects."""

        def owner(caller: int, proxy: int) -> str | None:
            return owner_of(caller, proxy, processes())

        return self._open(target, port, owner)

    def set_link(self, source: str, target: str, link: Link) -> None:
        """Set the link for bytes from `source` to `target`, whichever side connected."""
        self._call(self._set_link(source, target, link))

    def heal(self) -> None:
        """Open every link."""
        self._call(self._heal())

    def shut(self, target: str) -> None:
        """Refuse new connections to a machine, like a port without a listener. Existing connections
        stay open."""
        self._call(self._shut(target))

    def reopen(self, target: str) -> None:
        """Accept connections to it again, at the same addresses."""
        self._call(self._reopen(target))

    def links(self) -> dict[tuple[str, str], Link]:
        """The links that have a fault."""
        return {name: gate.link for name, gate in self._gates.items() if gate.link != OPEN}

    def stop(self) -> None:
        """Close every proxy and connection."""
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CONTROL_SECONDS_MAX)
        self._loop.close()

    def _open(
        self,
        target: str,
        port: int,
        source_of: Callable[[int, int], str | None],
        delay_of: DelayOf | None = None,
    ) -> ProxyListener:
        return self._call(self._listen(target, port, source_of, delay_of))

    def _call(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CONTROL_SECONDS_MAX)

    async def _set_link(self, source: str, target: str, link: Link) -> None:
        self._gate(source, target).change(link)

    async def _shut(self, target: str) -> None:
        for server in self._servers:
            if server.target == target:
                server.shut()

    async def _reopen(self, target: str) -> None:
        for server in self._servers:
            if server.target == target:
                await server.open()

    async def _heal(self) -> None:
        for gate in self._gates.values():
            gate.change(OPEN)

    async def _close(self) -> None:
        for server in self._servers:
            server.shut()
        connections = tuple(self._connections)
        for connection in connections:
            connection.abort()
        await asyncio.gather(*(connection.ended.wait() for connection in connections))

    async def _listen(
        self,
        target: str,
        port: int,
        source_of: Callable[[int, int], str | None],
        delay_of: DelayOf | None,
    ) -> ProxyListener:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            proxy_port = writer.get_extra_info("sockname")[1]
            try:
                caller_port = writer.get_extra_info("peername")[1]
            except TypeError:  # The caller has closed the connection already.
                writer.transport.abort()
                return
            source = source_of(caller_port, proxy_port)
            if source is None:
                self.unknown_callers += 1
                writer.transport.abort()
                return
            there, back = self._gate(source, target), self._gate(target, source)
            await self._join(_Connection(there, back, reader, writer, delay_of), port)

        server = _ProxyServer(target, accept)
        await server.open()
        self._servers.append(server)
        return ProxyListener(target=target, port=server.port)

    async def _join(self, connection: "_Connection", port: int) -> None:
        groups = (self._connections, *(gate.connections for gate in connection.gates))
        for group in groups:
            group.add(connection)
        try:
            await connection.run(port)
        finally:
            for group in groups:
                group.discard(connection)

    def _gate(self, source: str, target: str) -> _Gate:
        return self._gates.setdefault((source, target), _Gate())


class _ProxyServer:
    """A listening socket that keeps its port when it is shut and opened again."""

    def __init__(
        self,
        target: str,
        accept: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    ) -> None:
        self.target = target
        self.port = 0
        self._accept = accept
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, HOST, self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    def shut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None


class _Connection:
    """One connection through a proxy."""

    def __init__(
        self,
        there: _Gate,
        back: _Gate,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        delay_of: DelayOf | None,
    ) -> None:
        self.gates = (there, back)
        self._there = there
        self._back = back
        self._reader = reader
        self._delay_of = delay_of
        self._writers = [writer]
        self.ended = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None

    def abort(self) -> None:
        """Reset both sides."""
        if self._serving is not None:
            self._serving.cancel()

    async def run(self, port: int) -> None:
        """Forward bytes until the connection ends."""
        if LinkState.REFUSED not in (self._there.link.state, self._back.link.state):
            self._serving = asyncio.create_task(self._serve(port))
            await asyncio.wait([self._serving])
            if not self._serving.cancelled() and (error := self._serving.exception()):
                logger.error("a connection of the chaos network failed", exc_info=error)
        for writer in self._writers:
            writer.transport.abort()
        self.ended.set()

    async def _serve(self, port: int) -> None:
        # A TCP handshake needs packets in both directions.
        await self._there.is_open.wait()
        await self._back.is_open.wait()
        try:
            reader, writer = await asyncio.open_connection(HOST, port)
        except OSError:
            return  # The target is down: the caller's connection is closed.
        self._writers.append(writer)
        async with asyncio.TaskGroup() as group:
            group.create_task(_forward(self._reader, writer, self._there, self._delay_of))
            group.create_task(_forward(reader, self._writers[0], self._back))


async def _forward(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    gate: _Gate,
    delay_of: DelayOf | None = None,
) -> None:
    """Forward bytes in one direction. The end of the stream waits for the link like any byte."""
    on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(CHUNKS_ON_THE_WAY_MAX)
    async with asyncio.TaskGroup() as group:
        if delay_of is None:
            group.create_task(_read_chunks(reader, on_the_way, gate))
        else:
            group.create_task(_read_requests(reader, on_the_way, delay_of))
        group.create_task(_write_chunks(writer, on_the_way, gate))


async def _read_requests(
    reader: asyncio.StreamReader,
    on_the_way: asyncio.Queue[tuple[float, bytes]],
    delay_of: DelayOf,
) -> None:
    data = b"more"
    while data:
        try:
            size = await reader.readexactly(REQUEST_SIZE.size)
            data = size + await reader.readexactly(*REQUEST_SIZE.unpack(size))
            delay = delay_of(*API_AND_VERSION.unpack_from(data, REQUEST_SIZE.size))
        except (OSError, asyncio.IncompleteReadError, struct.error):
            data, delay = b"", 0.0
        await on_the_way.put((asyncio.get_running_loop().time() + delay, data))


async def _read_chunks(
    reader: asyncio.StreamReader, on_the_way: asyncio.Queue[tuple[float, bytes]], gate: _Gate
) -> None:
    data = b"more"
    while data:
        try:
            data = await reader.read(CHUNK_BYTES)
        except OSError:
            data = b""
        due = asyncio.get_running_loop().time() + gate.link.delay_ms / 1_000
        await on_the_way.put((due, data))


async def _write_chunks(
    writer: asyncio.StreamWriter, on_the_way: asyncio.Queue[tuple[float, bytes]], gate: _Gate
) -> None:
    can_write = True
    while True:
        due, data = await on_the_way.get()
        await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
        await gate.is_open.wait()
        # The reverse direction reports a closed side to the other, not this one.
        with contextlib.suppress(OSError):
            if not data:
                if can_write and not writer.is_closing():
                    writer.write_eof()
                return
            if can_write and not writer.is_closing():
                can_write = False
                writer.write(data)
                await writer.drain()
                can_write = True

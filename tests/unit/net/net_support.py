"""A scripted service, and a client that sends and reads frames."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import BinaryIO, TypeVar

import uvloop

from zhumq.net.limits import Limits
from zhumq.net.listener import Endpoint, Listener
from zhumq.net.service import Answer, ConnectionInfo, Service

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
DEADLINE_SECONDS = 20.0
# What an event loop reads from a socket at once (uvloop 250 KiB, asyncio 256 KiB).
READ_BYTES = 256 * 1024
Result = TypeVar("Result")


class ScriptedService:
    """Answers with what `script` returns for a frame; remembers lost connections."""

    def __init__(self, script: Callable[[bytes], Answer]) -> None:
        self.script = script
        self.frames: list[bytes] = []
        self.lost: list[ConnectionInfo] = []

    def handle(self, frames: Sequence[bytes], connection: ConnectionInfo) -> tuple[int, Answer]:
        self.frames.append(bytes(frames[0]))
        return 1, self.script(bytes(frames[0]))

    def connection_lost(self, connection: ConnectionInfo) -> None:
        self.lost.append(connection)


def echo(frame: bytes) -> Answer:
    return [framed(frame)]


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Stands in for storage's file region."""

    file: BinaryIO
    position: int
    length: int

    def __len__(self) -> int:
        return self.length


class Client:
    """A client on a raw socket, so that a test decides what is sent and read, and when."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._socket, data)

    async def read(self, count: int) -> bytes:
        """Up to this many bytes: fewer only if the server closed."""
        parts: list[bytes] = []
        while count:
            data = await self._loop.sock_recv(self._socket, min(count, 1 << 20))
            if not data:
                break
            parts.append(data)
            count -= len(data)
        return b"".join(parts)

    async def read_frame(self) -> bytes:
        header = await self.read(4)
        if len(header) < 4:
            raise EOFError
        return await self.read(struct.unpack(">i", header)[0])

    async def ask(self, payload: bytes) -> bytes:
        await self.send(framed(payload))
        return await self.read_frame()

    async def is_closed_by_server(self) -> bool:
        """Waits for the end of the stream; what still comes before it is thrown away."""
        try:
            while await self._loop.sock_recv(self._socket, 1 << 16):
                pass
        except ConnectionError:
            pass
        return True

    def close(self, *, reset: bool = False) -> None:
        if reset:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()


@asynccontextmanager
async def listening(
    service: Service,
    limits: Limits | None = None,
    delay_ms_of: Callable[[str], int] = lambda _address: 0,
) -> AsyncIterator[Listener]:
    listener = await Listener.open(
        Endpoint(host="127.0.0.1", port=0),
        service=service,
        limits=limits,
        delay_ms_of=delay_ms_of,
    )
    async with listener:
        yield listener


@asynccontextmanager
async def connected(listener: Listener, *, receive_bytes: int = 0) -> AsyncIterator[Client]:
    endpoint = socket.socket()
    if receive_bytes:
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    endpoint.setblocking(False)
    await asyncio.get_running_loop().sock_connect(endpoint, listener.address)
    client = Client(endpoint)
    try:
        yield client
    finally:
        client.close()


async def until(fact: Callable[[], bool]) -> None:
    """Waits for a fact, and fails at the deadline."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not fact():
            await asyncio.sleep(0.001)

"""Many connections of one attacker, opened a few at a time and opened again when cut off."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

from .target import address

SMALL_BUFFER_BYTES = 4_096
OPEN_AT_ONCE = 50
RETRY_SECONDS = 0.25
CROWD_MAX = 100_000  # lowered by tests


class AttackConnection:
    """One connection of an attacker. It reads only in `receive` and `receive_frame`."""

    def __init__(self, where: tuple[str, int], *, receive_bytes: int = 0) -> None:
        self._where = where
        self._socket = socket.socket()
        if receive_bytes:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self._socket.setblocking(False)
        self._loop = asyncio.get_running_loop()

    async def connect(self) -> None:
        await self._loop.sock_connect(self._socket, self._where)

    async def connect_anew(self) -> None:
        """Closes, and opens another connection."""
        self._socket.close()
        self._socket = socket.socket()
        self._socket.setblocking(False)
        await self.connect()

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._socket, data)

    async def receive(self, count: int = 65_536) -> bytes:
        data = await self._loop.sock_recv(self._socket, count)
        if not data:
            raise ConnectionError("closed")
        return data

    async def receive_frame(self) -> None:
        """Reads one answer and throws it away."""
        header = b""
        while len(header) < 4:
            header += await self.receive(4 - len(header))
        missing = int.from_bytes(header, "big")
        while missing:
            missing -= len(await self.receive(min(missing, 1 << 20)))

    async def trickle(self, seconds: float, data: bytes = b"x") -> None:
        """Sends some bytes again and again, until cut off."""
        while True:
            await asyncio.sleep(seconds)
            await self.send(data)

    def close(self) -> None:
        self._socket.close()


# What an attack does on each connection.
Action = Callable[[AttackConnection], Awaitable[None]]


async def crowd(
    where: str, count: int, act: Action, *, again: bool = True, receive_bytes: int = 0
) -> None:
    """Opens `count` connections that each run `act`, and opens them again when the broker closes them.

    Returns when all have started; the actions go on as tasks of the loop.
    """
    count = min(count, CROWD_MAX)
    opening = asyncio.Semaphore(OPEN_AT_ONCE)
    begun = [asyncio.Event() for _ in range(count)]

    async def live(index: int) -> None:
        while True:
            connection = AttackConnection(address(where), receive_bytes=receive_bytes)
            try:
                async with opening:
                    await connection.connect()
                begun[index].set()
                await act(connection)
            except OSError:
                begun[index].set()  # cut off, or refused
            finally:
                connection.close()
            if not again:
                return
            await asyncio.sleep(RETRY_SECONDS)

    tasks.extend(asyncio.create_task(live(index)) for index in range(count))
    for each in begun:
        await each.wait()


tasks: list["asyncio.Task[None]"] = []  # referenced here, or the loop would drop them


async def forever(connection: AttackConnection) -> None:
    """Stays connected until cut off."""
    while True:
        await connection.receive()

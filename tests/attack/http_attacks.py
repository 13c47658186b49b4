"""Attacks on the HTTP listener."""

import asyncio

from .crowd import SMALL_BUFFER_BYTES, AttackConnection, crowd, forever, tasks
from .kafka_attacks import Attack
from .target import Target

CONNECTIONS = 120


async def http_unread_metrics(target: Target) -> None:
    """120 clients that ask for the metrics and read nothing."""

    async def act(connection: AttackConnection) -> None:
        await connection.send(b"GET /metrics HTTP/1.1\r\n\r\n")
        await asyncio.sleep(1.0)

    await crowd(target.http, CONNECTIONS, act, receive_bytes=SMALL_BUFFER_BYTES)


async def http_idle(target: Target) -> None:
    """120 clients that ask for nothing."""
    await crowd(target.http, CONNECTIONS, forever)


async def http_slow_heads(target: Target) -> None:
    """120 clients that send a request one byte at a time."""

    async def act(connection: AttackConnection) -> None:
        await connection.send(b"GET /")
        await connection.trickle(0.5)

    await crowd(target.http, CONNECTIONS, act)


async def http_flood_of_metrics(target: Target) -> None:
    """Ten clients that read the metrics again and again."""

    async def act(connection: AttackConnection) -> None:
        await connection.send(b"GET /metrics HTTP/1.1\r\n\r\n")
        await forever(connection)

    async def again() -> None:
        while True:
            await crowd(target.http, 10, act, again=False)
            await asyncio.sleep(0.02)

    tasks.append(asyncio.create_task(again()))
    await asyncio.sleep(0.1)


HTTP_ATTACKS: dict[str, Attack] = {
    each.__name__.replace("_", "-"): each
    for each in (http_unread_metrics, http_idle, http_slow_heads, http_flood_of_metrics)
}

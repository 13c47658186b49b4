"""Attacks on the HTTP listener."""

import asyncio

from .crowd import SMALL_BUFFER_BYTES, Enemy, crowd, forever, tasks
from .kafka_attacks import Attack
from .target import Target

CONNECTIONS = 120


async def http_unread_metrics(target: Target) -> None:
    """120 clients that ask for the metrics and read nothing."""

    async def deed(enemy: Enemy) -> None:
        await enemy.send(b"GET /metrics HTTP/1.1\r\n\r\n")
        await asyncio.sleep(1.0)

    await crowd(target.http, CONNECTIONS, deed, receive_bytes=SMALL_BUFFER_BYTES)


async def http_idle(target: Target) -> None:
    """120 clients that ask for nothing."""
    await crowd(target.http, CONNECTIONS, forever)


async def http_slow_heads(target: Target) -> None:
    """120 clients that send a request one byte at a time."""

    async def deed(enemy: Enemy) -> None:
        await enemy.send(b"GET /")
        await enemy.trickle(0.5)

    await crowd(target.http, CONNECTIONS, deed)


async def http_flood_of_metrics(target: Target) -> None:
    """Ten clients that read the metrics again and again."""

    async def deed(enemy: Enemy) -> None:
        await enemy.send(b"GET /metrics HTTP/1.1\r\n\r\n")
        await forever(enemy)

    async def again() -> None:
        while True:
            await crowd(target.http, 10, deed, again=False)
            await asyncio.sleep(0.02)

    tasks.append(asyncio.create_task(again()))
    await asyncio.sleep(0.1)


HTTP_ATTACKS: dict[str, Attack] = {
    each.__name__.replace("_", "-"): each
    for each in (http_unread_metrics, http_idle, http_slow_heads, http_flood_of_metrics)
}

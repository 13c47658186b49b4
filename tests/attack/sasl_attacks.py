"""Attacks on a listener whose clients have to authenticate."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable

from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from .crowd import AttackConnection, crowd, forever
from .target import Target, half_of, request

# A connection fails about three times a second: an answer is held back, and then the attacker connects again.
LOGINS = 3_500

Attack = Callable[[Target], Awaitable[None]]


def _handshake(mechanism: str) -> bytes:
    return request(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=mechanism))


def _token(data: bytes) -> bytes:
    return request(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=data))


async def failed_logins_plain(target: Target) -> None:
    """3,500 connections that give wrong passwords again and again, each of which takes milliseconds to check."""
    numbers = itertools.count()

    async def act(connection: AttackConnection) -> None:
        number = next(numbers)
        await connection.send(_handshake("PLAIN"))
        await connection.send(_token(f"\0user-{number % 1_000}\0password-{number}".encode()))
        await forever(connection)

    await crowd(target.sasl, LOGINS, act)


async def failed_logins_scram(target: Target) -> None:
    """3,500 connections that send wrong proofs again and again."""
    numbers = itertools.count()
    proof = "A" * 86 + "=="

    async def act(connection: AttackConnection) -> None:
        number = next(numbers)
        await connection.send(_handshake("SCRAM-SHA-512"))
        await connection.receive_frame()
        await connection.send(_token(f"n,,n=user-{number % 1_000},r=nonce".encode()))
        challenge = await connection.receive()
        nonce = challenge[challenge.index(b"r=") :].partition(b",")[0].decode()
        await connection.send(_token(f"c=biws,{nonce},p={proof}".encode()))
        await forever(connection)

    await crowd(target.sasl, LOGINS, act)


async def unfinished_logins(target: Target) -> None:
    """5,000 connections that begin to authenticate, and then wait."""

    async def act(connection: AttackConnection) -> None:
        await connection.send(_handshake("SCRAM-SHA-256"))
        await forever(connection)

    await crowd(target.sasl, 5_000, act)


async def large_tokens(target: Target) -> None:
    """2,000 connections with most of a frame of 64 KiB each, then a byte a second."""
    beginning = half_of(64 << 10, 60_000)

    async def act(connection: AttackConnection) -> None:
        await connection.send(beginning)
        await connection.trickle(1.0)

    await crowd(target.sasl, 2_000, act)


async def frames_before_authentication(target: Target) -> None:
    """500 connections that announce frames of 100 MB, or fetch, without having authenticated."""
    numbers = itertools.count()

    async def act(connection: AttackConnection) -> None:
        if next(numbers) % 2:
            await connection.send(half_of(100_000_000, 50_000))
        else:
            await connection.send(request(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest()))
        await asyncio.wait_for(forever(connection), 5.0)

    await crowd(target.sasl, 500, act)


SASL_ATTACKS: dict[str, Attack] = {
    each.__name__.replace("_", "-"): each
    for each in (
        failed_logins_plain,
        failed_logins_scram,
        unfinished_logins,
        large_tokens,
        frames_before_authentication,
    )
}

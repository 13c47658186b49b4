"""Group shards on the real log over a disk that crashes, fills up and fails to sync."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest
from groups_on_disk import running

from zhumq.coordinators import runtime as runtime_module
from zhumq.coordinators.group_service import GroupService
from zhumq.groups.requests import GroupRequest
from zhumq.model.errors import ErrorCode
from zhumq.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from zhumq.testing.disk import MemoryDisk


def run(scenario: Callable[[], Coroutine[None, None, None]]) -> None:
    async def with_deadline() -> None:
        async with asyncio.timeout(30):
            await scenario()

    asyncio.run(with_deadline())


async def commit(service: GroupService, group_id: str, offset: int, partitions: int = 1) -> int:
    response = await service.handle(
        GroupRequest(
            message=OffsetCommitRequest(
                group_id=group_id,
                topics=[
                    OffsetCommitRequestTopic(
                        name="topic",
                        partitions=[
                            OffsetCommitRequestPartition(
                                partition_index=index, committed_offset=offset
                            )
                            for index in range(partitions)
                        ],
                    )
                ],
            ),
            version=9,
        )
    )
    assert isinstance(response, OffsetCommitResponse)
    (code,) = {each.error_code for each in response.topics[0].partitions}
    return code


async def committed(service: GroupService, group_id: str) -> list[int]:
    response = await service.handle(
        GroupRequest(
            message=OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)]
            ),
            version=9,
        )
    )
    assert isinstance(response, OffsetFetchResponse)
    assert response.groups[0].error_code == ErrorCode.NONE
    return [each.committed_offset for each in response.groups[0].topics[0].partitions]


def test_every_acknowledged_commit_survives_a_crash() -> None:
    disk = MemoryDisk()

    async def scenario() -> None:
        async with running(disk, crash=True) as service:
            answers = await asyncio.gather(
                *(commit(service, f"group-{number % 10}", number) for number in range(200))
            )
            assert answers == [ErrorCode.NONE] * 200
        async with running(disk) as service:
            for group in range(10):
                assert await committed(service, f"group-{group}") == [190 + group]

    run(scenario)


def test_many_commits_in_flight_share_few_syncs() -> None:
    disk = MemoryDisk()

    async def scenario() -> None:
        async with running(disk) as service:
            before = len(disk.syncs)
            await asyncio.gather(*(commit(service, "g", number) for number in range(300)))
            assert len(disk.syncs) - before < 100

    run(scenario)


def test_a_commit_larger_than_a_batch_is_whole_after_a_restart() -> None:
    disk = MemoryDisk()

    async def scenario() -> None:
        async with running(disk) as service:
            assert await commit(service, "g", 5, partitions=100) == ErrorCode.NONE
        async with running(disk) as service:
            assert await committed(service, "g") == [5] * 100

    run(scenario)


def test_on_a_full_disk_nothing_is_acknowledged_and_later_all_is_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runtime_module, "RELOAD_DELAY_S", 0.01)
    disk = MemoryDisk()

    async def scenario() -> None:
        async with running(disk) as service:
            assert await commit(service, "g", 1) == ErrorCode.NONE
            disk.bytes_free = 0
            assert await commit(service, "g", 2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            disk.bytes_free = None
            while await commit(service, "other", 3) != ErrorCode.NONE:
                await asyncio.sleep(0.001)
            assert await committed(service, "g") == [1]
        async with running(disk) as service:
            assert await committed(service, "g") == [1]
            assert await committed(service, "other") == [3]

    run(scenario)


def test_a_failed_sync_acknowledges_nothing() -> None:
    disk = MemoryDisk()

    async def scenario() -> None:
        async with running(disk, crash=True) as service:
            assert await commit(service, "g", 1) == ErrorCode.NONE
            disk.sync_fails = lambda path: path.endswith(".log")
            answers = await asyncio.gather(*(commit(service, "g", 2) for _ in range(10)))
            assert ErrorCode.NONE not in answers
            disk.sync_fails = lambda _: False
        async with running(disk) as service:
            assert await committed(service, "g") == [1]

    run(scenario)

"""The indexer follows the partitions that this broker leads; lookups use what it has, and scan the rest."""

import asyncio
import gc
import sys
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.sole_broker import image_of, serve
from tests.unit.storage.key_index_support import keyed_batch

from zhumq.coordinators.key_indexer import KeyIndexer
from zhumq.coordinators.key_lookup import LookupService, Sought
from zhumq.host.clock import SystemClock
from zhumq.model.errors import (
    DiskFull,
    InvalidConfig,
    InvalidRequest,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
)
from zhumq.model.ids import TopicPartition
from zhumq.protocol.messages.lookup import LookupRequest, LookupResponse
from zhumq.replication.partition import Partition
from zhumq.storage.flusher import Flusher
from zhumq.storage.log_config import LogConfig
from zhumq.storage.log_manager import LogManager
from zhumq.testing.disk import MemoryDisk

PLACE = TopicPartition("t", 0)
NOW_MS = SystemClock().now_ms()
WAIT_SECONDS = 30.0
INDEXED = LogConfig(index_keys=True)


class Served:
    """A partition, its indexer and its lookups."""

    def __init__(self, config: LogConfig) -> None:
        self.disk = MemoryDisk()
        self._logs = LogManager.open("/data", disk=self.disk, clock=SystemClock(), broker_id=0)
        self._flusher = Flusher(asyncio.get_running_loop().call_soon_threadsafe)
        self.image = image_of({PLACE.topic: uuid.uuid4()})
        self.replicas = serve(self._logs, self._flusher, self.image, config=config)
        self.indexer = KeyIndexer(self.replicas)
        self.indexer.apply(self.image)
        self.lookups = LookupService(self.replicas, self.indexer, SystemClock())

    @property
    def partition(self) -> Partition:
        return self.replicas.partition(*PLACE)

    def append(self, *keys: bytes | None, tags: bytes | None = None) -> None:
        self.partition.append(keyed_batch(*keys, tags=tags, timestamp=NOW_MS), NOW_MS)

    async def find(self, sought: bytes, *, limit: int = 100, **more: Any) -> LookupResponse:
        request = LookupRequest(topic=PLACE.topic, sought=sought, limit=limit, **more)
        return await self.lookups.answer(PLACE, request)

    async def until_indexed(self) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while (await self.find(b"", limit=1)).scanned:
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        self.indexer.close()
        await self.replicas.close()
        self._flusher.close()


def run(scenario: Callable[[Served], Awaitable[None]], config: LogConfig = INDEXED) -> None:
    async def main() -> None:
        served = Served(config)
        try:
            await scenario(served)
        finally:
            await served.close()

    asyncio.run(main())


def offsets(answer: LookupResponse) -> list[int]:
    return [message.offset for message in answer.messages]


def calls_of(work: Callable[[], object]) -> list[str]:
    """The functions that are called, in Python and in C."""
    called: list[str] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            called.append(frame.f_code.co_qualname)
        elif event == "c_call":
            called.append(argument.__name__)

    gc.disable()  # The libraries of tests have functions called when it runs.
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return called


def test_what_is_not_indexed_is_scanned_and_the_answer_says_so() -> None:
    async def scenario(served: Served) -> None:
        served.append(b"a", b"b", b"a")
        scanned = await served.find(b"a")
        assert (offsets(scanned), scanned.scanned) == ([2, 0], 3)
        await served.until_indexed()
        found = await served.find(b"a")
        assert (offsets(found), found.scanned, found.before_offset) == ([2, 0], 0, -1)
        served.append(b"a")
        both = await served.find(b"a")
        assert offsets(both) == [3, 2, 0]
        assert both.scanned == 1

    run(scenario)


def test_an_append_makes_no_call_more_with_an_index_than_without_one() -> None:
    measured: dict[bool, list[str]] = {}

    def measure(is_indexed: bool) -> None:
        async def scenario(served: Served) -> None:
            served.append(b"a")
            if is_indexed:
                await served.until_indexed()
            data = keyed_batch(b"a", timestamp=NOW_MS)
            served.partition.append(data, NOW_MS)  # The first one after a pause wakes the indexer.
            measured[is_indexed] = calls_of(lambda: served.partition.append(data, NOW_MS))

        run(scenario, LogConfig(index_keys=is_indexed))

    measure(is_indexed=False)
    measure(is_indexed=True)
    assert measured[True] == measured[False]
    assert measured[False]


def test_a_limit_gives_the_newest_and_where_to_continue() -> None:
    async def scenario(served: Served) -> None:
        for _ in range(10):
            served.append(b"a", b"b")
        await served.until_indexed()
        first = await served.find(b"a", limit=3)
        assert (offsets(first), first.before_offset) == ([18, 16, 14], 14)
        second = await served.find(b"a", limit=100, before_offset=first.before_offset)
        assert (offsets(second), second.before_offset) == ([12, 10, 8, 6, 4, 2, 0], -1)

    run(scenario)


def test_a_key_and_a_tag_with_the_same_bytes_are_two_things() -> None:
    async def scenario(served: Served) -> None:
        served.append(b"x")
        served.append(b"y", tags=b"x")
        for _ in range(2):
            assert offsets(await served.find(b"x", kind=Sought.KEY)) == [0]
            assert offsets(await served.find(b"x", kind=Sought.TAG)) == [1]
            await served.until_indexed()

    run(scenario)


def test_a_hash_that_two_keys_share_gives_only_the_right_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("zhumq.storage.key_index_builder.key_hash", lambda _: 7)
    monkeypatch.setattr("zhumq.coordinators.key_lookup.key_hash", lambda _: 7)

    async def scenario(served: Served) -> None:
        served.append(b"a", b"b", b"a", None)
        await served.until_indexed()
        assert offsets(await served.find(b"a")) == [2, 0]
        assert offsets(await served.find(b"c")) == []

    run(scenario)


def test_what_is_refused_says_why() -> None:
    async def scenario(served: Served) -> None:
        with pytest.raises(InvalidRequest):
            await served.find(b"a", kind=2)
        with pytest.raises(InvalidRequest):
            await served.find(b"a", limit=0)
        with pytest.raises(UnknownTopicOrPartition):
            await served.lookups.answer(TopicPartition("other", 0), LookupRequest())

    run(scenario)

    async def without_index(served: Served) -> None:
        with pytest.raises(InvalidConfig, match="set index"):
            await served.find(b"a")

    run(without_index, LogConfig())


def test_a_partition_that_moves_away_is_followed_no_more() -> None:
    async def scenario(served: Served) -> None:
        served.append(b"a")
        await served.until_indexed()
        partition = served.partition
        partition.retire(NotLeaderOrFollower("it moved"))
        with pytest.raises(NotLeaderOrFollower):
            await served.find(b"a")

    run(scenario)


def test_a_full_disk_is_survived_by_scanning() -> None:
    async def scenario(served: Served) -> None:
        served.append(b"a")
        served.disk.bytes_free = 0
        async with asyncio.timeout(WAIT_SECONDS):
            for _ in range(20):
                await asyncio.sleep(0)
                answer = await served.find(b"a")
                assert offsets(answer) == [0]
                assert answer.scanned == 1
        with pytest.raises(DiskFull):
            served.append(b"b")

    run(scenario)


def test_a_damaged_index_is_built_again_after_a_scan() -> None:
    async def scenario(served: Served) -> None:
        served.append(b"a")
        await served.until_indexed()
        # Leave and lead again: the file is read from the disk.
        served.indexer.close()
        for path, node in served.disk.files.items():
            if path.endswith(".keyindex"):
                node.content[-1] ^= 1
        served.indexer = KeyIndexer(served.replicas)
        served.lookups = LookupService(served.replicas, served.indexer, SystemClock())
        assert offsets(await served.find(b"a")) == [0]
        await served.until_indexed()
        assert offsets(await served.find(b"a")) == [0]

    run(scenario)

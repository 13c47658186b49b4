"""A tail follows what consumers may see of a partition, until the broker no longer serves it."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable

from tests.sole_broker import image_of, serve

from zhumq.host.clock import SystemClock
from zhumq.model.errors import NotLeaderOrFollower
from zhumq.model.ids import TopicPartition
from zhumq.model.isolation import Isolation
from zhumq.records.batch import Record, batches
from zhumq.records.builder import build_batch
from zhumq.replication.partition import Partition
from zhumq.storage.flusher import Flusher
from zhumq.storage.log_manager import LogManager
from zhumq.testing.disk import MemoryDisk

PLACE = TopicPartition("t", 0)
NOW_MS = SystemClock().now_ms()


def batch(count: int) -> bytes:
    return build_batch(
        [
            Record(offset=index, timestamp=NOW_MS, key=None, value=b"v", headers=())
            for index in range(count)
        ]
    )


def with_partition(scenario: Callable[[Partition], Awaitable[None]]) -> None:
    async def run() -> None:
        logs = LogManager.open("/data", disk=MemoryDisk(), clock=SystemClock(), broker_id=0)
        flusher = Flusher(asyncio.get_running_loop().call_soon_threadsafe)
        replicas = serve(logs, flusher, image_of({PLACE.topic: uuid.uuid4()}))
        try:
            await scenario(replicas.partition(*PLACE))
        finally:
            await replicas.close()
            flusher.close()

    asyncio.run(run())


def test_each_append_is_announced_and_read_at_the_owners_pace() -> None:
    async def scenario(partition: Partition) -> None:
        announced: list[int] = []
        partition.append(batch(2), NOW_MS)
        tail = partition.observe(
            0, on_records=lambda: announced.append(tail.offset), on_closed=lambda: None
        )
        assert announced == [], "what is there already is not announced"
        assert tail.is_behind
        partition.append(batch(1), NOW_MS)
        partition.append(batch(3), NOW_MS)
        assert announced == [0, 0]
        read = [each.header for each in batches(tail.read(1 << 20).read_bytes())]
        assert [each.base_offset for each in read] == [0, 2, 3]
        tail.offset = read[-1].next_offset
        assert not tail.is_behind
        assert len(tail.read(1 << 20)) == 0
        partition.append(batch(1), NOW_MS)
        assert announced == [0, 0, 6]

    with_partition(scenario)


def test_records_before_its_offset_are_not_announced() -> None:
    async def scenario(partition: Partition) -> None:
        announced: list[int] = []
        partition.observe(3, on_records=lambda: announced.append(1), on_closed=lambda: None)
        partition.append(batch(3), NOW_MS)
        assert announced == []
        partition.append(batch(1), NOW_MS)
        assert announced == [1]

    with_partition(scenario)


def test_a_closed_tail_is_notified_no_more() -> None:
    async def scenario(partition: Partition) -> None:
        events: list[str] = []
        tail = partition.observe(
            0, on_records=lambda: events.append("records"), on_closed=lambda: events.append("end")
        )
        tail.close()
        partition.append(batch(1), NOW_MS)
        partition.retire(NotLeaderOrFollower("gone"))
        assert events == []

    with_partition(scenario)


def test_it_is_closed_once_with_its_partition() -> None:
    async def scenario(partition: Partition) -> None:
        events: list[str] = []
        partition.observe(
            0, on_records=lambda: events.append("records"), on_closed=lambda: events.append("end")
        )
        partition.retire(NotLeaderOrFollower("gone"))
        partition.retire(NotLeaderOrFollower("gone"))
        assert events == ["end"]

    with_partition(scenario)


def test_a_tail_may_close_another_while_both_are_notified() -> None:
    async def scenario(partition: Partition) -> None:
        announced: list[str] = []
        tails = {}

        def first(name: str, other: str) -> Callable[[], None]:
            def on_records() -> None:
                announced.append(name)
                tails[other].close()

            return on_records

        for name, other in (("a", "b"), ("b", "a")):
            tails[name] = partition.observe(
                0, on_records=first(name, other), on_closed=lambda: None
            )
        partition.append(batch(1), NOW_MS)
        partition.append(batch(1), NOW_MS)
        assert announced in (["a", "a"], ["b", "b"]), "the closed one is notified no more"

    with_partition(scenario)


def test_both_isolation_levels_read_what_is_visible() -> None:
    async def scenario(partition: Partition) -> None:
        partition.append(batch(2), NOW_MS)
        for isolation in Isolation:
            assert partition.end_offset(isolation) == 2
            assert len(partition.read(0, 1 << 20, isolation=isolation)) > 0
            assert len(partition.read(2, 1 << 20, isolation=isolation)) == 0

    with_partition(scenario)

"""Prints how long the ZooKeeper store and the controller's decisions take on this machine.

Run with `PYTHONPATH=src:tests/integration/zookeeper python tests/integration/zookeeper/store_speed.py`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from zookeeper_support import (
    broker,
    change,
    close_all,
    open_store,
    partition_changed,
    topic_created,
    wait_for,
)

from zhumq.cluster.dev_zookeeper import dev_zookeeper
from zhumq.cluster.zookeeper_store import ZookeeperStore
from zhumq.metadata.changes import BrokerRegistered, ProducerIdsAllocated, apply_changes
from zhumq.metadata.image import ClusterImage
from zhumq.metadata.leadership import LeaderPolicy, in_batches, plan_membership
from zhumq.model.ids import BrokerId

ROUNDS = 20
TOPICS_PER_PROPOSAL = 500


async def timed(what: str, rounds: int, work: Callable[[int], Awaitable[object]]) -> None:
    seconds = []
    for number in range(rounds):
        started = time.perf_counter()
        await work(number)
        seconds.append(time.perf_counter() - started)
    seconds.sort()
    print(
        f"{what}: median {1e3 * seconds[len(seconds) // 2]:.1f} ms, worst {1e3 * seconds[-1]:.1f}"
    )


async def measure(ensemble: str) -> None:
    store, other = await open_store(ensemble), await open_store(ensemble)

    async def seen() -> None:
        await wait_for(lambda: other.image.version == store.image.version)

    async def small(number: int) -> None:
        allocated = ProducerIdsAllocated(next_producer_id=number)
        await store.propose([allocated], store.image.version)

    await timed("a small proposal", ROUNDS, small)
    await change(store, topic_created("wide", 1_000))
    await make_topics(store, 1_000)

    async def wide(number: int) -> None:
        changes = [partition_changed("wide", index, number + 1) for index in range(1_000)]
        await store.propose(changes, store.image.version)

    async def many(number: int) -> None:
        changes = [partition_changed(f"t-{index}", 0, number + 1) for index in range(1_000)]
        await store.propose(changes, store.image.version)
        await seen()

    await timed("1,000 partitions of one topic", ROUNDS, wide)
    await timed("1,000 partitions of 1,000 topics, seen by another broker", ROUNDS, many)
    await make_topics(store, 10_000)

    async def read(_number: int) -> None:
        await (await open_store(ensemble)).close()

    await timed("a start with 10,000 topics", 3, read)
    await close_all([store, other])


async def make_topics(store: ZookeeperStore, count: int) -> None:
    first = len(store.image.topics) - 1
    for start in range(first, count, TOPICS_PER_PROPOSAL):
        numbers = range(start, min(start + TOPICS_PER_PROPOSAL, count))
        await change(store, *(topic_created(f"t-{number}") for number in numbers))


def measure_decisions(topics: int, partitions: int) -> None:
    image = ClusterImage(
        version=0,
        cluster_id="c",
        controller_id=BrokerId(1),
        brokers={},
        topics={},
        topics_by_id={},
    )
    members = [BrokerRegistered(broker=broker(number)) for number in (1, 2, 3)]
    made = [topic_created(f"t-{number}", partitions) for number in range(topics)]
    image = apply_changes(image, [*members, *made])
    live = [BrokerId(2), BrokerId(3)]
    started = time.perf_counter()
    next(in_batches(plan_membership(image, live, lambda _topic: LeaderPolicy())))
    first = time.perf_counter() - started
    started = time.perf_counter()
    changes = list(plan_membership(image, live, lambda _topic: LeaderPolicy()))
    decided = time.perf_counter()
    batches = 0
    for batch in in_batches(changes):
        image = apply_changes(image, batch)
        batches += 1
    applied = time.perf_counter()
    assert not list(plan_membership(image, live, lambda _topic: LeaderPolicy()))
    looked = time.perf_counter()
    print(
        f"{topics * partitions} partitions lose a broker: decided in {decided - started:.2f} s,"
        f" first 1,000 {1e3 * first:.0f} ms,"
        f" {batches} proposals, {1e3 * (applied - decided) / batches:.1f} ms each to apply;"
        f" nothing to do: {looked - applied:.2f} s"
    )


def run(nodes: int) -> None:
    with dev_zookeeper(nodes=nodes) as zookeeper:
        print(f"{nodes} ZooKeeper node(s)")
        asyncio.run(measure(f"{zookeeper.connect}/speed"))


if __name__ == "__main__":
    measure_decisions(1_000, 100)
    measure_decisions(10_000, 100)
    for nodes in (1, 3):
        run(nodes)

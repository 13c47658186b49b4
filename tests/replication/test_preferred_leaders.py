"""Preferred-leader election for raft partitions."""

import asyncio
from pathlib import Path

import pytest
from replication_support import T0, Nodes, batch, nodes, produce, run, until, values_of

from zhumq.model.cluster_errors import ElectionNotNeeded, PreferredLeaderNotAvailable
from zhumq.model.errors import (
    NotLeaderOrFollower,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from zhumq.model.ids import TopicPartition

NOW_MS = 1_700_000_000_000
ELECTION_MS_MAX = 10_000


async def _led_by_another(up: Nodes) -> None:
    """The preferred replica restarts, and another one leads."""
    up.store.create()
    await produce(up, "a")
    await up.stop(1, clean=False)
    await up.wait_leader()
    await up.start(1)
    await up.wait_equal()
    if (await up.wait_leader()).broker_id == 1:
        pytest.skip("the preferred replica won the election again")


def test_a_leader_resigns_on_request(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            await _led_by_another(up)
            # Any broker takes the request, and sends it to the leader.
            for node in up:
                outcome = await node.replicas.elect_preferred([T0], ELECTION_MS_MAX)
                if outcome[T0] is None:
                    break
            assert outcome[T0] is None
            # The preferred replica leads, and the metadata shows it.
            assert up.leader() is up[1]
            await produce(up, "b")
            await up.wait_equal()
            assert values_of(up[2]) == ["a", "b"]
            outcome = await up[2].replicas.elect_preferred([T0], ELECTION_MS_MAX)
            assert isinstance(outcome[T0], ElectionNotNeeded)

    run(body())


def test_a_request_without_time_times_out(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            await _led_by_another(up)
            outcome = await up[2].replicas.elect_preferred([T0], 0)
            assert isinstance(outcome[T0], RequestTimedOut)
            # The next request finds the result that came too late for this one.
            await up.wait_leader()
            outcome = await up[2].replicas.elect_preferred([T0], ELECTION_MS_MAX)
            assert outcome[T0] is None or isinstance(outcome[T0], ElectionNotNeeded)

    run(body())


def test_nothing_is_lost_while_leadership_is_transferred_under_load(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            await _led_by_another(up)
            acknowledged = ["a"]
            is_done = asyncio.Event()

            async def write() -> None:
                while not is_done.is_set():
                    value = f"v{len(acknowledged)}"
                    await produce(up, value)
                    acknowledged.append(value)

            writing = asyncio.create_task(write())

            async def is_back() -> bool:
                await up[2].replicas.elect_preferred([T0], ELECTION_MS_MAX)
                await asyncio.sleep(0.05)
                return up.leader() is up[1]

            while not await is_back():
                pass
            count = len(acknowledged)
            await until(lambda: len(acknowledged) > count + 5, "writes continue")
            is_done.set()
            await writing
            await up.wait_equal()
            assert set(acknowledged) <= set(values_of(up[3]))

    run(body())


def test_a_leader_does_not_resign_for_a_replica_that_is_down_or_behind(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            await _led_by_another(up)
            leader = await up.wait_leader()
            await up.stop(1, clean=False)
            outcome = await leader.replicas.elect_preferred(
                [T0, TopicPartition("t", 9)], ELECTION_MS_MAX
            )
            assert isinstance(outcome[T0], PreferredLeaderNotAvailable)
            assert isinstance(outcome[TopicPartition("t", 9)], UnknownTopicOrPartition)
            # The leader is asked directly: the replica is down and does not have everything.
            partition = leader.partition()
            partition.append(batch("b"), NOW_MS)
            transfer = asyncio.ensure_future(partition.transfer_leadership(1))
            await asyncio.sleep(0)
            with pytest.raises(NotLeaderOrFollower):
                partition.append(batch("not now"), NOW_MS)
            assert not await transfer
            partition.append(batch("c"), NOW_MS)
            assert up.leader() is leader

    run(body())


def test_leaders_resign_in_a_periodic_round(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            await _led_by_another(up)
            lifecycle = (await up.wait_leader()).replicas.lifecycle
            await lifecycle.preferred_leaders.balance()
            await until(lambda: up.leader() is up[1], "the preferred replica leads")

    run(body())

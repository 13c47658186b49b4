"""Leadership of raft partitions goes back to their first replicas."""

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
    """The first replica was away for a moment."""
    up.store.create()
    await produce(up, "a")
    await up.stop(1, clean=False)
    await up.wait_leader()
    await up.start(1)
    await up.wait_equal()
    if (await up.wait_leader()).broker_id == 1:
        pytest.skip("the first replica won again by itself")


def test_a_leader_steps_back_when_it_is_asked_to(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            await _led_by_another(up)
            # Any broker can be asked: it asks the leader.
            for node in up:
                outcome = await node.replicas.elect_preferred([T0], ELECTION_MS_MAX)
                if outcome[T0] is None:
                    break
            assert outcome[T0] is None
            # It is not only asked to: it leads, and the cluster has heard of it.
            assert up.leader() is up[1]
            await produce(up, "b")
            await up.wait_equal()
            assert values_of(up[2]) == ["a", "b"]
            outcome = await up[2].replicas.elect_preferred([T0], ELECTION_MS_MAX)
            assert isinstance(outcome[T0], ElectionNotNeeded)

    run(body())


def test_who_has_no_time_hears_that_it_was_too_short(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            await _led_by_another(up)
            outcome = await up[2].replicas.elect_preferred([T0], 0)
            assert isinstance(outcome[T0], RequestTimedOut)
            # What came too late for this one is not lost for the next.
            await up.wait_leader()
            outcome = await up[2].replicas.elect_preferred([T0], ELECTION_MS_MAX)
            assert outcome[T0] is None or isinstance(outcome[T0], ElectionNotNeeded)

    run(body())


def test_nothing_is_lost_while_leadership_goes_back_under_load(tmp_path: Path) -> None:
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
            await until(lambda: len(acknowledged) > count + 5, "writes go on")
            is_done.set()
            await writing
            await up.wait_equal()
            assert set(acknowledged) <= set(values_of(up[3]))

    run(body())


def test_nobody_steps_back_for_one_that_is_away_or_behind(tmp_path: Path) -> None:
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
            # The store does not know that it is away: it does not have everything.
            partition = leader.partition()
            partition.append(batch("b"), NOW_MS)
            handing = asyncio.ensure_future(partition.transfer_leadership(1))
            await asyncio.sleep(0)
            with pytest.raises(NotLeaderOrFollower):
                partition.append(batch("not now"), NOW_MS)
            assert not await handing
            partition.append(batch("c"), NOW_MS)
            assert up.leader() is leader

    run(body())


def test_leaders_step_back_by_themselves(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            await _led_by_another(up)
            cluster = (await up.wait_leader()).replicas.cluster
            assert cluster is not None
            await cluster.preferred_leaders.balance()
            await until(lambda: up.leader() is up[1], "the first replica leads")

    run(body())

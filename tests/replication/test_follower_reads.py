"""Consumers read from followers (KIP-392): what a follower shows, and which one a leader names."""

import asyncio
from pathlib import Path

import pytest
from replication_support import (
    Node,
    Nodes,
    batch,
    nodes,
    produce,
    run,
    until,
)

from zhumq.host.clock import SystemClock
from zhumq.model.errors import (
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from zhumq.model.isolation import Isolation
from zhumq.records.batch import batches
from zhumq.replication.pending import ParkedFetch
from zhumq.replication.read_replica import LEADER, nearest_replica, read_replica

UNCOMMITTED = Isolation.READ_UNCOMMITTED
NOW_MS = 1_700_000_000_000


def read(node: Node, offset: int) -> list[bytes]:
    part = node.partition().read(offset, 1 << 20, isolation=UNCOMMITTED, as_follower=True)
    return [record.value or b"" for each in batches(part.read_bytes()) for record in each.records()]


async def follower_of(up: Nodes) -> tuple[Node, Node]:
    leader = await up.wait_leader()
    return leader, next(node for node in up if node is not leader)


def test_a_follower_shows_what_is_committed_and_nothing_else(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create()
            await produce(up, "a", "b")
            leader, follower = await follower_of(up)
            await until(lambda: follower.partition().high_watermark == 2, "high watermark")
            assert read(follower, 0) == [b"a", b"b"]
            with pytest.raises(NotLeaderOrFollower):
                follower.partition().read(0, 1000, isolation=UNCOMMITTED)
            # Without the other replicas nothing more is committed.
            others = [node for node in up if node is not leader]
            for node in others:
                await up.stop(node.broker_id, declare=False)
            leader.partition().append(batch("c"), NOW_MS)
            assert leader.partition().high_watermark == 2
            with pytest.raises(OffsetOutOfRange):
                leader.partition().read(9, 1000, isolation=UNCOMMITTED)

    run(body())


def test_a_fetch_that_waits_at_a_follower_wakes_when_more_is_committed(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create()
            await produce(up, "a")
            _, follower = await follower_of(up)
            await until(lambda: follower.partition().high_watermark == 1, "high watermark")
            parked = ParkedFetch([follower.partition()], 1, 60_000)
            await produce(up, "b")
            await asyncio.wait_for(parked.done, 30)
            assert read(follower, 1) == [b"b"]

    run(body())


def test_a_follower_checks_the_leader_epoch_and_refuses_without_a_leader(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create()
            await produce(up, "a")
            leader, follower = await follower_of(up)
            partition = follower.partition()
            epoch = partition.leader_epoch
            partition.check_leader_epoch(-1, as_follower=True)
            partition.check_leader_epoch(epoch, as_follower=True)
            with pytest.raises(FencedLeaderEpoch):
                partition.check_leader_epoch(epoch - 1, as_follower=True)
            with pytest.raises(UnknownLeaderEpoch):
                partition.check_leader_epoch(epoch + 1, as_follower=True)
            with pytest.raises(NotLeaderOrFollower):
                partition.check_leader_epoch(epoch)
            # The last replica that is left has no leader, and may have missed anything.
            rest = [node for node in up if node not in (leader, follower)]
            for node in (leader, *rest):
                await up.stop(node.broker_id)
            await until(lambda: not partition.follows, "the end of its leader")
            with pytest.raises(NotLeaderOrFollower):
                read(follower, 0)

    run(body())


def test_a_leader_names_a_follower_in_the_rack_of_the_consumer(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create()
            await produce(up, "a", "b")
            leader, follower = await follower_of(up)
            racks = {node.broker_id: f"rack-{node.broker_id}" for node in up}
            near = racks[follower.broker_id]
            now_ms = SystemClock().monotonic_ms

            def named(offset: int, rack: str, *, later_ms: int = 0) -> int:
                now = now_ms() + later_ms
                return read_replica(leader.partition(), offset, rack, racks, now)

            await until(lambda: named(2, near) == follower.broker_id, "a caught-up follower")
            assert named(2, racks[leader.broker_id]) == LEADER
            assert named(2, "no such rack") == LEADER
            # It does not have the offset yet, or has not fetched for long.
            assert named(3, near) == LEADER
            assert named(2, near, later_ms=3_600_000) == LEADER
            follows = follower.partition()
            assert read_replica(follows, 2, near, racks, now_ms()) == LEADER

    run(body())


def test_of_several_followers_in_the_rack_the_one_with_most_of_the_log_is_nearest() -> None:
    racks = {1: "a", 2: "b", 3: "b", 4: "b", 5: None}
    assert nearest_replica("b", 1, {2: 10, 3: 12, 5: 20}, racks) == 3
    assert nearest_replica("b", 1, {2: 12, 3: 12}, racks) == 2
    assert nearest_replica("b", 4, {2: 12, 3: 12}, racks) == LEADER
    assert nearest_replica("c", 1, {2: 12}, racks) == LEADER
    assert nearest_replica("", 1, {2: 12}, racks) == LEADER

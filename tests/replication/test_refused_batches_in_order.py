"""A leader that begins to serve between two batches of a producer refuses the second with a retriable error."""

from pathlib import Path

import pytest
from replication_support import T0, Node, Nodes, batch, nodes, produce, run

from zhumq.model.errors import NotLeaderOrFollower, OutOfOrderSequenceNumber
from zhumq.replication.producer_order import SETTLING_MS

NOW_MS = 1_700_000_000_000


async def _first_of_three(up: Nodes) -> tuple[Node, bytes, bytes]:
    """A leader that has committed a producer's first batch, and the producer's next two batches."""
    up.store.create()
    first, second, third = (batch("v", producer_id=7, sequence=each) for each in range(3))
    leader = await up.wait_leader()
    leader.partition().append(first, NOW_MS)
    await leader.partition().when_durable(leader.partition().log.log_end_offset)
    await up.wait_equal()
    return leader, second, third


def test_a_batch_after_a_refused_one_is_refused_until_the_first_is_written(
    tmp_path: Path,
) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            old, second, third = await _first_of_three(up)
            others = [node for node in up if node is not old]
            for node in others:
                with pytest.raises(NotLeaderOrFollower) as refusal:
                    node.partition().append(second, NOW_MS)
                node.partition().remember_refused(second, refusal.value, NOW_MS)
            await up.stop(old.broker_id)
            new = await up.wait_leader()
            partition = new.partition()
            with pytest.raises(NotLeaderOrFollower):
                partition.append(third, NOW_MS)
            run_of_one = partition.append_each([memoryview(third)], NOW_MS)
            assert isinstance(run_of_one.last, NotLeaderOrFollower)
            partition.append(second, NOW_MS)
            partition.append(third, NOW_MS)

    run(body())


def test_a_gap_without_a_refused_batch_is_out_of_order(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create()
            await produce(up, "a", topic_partition=T0)
            partition = (await up.wait_leader()).partition()
            partition.append(batch("v", producer_id=7, sequence=0), NOW_MS)
            gap = batch("v", producer_id=7, sequence=5)
            later_ms = NOW_MS + SETTLING_MS
            with pytest.raises(OutOfOrderSequenceNumber) as refusal:
                partition.append(gap, later_ms)
            # The error is not retriable, so no later batch waits for this one.
            partition.remember_refused(gap, refusal.value, later_ms)
            with pytest.raises(OutOfOrderSequenceNumber):
                partition.append(batch("v", producer_id=7, sequence=6), later_ms)

    run(body())


def test_a_new_leader_refuses_a_batch_whose_predecessor_the_old_leader_refused(
    tmp_path: Path,
) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            old, second, third = await _first_of_three(up)
            await up.stop(old.broker_id)
            partition = (await up.wait_leader()).partition()
            # Only the old leader has received the second batch, and refused it.
            with pytest.raises(NotLeaderOrFollower, match="expected is 1") as refusal:
                partition.append(third, NOW_MS)
            partition.remember_refused(third, refusal.value, NOW_MS)
            partition.append(second, NOW_MS)
            partition.append(third, NOW_MS)
            # After the settling time, a gap is out of order.
            with pytest.raises(OutOfOrderSequenceNumber):
                partition.append(batch("v", producer_id=7, sequence=9), NOW_MS + SETTLING_MS)

    run(body())

"""Replicas of three brokers in raft mode, which elect their leaders."""

import asyncio
from pathlib import Path

import pytest
from replication_support import T0, Nodes, batch, bytes_of, nodes, produce, run, until, values_of

from zhumq.host.clock import SystemClock
from zhumq.model.errors import BrokerError, NotLeaderOrFollower, OutOfOrderSequenceNumber
from zhumq.replication.producer_order import SETTLING_MS

NOW_MS = 1_700_000_000_000


def test_what_is_acknowledged_is_on_all_replicas_in_the_end(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create()
            for number in range(20):
                await produce(up, f"v{number}")
            await up.wait_equal()
            logs = [bytes_of(node) for node in up]
            assert logs[0] == logs[1] == logs[2]
            assert values_of(up[1]) == [f"v{number}" for number in range(20)]

    run(body())


def test_a_follower_refuses_clients(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create()
            await produce(up, "a")
            leader = await up.wait_leader()
            for node in up:
                if node is leader:
                    continue
                partition = node.partition()
                assert not partition.leads
                with pytest.raises(NotLeaderOrFollower):
                    partition.append(batch("b"), NOW_MS)
                with pytest.raises(NotLeaderOrFollower):
                    partition.read(0, 1000)
                with pytest.raises(NotLeaderOrFollower):
                    partition.check_enough_replicas()
                with pytest.raises(NotLeaderOrFollower):
                    await partition.when_durable(1)
                with pytest.raises(NotLeaderOrFollower):
                    partition.append_each([memoryview(batch("b"))], NOW_MS)

    run(body())


def test_watchers_are_notified_of_leadership(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create()
            leader = await up.wait_leader()
            epoch = leader.partition().leader_epoch
            assert leader.leadership == [(T0, True, epoch)]
            late: list[tuple[object, ...]] = []
            leader.replicas.watch_leadership(lambda *change: late.append(change))
            assert late == [(T0, True, epoch)]
            up.store.delete()
            assert leader.leadership[-1] == (T0, False, epoch)
            assert all(node.replicas.find(*T0) is None for node in up)

    run(body())


async def _cut_off_followers(up: Nodes) -> None:
    leader = await up.wait_leader()
    for node in up:
        if node is not leader:
            await up.stop(node.broker_id, clean=False, declare=False)


def test_a_record_is_invisible_until_a_majority_has_it(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create()
            await produce(up, "seen")
            leader = await up.wait_leader()
            await up.wait_equal()
            partition = leader.partition()
            high_watermark = partition.high_watermark
            await _cut_off_followers(up)
            # acks=1: the record is in the leader's log, and acknowledged.
            partition.append(batch("unseen"), NOW_MS)
            assert partition.log_end_offset == high_watermark + 1
            assert not partition.read(high_watermark, 1000).regions
            waiting = partition.when_durable(partition.log_end_offset)
            # Without a majority it resigns, and fails the waiting appends.
            with pytest.raises(NotLeaderOrFollower):
                await asyncio.wait_for(waiting, 20)
            assert partition.high_watermark == high_watermark
            assert not partition.leads

    run(body())


def test_another_replica_leads_when_the_leader_dies_and_nothing_is_lost(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create()
            written = [f"v{number}" for number in range(5)]
            for value in written:
                await produce(up, value)
            first = await up.wait_leader()
            old_epoch = first.partition().leader_epoch
            await up.stop(first.broker_id, clean=False, declare=False)
            await produce(up, "after")
            second = await up.wait_leader()
            assert second is not first
            assert second.partition().leader_epoch > old_epoch
            await up.start(first.broker_id)
            await up.wait_equal()
            assert {tuple(values_of(node)) for node in up} == {(*written, "after")}

    run(body())


def test_an_uncommitted_tail_is_truncated(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create()
            await produce(up, "kept")
            await up.wait_equal()
            old = await up.wait_leader()
            others = [node.broker_id for node in up if node is not old]
            await _cut_off_followers(up)
            for number in range(3):
                old.partition().append(batch(f"lost{number}"), NOW_MS)
            await until(lambda: not old.partition().leads, "the old leader has resigned")
            await up.stop(old.broker_id, clean=False, declare=False)
            await up.start(*others)
            await produce(up, "new")
            await up.start(old.broker_id)
            await up.wait_equal()
            assert {tuple(values_of(node)) for node in up} == {("kept", "new")}
            logs = {bytes_of(node) for node in up}
            assert len(logs) == 1

    run(body())


def test_a_new_leader_recognises_what_a_producer_sends_again(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create()
            first = await up.wait_leader()
            sent = batch("once", producer_id=7, sequence=0)
            appended = first.partition().append(sent, NOW_MS)
            await first.partition().when_durable(appended.last_offset + 1)
            await up.stop(first.broker_id, clean=False, declare=False)
            second = await up.wait_leader()
            again = second.partition().append(sent, NOW_MS)
            assert again.duplicate
            assert again.base_offset == appended.base_offset
            with pytest.raises(OutOfOrderSequenceNumber):
                second.partition().append(
                    batch("x", producer_id=7, sequence=5), NOW_MS + SETTLING_MS
                )

    run(body())


def test_everything_acknowledged_survives_a_restart_of_all(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create(partitions=3)
            for number in range(6):
                await produce(up, f"v{number}")
            for broker_id in (1, 2, 3):
                await up.stop(broker_id, clean=False, declare=False)
            await up.start(1, 2, 3)
            await produce(up, "after")
            await up.wait_equal()
            assert values_of(up[2]) == [f"v{number}" for number in range(6)] + ["after"]

    run(body())


def test_a_restarted_broker_has_its_quorum_state(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create()
            await produce(up, "a")
            await up.wait_equal()
            follower = next(node for node in up if not node.partition().leads)
            epoch = follower.partition().driver.core.quorum_state.epoch
            await up.stop(follower.broker_id, clean=True, declare=False)
            await up.start(follower.broker_id)
            state = up[follower.broker_id].partition().driver.core.quorum_state
            assert state.epoch >= epoch
            assert not state.recovering
            # A clean stop has written a checkpoint of the high watermark.
            assert up[follower.broker_id].partition().high_watermark > 0

    run(body())


def test_every_partition_of_a_new_topic_gets_one_leader(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create(partitions=6)
            for index in range(6):
                topic_partition = T0._replace(partition=index)
                await up.wait_leader(topic_partition)
            led = [len([1 for _, leads, _ in node.leadership if leads]) for node in up]
            assert sum(led) == 6

    run(body())


def test_a_partition_with_one_replica_is_served_in_a_cluster(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path, 1) as up:
            up.store.create(replicas=(1,))
            await produce(up, "alone")
            assert values_of(up[1]) == ["alone"]
            assert up[1].partition().high_watermark == up[1].partition().log_end_offset

    run(body())


def test_an_append_that_waits_for_unreachable_replicas_times_out(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create()
            partition = (await up.wait_leader()).partition()
            partition.append(batch("a"), NOW_MS)
            end = partition.log_end_offset
            failures: list[BrokerError | None] = []
            patient: list[BrokerError | None] = []
            began_ms = SystemClock().monotonic_ms()
            partition.call_when_durable(end + 10, patient.append, timeout_ms=60_000)
            partition.call_when_durable(end + 11, failures.append, timeout_ms=2_000)
            partition.fail_overdue(began_ms + 1_999)
            assert failures == []
            partition.fail_overdue(began_ms + 20_000)
            assert [type(failure).__name__ for failure in failures] == ["RequestTimedOut"]
            assert patient == []
            assert partition.waiters_count == 1

    run(body())

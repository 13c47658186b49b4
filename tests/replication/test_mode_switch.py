"""A topic changes between raft and fetch mode under load."""

import asyncio
import shutil
from pathlib import Path

from replication_support import T0, Nodes, bytes_of, nodes, produce, run, until, values_of

from zhumq.metadata.image import PartitionState
from zhumq.metadata.reassignment import begin_move
from zhumq.model.ids import BrokerId
from zhumq.model.replication_mode import Mode


async def _switch(up: Nodes, mode: Mode) -> None:
    up.store.mode = mode

    def is_there() -> bool:
        up.store.step_modes()
        state = up.store.image.partition(T0)
        assert state is not None
        return state.mode is mode and not state.changing_mode and up.leader() is not None

    await until(is_there, f"the topic is in {mode} mode")


async def _produce_until(up: Nodes, done: asyncio.Event, name: str) -> list[str]:
    acknowledged: list[str] = []
    while not done.is_set():
        value = f"{name}-{len(acknowledged)}"
        await produce(up, value)
        acknowledged.append(value)
    return acknowledged


def test_nothing_is_lost_from_raft_to_fetch_and_back_under_load(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create()
            await up.wait_leader()
            done = asyncio.Event()
            producers = [asyncio.create_task(_produce_until(up, done, name)) for name in ("x", "y")]
            for mode in (Mode.FETCH, Mode.RAFT, Mode.FETCH, Mode.RAFT):
                before = up[1].partition().log_end_offset
                await _switch(up, mode)
                await until(
                    lambda before=before: up[1].partition().log_end_offset > before + 10,
                    "writes continue",
                )
            done.set()
            acknowledged = [value for each in await asyncio.gather(*producers) for value in each]
            await up.wait_equal()
            assert len({bytes_of(node) for node in up}) == 1
            found = values_of(up[1])
            assert set(acknowledged) <= set(found)
            # A retry after a change of the leader may write twice: the producers have no id.
            assert len(found) - len(set(found)) < 20

    run(body())


def test_raft_begins_after_disks_were_replaced_one_after_the_other(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create(mode=Mode.FETCH)
            await produce(up, "a")
            for broker_id in (2, 3):
                await up.stop(broker_id, clean=False)
                shutil.rmtree(tmp_path / f"broker-{broker_id}")
                await up.start(broker_id)
                await until(lambda: _all_in_sync(up), "the new disk has everything")
                # Not by what the leader knows of the old disk.
                assert up[broker_id].partition().is_intact
            await _switch(up, Mode.RAFT)
            await produce(up, "b")
            await up.wait_equal()
            assert values_of(up[2]) == ["a", "b"]

    run(body())


def test_raft_waits_for_a_replica_that_is_away(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create(mode=Mode.FETCH)
            await produce(up, "a")
            await up.stop(3, clean=False)
            up.store.mode = Mode.RAFT
            up.store.step_modes()
            await produce(up, "b")
            state = up.store.image.partition(T0)
            assert state is not None
            assert state.mode is Mode.FETCH
            await up.start(3)
            await _switch(up, Mode.RAFT)
            await produce(up, "c")
            await up.wait_equal()
            assert values_of(up[3]) == ["a", "b", "c"]

    run(body())


def _all_in_sync(up: Nodes) -> bool:
    state = up.store.image.partition(T0)
    assert state is not None
    return len(state.in_sync) == len(state.replicas)


def test_a_raft_partition_moves_through_fetch_mode(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path, 1, 2, 3, 4, 5, 6) as up:
            up.store.create()
            await produce(up, "before")
            target = tuple(BrokerId(each) for each in (4, 5, 6))
            up.store.write(begin_move(up.store.image, T0, target))

            def is_moved() -> bool:
                up.store.step_modes()
                state = up.store.image.partition(T0)
                assert state is not None
                moved = state.replicas == target and state.mode is Mode.RAFT
                return moved and up.leader() is not None

            await until(is_moved, "the partition is on brokers 4, 5 and 6, in raft mode")
            await produce(up, "after")
            await up.wait_equal(nodes=(4, 5, 6))
            assert values_of(up[5]) == ["before", "after"]
            # One of the new voters may fail.
            leader = await up.wait_leader()
            await up.stop(leader.broker_id, clean=False, declare=False)
            await produce(up, "later")

    run(body())


def test_raft_does_not_begin_again_before_every_replica_knows_that_it_had_ended(
    tmp_path: Path,
) -> None:
    async def body() -> None:
        async with nodes(tmp_path, 1, 2, 3, 4) as up:
            up.store.create()
            await produce(up, "before")
            # Without new metadata images, the replica still votes and fetches.
            leader = (await up.wait_leader()).broker_id
            held, gone = (up[each] for each in (1, 2, 3) if each != leader)
            held.images_held = []
            target = (leader, held.broker_id, BrokerId(4))
            up.store.write(begin_move(up.store.image, T0, target))

            def step() -> PartitionState:
                up.store.step_modes()
                state = up.store.image.partition(T0)
                assert state is not None
                return state

            await until(lambda: step().replicas == target, "the move is over")
            assert step().mode is Mode.FETCH
            await produce(up, "meanwhile")
            (*_, last), held.images_held = held.images_held, None
            held.apply(last)
            await until(lambda: step().mode is Mode.RAFT, "raft begins")
            # This replica and the added one are a majority.
            assert gone.replicas.find(*T0) is None
            await up.stop(leader, clean=False, declare=False)
            await produce(up, "after")
            await up.wait_equal(nodes=(held.broker_id, 4))
            assert values_of(held) == ["before", "meanwhile", "after"]

    run(body())


def test_a_leader_that_dies_in_the_mode_change_does_not_stop_it(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create()
            await produce(up, "a")
            leader = await up.wait_leader()
            up.store.mode = Mode.FETCH
            up.store.step_modes()
            await up.stop(leader.broker_id, clean=False)
            await _switch(up, Mode.FETCH)
            await produce(up, "b")
            await up.start(leader.broker_id)
            await up.wait_equal()
            assert {tuple(values_of(node)) for node in up} == {("a", "b")}

    run(body())

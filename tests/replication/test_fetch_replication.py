"""Replicas of three brokers in fetch mode, where the controller names the leaders."""

import asyncio
from pathlib import Path

import pytest
from replication_support import (
    T0,
    Node,
    Nodes,
    batch,
    bytes_of,
    nodes,
    produce,
    run,
    until,
    values_of,
)

from zhumq.consensus.assigned import AssignedReplica
from zhumq.metadata.image import PartitionState
from zhumq.metadata.reassignment import begin_move
from zhumq.model.errors import (
    BrokerError,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    RequestTimedOut,
)
from zhumq.model.ids import BrokerId
from zhumq.model.replication_mode import Mode
from zhumq.replication.move_throttle import UNLIMITED
from zhumq.replication.partition import Partition

NOW_MS = 1_700_000_000_000


def _state(up: Nodes) -> PartitionState:
    state = up.store.image.partition(T0)
    assert state is not None
    return state


async def _until_in_sync(up: Nodes, *broker_ids: int) -> None:
    await until(lambda: set(_state(up).in_sync) == set(broker_ids), f"{broker_ids} are in sync")


def test_what_is_acknowledged_is_on_all_replicas_in_sync(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create(mode=Mode.FETCH)
            assert (await up.wait_leader()).broker_id == _state(up).replicas[0]
            for number in range(10):
                await produce(up, f"v{number}")
                assert all(f"v{number}" in values_of(node) for node in up)
            await up.wait_equal()
            assert len({bytes_of(node) for node in up}) == 1

    run(body())


def test_a_dead_follower_leaves_the_in_sync_set_and_comes_back(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create(mode=Mode.FETCH)
            await produce(up, "a")
            await up.stop(3, clean=False)
            await _until_in_sync(up, 1, 2)
            await produce(up, "b")
            await up.start(3)
            await _until_in_sync(up, 1, 2, 3)
            await up.wait_equal()
            assert values_of(up[3]) == ["a", "b"]

    run(body())


@pytest.mark.thorough
def test_a_follower_that_does_not_fetch_is_proposed_out_by_the_leader(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create(mode=Mode.FETCH)
            await produce(up, "a")
            # The broker is still registered; only the leader notices that it does not fetch.
            await up.stop(3, clean=False, declare=False)
            await produce(up, "b")
            assert 3 not in _state(up).in_sync

    run(body())


def test_too_few_in_sync_means_no_acknowledgement_by_all(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.min_in_sync = 2
            up.store.create(mode=Mode.FETCH)
            await produce(up, "a")
            await up.stop(2, clean=False)
            await up.stop(3, clean=False)
            partition = up[1].partition()
            await until(lambda: not partition.driver.core.accepts_all_acks, "too few are in sync")
            with pytest.raises(NotEnoughReplicas):
                partition.check_enough_replicas()
            # acks=1 is accepted, but not visible: the record is on one disk only.
            partition.append(batch("b"), NOW_MS)
            await until(lambda: partition.log.flushed_offset == partition.log_end_offset, "flushed")
            assert partition.high_watermark < partition.log_end_offset

    run(body())


def test_the_controller_names_another_leader_and_nothing_is_lost(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create(mode=Mode.FETCH)
            for number in range(5):
                await produce(up, f"v{number}")
            await up.stop(1, clean=False)
            await produce(up, "after")
            await up.start(1)
            await _until_in_sync(up, 1, 2, 3)
            await up.wait_equal()
            expected = (*(f"v{number}" for number in range(5)), "after")
            assert {tuple(values_of(node)) for node in up} == {expected}

    run(body())


def _cut_from_store(node: Node) -> None:
    node.own_store.is_cut = True
    node.own_store.broker_epoch = None


def _lose_session(node: Node) -> None:
    _cut_from_store(node)
    node.replicas.on_session_lost()


def test_a_leader_without_a_session_and_without_followers_refuses_clients(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create(mode=Mode.FETCH)
            await produce(up, "a")
            old = up[1]
            _lose_session(old)
            up.store.declare_gone(1)
            await until(lambda: not old.partition().leads, "no replica follows it")
            with pytest.raises(NotLeaderOrFollower, match="another broker may lead"):
                old.partition().append(batch("b"), NOW_MS)
            await produce(up, "c")
            old.register()
            await _until_in_sync(up, 1, 2, 3)
            await up.wait_equal()
            assert {tuple(values_of(node)) for node in up} == {("a", "c")}

    run(body())


def test_leaders_go_on_while_the_store_is_away(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create(mode=Mode.FETCH)
            await produce(up, "a")
            for node in up:
                _lose_session(node)
            leader = up[1].partition()
            epoch = leader.leader_epoch
            number = 0
            ticking = asyncio.ensure_future(_ticks(up[1]))
            while not ticking.done():
                await produce(up, f"b{number}")
                number += 1
            assert leader.leads
            assert leader.leader_epoch == epoch
            # They register again one after the other, each with a new broker epoch.
            for node in up:
                node.register()
                assert leader.leads
            up.store.repair()
            await produce(up, "c")
            await up.wait_equal()
            expected = ("a", *(f"b{each}" for each in range(number)), "c")
            assert {tuple(values_of(node)) for node in up} == {expected}

    run(body())


def test_a_leader_without_a_session_serves_again_once_it_is_followed_again(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create(mode=Mode.FETCH)
            await produce(up, "a")
            for node in up:
                _lose_session(node)
            for follower in (up[2], up[3]):
                follower.detours[1] = None
                follower.reset_connections()
            leader = up[1].partition()
            await until(lambda: not leader.leads, "no replica follows it")
            for follower in (up[2], up[3]):
                del follower.detours[1]
            await until(lambda: leader.leads, "it is followed again")
            await produce(up, "b")

    run(body())


def test_an_in_sync_set_of_one_needs_no_store(tmp_path: Path) -> None:
    """The controller could name only this leader."""

    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create(mode=Mode.FETCH)
            await produce(up, "a")
            await up.stop(2, clean=False)
            await up.stop(3, clean=False)
            core = up[1].partition().driver.core
            assert isinstance(core, AssignedReplica)
            # A proposed replica may be in sync until the leader has the answer.
            await until(
                lambda: core.in_sync == {1} and core._pending is None, "the leader is alone in sync"
            )
            _lose_session(up[1])
            await _ticks(up[1])
            await produce(up, "b")
            assert values_of(up[1]) == ["a", "b"]

    run(body())


async def _ticks(node: Node) -> None:
    """Wait for two complete ticks, which check who follows."""
    lifecycle = node.replicas.lifecycle
    enough = lifecycle._ticks + 3
    await until(lambda: lifecycle._ticks >= enough, "time passes")


async def _append_in_vain(up: Nodes) -> Partition:
    """Cut broker 1 off from the store while it leads: it does not know that its session is over, and
    appends a record that will never be committed."""
    up.store.create(mode=Mode.FETCH)
    await produce(up, "a")
    _cut_from_store(up[1])
    up.store.declare_gone(1)
    partition = up[1].partition()
    assert partition.leads
    partition.append(batch("lost"), NOW_MS)
    return partition


def test_a_leader_cut_off_from_the_store_only_acknowledges_nothing_new(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            partition = await _append_in_vain(up)
            old = up[1]
            waiting = partition.when_durable(partition.log_end_offset)
            await produce(up, "b")
            assert not waiting.done()
            old.replicas.on_session_lost()
            with pytest.raises(NotLeaderOrFollower):
                await asyncio.wait_for(waiting, 20)
            old.register()
            await up.wait_equal()
            assert {tuple(values_of(node)) for node in up} == {("a", "b")}

    run(body())


def test_an_append_fails_after_its_producers_timeout(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            partition = await _append_in_vain(up)
            answers: list[BrokerError | None] = []
            partition.call_when_durable(partition.log_end_offset, answers.append, timeout_ms=100)
            await until(lambda: answers, "an answer")
            assert isinstance(answers[0], RequestTimedOut)
            assert partition.leads

    run(body())


def test_a_broker_that_registers_again_is_led_by_the_next_naming(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create(mode=Mode.FETCH)
            await produce(up, "a")
            epoch = up[1].partition().leader_epoch
            up[1].register()
            # The broker that led continues until the controller names a leader in a later epoch.
            assert up[1].partition().leads
            up.store.repair()
            await produce(up, "b")
            leader = await up.wait_leader()
            assert leader.partition().leader_epoch > epoch
            await up.wait_equal()

    run(body())


def test_a_partition_moves_to_a_broker_that_had_nothing_of_it(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path, 1, 2, 3, 4) as up:
            up.store.create(mode=Mode.FETCH)
            for number in range(5):
                await produce(up, f"v{number}")
            target = [BrokerId(each) for each in (4, 2, 3)]
            up.store.write(begin_move(up.store.image, T0, target))
            await until(lambda: set(_state(up).replicas) == {2, 3, 4}, "the move is over")
            await produce(up, "after")
            assert up[1].replicas.find(*T0) is None
            await up.wait_equal(nodes=(2, 3, 4))
            assert values_of(up[4]) == [*(f"v{number}" for number in range(5)), "after"]

    run(body())


def test_a_new_replica_may_have_everything_before_its_leader_learns_of_it(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path, 1, 2, 3, 4) as up:
            up.store.create(mode=Mode.FETCH)
            await produce(up, "a")
            end = await up.wait_equal(nodes=(1, 2, 3))
            leader = await up.wait_leader()
            leader.images_held = []
            target = [*(each for each in _state(up).replicas if each != 3), BrokerId(4)]
            up.store.write(begin_move(up.store.image, T0, target))
            # Nothing is written, so it reports its position once, and then only waits.
            copy = up[4].partition()
            await until(lambda: copy.log.flushed_offset == end, "the copy is on its disk")
            beats = up[4].fetches_sent
            await until(lambda: up[4].fetches_sent >= beats + 2, "the leader has its position")
            held, leader.images_held = leader.images_held, None
            for image in held:
                leader.apply(image)
            await until(lambda: set(_state(up).replicas) == set(target), "the move is over")

    run(body())


def test_a_move_is_throttled_and_follows_a_change_of_the_rate(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path, 1, 2, 3, 4) as up:
            up.store.create(mode=Mode.FETCH)
            for _ in range(6):
                await produce(up, "x" * 500_000)
            leader = (await up.wait_leader()).partition()
            for node in up:
                node.limit_moves(1)
            target = [BrokerId(each) for each in (1, 2, 4)]
            up.store.write(begin_move(up.store.image, T0, target))
            # The first read of a megabyte is sent at once; the next one would wait for ten days.
            await until(lambda: up[4].partition().log_end_offset > 0, "the first read")
            for number in range(10):
                await produce(up, f"meanwhile {number}")
            assert up[4].partition().log_end_offset < leader.log_end_offset
            assert BrokerId(4) not in _state(up).in_sync
            for node in up:
                node.limit_moves(UNLIMITED)
            await until(lambda: set(_state(up).replicas) == {1, 2, 4}, "the move is over")
            await up.wait_equal(nodes=(1, 2, 4))

    run(body())


def test_the_log_ends_of_live_replicas_are_collected(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create(mode=Mode.FETCH)
            await produce(up, "a")
            end = await up.wait_equal()
            ends = await up[2].replicas.ask_log_ends([T0])
            assert set(ends[T0]) == {1, 2, 3}
            assert {each.end_offset for each in ends[T0].values()} == {end}
            await up.stop(3, clean=False, declare=False)
            ends = await up[2].replicas.ask_log_ends([T0])
            assert set(ends[T0]) == {1, 2}

    run(body())

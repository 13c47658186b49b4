"""Wiped, damaged, full or failing disks of one of three replicas."""

import shutil
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

from zhumq.consensus.contract import Role
from zhumq.metadata.changes import TopicSettingsChanged
from zhumq.metadata.image import NO_BROKER
from zhumq.model.errors import BrokerError, NotLeaderOrFollower
from zhumq.model.replication_mode import Mode
from zhumq.storage.quorum_journal import QUORUM_FILE
from zhumq.testing.faulty_disk import FaultyDisk

NOW_MS = 1_700_000_000_000
MODES = (Mode.RAFT, Mode.FETCH)


def _folder(up: Nodes, broker_id: int) -> Path:
    return up.root / f"broker-{broker_id}" / str(T0)


def _flip_a_bit(up: Nodes, broker_id: int, value: str) -> None:
    """Flip a bit in the stored bytes of this value."""
    [path] = _folder(up, broker_id).glob("*.log")
    data = bytearray(path.read_bytes())
    place = data.index(value.encode())
    data[place] ^= 1
    path.write_bytes(data)


async def _all_equal(up: Nodes, *values: str) -> None:
    await up.wait_equal()
    assert {tuple(values_of(node)) for node in up} == {values}
    assert len({bytes_of(node) for node in up}) == 1


def _has_recovered(node: Node) -> bool:
    return not node.partition().driver.core.quorum_state.recovering


def _set_min_in_sync(up: Nodes, count: int) -> None:
    up.store.min_in_sync = count
    settings = {"min.insync.replicas": str(count)}
    up.store.write(TopicSettingsChanged(name=T0.topic, settings=settings))


async def _follower(up: Nodes) -> Node:
    leader = await up.wait_leader()
    return next(node for node in up if node is not leader)


@pytest.mark.parametrize("mode", MODES)
def test_a_wiped_broker_fetches_everything_again(tmp_path: Path, mode: Mode) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create(mode=mode)
            for number in range(5):
                await produce(up, f"v{number}")
            await up.wait_equal()
            wiped = (await _follower(up)).broker_id
            await up.stop(wiped, clean=False)
            shutil.rmtree(tmp_path / f"broker-{wiped}")
            await produce(up, "meanwhile")
            await up.start(wiped)
            state = up[wiped].partition().driver.core.quorum_state
            # It does not vote until it has everything, and no candidate counts on its earlier votes.
            assert state.recovering
            assert state.votes_unknown
            await until(lambda: _has_recovered(up[wiped]), "the wiped replica has recovered")
            await _all_equal(up, *(f"v{number}" for number in range(5)), "meanwhile")

    run(body())


def test_two_new_disks_recover_once_one_replica_is_enough_in_sync(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create(mode=Mode.FETCH, replicas=(3, 2, 1))
            _set_min_in_sync(up, 2)
            await produce(up, "a")
            await up.wait_equal()
            for broker_id in (1, 2, 3):
                await up.stop(broker_id, clean=False)
            for broker_id in (1, 2):
                shutil.rmtree(tmp_path / f"broker-{broker_id}")
            await up.start(3)
            up.store.repair()
            await up.start(1, 2)
            core = up[3].partition().driver.core
            await until(
                lambda: core.role is Role.LEADER, "the replica that has everything is named"
            )
            assert not core.serving, "one replica alone is not enough"
            _set_min_in_sync(up, 1)
            await until(
                lambda: _has_recovered(up[1]) and _has_recovered(up[2]), "both have recovered"
            )
            _set_min_in_sync(up, 2)
            await produce(up, "b")
            await _all_equal(up, "a", "b")

    run(body())


def test_the_last_replica_in_sync_is_enough_once_an_operator_lowers_min_insync(
    tmp_path: Path,
) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create(mode=Mode.FETCH)
            _set_min_in_sync(up, 2)
            await produce(up, "a")
            await up.stop(1, clean=False)
            await up.stop(2, clean=False)
            core = up[3].partition().driver.core
            await until(lambda: core.role is Role.LEADER, "the last replica is named")
            assert not core.serving
            _set_min_in_sync(up, 1)
            await produce(up, "b")
            assert values_of(up[3]) == ["a", "b"]

    run(body())


def test_a_wiped_replica_does_not_help_to_elect_one_without_the_data(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create()
            await up.wait_leader()
            await produce(up, "a")
            await up.wait_equal()
            stale = (await _follower(up)).broker_id
            await up.stop(stale, clean=False, declare=False)
            await produce(up, "b")
            # Of the two that have it, one is wiped and one is down. The stale replica comes back.
            keeper, wiped = (node.broker_id for node in up)
            await up.stop(keeper, clean=False, declare=False)
            await up.stop(wiped, clean=False, declare=False)
            shutil.rmtree(tmp_path / f"broker-{wiped}")
            await up.start(stale, wiped)
            candidate = up[stale].partition().driver.core
            await until(
                lambda: candidate.role is Role.PROSPECTIVE or candidate.role is Role.CANDIDATE,
                "the stale replica asks for votes",
            )
            await until(lambda: up[stale].partition().leader_id is None, "no replica leads")
            assert up.leader() is None
            await up.start(keeper)
            await produce(up, "c")
            await _all_equal(up, "a", "b", "c")

    run(body())


@pytest.mark.parametrize("mode", MODES)
def test_a_disk_exchanged_within_a_session_does_not_lead_though_it_was_in_sync(
    tmp_path: Path, mode: Mode
) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.min_in_sync = 2
            up.store.create(mode=mode)
            await produce(up, "a")
            await up.wait_equal()
            wiped = (await _follower(up)).broker_id
            # The partition has not changed since it was created: the controller has not noticed.
            await up.stop(wiped, clean=False, declare=False)
            shutil.rmtree(tmp_path / f"broker-{wiped}")
            keepers = [node.broker_id for node in up]
            for keeper in keepers:
                await up.stop(keeper, clean=False, declare=False)
            await up.start(wiped)
            assert up[wiped].partition().driver.core.quorum_state.recovering
            for keeper in keepers:
                up.store.declare_gone(keeper)
            if mode is Mode.FETCH:
                await until(
                    lambda: up.store.image.topics["t"].partitions[0].leader == NO_BROKER,
                    "the wiped replica is named, and declines",
                )
            assert up.leader() is None
            await up.start(*keepers)
            up.store.repair()
            await produce(up, "b")
            await _all_equal(up, "a", "b")

    run(body())


@pytest.mark.parametrize("mode", MODES)
def test_a_replica_damaged_in_the_middle_recovers(tmp_path: Path, mode: Mode) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create(mode=mode)
            for number in range(5):
                await produce(up, f"value-{number}")
            await up.wait_equal()
            damaged = (await _follower(up)).broker_id
            await up.stop(damaged, clean=False)
            _flip_a_bit(up, damaged, "value-2")
            await up.start(damaged)
            assert not _has_recovered(up[damaged])
            await until(lambda: _has_recovered(up[damaged]), "the damaged replica has recovered")
            await produce(up, "after")
            await _all_equal(up, *(f"value-{number}" for number in range(5)), "after")
            assert not up[damaged].partition().log.corrupt_ranges

    run(body())


@pytest.mark.parametrize("mode", MODES)
def test_a_leader_that_detects_damage_in_its_log_steps_down_and_recovers(
    tmp_path: Path, mode: Mode
) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create(mode=mode)
            await produce(up, "value-0")
            await up.wait_equal()
            late = (await _follower(up)).broker_id
            await up.stop(late, clean=False)
            for number in range(1, 5):
                await produce(up, f"value-{number}")
            leader = await up.wait_leader()
            epoch = leader.partition().leader_epoch
            _flip_a_bit(up, leader.broker_id, "value-2")
            # A follower that fetches the record detects a wrong checksum.
            await up.start(late)
            await until(
                lambda: up.leader() and up.leader().partition().leader_epoch > epoch,
                "the damaged leader has stepped down",
            )
            await until(
                lambda: all(_has_recovered(node) for node in up), "all replicas have recovered"
            )
            await produce(up, "after")
            await _all_equal(up, *(f"value-{number}" for number in range(5)), "after")

    run(body())


@pytest.mark.parametrize("mode", MODES)
def test_a_leader_that_cannot_sync_stops_and_others_go_on(tmp_path: Path, mode: Mode) -> None:
    async def body() -> None:
        async with nodes(tmp_path, 2, 3) as up:
            disk = FaultyDisk()
            await up.start(1, disk=disk)
            up.store.create(mode=mode)
            leader = await up.wait_leader()
            while leader.broker_id != 1:
                # The broker with the bad disk has to lead.
                await up.stop(leader.broker_id, clean=False)
                await up.wait_leader()
                await up.start(leader.broker_id)
                leader = await up.wait_leader()
            await produce(up, "a")
            await up.wait_equal()
            disk.cannot_sync = lambda path: path.endswith(".log")
            partition = leader.partition()
            partition.append(batch("not on this disk"), NOW_MS)
            try:
                await partition.when_durable(partition.log_end_offset)
            except BrokerError:
                pass
            else:
                assert mode is Mode.RAFT  # where the two others are a majority, and may be faster
            await until(lambda: not partition.leads, "the leader has stopped")
            with pytest.raises(NotLeaderOrFollower):
                partition.append(batch("c"), NOW_MS)
            await produce(up, "b")
            # A restart with a good disk does not rely on what was not synced.
            await up.stop(1, clean=False)
            await up.start(1)
            await until(lambda: _has_recovered(up[1]), "the failed replica has recovered")
            await up.wait_equal()
            found = {tuple(values_of(node)) for node in up}
            assert len(found) == 1
            assert {"a", "b"} <= set(found.pop())

    run(body())


def test_a_follower_with_a_full_disk_catches_up_once_there_is_room(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path, 1, 2) as up:
            disk = FaultyDisk()
            await up.start(3, disk=disk)
            up.store.create()
            leader = await up.wait_leader()
            if leader.broker_id == 3:
                await up.stop(3, clean=False)
                await up.wait_leader()
                await up.start(3, disk=disk)
            await produce(up, "a")
            refused: list[str] = []

            def is_full(path: str) -> bool:
                if path.endswith(".log"):
                    refused.append(path)
                return path.endswith(".log")

            disk.is_full = is_full
            for number in range(3):
                await produce(up, f"b{number}")
            await until(lambda: refused, "the disk was full")
            assert up[3].partition().log_end_offset < up[1].partition().log_end_offset
            disk.is_full = lambda _: False
            await _all_equal(up, "a", "b0", "b1", "b2")

    run(body())


def test_a_replica_sends_nothing_before_there_is_room_for_its_quorum_state(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path, 1, 2) as up:
            disk = FaultyDisk()
            disk.is_full = lambda path: path.endswith(QUORUM_FILE)
            await up.start(3, disk=disk)
            up.store.create()
            await produce(up, "a")
            assert up[3].partition().driver.is_busy
            assert up[3].partition().log_end_offset == 0
            disk.is_full = lambda _: False
            await _all_equal(up, "a")

    run(body())


def test_a_replica_that_lost_its_quorum_state_does_not_vote_until_it_has_recovered(
    tmp_path: Path,
) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create()
            await produce(up, "a")
            await up.wait_equal()
            forgetful = (await _follower(up)).broker_id
            await up.stop(forgetful, clean=True, declare=False)
            (tmp_path / f"broker-{forgetful}" / QUORUM_FILE).unlink()
            await up.start(forgetful)
            assert up[forgetful].partition().driver.core.quorum_state.votes_unknown
            await until(lambda: _has_recovered(up[forgetful]), "the replica has recovered")
            await _all_equal(up, "a")

    run(body())


def test_a_log_shorter_than_what_was_committed_is_damage(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create()
            for number in range(4):
                await produce(up, f"value-{number}")
            await up.wait_equal()
            cut = (await _follower(up)).broker_id
            await up.stop(cut, clean=True, declare=False)
            [path] = _folder(up, cut).glob("*.log")
            path.write_bytes(path.read_bytes()[:-40])
            await up.start(cut)
            assert not _has_recovered(up[cut])
            await until(
                lambda: _has_recovered(up[cut]), "the replica has fetched the missing records"
            )
            await _all_equal(up, *(f"value-{number}" for number in range(4)))

    run(body())

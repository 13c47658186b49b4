"""A partition with one replica: what consumers see depends on the number of replicas, not on a cluster."""

from pathlib import Path

import pytest
from replication_support import T0, Node, Nodes, batch, nodes, produce, run, until

from zhumq.metadata.image import PartitionState
from zhumq.model.ids import BrokerId
from zhumq.model.replication_mode import Mode
from zhumq.storage.quorum_journal import QUORUM_FILE

NOW_MS = 1_700_000_000_000


def _has_journal(node: Node) -> bool:
    return (Path(node.logs.data_dir) / QUORUM_FILE).exists()


def _state(up: Nodes) -> PartitionState:
    state = up.store.image.partition(T0)
    assert state is not None
    return state


@pytest.mark.parametrize("mode", list(Mode))
def test_a_record_of_a_sole_replica_is_visible_before_it_is_on_the_disk(
    tmp_path: Path, mode: Mode
) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create(replicas=(1,), mode=mode)
            partition = (await up.wait_leader()).partition()
            partition.append(batch("a"), NOW_MS)
            assert partition.high_watermark == partition.log_end_offset == 1
            assert not partition.is_durable(1)
            await partition.when_durable(1)
            assert partition.log.flushed_offset == 1

    run(body())


def test_a_replica_that_is_added_makes_the_others_wait_for_it(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create(replicas=(1,), mode=Mode.FETCH)
            partition = (await up.wait_leader()).partition()
            # No other replica could miss a vote, and nothing is written: there is no file yet.
            assert not _has_journal(up[1])
            partition.append(batch("a"), NOW_MS)
            up.store.change(T0, replicas=(BrokerId(1), BrokerId(2)), adding=(BrokerId(2),))
            await until(lambda: set(_state(up).in_sync) == {1, 2}, "broker 2 is in sync")
            assert _has_journal(up[1])
            assert not partition.is_sole
            partition.append(batch("b"), NOW_MS)
            # The append is sent and flushed in later turns of the event loop.
            assert partition.high_watermark < partition.log_end_offset == 2
            await up.wait_equal(nodes=(1, 2))
            await until(lambda: partition.high_watermark == 2, "both replicas have it")

            up.store.change(T0, replicas=(BrokerId(1),), adding=(), in_sync=(BrokerId(1),))
            assert partition.is_sole
            partition.append(batch("c"), NOW_MS)
            assert partition.high_watermark == 3
            await partition.when_durable(3)

    run(body())


def test_a_sole_replica_leads_again_after_a_restart_with_all_that_was_durable(
    tmp_path: Path,
) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create(replicas=(1,), mode=Mode.FETCH)
            await up.wait_leader()
            await produce(up, "a", "b")
            await up.stop(1)
            await up.start(1)
            up.store.repair()
            assert (await up.wait_leader()).partition().high_watermark == 2

    run(body())

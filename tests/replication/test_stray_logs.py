"""A broker puts logs aside that are not assigned to it any more, and does not delete them."""

from pathlib import Path

from replication_support import T0, nodes, produce, run, until

from zhumq.model.ids import BrokerId


def test_a_topic_deleted_while_a_broker_was_down_is_put_aside(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create()
            await produce(up, "kept aside")
            await up.wait_equal()
            leader = await up.wait_leader()
            down = next(node for node in up if node is not leader)
            data_dir = Path(down.logs.data_dir)
            await up.stop(down.broker_id)
            up.store.delete()
            await up.start(down.broker_id)
            await until(lambda: not (data_dir / str(T0)).exists(), "the folder has another name")
            (aside,) = data_dir.glob(f"{T0}.*-stray")
            assert list(aside.glob("*.log"))
            assert up[down.broker_id].replicas.find(*T0) is None

    run(body())


def test_a_partition_that_moved_away_while_a_broker_was_down_is_put_aside(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create()
            await produce(up, "moved")
            await up.wait_equal()
            leader = await up.wait_leader()
            down = next(node for node in up if node is not leader)
            data_dir = Path(down.logs.data_dir)
            await up.stop(down.broker_id)
            others = tuple(BrokerId(node.broker_id) for node in up if node is not down)
            up.store.change(T0, replicas=others)
            await up.start(down.broker_id)
            await until(lambda: list(data_dir.glob(f"{T0}.*-stray")), "the folder is put aside")

    run(body())

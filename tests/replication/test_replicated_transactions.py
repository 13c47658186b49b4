"""Transactions on three replicas: the last stable offset waits for the marker, and a new leader knows them all."""

from pathlib import Path

from replication_support import Nodes, nodes, produce, run, until

from zhumq.model.isolation import Isolation
from zhumq.records.batch import Record
from zhumq.records.builder import build_batch
from zhumq.records.control import EndMarker, MarkerType
from zhumq.replication.partition import Partition
from zhumq.storage.validator import AppendOrigin

NOW_MS = 1_700_000_000_000
ABORT, COMMIT = MarkerType.ABORT, MarkerType.COMMIT


def write(partition: Partition, producer: int, sequence: int = 0) -> int:
    partition.allow_transaction(producer, 0, partition.verification(producer))
    data = build_batch(
        [Record(timestamp=NOW_MS, value=b"v")],
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )
    return partition.append(data, NOW_MS, origin=AppendOrigin.CLIENT).base_offset


def end(partition: Partition, producer: int, marker_type: MarkerType) -> int:
    return partition.append_marker(
        EndMarker(marker_type=marker_type, coordinator_epoch=0),
        producer_id=producer,
        producer_epoch=0,
        transaction_version=0,
        now_ms=NOW_MS,
    ).base_offset


async def committed(partition: Partition) -> None:
    await until(lambda: partition.high_watermark == partition.log_end_offset, "committed")


async def stop_followers(up: Nodes) -> None:
    leader = await up.wait_leader()
    for broker_id in [each for each, node in up.up.items() if node is not leader]:
        await up.stop(broker_id, declare=False)


def test_the_last_stable_offset_passes_a_transaction_when_its_marker_is_committed(
    tmp_path: Path,
) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create()
            await produce(up, "before")
            leader = await up.wait_leader()
            partition = leader.partition()
            write(partition, 1)
            await committed(partition)
            assert (partition.high_watermark, partition.last_stable_offset) == (2, 1)
            followers = [each for each, node in up.up.items() if node is not leader]
            await stop_followers(up)
            end(partition, 1, COMMIT)
            # The marker is in the log of this replica alone.
            assert (partition.high_watermark, partition.last_stable_offset) == (2, 1)
            await up.start(*followers)
            leader = await up.wait_leader()
            partition = leader.partition()
            await until(lambda: partition.high_watermark >= 2, "a new high watermark")
            if partition.log_end_offset == 2:  # The new leader did not have the marker.
                assert partition.last_stable_offset == 1
                end(partition, 1, COMMIT)
            await committed(partition)
            assert (partition.high_watermark, partition.last_stable_offset) == (3, 3)

    run(body())


def test_a_new_leader_has_the_open_and_the_aborted_transactions(tmp_path: Path) -> None:
    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create()
            leader = await up.wait_leader()
            partition = leader.partition()
            write(partition, 1)
            write(partition, 2)
            end(partition, 1, ABORT)
            await committed(partition)
            await up.wait_equal()
            old = next(each for each, node in up.up.items() if node is leader)
            await up.stop(old)
            partition = (await up.wait_leader()).partition()
            await committed(partition)
            assert partition.last_stable_offset == 1
            part = partition.read(0, 1 << 20, isolation=Isolation.READ_COMMITTED)
            assert part.next_offset == 1
            assert [(each.producer_id, each.first_offset) for each in part.aborted] == [(1, 0)]
            end(partition, 2, ABORT)
            await committed(partition)
            assert partition.last_stable_offset == 4
            part = partition.read(0, 1 << 20, isolation=Isolation.READ_COMMITTED)
            assert [each.producer_id for each in part.aborted] == [1, 2]

    run(body())

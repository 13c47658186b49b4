"""The data folder: its lock, its owner, its checkpoints, and creating and deleting logs."""

import multiprocessing
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from storage_support import NOW_MS, append, flush, read_values, retention_pass
from tests.manual_time import ManualClock

from zhumq.host.disk import Disk, SystemDisk
from zhumq.model.errors import (
    DataDirUnusable,
    DiskFull,
    InconsistentTopicId,
    StorageFailed,
    UnknownTopicOrPartition,
)
from zhumq.model.ids import TopicPartition
from zhumq.storage.data_folder import parse_folder_name
from zhumq.storage.log_config import CleanupPolicy, LogConfig
from zhumq.storage.log_manager import LogManager
from zhumq.storage.retention import ReplicaFacts
from zhumq.storage.segmented_log import SegmentedLog
from zhumq.testing.disk import MemoryDisk

ORDERS = TopicPartition("orders", 0)
CONFIG = LogConfig(segment_bytes=300)


def open_manager(
    disk: Disk, data_dir: str = "/data", *, clock: ManualClock | None = None, **arguments: object
) -> LogManager:
    options: dict[str, object] = {"broker_id": 1, "config_of": lambda _: CONFIG, **arguments}
    return LogManager.open(data_dir, disk=disk, clock=clock or ManualClock(), **options)  # type: ignore[arg-type]


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.mark.parametrize("clean", [True, False])
def test_logs_are_there_again_after_a_restart(disk: MemoryDisk, clean: bool) -> None:
    manager = open_manager(disk)
    ids = {name: uuid.uuid4() for name in ("a", "b-1", "c.d")}
    for name, topic_id in ids.items():
        for partition in range(3):
            log = manager.create_log(TopicPartition(name, partition), topic_id, CONFIG)
            append(log, b"%s %d" % (name.encode(), partition))
    manager.close(clean=clean)
    again = open_manager(disk)
    assert len(again.logs) == 9
    for (name, partition), log in again.logs.items():
        assert log.topic_id == ids[name]
        assert read_values(log) == [b"%s %d" % (name.encode(), partition)]
    again.close()


def test_only_a_clean_close_is_marked_and_only_for_one_start(disk: MemoryDisk) -> None:
    manager = open_manager(disk)
    append(manager.create_log(ORDERS, None, CONFIG), b"a")
    manager.close()
    assert disk.read_file("/data/.kafka_cleanshutdown") is not None
    assert disk.read_file("/data/recovery-point-offset-checkpoint") == b"0\n1\norders 0 1\n"
    again = open_manager(disk)
    assert disk.read_file("/data/.kafka_cleanshutdown") is None
    again.close(clean=False)
    assert disk.read_file("/data/.kafka_cleanshutdown") is None


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    manager = open_manager(SystemDisk(), str(tmp_path))
    with pytest.raises(DataDirUnusable, match="another broker is using"):
        open_manager(SystemDisk(), str(tmp_path))
    manager.close()
    open_manager(SystemDisk(), str(tmp_path)).close()


def _hold(path: str, ready: Callable[[], object], wait: Callable[[], object]) -> None:
    manager = open_manager(SystemDisk(), path)
    ready()
    wait()
    manager.close()


def test_a_folder_in_use_by_another_process_is_refused(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    held, done = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(str(tmp_path), held.set, done.wait))
    other.start()
    try:
        assert held.wait(30)
        with pytest.raises(DataDirUnusable):
            open_manager(SystemDisk(), str(tmp_path))
    finally:
        done.set()
        other.join(30)
    assert other.exitcode == 0


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataDirUnusable):
        open_manager(SystemDisk(), str(tmp_path / "file" / "data"))


def test_a_folder_belongs_to_one_broker_of_one_cluster(disk: MemoryDisk) -> None:
    manager = open_manager(disk)
    cluster_id = manager.cluster_id
    assert len(cluster_id) == 22
    manager.close()
    with pytest.raises(DataDirUnusable, match="belongs to broker 1"):
        open_manager(disk, broker_id=2)
    with pytest.raises(DataDirUnusable, match="belongs to cluster"):
        open_manager(disk, cluster_id="other")
    assert open_manager(disk).cluster_id == cluster_id


def test_a_damaged_checkpoint_loses_no_records(
    disk: MemoryDisk, caplog: pytest.LogCaptureFixture
) -> None:
    manager = open_manager(disk)
    append(manager.create_log(ORDERS, None, CONFIG), b"a")
    manager.close()
    disk.files["/data/recovery-point-offset-checkpoint"].content[:] = b"garbage"
    again = open_manager(disk)
    assert "recovery-point-offset-checkpoint is not usable" in caplog.text
    assert read_values(again.log(ORDERS)) == [b"a"]


def test_a_log_that_cannot_be_opened_does_not_hold_up_the_others(disk: MemoryDisk) -> None:
    manager = open_manager(disk)
    for partition in range(3):
        append(manager.create_log(TopicPartition("orders", partition), None, CONFIG), b"a")
    manager.close(clean=False)
    disk.read_fails = lambda path: "orders-1/" in path
    again = open_manager(disk)
    assert set(again.logs) == {TopicPartition("orders", 0), TopicPartition("orders", 2)}
    for ask in (again.log, lambda name: again.create_log(name, None, CONFIG)):
        with pytest.raises(StorageFailed):
            ask(TopicPartition("orders", 1))
    assert "/data/orders-1/00000000000000000000.log" in disk.files


def test_a_folder_without_identity_is_adopted_and_never_deleted(disk: MemoryDisk) -> None:
    manager = open_manager(disk)
    append(manager.create_log(ORDERS, uuid.uuid4(), CONFIG), b"a")
    manager.close()
    disk.unlink("/data/orders-0/partition.metadata")
    disk.unlink("/data/orders-0/log-manifest")
    again = open_manager(disk)
    assert again.log(ORDERS).topic_id is None
    topic_id = uuid.uuid4()
    log = again.create_log(ORDERS, topic_id, CONFIG)
    assert log.topic_id == topic_id
    assert read_values(log) == [b"a"]
    with pytest.raises(InconsistentTopicId):
        again.create_log(ORDERS, uuid.uuid4(), CONFIG)
    again.close()
    assert open_manager(disk).log(ORDERS).topic_id == topic_id


def test_a_stray_log_is_set_aside_and_kept(disk: MemoryDisk) -> None:
    manager = open_manager(disk)
    append(manager.create_log(ORDERS, uuid.uuid4(), CONFIG), b"old")
    manager.set_aside_log(ORDERS)
    log = manager.create_log(ORDERS, uuid.uuid4(), CONFIG)
    assert log.log_end_offset == 0
    manager.close()
    stray = [name for name in disk.directories if name.endswith("-stray")]
    assert len(stray) == 1
    assert f"{stray[0]}/00000000000000000000.log" in disk.files
    assert set(open_manager(disk).logs) == {ORDERS}


def test_a_deleted_log_is_gone_at_once_and_removed_later(disk: MemoryDisk) -> None:
    clock = ManualClock()
    manager = open_manager(disk, clock=clock)
    append(manager.create_log(ORDERS, None, CONFIG), b"a")
    manager.delete_log(ORDERS)
    for ask in (manager.log, manager.delete_log):
        with pytest.raises(UnknownTopicOrPartition):
            ask(ORDERS)
    assert manager.take_trash() == []
    assert append(manager.create_log(ORDERS, None, CONFIG), b"new") == 0
    clock.ms += CONFIG.file_delete_delay_ms
    manager.empty_trash(manager.take_trash())
    assert not [name for name in disk.directories if name.endswith("-delete")]
    assert read_values(manager.log(ORDERS)) == [b"new"]


def test_a_deletion_that_a_stop_interrupted_is_finished(disk: MemoryDisk) -> None:
    manager = open_manager(disk)
    manager.create_log(TopicPartition("x" * 249, 12345), None, CONFIG)
    manager.delete_log(TopicPartition("x" * 249, 12345))
    manager.close()
    assert all(len(name.rpartition("/")[2]) <= 255 for name in disk.directories)
    again = open_manager(disk)
    assert dict(again.logs) == {}
    again.empty_trash(again.take_trash())
    assert not [name for name in disk.directories if name.endswith("-delete")]


def test_retention_goes_over_all_logs(disk: MemoryDisk) -> None:
    clock = ManualClock()
    manager = open_manager(disk, clock=clock)
    for partition in range(2):
        log = manager.create_log(TopicPartition("orders", partition), None, CONFIG)
        for place in range(12):
            append(log, b"value %d" % place)
    late = NOW_MS + CONFIG.retention_ms + 1
    assert retention_pass(
        manager, late, lambda log: ReplicaFacts(high_watermark=log.log_end_offset)
    )
    assert {log.log_start_offset for log in manager} == {12}
    clock.ms += CONFIG.file_delete_delay_ms
    manager.empty_trash(manager.take_trash())
    assert not [path for path in disk.files if path.endswith(".deleted")]


def test_start_offsets_and_high_watermarks_are_persisted(disk: MemoryDisk) -> None:
    manager = open_manager(disk)
    log = manager.create_log(ORDERS, None, CONFIG)
    for _ in range(3):
        append(log, b"a")
    log.delete_records_before(2)
    manager.checkpoint({ORDERS: 3})
    flush(log)
    disk.crash()
    again = open_manager(disk)
    assert again.log(ORDERS).log_start_offset == 2
    assert again.high_watermarks == {ORDERS: 3}


@pytest.mark.parametrize("fails_in_load", [False, True])
def test_a_start_that_fails_leaves_the_folder_as_it_was(
    disk: MemoryDisk, fails_in_load: bool
) -> None:
    manager = open_manager(disk)
    log = manager.create_log(ORDERS, None, CONFIG)
    append(log, b"a", b"b")
    log.delete_records_before(1)
    manager.close(high_watermarks={ORDERS: 2})
    names = [each.name for each in disk.list_directory("/data") if not each.is_directory]
    before = {name: disk.read_file(f"/data/{name}") for name in names}

    def fail(_topic: str) -> LogConfig:
        raise DataDirUnusable("the journal is damaged")

    failed = LogManager.take("/data", disk=disk, clock=ManualClock(), broker_id=1)
    if fails_in_load:
        with pytest.raises(DataDirUnusable):
            failed.load(fail)
    failed.close()
    assert {name: disk.read_file(f"/data/{name}") for name in names} == before


def test_a_truncation_lowers_the_written_recovery_point_first(disk: MemoryDisk) -> None:
    manager = open_manager(disk)
    log = manager.create_log(ORDERS, None, CONFIG)
    for _ in range(3):
        append(log, b"a")
    flush(log, checkpoint=True)
    manager.checkpoint()
    log.truncate_to(1)
    assert disk.read_file("/data/recovery-point-offset-checkpoint") == b"0\n1\norders 0 1\n"


def test_logs_that_were_written_to_come_up_for_a_checkpoint(disk: MemoryDisk) -> None:
    clock = ManualClock()
    manager = open_manager(disk, clock=clock)
    busy = manager.create_log(ORDERS, None, CONFIG)
    manager.create_log(TopicPartition("idle", 0), None, CONFIG)
    append(busy, b"a")
    assert manager.logs_to_checkpoint() == []
    clock.ms += CONFIG.checkpoint_ms
    assert manager.logs_to_checkpoint() == [busy]
    flush(busy)
    assert manager.logs_to_checkpoint() == []


def test_a_checkpoint_is_written_only_if_something_moved(disk: MemoryDisk) -> None:
    manager = open_manager(disk)
    log = manager.create_log(ORDERS, None, CONFIG)
    assert manager.begin_checkpoint_if_moved() is not None
    assert manager.begin_checkpoint_if_moved() is None
    append(log, b"a")
    assert manager.begin_checkpoint_if_moved() is None
    flush(log, checkpoint=True)
    moved = manager.begin_checkpoint_if_moved()
    assert moved is not None
    moved.run()
    assert disk.read_file("/data/recovery-point-offset-checkpoint") == b"0\n1\norders 0 1\n"


def test_compaction_is_run_for_one_log_after_the_other(disk: MemoryDisk) -> None:
    config = LogConfig(segment_bytes=300, cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
    manager = open_manager(disk)
    for partition in range(2):
        log = manager.create_log(TopicPartition("compacted", partition), None, config)
        for place in range(20):
            append(log, b"%d" % place, keys=(b"key",))
        flush(log, checkpoint=True)
    running = []
    while (
        work := manager.begin_compaction(
            NOW_MS, lambda log: ReplicaFacts(high_watermark=log.log_end_offset)
        )
    ) is not None:
        running.append(work)
    assert len(running) == 2
    for work in running:
        work.run()
        manager.finish_compaction(work)
        assert len(read_values(work.log)) < 10
    manager.checkpoint()
    assert b"compacted 0 " in (disk.read_file("/data/cleaner-offset-checkpoint") or b"")
    manager.close(clean=False)
    again = open_manager(disk, config_of=lambda _: config)
    assert {log.first_dirty_offset > 0 for log in again} == {True}


def test_a_close_that_fails_is_not_marked_clean(disk: MemoryDisk) -> None:
    manager = open_manager(disk)
    append(manager.create_log(ORDERS, None, CONFIG), b"a")
    disk.sync_fails = lambda path: path.endswith(".log")
    manager.close()
    assert disk.read_file("/data/.kafka_cleanshutdown") is None
    disk.sync_fails = lambda _: False
    assert read_values(open_manager(disk).log(ORDERS)) == [b"a"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-0", ORDERS),
        ("a-b-12", TopicPartition("a-b", 12)),
        ("orders", None),
        ("orders-", None),
        ("-1", None),
        ("orders-01", None),
        ("orders-x", None),
        ("orders-0.abc-delete", None),
    ],
)
def test_folder_names_say_which_partition_it_is(name: str, expected: TopicPartition | None) -> None:
    assert parse_folder_name(name) == expected


def test_a_log_that_could_not_be_opened_for_lack_of_room_is_tried_again_as_it_was(
    disk: MemoryDisk,
) -> None:
    manager = open_manager(disk)
    topic_id = uuid.uuid4()
    log = manager.create_log(ORDERS, topic_id, CONFIG)
    for place in range(20):
        append(log, b"value %d" % place)
        if place == 11:
            flush(log, checkpoint=True)
    log.delete_records_before(7)
    manager.checkpoint({ORDERS: 18})
    manager.close(clean=False)
    # Damage past the recovery point has to be persisted, and there is no space for that.
    path = sorted(name for name in disk.files if name.endswith(".log"))[-2]
    disk.files[path].content[-3] ^= 1
    disk.bytes_free = 0
    again = open_manager(disk)
    assert isinstance(again.failures[ORDERS], DiskFull)
    assert again.has_log(ORDERS)
    with pytest.raises(DiskFull):
        again.create_log(ORDERS, topic_id, CONFIG)
    disk.bytes_free = None
    again.checkpoint({})  # The next start reads this if the broker is killed now.
    assert disk.read_file("/data/recovery-point-offset-checkpoint") == b"0\n1\norders 0 12\n"
    assert disk.read_file("/data/log-start-offset-checkpoint") == b"0\n1\norders 0 7\n"
    assert disk.read_file("/data/replication-offset-checkpoint") == b"0\n1\norders 0 18\n"
    log = again.create_log(ORDERS, topic_id, CONFIG)
    assert not again.failures
    assert (log.log_start_offset, log.log_end_offset) == (7, 20)
    assert len(log.corrupt_ranges) == 1
    again.close()


def test_a_cut_below_the_recovery_point_works_without_room(disk: MemoryDisk) -> None:
    manager = open_manager(disk)
    log = manager.create_log(ORDERS, None, CONFIG)
    for place in range(20):
        append(log, b"value %d" % place)
    flush(log, checkpoint=True)
    manager.checkpoint()
    disk.bytes_free = 0
    log.truncate_to(5)
    manager.close(clean=False)
    disk.bytes_free = None
    again = open_manager(disk)
    assert again.log(ORDERS).log_end_offset == 5
    assert again.log(ORDERS).corrupt_ranges == ()
    again.close()


def test_a_log_that_cannot_be_compacted_does_not_keep_others_from_it(disk: MemoryDisk) -> None:
    config = LogConfig(segment_bytes=300, cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
    manager = open_manager(disk)
    for partition in range(2):
        log = manager.create_log(TopicPartition("compacted", partition), None, config)
        for place in range(20):
            append(log, b"%d" % place, keys=(b"key",))
        flush(log, checkpoint=True)
    path = f"/data/compacted-0/{0:020d}.log"
    damaged = bytearray(disk.read_file(path) or b"")
    damaged[-1] ^= 1
    disk.write_file(path, bytes(damaged), sync=True)
    failed: list[SegmentedLog] = []
    tried = []
    while work := manager.begin_compaction(
        NOW_MS, lambda log: ReplicaFacts(high_watermark=log.log_end_offset), failed
    ):
        tried.append(work.log.topic_partition.partition)
        assert len(tried) < 5, "the log that failed is tried for ever"
        work.run()
        if manager.finish_compaction(work) is not None:
            failed.append(work.log)
    assert sorted(tried) == [0, 1]
    assert [log.topic_partition.partition for log in failed] == [0]

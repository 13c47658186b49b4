"""New logs: which files they have before the first write, and that restarts and crashes work without them."""

import uuid
from pathlib import Path

import pytest
from storage_support import append, flush, read_values
from tests.manual_time import ManualClock

from zhumq.host.disk import Disk, SystemDisk
from zhumq.model.errors import DiskFull
from zhumq.model.ids import TopicPartition
from zhumq.storage.log_config import LogConfig
from zhumq.storage.log_manager import LogManager
from zhumq.storage.segmented_log import SegmentedLog
from zhumq.testing.disk import MemoryDisk

ORDERS = TopicPartition("orders", 0)
TOPIC_ID = uuid.uuid4()
CONFIG = LogConfig(segment_bytes=300)


def open_manager(disk: Disk, data_dir: str = "/data") -> LogManager:
    return LogManager.open(
        data_dir, disk=disk, clock=ManualClock(), broker_id=1, config_of=lambda _: CONFIG
    )


def new_log(manager: LogManager, *, lazily: bool = True) -> SegmentedLog:
    return manager.create_log(ORDERS, TOPIC_ID, CONFIG, lazily=lazily)


def names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()} if folder.exists() else set()


def test_a_lazy_log_has_no_folder_before_it_is_written_to(tmp_path: Path) -> None:
    manager = open_manager(SystemDisk(), str(tmp_path))
    log = new_log(manager)
    folder = tmp_path / "orders-0"
    assert not folder.exists()
    assert read_values(log) == []
    append(log, b"a")
    prefix = f"{0:020d}"
    assert names(folder) >= {
        "partition.metadata",
        f"{prefix}.log",
        f"{prefix}.index",
        f"{prefix}.timeindex",
    }
    assert read_values(log) == [b"a"]
    manager.close()


def test_a_new_log_that_is_not_lazy_has_its_identity_and_no_files(tmp_path: Path) -> None:
    manager = open_manager(SystemDisk(), str(tmp_path))
    new_log(manager, lazily=False)
    assert names(tmp_path / "orders-0") == {"partition.metadata"}
    manager.close()


@pytest.mark.parametrize("lazily", [True, False])
@pytest.mark.parametrize("clean", [True, False])
def test_an_untouched_log_is_there_again_after_a_restart(lazily: bool, clean: bool) -> None:
    disk = MemoryDisk()
    manager = open_manager(disk)
    new_log(manager, lazily=lazily)
    manager.close(clean=clean)
    again = open_manager(disk)
    log = new_log(again, lazily=lazily)
    assert log.topic_id == TOPIC_ID
    assert append(log, b"a") == 0
    flush(log)
    again.close(clean=clean)
    last = open_manager(disk)
    assert read_values(last.log(ORDERS)) == [b"a"]
    assert last.log(ORDERS).topic_id == TOPIC_ID


@pytest.mark.parametrize("lazily", [True, False])
def test_what_was_flushed_to_a_new_log_survives_a_crash(lazily: bool) -> None:
    disk = MemoryDisk()
    log = new_log(open_manager(disk), lazily=lazily)
    append(log, b"a")
    flush(log)
    append(log, b"b")
    disk.crash()
    assert read_values(open_manager(disk).log(ORDERS)) == [b"a"]


def test_a_folder_without_a_log_file_is_an_empty_log() -> None:
    # A crash right after the folder was made, before its first file.
    disk = MemoryDisk()
    new_log(open_manager(disk), lazily=False)
    disk.crash()
    manager = open_manager(disk)
    log = manager.log(ORDERS)
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    assert append(log, b"a") == 0


def test_a_full_disk_refuses_the_first_write_and_takes_a_later_one() -> None:
    disk = MemoryDisk()
    log = new_log(open_manager(disk))
    disk.bytes_free = 0
    with pytest.raises(DiskFull):
        append(log, b"a")
    assert log.log_end_offset == 0
    disk.bytes_free = None
    assert append(log, b"a") == 0
    assert read_values(log) == [b"a"]


def test_a_lazy_log_can_be_deleted_before_and_after_its_first_write() -> None:
    disk = MemoryDisk()
    manager = open_manager(disk)
    new_log(manager)
    manager.delete_log(ORDERS)
    assert manager.take_trash() == []
    append(new_log(manager), b"a")
    manager.delete_log(ORDERS)
    assert ORDERS not in manager.logs
    assert new_log(manager).log_end_offset == 0


def test_a_lazy_log_can_be_flushed_cut_and_started_elsewhere_while_empty() -> None:
    disk = MemoryDisk()
    manager = open_manager(disk)
    log = new_log(manager)
    log.truncate_to(0)
    log.delete_records_before(0)
    assert not log.flushing.has_folder
    log.truncate_fully_and_start_at(7)
    assert append(log, b"a") == 7
    flush(log, checkpoint=True)
    manager.close()
    assert read_values(open_manager(disk).log(ORDERS)) == [b"a"]


@pytest.mark.parametrize("count", [1, 300])
def test_a_clean_close_checkpoints_every_log(count: int) -> None:
    disk = MemoryDisk()
    manager = open_manager(disk)
    for number in range(count):
        name = TopicPartition("orders", number)
        append(manager.create_log(name, TOPIC_ID, CONFIG, lazily=True), b"a", b"b")
    manager.close()
    disk.crash()
    again = open_manager(disk)
    assert len(again.logs) == count
    assert {log.recovery_point for log in again} == {2}
    assert all(read_values(log) == [b"a", b"b"] for log in again)


def test_a_log_that_cannot_be_synced_makes_the_close_an_unclean_one() -> None:
    disk = MemoryDisk()
    manager = open_manager(disk)
    for number in range(3):
        name = TopicPartition("orders", number)
        append(manager.create_log(name, TOPIC_ID, CONFIG, lazily=True), b"a")
    disk.sync_fails = lambda path: "orders-1/" in path
    manager.close()
    assert disk.read_file("/data/.kafka_cleanshutdown") is None

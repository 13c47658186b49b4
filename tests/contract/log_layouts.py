"""The layouts that the contract of Log is tried on: a log, its disk's faults, and a restart."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tests.contract.memory_log import MemoryLog
from tests.manual_time import ManualClock
from tests.unit.storage.storage_support import PARTITION

from zhumq.host.disk import Disk
from zhumq.records.batch import batches
from zhumq.storage.log import Log
from zhumq.storage.log_config import LogConfig
from zhumq.storage.segmented_log import SegmentedLog
from zhumq.testing.disk import MemoryDisk
from zhumq.testing.faulty_disk import FaultyDisk

SEGMENT_BYTES = 1_000  # so that a few batches fill one


class Layout(Protocol):
    """One log, its faults, and a restart of it."""

    def open(self, config: LogConfig) -> Log:
        """The log, new and empty."""

    def fill_disk(self) -> None:
        """From now on there is no space."""

    def fail_syncs(self) -> None:
        """From now on no sync succeeds."""

    def repair_disk(self) -> None:
        """There is space again, and syncs succeed."""

    def crash(self) -> Log:
        """The log after a crash, which may lose what was not flushed."""

    def damage(self, offset: int) -> Log:
        """The log after a clean restart in which the batch with this offset changed on the disk."""


class SegmentedLayout:
    """Segment files, on the real disk or on the one in memory."""

    def __init__(self, folder: str, disk: FaultyDisk | MemoryDisk) -> None:
        self._folder = folder
        self._disk = disk
        self._config = LogConfig()

    def open(self, config: LogConfig) -> SegmentedLog:
        self._config = config
        return self._open()

    def _open(self, recovery_point: int = 0, *, clean: bool = False) -> SegmentedLog:
        disk: Disk = self._disk
        self._log = SegmentedLog.open(
            self._folder,
            PARTITION,
            self._config,
            disk=disk,
            clock=ManualClock(),
            recovery_point=recovery_point,
            clean_shutdown=clean,
        )
        return self._log

    def fill_disk(self) -> None:
        if isinstance(self._disk, MemoryDisk):
            self._disk.bytes_free = 0
        else:
            self._disk.is_full = lambda _: True

    def fail_syncs(self) -> None:
        if isinstance(self._disk, MemoryDisk):
            self._disk.sync_fails = lambda _: True
        else:
            self._disk.cannot_sync = lambda _: True

    def repair_disk(self) -> None:
        if isinstance(self._disk, MemoryDisk):
            self._disk.bytes_free = None
            self._disk.sync_fails = lambda _: False
        else:
            self._disk.is_full = self._disk.cannot_sync = lambda _: False

    def crash(self) -> Log:
        self._log.close(clean=False)
        if isinstance(self._disk, MemoryDisk):
            self._disk.crash()
        return self._open()

    def damage(self, offset: int) -> Log:
        end_offset = self._log.log_end_offset
        self._log.close()
        for entry in self._disk.list_directory(self._folder):
            if entry.name.endswith(".log"):
                self._damage_file(f"{self._folder}/{entry.name}", offset)
        return self._open(end_offset, clean=True)

    def _damage_file(self, path: str, offset: int) -> None:
        data = bytearray(self._disk.read_file(path) or b"")
        end = 0
        for batch in batches(bytes(data)):
            end += batch.header.size
            if batch.header.base_offset <= offset <= batch.header.last_offset:
                data[end - 1] ^= 1
        self._disk.write_file(path, data, sync=True)


class MemoryLayout:
    """The log in memory that other tests use."""

    def open(self, config: LogConfig) -> MemoryLog:
        self._log = MemoryLog(PARTITION, config)
        return self._log

    def fill_disk(self) -> None:
        self._log.disk.bytes_free = 0

    def fail_syncs(self) -> None:
        self._log.disk.sync_fails = lambda _: True

    def repair_disk(self) -> None:
        self._log.disk.bytes_free = None
        self._log.disk.sync_fails = lambda _: False

    def crash(self) -> Log:
        self._log.close(clean=False)
        self._log = self._log.reopened()
        return self._log

    def damage(self, offset: int) -> Log:
        self._log.close()
        self._log = self._log.reopened()
        self._log.damage(offset)
        return self._log


LAYOUTS: dict[str, Callable[[Path], Layout]] = {
    "segments on the disk": lambda folder: SegmentedLayout(f"{folder}/orders-0", FaultyDisk()),
    "segments in memory": lambda _: SegmentedLayout("/data/orders-0", MemoryDisk()),
    "batches in memory": lambda _: MemoryLayout(),
}

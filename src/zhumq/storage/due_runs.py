"""Files with the sorted runs of pending messages. They are derived from a log: a restart deletes and rebuilds them."""

import itertools
import logging
from typing import Final

from zhumq.delays.due_index import ENTRY
from zhumq.host.disk import Disk, DiskFile
from zhumq.model.errors import BrokerError, StorageFailed

logger = logging.getLogger(__name__)

FOLDER: Final = "delayed-runs"
SUFFIX: Final = ".run"


class RunFile:
    """A `Run` in a file, which is open only while it is read."""

    __slots__ = ("_count", "_disk", "_path")

    def __init__(self, disk: Disk, path: str, count: int) -> None:
        self._disk = disk
        self._path = path
        self._count = count

    def __len__(self) -> int:
        return self._count

    def read(self, first: int, count: int) -> bytes:
        return self._read(first * ENTRY.size, min(count, self._count - first) * ENTRY.size)

    def read_values(self, start: int, end: int) -> bytes:
        return self._read(self._count * ENTRY.size + start, end - start)

    def _read(self, position: int, size: int) -> bytes:
        if size <= 0:
            return b""
        file = self._disk.open_file(self._path)
        try:
            data = file.read_at(position, size)
        finally:
            file.close()
        if len(data) != size:
            raise StorageFailed(f"{self._path} is cut off")
        return data

    def delete(self) -> None:
        try:
            self._disk.unlink(self._path)
        except BrokerError as reason:  # The next start deletes it.
            logger.warning("%s stays: %s", self._path, reason)


class RunFiles:
    """A `RunStore`: the runs of one shard."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self._numbers = itertools.count()
        self._is_failing = False

    def write(self, entries: bytes, values: bytes) -> RunFile | None:
        path = f"{self._folder}/{next(self._numbers):08d}{SUFFIX}"
        file: DiskFile | None = None
        try:
            self._disk.make_directory(self._folder)
            file = self._disk.open_file(path, create=True)
            file.append((entries, values))
        except BrokerError as reason:
            if not self._is_failing:
                logger.warning("pending messages stay in memory for now: %s", reason)
            self._is_failing = True
            return None
        finally:
            if file is not None:
                file.close()
        self._is_failing = False
        return RunFile(self._disk, path, len(entries) // ENTRY.size)


class DueRuns:
    """The folder of all runs of a broker."""

    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk = disk
        self._folder = f"{data_dir}/{FOLDER}"
        self._numbers = itertools.count()
        try:
            disk.remove_tree(self._folder)
        except BrokerError as reason:
            logger.warning("%s stays: %s", self._folder, reason)

    def new_store(self) -> RunFiles:
        """An empty store for a shard that is loaded."""
        return RunFiles(self._disk, f"{self._folder}/{next(self._numbers)}")

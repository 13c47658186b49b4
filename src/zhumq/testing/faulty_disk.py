"""A real disk with injected failures."""

from collections.abc import Callable, Sequence

from zhumq.host.disk import DiskFile, SystemDisk, SystemFile
from zhumq.model.buffers import Buffer
from zhumq.model.errors import DiskFull, StorageFailed


class FaultyDisk(SystemDisk):
    """The real disk, which is full or fails to sync for the files that a test selects."""

    syncs_by_descriptor = False

    def __init__(self) -> None:
        self.is_full: Callable[[str], bool] = lambda _path: False
        self.cannot_sync: Callable[[str], bool] = lambda _path: False

    def open_file(self, path: str, *, create: bool = False) -> DiskFile:
        return FaultyFile(self, path, create=create)


class FaultyFile(SystemFile):
    __slots__ = ("_disk",)

    def __init__(self, disk: FaultyDisk, path: str, *, create: bool) -> None:
        super().__init__(path, create=create)
        self._disk = disk

    def append(self, parts: Sequence[Buffer]) -> int:
        if self._disk.is_full(self.path):
            raise DiskFull(f"cannot write to {self.path}: No space left on device")
        return super().append(parts)

    def sync(self) -> None:
        if self._disk.cannot_sync(self.path):
            raise StorageFailed(f"cannot sync {self.path}: Input/output error")
        super().sync()

"""A disk in memory that can fill up, fail, and lose unsynced bytes."""

import posixpath
from collections.abc import Callable, Sequence

from zhumq.host.disk import DirectoryEntry, DiskFile, DiskLock, DiskUsage
from zhumq.model.buffers import Buffer
from zhumq.model.errors import DataDirUnusable, DiskFull, StorageFailed

UNLIMITED_BYTES = 2**50  # free space if a test sets no limit


class _Node:
    """A file's bytes, and its bytes at the last sync."""

    __slots__ = ("content", "synced")

    def __init__(self) -> None:
        self.content = bytearray()
        self.synced = b""


class MemoryFile:
    """An open file of a MemoryDisk. Stays readable after the file was unlinked."""

    def __init__(self, disk: "MemoryDisk", path: str, node: _Node) -> None:
        self.path = path
        self._disk = disk
        self._node = node

    @property
    def size(self) -> int:
        return len(self._node.content)

    def append(self, parts: Sequence[Buffer]) -> int:
        position = len(self._node.content)
        data = b"".join(parts)
        self._disk.spend(len(data), self.path)
        self._node.content += data
        return position

    def read_at(self, position: int, length: int) -> bytes:
        self._disk.check_read(self.path)
        return bytes(self._node.content[position : position + length])

    def truncate(self, size: int) -> None:
        content = self._node.content
        del content[size:]
        content.extend(bytes(size - len(content)))

    def sync(self) -> None:
        self._disk.check_sync(self.path)
        self._node.synced = bytes(self._node.content)

    def fileno(self) -> int:
        raise OSError("a file in memory has no descriptor")

    def close(self) -> None:
        """Nothing to release."""


class MemoryLock:
    """A lock that a crash releases."""

    def __init__(self, disk: "MemoryDisk", path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locked.discard(self._path)


class MemoryDisk:
    """Files in memory. Names are durable at once, bytes only when they are synced.

    The faults: `bytes_free` (None: no limit), `sync_fails` and `read_fails` (given a path), and
    `crash`, which keeps only synced bytes and, if `keep` says so, some unsynced ones.
    """

    syncs_by_descriptor = False

    def __init__(self) -> None:
        self.files: dict[str, _Node] = {}
        self.directories: set[str] = set()
        self.locked: set[str] = set()
        self.bytes_free: int | None = None
        self.sync_fails: Callable[[str], bool] = lambda _: False
        self.read_fails: Callable[[str], bool] = lambda _: False
        self.syncs: list[str] = []

    # Faults

    def crash(self, keep: Callable[[str, int], int] = lambda _path, _unsynced: 0) -> None:
        """Lose unsynced bytes; `keep` returns how many of a file's unsynced bytes survive."""
        self.locked.clear()
        for path, node in self.files.items():
            written = bytes(node.content)
            survivor = node.synced
            if written.startswith(survivor):
                count = keep(path, len(written) - len(survivor))
                survivor = written[: len(survivor) + count]
            replacement = _Node()
            replacement.content = bytearray(survivor)
            replacement.synced = survivor
            self.files[path] = replacement

    def spend(self, count: int, path: str) -> None:
        """Use up free space, or raise DiskFull."""
        if self.bytes_free is None:
            return
        if count > self.bytes_free:
            raise DiskFull(f"cannot write to {path}: No space left on device")
        self.bytes_free -= count

    def check_sync(self, path: str) -> None:
        """Record a sync, or raise StorageFailed."""
        self.syncs.append(path)
        if self.sync_fails(path):
            raise StorageFailed(f"cannot sync {path}: Input/output error")

    def check_read(self, path: str) -> None:
        """Raise StorageFailed if this file cannot be read."""
        if self.read_fails(path):
            raise StorageFailed(f"cannot read {path}: Input/output error")

    # The disk

    def open_file(self, path: str, *, create: bool = False) -> DiskFile:
        node = self.files.get(path)
        if node is None:
            if not create or posixpath.dirname(path) not in self.directories:
                raise StorageFailed(f"cannot open {path}: No such file or directory")
            node = self.files[path] = _Node()
        return MemoryFile(self, path, node)

    def read_file(self, path: str) -> bytes | None:
        node = self.files.get(path)
        if node is None:
            return None
        self.check_read(path)
        return bytes(node.content)

    def write_file(self, path: str, data: Buffer, *, sync: bool) -> None:
        if posixpath.dirname(path) not in self.directories:
            raise StorageFailed(f"cannot write {path}: No such file or directory")
        self.spend(len(data), path)
        node = _Node()
        node.content += data
        if sync:
            self.check_sync(path)
            node.synced = bytes(data)
        self.files[path] = node

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        found = [
            DirectoryEntry(posixpath.basename(name), False, len(node.content))
            for name, node in self.files.items()
            if posixpath.dirname(name) == path
        ]
        found.extend(
            DirectoryEntry(posixpath.basename(name), True, 0)
            for name in self.directories
            if posixpath.dirname(name) == path and name != path
        )
        return found

    def make_directory(self, path: str) -> None:
        while path not in self.directories:
            self.directories.add(path)
            path = posixpath.dirname(path)

    def rename(self, source: str, target: str) -> None:
        if source in self.files:
            self.files[target] = self.files.pop(source)
        elif source in self.directories:
            for name in [name for name in self.files if name.startswith(source + "/")]:
                self.files[target + name[len(source) :]] = self.files.pop(name)
            self.directories.remove(source)
            self.directories.add(target)
        else:
            raise StorageFailed(f"cannot rename {source}: No such file or directory")

    def unlink(self, path: str) -> None:
        self.files.pop(path, None)

    def remove_tree(self, path: str) -> None:
        for name in [name for name in self.files if name.startswith(path + "/")]:
            del self.files[name]
        self.directories = {
            name for name in self.directories if name != path and not name.startswith(path + "/")
        }

    def sync_file(self, path: str) -> None:
        node = self.files.get(path)
        if node is not None:
            self.check_sync(path)
            node.synced = bytes(node.content)

    def sync_directory(self, path: str) -> None:
        self.check_sync(path)

    def usage(self, path: str) -> DiskUsage:  # noqa: ARG002 (there is one disk)
        free_bytes = UNLIMITED_BYTES if self.bytes_free is None else self.bytes_free
        used_bytes = sum(len(node.content) for node in self.files.values())
        return DiskUsage(used_bytes=used_bytes, total_bytes=used_bytes + free_bytes)

    def lock(self, path: str) -> DiskLock:
        if path in self.locked:
            raise DataDirUnusable(
                f"another broker is using the data folder {posixpath.dirname(path)}"
            )
        self.locked.add(path)
        self.files.setdefault(path, _Node())
        return MemoryLock(self, path)

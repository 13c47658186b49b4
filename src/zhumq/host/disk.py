"""Disk access: append, read, sync, rename. All file operations of storage go through this module."""

import contextlib
import errno
import fcntl
import itertools
import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from zhumq.model.buffers import Buffer
from zhumq.model.errors import DataDirUnusable, DiskFull, StorageFailed

# Messages and salted credentials are in these files: only the broker's user reads them.
FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
TEMPORARY_SUFFIX = ".tmp"
_temporary_numbers = itertools.count()
VECTOR_PARTS_MAX = 1024  # IOV_MAX on Linux: the most parts one writev takes

# Errors that mean "no space", on the disk or in the table of open files. The operation succeeds again
# once there is space.
NO_ROOM_ERRNOS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUsage:
    """How full a disk is, as `df` counts: what only root can write is neither used nor free."""

    used_bytes: int
    total_bytes: int

    @property
    def free_bytes(self) -> int:
        return self.total_bytes - self.used_bytes

    @property
    def used_percent(self) -> int:
        """Rounded down."""
        return self.used_bytes * 100 // max(self.total_bytes, 1)


class DirectoryEntry(NamedTuple):
    """An entry of a folder listing."""

    name: str
    is_directory: bool
    size: int


class DiskFile(Protocol):
    """An open file that grows at its end. The descriptor is closed with the last reference to it."""

    @property
    def path(self) -> str:
        """The path that the file was opened with."""

    @property
    def size(self) -> int:
        """The bytes in the file, all of them readable."""

    def append(self, parts: Sequence[Buffer]) -> int:
        """Write the parts at the end, all or nothing; returns the position of the first byte."""

    def read_at(self, position: int, length: int) -> bytes:
        """Up to length bytes; fewer only at the end of the file."""

    def truncate(self, size: int) -> None:
        """Cut the file to this size."""

    def sync(self) -> None:
        """Return once all bytes written so far are on the disk. May be called from any thread."""

    def fileno(self) -> int:
        """The descriptor, for sendfile."""

    def close(self) -> None:
        """Close the descriptor now, not with the last reference."""


class DiskLock(Protocol):
    """An exclusive lock of this process on a folder."""

    def release(self) -> None:
        """Release the lock, so that another process can take it."""


class Disk(Protocol):
    """The file system interface of storage. Failures are StorageFailed or DiskFull, never OSError."""

    # Whether fdatasync of its descriptor is all that `sync` of a file does.
    syncs_by_descriptor: bool

    def open_file(self, path: str, *, create: bool = False) -> DiskFile:
        """Open a file to read and append; `create` creates a missing one."""

    def read_file(self, path: str) -> bytes | None:
        """The content of a small file; None if there is no such file."""

    def write_file(self, path: str, data: Buffer, *, sync: bool) -> None:
        """Replace a small file atomically: a reader sees the old or the new content."""

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        """The entries of the folder, in no order; empty if there is no such folder."""

    def make_directory(self, path: str) -> None:
        """Create the folder and its parents; it may exist."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file or a folder, replacing a file of the target's name."""

    def unlink(self, path: str) -> None:
        """Remove a file; it may be gone already."""

    def remove_tree(self, path: str) -> None:
        """Remove a folder with its content; it may be gone already."""

    def sync_file(self, path: str) -> None:
        """Sync a file that is not open; it may be gone already. From any thread."""

    def sync_directory(self, path: str) -> None:
        """Make created, renamed and removed names in this folder durable. From any thread."""

    def usage(self, path: str) -> DiskUsage:
        """How full the disk of this folder is."""

    def lock(self, path: str) -> DiskLock:
        """Lock this file, or raise DataDirUnusable."""


def storage_error(error: OSError, action: str, path: str) -> DiskFull | StorageFailed:
    """The storage error for an error of the operating system."""
    reason = f"cannot {action} {path}: {error.strerror or error}"
    if error.errno in NO_ROOM_ERRNOS:
        return DiskFull(reason)
    return StorageFailed(reason)


class SystemFile:
    """A file of the operating system, written with pwritev at a position that this object keeps."""

    __slots__ = ("_descriptor", "path", "size")

    def __init__(self, path: str, *, create: bool) -> None:
        self._descriptor = -1
        self.path = path
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            self._descriptor = os.open(path, flags, FILE_MODE)
            self.size = os.fstat(self._descriptor).st_size
        except OSError as error:
            raise storage_error(error, "open", path) from error

    def append(self, parts: Sequence[Buffer]) -> int:
        position = self.size
        if len(parts) > VECTOR_PARTS_MAX:
            parts = (b"".join(parts),)
        try:
            written = os.pwritev(self._descriptor, parts, position)
        except OSError as error:
            self._cut_back(position)
            raise storage_error(error, "write to", self.path) from error
        expected = sum(map(len, parts))
        if written != expected:
            written += self._write_rest(parts, position, written)
        self.size = position + written
        return position

    def _write_rest(self, parts: Sequence[Buffer], position: int, written: int) -> int:
        """Write the rest after a short first write. The next write continues, or fails with the reason."""
        rest = memoryview(b"".join(parts))[written:]
        total = 0
        while rest:
            try:
                count = os.pwrite(self._descriptor, rest, position + written + total)
            except OSError as error:
                self._cut_back(position)
                raise storage_error(error, "write to", self.path) from error
            total += count
            rest = rest[count:]
        return total

    def _cut_back(self, size: int) -> None:
        # The next append at this position also overwrites what a failed write left behind.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, size)

    def read_at(self, position: int, length: int) -> bytes:
        try:
            data = os.pread(self._descriptor, length, position)
            if len(data) == length or position + len(data) >= self.size:
                return data
            chunks = [data]
            done = len(data)
            while done < length:
                chunk = os.pread(self._descriptor, length - done, position + done)
                if not chunk:
                    break
                chunks.append(chunk)
                done += len(chunk)
            return b"".join(chunks)
        except OSError as error:
            raise storage_error(error, "read", self.path) from error

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise storage_error(error, "truncate", self.path) from error
        self.size = size

    def sync(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise StorageFailed(f"cannot sync {self.path}: {error.strerror}") from error

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


class SystemLock:
    """An flock on a file. The operating system releases it when the process ends."""

    __slots__ = ("_descriptor",)

    def __init__(self, path: str) -> None:
        self._descriptor = -1
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            raise DataDirUnusable(f"cannot write to {path}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise DataDirUnusable(
                f"another broker is using the data folder {Path(path).parent}"
            ) from error
        self._descriptor = descriptor

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


class SystemDisk:
    """This machine's file system."""

    syncs_by_descriptor = True

    def open_file(self, path: str, *, create: bool = False) -> DiskFile:
        return SystemFile(path, create=create)

    def read_file(self, path: str) -> bytes | None:
        try:
            with open(path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise storage_error(error, "read", path) from error

    def write_file(self, path: str, data: Buffer, *, sync: bool) -> None:
        # A unique name: two threads may write the same file at once.
        temporary = f"{path}.{next(_temporary_numbers)}{TEMPORARY_SUFFIX}"
        try:
            with open(temporary, "wb", buffering=0, opener=_open_private) as file:
                rest = memoryview(data)
                while rest:
                    rest = rest[file.write(rest) :]
                if sync:
                    os.fdatasync(file.fileno())
            Path(temporary).replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
            raise storage_error(error, "write", path) from error
        if sync:
            self.sync_directory(str(Path(path).parent))

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        found = []
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        facts = entry.stat()
                        found.append(
                            DirectoryEntry(entry.name, stat.S_ISDIR(facts.st_mode), facts.st_size)
                        )
        except FileNotFoundError:
            return []
        except OSError as error:
            raise storage_error(error, "list", path) from error
        return found

    def make_directory(self, path: str) -> None:
        try:
            Path(path).mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(error, "make folder", path) from error

    def rename(self, source: str, target: str) -> None:
        try:
            Path(source).replace(target)
        except OSError as error:
            raise storage_error(error, "rename", source) from error

    def unlink(self, path: str) -> None:
        try:
            Path(path).unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error(error, "remove", path) from error

    def remove_tree(self, path: str) -> None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error(error, "remove folder", path) from error

    def sync_file(self, path: str) -> None:
        self._sync(path, os.O_RDONLY)

    def sync_directory(self, path: str) -> None:
        self._sync(path, os.O_RDONLY | os.O_DIRECTORY)

    def _sync(self, path: str, flags: int) -> None:
        try:
            descriptor = os.open(path, flags | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error(error, "open", path) from error
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise StorageFailed(f"cannot sync {path}: {error.strerror}") from error
        finally:
            os.close(descriptor)

    def usage(self, path: str) -> DiskUsage:
        try:
            facts = os.statvfs(path)
        except OSError as error:
            raise storage_error(error, "look at", path) from error
        used_bytes = (facts.f_blocks - facts.f_bfree) * facts.f_frsize
        return DiskUsage(
            used_bytes=used_bytes, total_bytes=used_bytes + facts.f_bavail * facts.f_frsize
        )

    def lock(self, path: str) -> DiskLock:
        return SystemLock(path)

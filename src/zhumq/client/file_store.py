"""A blob store in a folder: atomic writes, and clean-up by age."""

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from zhumq.client.blob_reference import BLOB_NAME
from zhumq.client.errors import BlobMissing

_UNFINISHED: Final = ".tmp"


class FileStore:
    """Blobs as files of a folder, which may be on a file system that several machines share.

    A file appears under its name when all of its bytes are on the disk: a crash leaves no part of a blob,
    only a file that `delete_older_than` removes.
    """

    def __init__(self, folder: str | Path, now: Callable[[], float] = time.time) -> None:
        """The folder is created if it is not there."""
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._now = now

    def put(self, name: str, data: bytes) -> None:
        path = self._path(name)
        path.parent.mkdir(exist_ok=True)
        unfinished = path.parent / f"{name}-{uuid.uuid4().hex}{_UNFINISHED}"
        try:
            with open(unfinished, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise
        # The name, and the folder that it is in, are durable when their folders are.
        _sync_folder(path.parent)
        _sync_folder(self._folder)

    def get(self, name: str, size_max: int) -> bytes:
        try:
            with open(self._path(name), "rb") as file:
                return file.read(size_max)
        except FileNotFoundError as error:
            raise BlobMissing(
                f"blob {name} is not in {self._folder}: it was deleted, or this is not the folder of its producer"
            ) from error

    def delete(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)

    def delete_older_than(self, seconds: float) -> int:
        """Delete the blobs that were stored longer ago, and what crashes left. Returns how many files.

        Keep blobs for longer than the retention of their topics: a message without its blob is of no use.
        """
        if seconds < 0:
            raise ValueError(f"an age of {seconds} s is below zero")
        oldest = self._now() - seconds
        count = 0
        for entry in self._files():
            # Another process may delete the same file.
            with contextlib.suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_mtime < oldest:
                    Path(entry.path).unlink()
                    count += 1
        return count

    def _files(self) -> Iterator[os.DirEntry[str]]:
        """The files that this store has written, and no others that may be in the folder."""
        for number in range(256):
            try:
                entries = os.scandir(self._folder / f"{number:02x}")
            except FileNotFoundError:
                continue
            with entries:
                for entry in entries:
                    name = entry.name.partition("-")[0]
                    if BLOB_NAME.fullmatch(name) and entry.is_file(follow_symlinks=False):
                        yield entry

    def _path(self, name: str) -> Path:
        if not BLOB_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a blob: 32 hexadecimal digits")
        return self._folder / name[:2] / name


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""A small file that the event loop writes, and flushes do in a thread: the newest content stays."""

import threading
from collections.abc import Callable

from zhumq.host.disk import Disk


class NewestFile:
    """Writes are numbered when they are prepared; one that comes after a newer one is left out."""

    __slots__ = ("_disk", "_lock", "_newest", "_path", "_sequence")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._lock = threading.Lock()
        self._sequence = 0
        self._newest = -1

    def prepare(self, encode: Callable[[], bytes], *, sync: bool) -> Callable[[], None]:
        """What writes this content, now or later in a thread, unless newer content was written."""
        sequence, self._sequence = self._sequence, self._sequence + 1

        def write() -> None:
            data = encode()
            with self._lock:
                if sequence > self._newest:
                    self._disk.write_file(self._path, data, sync=sync)
                    self._newest = sequence

        return write

    def drop(self) -> None:
        """Take the file away; what was prepared before is not written any more."""
        sequence, self._sequence = self._sequence, self._sequence + 1
        with self._lock:
            self._newest = sequence
            self._disk.unlink(self._path)

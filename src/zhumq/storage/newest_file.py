"""A small file that the event loop and flush threads write; the newest content wins."""

import threading
from collections.abc import Callable

from zhumq.host.disk import Disk


class NewestFile:
    """Numbers writes when they are prepared, and skips a write after a newer one."""

    __slots__ = ("_disk", "_lock", "_newest", "_path", "_sequence")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._lock = threading.Lock()
        self._sequence = 0
        self._newest = -1

    def prepare(self, encode: Callable[[], bytes], *, sync: bool) -> Callable[[], None]:
        """A function that writes this content, in any thread, unless newer content was written."""
        sequence, self._sequence = self._sequence, self._sequence + 1

        def write() -> None:
            data = encode()
            with self._lock:
                if sequence > self._newest:
                    self._disk.write_file(self._path, data, sync=sync)
                    self._newest = sequence

        return write

    def drop(self) -> None:
        """Remove the file; writes prepared before are skipped."""
        sequence, self._sequence = self._sequence, self._sequence + 1
        with self._lock:
            self._newest = sequence
            self._disk.unlink(self._path)

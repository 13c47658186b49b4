"""A file of lines that is rotated by its size, so that it takes a bounded part of the disk."""

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FILE_MODE: Final = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class RotatedFile:
    """Where the lines go, and the most that is kept of them: `bytes_max` in each of `files` files."""

    path: Path
    bytes_max: int
    files: int

    def check(self) -> None:
        """Raises OSError if the file can be neither opened nor made."""
        os.close(self._open())

    def append(self, data: bytes) -> None:
        """Append whole lines. Raises OSError, and then none of them is in the file."""
        descriptor = self._open()
        try:
            size = os.fstat(descriptor).st_size
            if not size or size + len(data) <= self.bytes_max:
                if os.write(descriptor, data) < len(data):
                    os.ftruncate(descriptor, size)  # no half lines
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return
        finally:
            os.close(descriptor)
        self._rotate()
        self.append(data)

    def _open(self) -> int:
        # A pipe that nothing reads is refused instead of waited for.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        return os.open(self.path, flags, FILE_MODE)

    def _rotate(self) -> None:
        """NAME becomes NAME.1, NAME.1 becomes NAME.2; the oldest one is replaced."""
        for number in range(self.files - 1, 0, -1):
            younger = self.rotated(number - 1)
            if younger.exists():
                younger.replace(self.rotated(number))
        if self.files == 1:
            self.path.unlink()

    def rotated(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path

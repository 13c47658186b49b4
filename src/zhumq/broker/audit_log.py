"""The audit log of a broker: JSON lines in a file that is rotated, written off the event loop."""

import asyncio
import errno
import logging
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from zhumq.host.clock import Clock
from zhumq.security.audit import AuditBuffer, AuditEvent

logger = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 0.2
FILE_MODE: Final = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFile:
    """Where the lines go, and the most that is kept of them: `bytes_max` in each of `files` files."""

    path: Path
    bytes_max: int
    files: int

    def append(self, data: bytes) -> None:
        """Raises OSError."""
        descriptor = os.open(
            self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, FILE_MODE
        )
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


class AuditLog:
    """Collects events and writes them soon. Events are never waited for: a full disk loses some, and
    the log of the broker says so."""

    def __init__(self, file: AuditFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._buffer = AuditBuffer()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._has_failed = False
        self.lines_lost = 0

    def record(self, event: AuditEvent) -> None:
        if self._buffer.add(event):
            self._timer = self._loop.call_later(FLUSH_SECONDS, self._flush)

    async def close(self) -> None:
        """Write what is left."""
        if self._timer is not None:
            self._timer.cancel()
        if self._writing is not None:
            await self._writing
        await self._write()

    def _flush(self) -> None:
        if self._writing is not None and not self._writing.done():  # a slow disk
            self._timer = self._loop.call_later(FLUSH_SECONDS, self._flush)
            return
        self._writing = self._loop.create_task(self._write())

    async def _write(self) -> None:
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        lines = self._buffer.take_lines(now.isoformat("T", "milliseconds").replace("+00:00", "Z"))
        if not lines:
            return
        try:
            await asyncio.to_thread(
                self._file.append, "".join(f"{line}\n" for line in lines).encode()
            )
        except OSError as reason:
            self.lines_lost += len(lines)
            if not self._has_failed:
                logger.error("cannot write the audit log %s: %s", self._file.path, reason.strerror)  # noqa: TRY400
            self._has_failed = True
            return
        if self._has_failed:
            logger.warning("the audit log is written again; %d lines were lost", self.lines_lost)
            self._has_failed = False

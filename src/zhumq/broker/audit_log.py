"""The audit log of a broker: JSON lines in a file that is rotated, written off the event loop."""

import asyncio
import logging
from datetime import UTC, datetime
from typing import Final

from zhumq.host.clock import Clock
from zhumq.host.rotated_file import RotatedFile
from zhumq.security.audit import AuditBuffer, AuditEvent

logger = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 0.2


class AuditLog:
    """Collects events and writes them soon. Events are never waited for: a full disk loses some, and
    the log of the broker says so."""

    def __init__(self, file: RotatedFile, clock: Clock) -> None:
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

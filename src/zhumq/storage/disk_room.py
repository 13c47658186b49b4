"""How full the disk is: reports it in the log, /healthz and metrics, and refuses messages before it is full."""

import logging
from typing import Final

from zhumq.model.errors import BrokerError, DiskFull
from zhumq.storage.log_manager import LogManager
from zhumq.storage.retention import Watermarks, refuses_writes

logger = logging.getLogger(__name__)

LOOK_MS: Final = 1_000
PROBE_FILE: Final = ".room-probe"
# With less free space than this, writing a small probe file tests whether there is space.
LOW_BYTES: Final = 1024 * 1024
PROBE_BYTES: Final = 64 * 1024


class DiskRoom:
    """Whether the disk is full: an append was refused, or the probe file does not fit. And whether it is
    above the mark from which on clients may not write."""

    def __init__(self, logs: LogManager, watermarks: Watermarks) -> None:
        self._logs = logs
        self._watermarks = watermarks
        self._refused = 0
        self.is_full = False
        # Why messages of clients are refused before the disk is full; empty: they are not.
        self.refusal = ""
        self.usage = logs.disk.usage(logs.data_dir)

    def look(self) -> None:
        """Check the disk, and log a change."""
        refused = sum(log.writes_without_room for log in self._logs)
        was_refused, self._refused = refused > self._refused, refused
        self.usage = self._logs.disk.usage(self._logs.data_dir)
        self._look_at_mark()
        low = self.usage.free_bytes < LOW_BYTES
        is_full = was_refused or ((low or self.is_full) and not self._has_room())
        if is_full == self.is_full:
            return
        self.is_full = is_full
        if is_full:
            logger.error(
                "the disk of %s is full (%d bytes free): the broker refuses messages until there is"
                " space",
                self._logs.data_dir,
                self.usage.free_bytes,
            )
        else:
            logger.warning(
                "the disk has space again: %d bytes free in %s",
                self.usage.free_bytes,
                self._logs.data_dir,
            )

    def _look_at_mark(self) -> None:
        marks, is_refusing = self._watermarks, bool(self.refusal)
        refuses = refuses_writes(self.usage, marks, is_refusing=is_refusing)
        if refuses == is_refusing:
            return
        if refuses:
            self.refusal = (
                f"the disk is {self.usage.used_percent} % full: this broker takes no messages until it"
                f" is below {marks.resume_percent} % (disk.watermark.refused.percent={marks.refused_percent})"
            )
            logger.error("%s: %s", self._logs.data_dir, self.refusal)
        else:
            self.refusal = ""
            logger.warning(
                "the disk of %s is %d %% full: messages are taken again",
                self._logs.data_dir,
                self.usage.used_percent,
            )

    def _has_room(self) -> bool:
        # statvfs does not report quotas, so only a write shows whether there is space.
        path = f"{self._logs.data_dir}/{PROBE_FILE}"
        try:
            self._logs.disk.write_file(path, bytes(PROBE_BYTES), sync=False)
            self._logs.disk.unlink(path)
        except DiskFull:
            return False
        except BrokerError as error:
            logger.warning("cannot check the free space of the disk: %s", error)
        return True

"""Reports a full disk in the log, /healthz and metrics. It refuses nothing: an append finds out by itself."""

import logging
from typing import Final

from zhumq.model.errors import BrokerError, DiskFull
from zhumq.storage.log_manager import LogManager

logger = logging.getLogger(__name__)

LOOK_MS: Final = 1_000
PROBE_FILE: Final = ".room-probe"
# With less free space than this, writing a small probe file tests whether there is space.
LOW_BYTES: Final = 1024 * 1024
PROBE_BYTES: Final = 64 * 1024


class DiskRoom:
    """Whether the disk is full: an append was refused, or the probe file does not fit."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._refused = 0
        self.is_full = False
        self.free_bytes = logs.disk.free_bytes(logs.data_dir)

    def look(self) -> None:
        """Check the disk, and log a change."""
        refused = sum(log.writes_without_room for log in self._logs)
        was_refused, self._refused = refused > self._refused, refused
        self.free_bytes = self._logs.disk.free_bytes(self._logs.data_dir)
        low = self.free_bytes < LOW_BYTES
        is_full = was_refused or ((low or self.is_full) and not self._has_room())
        if is_full == self.is_full:
            return
        self.is_full = is_full
        if is_full:
            logger.error(
                "the disk of %s is full (%d bytes free): the broker refuses messages until there is"
                " space",
                self._logs.data_dir,
                self.free_bytes,
            )
        else:
            logger.warning(
                "the disk has space again: %d bytes free in %s",
                self.free_bytes,
                self._logs.data_dir,
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

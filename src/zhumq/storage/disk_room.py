"""Whether the disk of the data folder has room: looked at every second, said once per change."""

import logging
from typing import Final

from zhumq.model.errors import BrokerError, DiskFull
from zhumq.storage.log_manager import LogManager

logger = logging.getLogger(__name__)

LOOK_MS: Final = 1_000
PROBE_FILE: Final = ".room-probe"
# A disk with less room than this is tried with a small file; it is written only in that case.
LOW_BYTES: Final = 1024 * 1024
PROBE_BYTES: Final = 64 * 1024


class DiskRoom:
    """Knows when the disk is full: an append was refused, or a small file does not fit any more."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._refused = 0
        self.is_full = False
        self.free_bytes = logs.disk.free_bytes(logs.data_dir)

    def look(self) -> None:
        """Look again, and say so if that changed."""
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
                "there is no room on the disk of %s (%d bytes free): messages are refused until"
                " there is some",
                self._logs.data_dir,
                self.free_bytes,
            )
        else:
            logger.warning(
                "there is room on the disk again: %d bytes free in %s",
                self.free_bytes,
                self._logs.data_dir,
            )

    def _has_room(self) -> bool:
        # A quota is not in the numbers of the file system, so only a write can tell.
        path = f"{self._logs.data_dir}/{PROBE_FILE}"
        try:
            self._logs.disk.write_file(path, bytes(PROBE_BYTES), sync=False)
            self._logs.disk.unlink(path)
        except DiskFull:
            return False
        except BrokerError as error:
            logger.warning("the room on the disk is not known: %s", error)
        return True

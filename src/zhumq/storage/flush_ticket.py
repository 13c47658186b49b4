"""A flush of one log: prepared on the event loop, run in a thread or by the kernel, finished on the event loop."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from zhumq.host.disk import Disk, DiskFile
from zhumq.model.errors import BrokerError, StorageFailed


@dataclass(slots=True, kw_only=True)
class FlushTicket:
    """The files to sync so that everything below next_offset is durable."""

    next_offset: int
    truncations: int  # how often the log had been truncated when the flush began
    disk: Disk
    files: Sequence[DiskFile]
    directories: Sequence[str] = ()  # with new file names
    # For a checkpoint: files that a restart reads in place of the log below next_offset.
    is_checkpoint: bool = False
    paths: Sequence[str] = ()
    writes: Sequence[Callable[[], None]] = ()
    error: BrokerError | None = field(default=None)

    @property
    def has_files_only(self) -> bool:
        """Whether a sync of the files is all there is to do."""
        return not (self.paths or self.directories or self.writes)

    def synced(self, code: int) -> None:
        """The files are synced; or, with an errno, cannot be."""
        if code:
            self.error = StorageFailed(f"cannot sync {self.files[-1].path}: {os.strerror(code)}")

    def run(self) -> None:
        """Sync the files. Called in a thread; uses only the log's files, not its state."""
        try:
            for file in self.files:
                file.sync()
            for path in self.paths:
                self.disk.sync_file(path)
            for directory in self.directories:
                self.disk.sync_directory(directory)
        except BrokerError as error:
            self.error = error
            return
        try:
            for write in self.writes:
                write()
        except StorageFailed as error:
            self.error = error
        except BrokerError:
            # No space for the checkpoint: the data is durable, but a restart has to read more.
            self.is_checkpoint = False

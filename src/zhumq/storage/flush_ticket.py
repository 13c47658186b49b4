"""A flush of one log: prepared on the event loop, run in a thread, finished on the event loop."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from zhumq.host.disk import Disk, DiskFile
from zhumq.model.errors import BrokerError, StorageFailed


@dataclass(slots=True, kw_only=True)
class FlushTicket:
    """What has to reach the disk so that everything below next_offset is there."""

    next_offset: int
    truncations: int  # how often the log had been truncated when the flush began
    disk: Disk
    files: Sequence[DiskFile]
    directories: Sequence[str] = ()  # in which names were made
    # For a checkpoint: what a restart will use instead of reading the log below next_offset.
    is_checkpoint: bool = False
    paths: Sequence[str] = ()
    writes: Sequence[Callable[[], None]] = ()
    error: BrokerError | None = field(default=None)

    def run(self) -> None:
        """Sync. Called in a thread; touches nothing of the log but its files."""
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
            # No room for the checkpoint: the data itself is on disk, only a restart reads more.
            self.is_checkpoint = False

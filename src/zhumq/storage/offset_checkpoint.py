"""The checkpoint files of a data folder: one offset for each log, as of one moment."""

from collections.abc import Mapping
from dataclasses import dataclass

from zhumq.host.disk import Disk
from zhumq.model.errors import BrokerError
from zhumq.model.ids import TopicPartition
from zhumq.storage.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    write_offsets,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCheckpoint:
    """The offsets of all logs at one moment, to be written down by a thread."""

    disk: Disk
    data_dir: str
    recovery_points: Mapping[TopicPartition, int]
    log_start_offsets: Mapping[TopicPartition, int]
    first_dirty_offsets: Mapping[TopicPartition, int]
    high_watermarks: Mapping[TopicPartition, int] | None

    def run(self) -> None:
        """Write the checkpoint files. May be called in a thread."""
        write_offsets(self.disk, f"{self.data_dir}/{RECOVERY_POINT_FILE}", self.recovery_points)
        write_offsets(self.disk, f"{self.data_dir}/{LOG_START_FILE}", self.log_start_offsets)
        write_offsets(self.disk, f"{self.data_dir}/{CLEANER_FILE}", self.first_dirty_offsets)
        if self.high_watermarks is not None:
            write_offsets(self.disk, f"{self.data_dir}/{HIGH_WATERMARK_FILE}", self.high_watermarks)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownOffsets:
    """What the checkpoint files say about one log."""

    recovery_point: int = 0
    log_start_offset: int = 0
    first_dirty_offset: int = 0
    clean_shutdown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UnopenedLog:
    """A log that could not be opened: why, and what is needed to try again."""

    error: BrokerError
    known: KnownOffsets

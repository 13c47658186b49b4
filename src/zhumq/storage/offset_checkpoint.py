"""The checkpoint files of a data folder: one offset for each log, as of one moment."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from zhumq.host.disk import Disk
from zhumq.model.errors import BrokerError
from zhumq.model.ids import TopicPartition
from zhumq.storage.checkpoint_sums import write_sums
from zhumq.storage.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    encode_offsets,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCheckpoint:
    """The offsets of all logs at one moment, to be written in a thread."""

    disk: Disk
    data_dir: str
    lock: threading.Lock = field(compare=False)  # one writer at a time
    recovery_points: Mapping[TopicPartition, int]
    log_start_offsets: Mapping[TopicPartition, int]
    first_dirty_offsets: Mapping[TopicPartition, int]
    high_watermarks: Mapping[TopicPartition, int] | None

    def run(self) -> None:
        """Write the checkpoint files. May be called in a thread."""
        contents = {
            RECOVERY_POINT_FILE: encode_offsets(self.recovery_points),
            LOG_START_FILE: encode_offsets(self.log_start_offsets),
            CLEANER_FILE: encode_offsets(self.first_dirty_offsets),
        }
        if self.high_watermarks is not None:
            contents[HIGH_WATERMARK_FILE] = encode_offsets(self.high_watermarks)
        with self.lock:
            write_sums(self.disk, self.data_dir, contents)
            for name, content in contents.items():
                self.disk.write_file(f"{self.data_dir}/{name}", content, sync=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownOffsets:
    """The offsets of one log in the checkpoint files."""

    recovery_point: int = 0
    log_start_offset: int = 0
    first_dirty_offset: int = 0
    clean_shutdown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UnopenedLog:
    """A log that could not be opened: the error, and the offsets for another attempt."""

    error: BrokerError
    known: KnownOffsets

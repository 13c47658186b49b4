"""The state of a log and how it becomes durable: flushes, checkpoints, new segments."""

import contextlib
import logging
import uuid
from collections.abc import Callable

from zhumq.host.clock import Clock
from zhumq.host.disk import Disk
from zhumq.model.errors import BrokerError, DiskFull, StorageFailed
from zhumq.model.ids import TopicPartition
from zhumq.storage.checkpoints import (
    LEADER_EPOCH_FILE,
    PARTITION_FILE,
    encode_leader_epochs,
)
from zhumq.storage.flush_ticket import FlushTicket
from zhumq.storage.index_cache import IndexCache
from zhumq.storage.leader_epochs import LeaderEpochs
from zhumq.storage.log_config import LogConfig
from zhumq.storage.log_files import SNAPSHOT_SUFFIX, file_prefix
from zhumq.storage.log_slice import CorruptRange
from zhumq.storage.manifest import Manifest, ManifestFile, SealedRecord
from zhumq.storage.new_log import LoadedLog
from zhumq.storage.newest_file import NewestFile
from zhumq.storage.producer_snapshot import encode_snapshot
from zhumq.storage.producer_state import ProducerState
from zhumq.storage.segment import Segment
from zhumq.storage.segment_list import SegmentList

logger = logging.getLogger(__name__)


class LogState:
    """The segments of one partition, its offsets and epochs, and how much of it is durable."""

    def __init__(
        self,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        loaded: LoadedLog,
        *,
        disk: Disk,
        clock: Clock,
        cache: IndexCache,
        topic_id: uuid.UUID | None,
    ) -> None:
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        # Invariant: log_start_offset <= recovery_point <= flushed_offset <= log_end_offset.
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.flushed_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self.first_dirty_offset = 0  # everything below was compacted
        self.gaps_end = loaded.gaps_end  # compaction removed offsets below this one only
        # Only the leader applies the retention policy: a follower adopts its log start offset.
        self.is_follower = False
        # Whether there are other replicas. Retention then keeps the last batch, with its epoch.
        self.is_replicated = False
        self.leader_epochs: LeaderEpochs = loaded.leader_epochs
        self.producer_state: ProducerState = loaded.producer_state
        # Called before a truncation below the recovery point, so that the recovery point on disk is
        # never past the end of the log.
        self.before_recovery_point_falls: Callable[[], None] = lambda: None
        self._disk = disk
        self._clock = clock
        self._cache = cache
        self._segments = SegmentList(topic_partition, loaded.segments)
        self._manifest_file = ManifestFile(disk, directory)
        self._epochs_file = NewestFile(disk, f"{directory}/{LEADER_EPOCH_FILE}")
        # The active segment of the last checkpoint, and its size at that time.
        active = self._segments.active
        is_flushed = loaded.recovery_point == loaded.log_end_offset
        self._checkpointed_active = (active.base_offset, active.size if is_flushed else 0)
        self._failure: StorageFailed | None = None
        self.writes_without_room = 0  # appends that a full disk refused
        self._is_closed = False
        self._truncations = 0
        self._unsynced_segments: list[Segment] = []  # sealed since the last flush
        self._has_new_files = loaded.is_new
        self._is_new = loaded.is_new  # the next flush syncs the folder itself as well
        self._had_folder = loaded.has_folder
        self._unsynced_index_paths: list[str] = []
        self._bytes_since_checkpoint = 0
        self._checkpoint_at_ms = clock.monotonic_ms()
        self._checkpoint_snapshot = loaded.snapshot_offset  # the newest one that is on disk

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return self._segments.size_bytes

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self._segments.all

    @property
    def has_folder(self) -> bool:
        """Whether the log has a folder on the disk; a new log may have none yet."""
        return self._had_folder or self._segments.active.has_files

    def make_files(self) -> None:
        """Create the folder and the files now, if they do not exist yet."""
        if not self._segments.active.has_files:
            _ = self._segments.active.file

    @property
    def corrupt_ranges(self) -> tuple[CorruptRange, ...]:
        """The damaged ranges with valid batches behind them."""
        return self._segments.corrupt_ranges

    @property
    def failure(self) -> StorageFailed | None:
        """Why the log is offline; None while it works."""
        return self._failure

    @property
    def first_undecided_offset(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return self.producer_state.first_undecided_offset

    def _note_failed_write(self, error: BrokerError) -> None:
        if isinstance(error, DiskFull):
            self.writes_without_room += 1
        elif isinstance(error, StorageFailed):
            self._failure = error

    # Flushing

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether a restart would have to read much since the last checkpoint, or sealed segments
        need a checkpoint before they can be compacted."""
        if self.log_end_offset == self.recovery_point or self._failure is not None:
            return False
        if self.config.is_compacted and self._segments.active.base_offset > self.recovery_point:
            return True
        age_ms = self._clock.monotonic_ms() - self._checkpoint_at_ms
        return (
            self._bytes_since_checkpoint >= self.config.checkpoint_bytes
            or age_ms >= self.config.checkpoint_ms
        )

    def begin_flush(self, *, checkpoint: bool = False) -> FlushTicket | None:
        """The files that a thread has to sync now; None if there are none. One flush at a time."""
        if self._failure is not None:
            return None
        checkpoint = checkpoint or self.is_checkpoint_due
        if (
            self.flushed_offset == self.log_end_offset
            and not self._has_new_files
            and not (checkpoint and self.recovery_point < self.log_end_offset)
        ):
            return None
        files = [segment.file for segment in self._unsynced_segments]
        files.append(self._segments.active.file)
        ticket = FlushTicket(
            next_offset=self.log_end_offset,
            truncations=self._truncations,
            disk=self._disk,
            files=files,
            directories=(self.directory,) if self._has_new_files else (),
        )
        if self._is_new:
            self._is_new = False
            ticket.paths = (f"{self.directory}/{PARTITION_FILE}",)
            ticket.directories = (self.directory, self.directory.rpartition("/")[0])
        if checkpoint:
            self._prepare_checkpoint(ticket)
        self._unsynced_segments = []
        self._has_new_files = False
        return ticket

    def _prepare_checkpoint(self, ticket: FlushTicket) -> None:
        try:
            self._segments.active.write_indexes(final=False)
        except BrokerError as error:
            # The data can still be synced; the next checkpoint tries again.
            logger.warning("%s: cannot write a checkpoint: %s", self.topic_partition, error)
            return
        ticket.is_checkpoint = True
        active = self._segments.active
        self._checkpointed_active = (active.base_offset, active.size)
        ticket.paths = (
            *ticket.paths,
            *self._unsynced_index_paths,
            *self._segments.active.paths[1:],
        )
        self._unsynced_index_paths = []
        snapshot = file_prefix(self.directory, self.log_end_offset) + SNAPSHOT_SUFFIX
        producers = encode_snapshot(self.producer_state)
        ticket.writes = (
            self._manifest_file.prepare(self._manifest(ticket.next_offset)),
            lambda: self._disk.write_file(snapshot, producers, sync=True),
            self._prepare_leader_epochs(sync=True),
        )
        self._bytes_since_checkpoint = 0
        self._checkpoint_at_ms = self._clock.monotonic_ms()

    def finish_flush(self, ticket: FlushTicket) -> None:
        """Apply a ticket that a thread has run: move the flushed offset, or take the log offline."""
        if self._is_closed:
            return
        if ticket.error is not None:
            # The kernel forgets which pages it could not write, so a second fsync would wrongly succeed.
            logger.error("%s: flush failed, going offline: %s", self.topic_partition, ticket.error)
            self._failure = StorageFailed(f"{self.topic_partition} is offline: {ticket.error}")
            return
        if ticket.truncations != self._truncations:
            return  # Offsets below next_offset may have been overwritten since.
        self.flushed_offset = max(self.flushed_offset, ticket.next_offset)
        if ticket.is_checkpoint:
            self._take_checkpoint(ticket.next_offset)

    def _take_checkpoint(self, next_offset: int) -> None:
        self.recovery_point = max(self.recovery_point, next_offset)
        previous, self._checkpoint_snapshot = self._checkpoint_snapshot, next_offset
        if previous not in (-1, next_offset) and not self._segments.has_base(previous):
            with contextlib.suppress(StorageFailed):
                self._disk.unlink(file_prefix(self.directory, previous) + SNAPSHOT_SUFFIX)

    def flush(self, *, checkpoint: bool = False) -> None:
        """Flush and wait. For startup, shutdown and tools; the event loop uses a ticket."""
        ticket = self.begin_flush(checkpoint=checkpoint)
        if ticket is not None:
            ticket.run()
            self.finish_flush(ticket)
        if self._failure is not None:
            raise self._failure

    def roll(self) -> None:
        """Begin a new segment at the end of the log."""
        previous = self._segments.active
        if not previous.size:
            return
        previous.write_indexes(final=True)
        segment = self._new_segment(self.log_end_offset)
        if self._checkpoint_snapshot != segment.base_offset:
            data = encode_snapshot(self.producer_state)
            self._disk.write_file(segment.prefix + SNAPSHOT_SUFFIX, data, sync=False)
        previous.seal(segment.base_offset)
        self._unsynced_segments.append(previous)
        self._unsynced_index_paths.extend(previous.paths[1:])
        self._unsynced_index_paths.append(segment.prefix + SNAPSHOT_SUFFIX)
        self._has_new_files = True
        self._segments.add(segment)

    def _new_segment(self, base_offset: int) -> Segment:
        return Segment.create(
            self.directory,
            base_offset,
            disk=self._disk,
            cache=self._cache,
            index_interval_bytes=self.config.index_interval_bytes,
        )

    @property
    def truncations(self) -> int:
        """The number of truncations since the log was opened."""
        return self._truncations

    def flushed_segments(self) -> list[tuple[Segment, int]]:
        """The segments with flushed bytes, and the number of those bytes."""
        found = [
            (each, each.size)
            for each in self._segments.all[:-1]
            if each.size
            and each.next_offset is not None
            and each.next_offset <= self.flushed_offset
        ]
        base_offset, size = self._checkpointed_active
        if size and base_offset == self._segments.active.base_offset:
            found.append((self._segments.active, size))
        return found

    def _manifest(self, recovery_point: int) -> Manifest:
        base_offset, size = self._checkpointed_active
        active = self._segments.active
        return Manifest(
            topic_id=self.topic_id,
            log_start_offset=self.log_start_offset,
            recovery_point=recovery_point,
            gaps_end=self.gaps_end,
            active_base_offset=active.base_offset,
            active_size=size if base_offset == active.base_offset else 0,
            epochs=self.leader_epochs.entries,
            sealed=tuple(
                SealedRecord(each.base_offset, each.next_offset, each.size, each.checksum)
                for each in self._segments.all[:-1]
                if each.next_offset is not None and each.next_offset <= recovery_point
            ),
        )

    def write_manifest(self) -> None:
        """Write the manifest. Called before files are removed, so that they do not count as lost."""
        if self.has_folder and not self._is_new:
            self._manifest_file.replace(self._manifest(self.recovery_point))

    def _write_leader_epochs(self) -> None:
        # Without a sync: recovery reads the epochs past the recovery point from the batches, and a
        # checkpoint writes the file durably.
        if self._is_new:
            return  # Nothing is flushed yet. Saves one file when many logs are created.
        self.write_manifest()
        self._prepare_leader_epochs(sync=False)()

    def _prepare_leader_epochs(self, *, sync: bool) -> Callable[[], None]:
        data = encode_leader_epochs(self.leader_epochs)
        return self._epochs_file.prepare(lambda: data, sync=sync)

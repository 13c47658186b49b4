"""Makes a segmented log durable: flushes, checkpoints, and new segments."""

import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from zhumq.host.clock import Clock
from zhumq.model.errors import BrokerError, StorageFailed
from zhumq.storage.checkpoints import LEADER_EPOCH_FILE, PARTITION_FILE, encode_leader_epochs
from zhumq.storage.flush_ticket import FlushTicket
from zhumq.storage.log_files import SNAPSHOT_SUFFIX, file_prefix
from zhumq.storage.manifest import Manifest, ManifestFile, SealedRecord
from zhumq.storage.new_log import LoadedLog
from zhumq.storage.newest_file import NewestFile
from zhumq.storage.producer_snapshot import encode_snapshot
from zhumq.storage.segment import Segment

if TYPE_CHECKING:
    from zhumq.storage.segmented_log import SegmentedLog

logger = logging.getLogger(__name__)


class LogFlushing:
    """What of a log is not durable yet, and the files that a restart reads in place of its batches."""

    def __init__(self, log: "SegmentedLog", loaded: LoadedLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._manifest_file = ManifestFile(log.disk, log.directory)
        self._epochs_file = NewestFile(log.disk, f"{log.directory}/{LEADER_EPOCH_FILE}")
        # The active segment of the last checkpoint, and its size at that time.
        active = log.segments.active
        is_flushed = loaded.recovery_point == loaded.log_end_offset
        self._checkpointed_active = (active.base_offset, active.size if is_flushed else 0)
        self._unsynced_segments: list[Segment] = []  # sealed since the last flush
        self._unsynced_index_paths: list[str] = []
        self._has_new_files = loaded.is_new
        self._is_new = loaded.is_new  # the next flush syncs the folder itself as well
        self._had_folder = loaded.has_folder
        self._checkpoint_at_ms = clock.monotonic_ms()
        self._checkpointed_bytes = 0  # of those written since the log was opened
        self.snapshot_offset = loaded.snapshot_offset  # of the newest snapshot on disk

    @property
    def has_folder(self) -> bool:
        """Whether the log has a folder on the disk; a new log may have none yet."""
        return self._had_folder or self._log.segments.active.has_files

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether a restart would have to read much since the last checkpoint, or sealed segments
        need a checkpoint before they can be compacted."""
        log = self._log
        config = log.config
        if log.log_end_offset == log.recovery_point or log.failure is not None:
            return False
        if config.is_compacted and log.segments.active.base_offset > log.recovery_point:
            return True
        age_ms = self._clock.monotonic_ms() - self._checkpoint_at_ms
        return (
            log.bytes_written - self._checkpointed_bytes >= config.checkpoint_bytes
            or age_ms >= config.checkpoint_ms
        )

    # Flushes

    def begin(self, *, checkpoint: bool = False) -> FlushTicket | None:
        """The files that a thread has to sync now; None if there are none. One flush at a time."""
        log = self._log
        if log.failure is not None:
            return None
        checkpoint = checkpoint or self.is_checkpoint_due
        if (
            log.flushed_offset == log.log_end_offset
            and not self._has_new_files
            and not (checkpoint and log.recovery_point < log.log_end_offset)
        ):
            return None
        files = [segment.file for segment in self._unsynced_segments]
        files.append(log.segments.active.file)
        ticket = FlushTicket(
            next_offset=log.log_end_offset,
            truncations=log.truncations,
            disk=log.disk,
            files=files,
            directories=(log.directory,) if self._has_new_files else (),
        )
        if self._is_new:
            self._is_new = False
            ticket.paths = (f"{log.directory}/{PARTITION_FILE}",)
            ticket.directories = (log.directory, log.directory.rpartition("/")[0])
        if checkpoint:
            self._prepare_checkpoint(ticket)
        self._unsynced_segments = []
        self._has_new_files = False
        return ticket

    def begin_last(self) -> FlushTicket | None:
        """The files to sync before a clean close; None if there are none."""
        log = self._log
        # A log that never held a record has nothing to lose: the next start creates it again.
        if log.failure is not None or (self._is_new and log.log_end_offset == 0):
            return None
        log.segments.active.write_indexes(final=True)
        return self.begin(checkpoint=True)

    def _prepare_checkpoint(self, ticket: FlushTicket) -> None:
        log = self._log
        active = log.segments.active
        try:
            active.write_indexes(final=False)
            transaction_indexes = log.transaction_indexes.write()
        except BrokerError as error:
            # The data can still be synced; the next checkpoint tries again.
            logger.warning("%s: cannot write a checkpoint: %s", log.topic_partition, error)
            return
        ticket.is_checkpoint = True
        self._checkpointed_active = (active.base_offset, active.size)
        ticket.paths = (
            *ticket.paths,
            *self._unsynced_index_paths,
            *active.paths[1:],
            *transaction_indexes,
        )
        if transaction_indexes and not ticket.directories:
            ticket.directories = (log.directory,)
        self._unsynced_index_paths = []
        snapshot = file_prefix(log.directory, log.log_end_offset) + SNAPSHOT_SUFFIX
        producers = encode_snapshot(log.producer_state)
        ticket.writes = (
            self._manifest_file.prepare(self._manifest(ticket.next_offset)),
            lambda: log.disk.write_file(snapshot, producers, sync=True),
            self._prepare_leader_epochs(sync=True),
        )
        self._checkpointed_bytes = log.bytes_written
        self._checkpoint_at_ms = self._clock.monotonic_ms()

    def finish(self, ticket: FlushTicket) -> None:
        """Apply a ticket that a thread has run: move the flushed offset, or take the log offline."""
        log = self._log
        if log.is_closed:
            return
        if ticket.error is not None:
            # The kernel forgets which pages it could not write, so a second fsync would wrongly succeed.
            logger.error("%s: flush failed, going offline: %s", log.topic_partition, ticket.error)
            log.failure = StorageFailed(f"{log.topic_partition} is offline: {ticket.error}")
            return
        if ticket.truncations != log.truncations:
            return  # Offsets below next_offset may have been overwritten since.
        log.flushed_offset = max(log.flushed_offset, ticket.next_offset)
        if ticket.is_checkpoint:
            self._take_checkpoint(ticket.next_offset)

    def _take_checkpoint(self, next_offset: int) -> None:
        log = self._log
        log.recovery_point = max(log.recovery_point, next_offset)
        previous, self.snapshot_offset = self.snapshot_offset, next_offset
        if previous not in (-1, next_offset) and not log.segments.has_base(previous):
            with contextlib.suppress(StorageFailed):
                log.disk.unlink(file_prefix(log.directory, previous) + SNAPSHOT_SUFFIX)

    def flushed_segments(self) -> list[tuple[Segment, int]]:
        """The segments with flushed bytes, and the number of those bytes."""
        segments = self._log.segments
        found = [
            (each, each.size)
            for each in segments.all[:-1]
            if each.size
            and each.next_offset is not None
            and each.next_offset <= self._log.flushed_offset
        ]
        base_offset, size = self._checkpointed_active
        if size and base_offset == segments.active.base_offset:
            found.append((segments.active, size))
        return found

    # Changes of the segments

    def roll(self) -> None:
        """Begin a new segment at the end of the log."""
        log = self._log
        previous = log.segments.active
        if not previous.size:
            return
        previous.write_indexes(final=True)
        transaction_indexes = log.transaction_indexes.write()
        segment = log.new_segment(log.log_end_offset)
        snapshot = segment.prefix + SNAPSHOT_SUFFIX
        if self.snapshot_offset != segment.base_offset:
            log.disk.write_file(snapshot, encode_snapshot(log.producer_state), sync=False)
        previous.seal(segment.base_offset)
        self._unsynced_segments.append(previous)
        self._unsynced_index_paths += (*previous.paths[1:], *transaction_indexes, snapshot)
        self._has_new_files = True
        log.segments.add(segment)

    def before_truncation(self) -> None:
        """Flushes under way no longer count, and the next one makes the truncation durable."""
        self._log.truncations += 1
        self._has_new_files = True
        self._checkpointed_active = (-1, 0)

    def forget_removed(self) -> None:
        """Do not sync segments that are no longer in the log."""
        kept = self._log.segments.all
        self._unsynced_segments = [each for each in self._unsynced_segments if each in kept]

    # Manifest and leader epochs

    def _manifest(self, recovery_point: int) -> Manifest:
        log = self._log
        base_offset, size = self._checkpointed_active
        active = log.segments.active
        return Manifest(
            topic_id=log.topic_id,
            log_start_offset=log.log_start_offset,
            recovery_point=recovery_point,
            gaps_end=log.proof.gaps_end,
            active_base_offset=active.base_offset,
            active_size=size if base_offset == active.base_offset else 0,
            epochs=log.leader_epochs.entries,
            sealed=tuple(
                SealedRecord(each.base_offset, each.next_offset, each.size, each.checksum)
                for each in log.segments.all[:-1]
                if each.next_offset is not None and each.next_offset <= recovery_point
            ),
            transaction_indexes=log.transaction_indexes.proofs,
        )

    def write_manifest(self) -> None:
        """Write the manifest. Called before files are removed, so that they do not count as lost."""
        if self.has_folder and not self._is_new:
            self._manifest_file.replace(self._manifest(self._log.recovery_point))

    def drop_manifest(self) -> None:
        """Remove the manifest before all files are removed."""
        self._manifest_file.drop()

    def write_leader_epochs(self) -> None:
        """Write changed epochs, if there is anything on the disk that they would contradict."""
        # Without a sync: recovery reads the epochs past the recovery point from the batches, and a
        # checkpoint writes the file durably.
        if self._is_new:
            return  # Nothing is flushed yet. Saves one file when many logs are created.
        self.write_manifest()
        self._prepare_leader_epochs(sync=False)()

    def _prepare_leader_epochs(self, *, sync: bool) -> Callable[[], None]:
        data = encode_leader_epochs(self._log.leader_epochs)
        return self._epochs_file.prepare(lambda: data, sync=sync)

"""The data folder of a broker: its lock and owner, its logs, and their checkpoint files."""

import contextlib
import logging
import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from zhumq.host.clock import Clock
from zhumq.host.disk import Disk, DiskLock
from zhumq.model.errors import (
    BrokerError,
    DiskFull,
    InconsistentTopicId,
    UnknownTopicOrPartition,
)
from zhumq.model.ids import TopicPartition
from zhumq.storage.checkpoint_sums import Sums, is_as_written, read_sums
from zhumq.storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    PARTITION_FILE,
    RECOVERY_POINT_FILE,
    CheckpointCorrupt,
    MetaProperties,
    decode_offsets,
    write_topic_id,
)
from zhumq.storage.compaction import CompactionTicket
from zhumq.storage.data_folder import lock_data_dir, parse_folder_name
from zhumq.storage.flush_ticket import FlushTicket
from zhumq.storage.index_cache import IndexCache
from zhumq.storage.log import Log
from zhumq.storage.log_compaction import begin_compaction, finish_compaction
from zhumq.storage.log_config import LogConfig
from zhumq.storage.offset_checkpoint import KnownOffsets, OffsetCheckpoint, UnopenedLog
from zhumq.storage.retention import ReplicaFacts
from zhumq.storage.segmented_log import SegmentedLog

logger = logging.getLogger(__name__)

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"  # a folder of an unknown topic: the broker never removes it
FOLDER_NAME_MAX = 255  # the limit of file systems
# At shutdown: the number of logs that are synced at the same time, and prepared at once.
CLOSE_THREADS = 16
CLOSED_AT_ONCE = 256
CLEAN_SHUTDOWN_CONTENT = b'{"version":0,"brokerEpoch":-1}'


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCompaction:
    """A compaction in progress."""

    log: SegmentedLog
    ticket: CompactionTicket
    checkpoint: OffsetCheckpoint

    def run(self) -> None:
        """Compact. Called in a thread."""
        try:
            # Recovery must not scan the gaps of compaction, so the recovery points are written first.
            self.checkpoint.run()
        except BrokerError as error:
            self.ticket.error = error
            return
        self.ticket.run()


class LogManager:
    """All logs of one broker. Holds the lock of the data folder from open to close."""

    def __init__(
        self,
        data_dir: str,
        meta: MetaProperties,
        lock: DiskLock,
        *,
        disk: Disk,
        clock: Clock,
    ) -> None:
        self.data_dir = data_dir
        self.broker_id = meta.broker_id
        self.cluster_id = meta.cluster_id
        # The logs that could not be opened. Their folders are left as they are.
        self._unopened: dict[TopicPartition, UnopenedLog] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}  # from the last checkpoint
        self._disk = disk
        self._clock = clock
        self._lock = lock
        self._cache = IndexCache()
        self._logs: dict[TopicPartition, SegmentedLog] = {}
        self._checkpoint_lock = threading.Lock()
        self._begun_checkpoint: OffsetCheckpoint | None = None
        self._compacting: set[SegmentedLog] = set()
        self._trash: list[tuple[int, str]] = []  # when to remove it, and what
        self._is_loaded = False

    @classmethod
    def open(
        cls,
        data_dir: str,
        *,
        disk: Disk,
        clock: Clock,
        broker_id: int,
        cluster_id: str | None = None,
        config_of: Callable[[str], LogConfig] = lambda _: LogConfig(),
    ) -> "LogManager":
        """Lock the folder and open every log in it; config_of returns the settings of a topic."""
        manager = cls.take(
            data_dir, disk=disk, clock=clock, broker_id=broker_id, cluster_id=cluster_id
        )
        try:
            manager.load(config_of)
        except BaseException:
            manager._lock.release()
            raise
        return manager

    @classmethod
    def take(
        cls,
        data_dir: str,
        *,
        disk: Disk,
        clock: Clock,
        broker_id: int,
        cluster_id: str | None = None,
    ) -> "LogManager":
        """Lock the folder, and create it if it is missing, without opening its logs. Without a cluster
        id, the folder keeps its own or gets a new one."""
        meta, lock = lock_data_dir(data_dir, broker_id, cluster_id, disk)
        return cls(data_dir, meta, lock, disk=disk, clock=clock)

    def load(self, config_of: Callable[[str], LogConfig]) -> None:
        """Open every log in the folder, with the settings of its topic."""
        clean_path = f"{self.data_dir}/{CLEAN_SHUTDOWN_FILE}"
        clean = self._disk.read_file(clean_path) is not None
        sums = read_sums(self._disk, self.data_dir)
        recovery_points = self._read_offsets(RECOVERY_POINT_FILE, sums)
        log_start_offsets = self._read_offsets(LOG_START_FILE, sums)
        first_dirty_offsets = self._read_offsets(CLEANER_FILE, sums)
        self.high_watermarks = self._read_offsets(HIGH_WATERMARK_FILE, sums)
        configs: dict[str, LogConfig] = {}
        for entry in self._disk.list_directory(self.data_dir):
            if not entry.is_directory:
                continue
            if entry.name.endswith(DELETE_SUFFIX):
                self._trash.append((0, f"{self.data_dir}/{entry.name}"))
                continue
            topic_partition = parse_folder_name(entry.name)
            if topic_partition is None:
                continue
            config = configs.get(topic_partition.topic) or config_of(topic_partition.topic)
            configs[topic_partition.topic] = config
            known = KnownOffsets(
                recovery_point=recovery_points.get(topic_partition, 0),
                log_start_offset=log_start_offsets.get(topic_partition, 0),
                first_dirty_offset=first_dirty_offsets.get(topic_partition, 0),
                clean_shutdown=clean and topic_partition in recovery_points,
            )
            try:
                self._open_known(topic_partition, None, config, known)
            except BrokerError:
                logger.exception("%s cannot be opened and stays offline", topic_partition)
        if clean:
            self._disk.unlink(clean_path)
            self._disk.sync_directory(self.data_dir)
        self._is_loaded = True

    def _read_offsets(self, name: str, sums: Sums) -> dict[TopicPartition, int]:
        data = self._disk.read_file(f"{self.data_dir}/{name}")
        problem = "its checksum does not match"
        if is_as_written(sums, name, data):
            try:
                return decode_offsets(data)
            except CheckpointCorrupt as error:
                problem = str(error)
        # Nothing is lost without it: the broker reads the logs instead.
        logger.warning("%s is not usable: %s", name, problem)
        return {}

    def _open_known(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID | None,
        config: LogConfig,
        known: KnownOffsets,
    ) -> SegmentedLog:
        """Open a log of the folder. If that fails, keep its known offsets for another attempt."""
        try:
            log = self._open_log(topic_partition, topic_id, config, known)
        except BrokerError as error:
            self._unopened[topic_partition] = UnopenedLog(error=error, known=known)
            raise
        log.first_dirty_offset = known.first_dirty_offset
        log.proof.gaps_end = max(log.proof.gaps_end, known.first_dirty_offset)
        self._unopened.pop(topic_partition, None)
        self._logs[topic_partition] = log
        return log

    def _open_log(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID | None,
        config: LogConfig,
        known: KnownOffsets,
        *,
        lazily: bool = False,
    ) -> SegmentedLog:
        log = SegmentedLog.open(
            f"{self.data_dir}/{topic_partition}",
            topic_partition,
            config,
            disk=self._disk,
            clock=self._clock,
            recovery_point=known.recovery_point,
            clean_shutdown=known.clean_shutdown,
            topic_id=topic_id,
            log_start_offset=known.log_start_offset,
            cache=self._cache,
            lazily=lazily,
        )
        log.before_recovery_point_falls = self._write_lower_recovery_points
        return log

    def _write_lower_recovery_points(self) -> None:
        try:
            self.checkpoint()
        except DiskFull as error:
            # Without the file the next start reads the logs: slow, but never wrong.
            logger.warning("no recovery points until the disk has space: %s", error)
            self._disk.unlink(f"{self.data_dir}/{RECOVERY_POINT_FILE}")

    @property
    def disk(self) -> Disk:
        """The disk of the folder."""
        return self._disk

    @property
    def logs(self) -> Mapping[TopicPartition, SegmentedLog]:
        """All open logs."""
        return self._logs

    @property
    def failures(self) -> Mapping[TopicPartition, BrokerError]:
        """The errors of the logs in the folder that could not be opened."""
        return {name: unopened.error for name, unopened in self._unopened.items()}

    def has_log(self, topic_partition: TopicPartition) -> bool:
        """Whether the folder holds this log, open or not."""
        return topic_partition in self._logs or topic_partition in self._unopened

    def __iter__(self) -> Iterator[SegmentedLog]:
        return iter(self._logs.values())

    def log(self, topic_partition: TopicPartition) -> SegmentedLog:
        """The log of this partition. Raises the error why it is not open."""
        log = self._logs.get(topic_partition)
        if log is not None:
            return log
        unopened = self._unopened.get(topic_partition)
        if unopened is not None:
            raise unopened.error
        raise UnknownTopicOrPartition(f"{topic_partition} has no log on this broker")

    def create_log(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID | None,
        config: LogConfig,
        *,
        lazily: bool = False,
    ) -> SegmentedLog:
        """The log of this partition, created if it is missing. Refuses a folder of another topic id.

        Tries again to open a log that could not be opened for lack of space; other failures stay.
        Lazily: the first write creates the folder of a new log. This is for partitions with one
        replica, where a new log and a lost log are the same.
        """
        unopened = self._unopened.get(topic_partition)
        if unopened is not None:
            if not isinstance(unopened.error, DiskFull):
                raise unopened.error
            return self._open_known(topic_partition, topic_id, config, unopened.known)
        log = self._logs.get(topic_partition)
        if log is None:
            log = self._open_log(topic_partition, topic_id, config, KnownOffsets(), lazily=lazily)
            self._logs[topic_partition] = log
            return log
        if topic_id is not None and log.topic_id is None:
            # A folder without a topic id is adopted, never deleted.
            write_topic_id(self._disk, f"{log.directory}/{PARTITION_FILE}", topic_id)
            log.topic_id = topic_id
        elif topic_id is not None and log.topic_id != topic_id:
            raise InconsistentTopicId(
                f"{log.directory} belongs to topic id {log.topic_id}, not {topic_id}"
            )
        log.update_config(config)
        return log

    def delete_log(self, topic_partition: TopicPartition) -> None:
        """Close the log and rename its folder now; its files are removed later."""
        log = self._logs.get(topic_partition)
        if log is None:
            raise UnknownTopicOrPartition(f"{topic_partition} has no log on this broker")
        if not log.flushing.has_folder:
            del self._logs[topic_partition]
            log.close(clean=False)
            return
        path = self._move_away(log, DELETE_SUFFIX)
        due_ms = self._clock.monotonic_ms() + log.config.file_delete_delay_ms
        self._trash.append((due_ms, path))

    def set_aside_log(self, topic_partition: TopicPartition) -> None:
        """Rename the folder of a stray log, so that a new topic can use its name."""
        log = self._logs[topic_partition]
        path = self._move_away(log, STRAY_SUFFIX)
        logger.warning("%s belongs to no topic any more and is kept as %s", topic_partition, path)

    def _move_away(self, log: SegmentedLog, suffix: str) -> str:
        del self._logs[log.topic_partition]
        log.close(clean=False)
        ending = f".{uuid.uuid4().hex}{suffix}"
        name = str(log.topic_partition)[: FOLDER_NAME_MAX - len(ending)] + ending
        path = f"{self.data_dir}/{name}"
        self._disk.rename(log.directory, path)
        return path

    def begin_compaction(
        self,
        now_ms: int,
        replica_of: Callable[[Log], ReplicaFacts],
        besides: Collection[Log] = (),
    ) -> "LogCompaction | None":
        """A compaction of the next log worth it, to run in a thread; None if there is none besides these."""
        for log in self._logs.values():
            if log.config.is_compacted and log not in self._compacting and log not in besides:
                ticket = begin_compaction(log, now_ms, replica_of(log).high_watermark)
                if ticket is not None:
                    self._compacting.add(log)
                    return LogCompaction(log=log, ticket=ticket, checkpoint=self.begin_checkpoint())
        return None

    def finish_compaction(self, compaction: "LogCompaction") -> SegmentedLog | None:
        """On the event loop: replace the old segments by the compacted ones. The log, if that failed."""
        self._compacting.discard(compaction.log)
        dropped = finish_compaction(compaction.log, compaction.ticket)
        self.add_trash(dropped, compaction.log.config.file_delete_delay_ms)
        return None if compaction.ticket.error is None else compaction.log

    def add_trash(self, paths: list[str], delay_ms: int) -> None:
        """Schedule files for removal after a delay."""
        due_ms = self._clock.monotonic_ms() + delay_ms
        self._trash.extend((due_ms, path) for path in paths)

    def take_trash(self, *, at_once: bool = False) -> list[str]:
        """The paths whose delay has passed, or all of them, for empty_trash in a thread."""
        now_ms = self._clock.monotonic_ms()
        if at_once:
            self._trash = [(now_ms, path) for _, path in self._trash]
        due = [path for due_ms, path in self._trash if due_ms <= now_ms]
        self._trash = [item for item in self._trash if item[0] > now_ms]
        return due

    def empty_trash(self, paths: list[str]) -> None:
        """Remove files and folders. May run in a thread: removing large files takes long."""
        for path in paths:
            try:
                if path.endswith(DELETE_SUFFIX):
                    self._disk.remove_tree(path)
                else:
                    self._disk.unlink(path)
            except BrokerError as error:
                logger.warning("%s stays until the next start: %s", path, error)

    def logs_to_checkpoint(self) -> list[SegmentedLog]:
        """The logs to flush now, so that a restart has little to read."""
        return [log for log in self._logs.values() if log.flushing.is_checkpoint_due]

    def begin_checkpoint(
        self, high_watermarks: Mapping[TopicPartition, int] | None = None
    ) -> OffsetCheckpoint:
        """The offsets as of now; run() writes them, in any thread."""
        # The known offsets of a log that could not be opened are still valid.
        logs: dict[TopicPartition, SegmentedLog | KnownOffsets] = {
            **{name: unopened.known for name, unopened in self._unopened.items()},
            **self._logs,
        }
        if high_watermarks is not None:
            unopened_marks = {
                name: offset
                for name, offset in self.high_watermarks.items()
                if name in self._unopened
            }
            high_watermarks = {**unopened_marks, **high_watermarks}
        return OffsetCheckpoint(
            disk=self._disk,
            data_dir=self.data_dir,
            lock=self._checkpoint_lock,
            recovery_points={name: log.recovery_point for name, log in logs.items()},
            log_start_offsets={
                name: log.log_start_offset for name, log in logs.items() if log.log_start_offset
            },
            first_dirty_offsets={
                name: log.first_dirty_offset for name, log in logs.items() if log.first_dirty_offset
            },
            high_watermarks=high_watermarks,
        )

    def begin_checkpoint_if_moved(
        self, high_watermarks: Mapping[TopicPartition, int] | None = None
    ) -> OffsetCheckpoint | None:
        """As begin_checkpoint, but None if no offset changed since the last one. Cheap enough to call
        every second, so that a restart reads little more than checkpoint_bytes."""
        checkpoint = self.begin_checkpoint(high_watermarks)
        if checkpoint == self._begun_checkpoint:
            return None
        self._begun_checkpoint = checkpoint
        return checkpoint

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Write the checkpoint files now."""
        self.begin_checkpoint(high_watermarks).run()

    def close(
        self,
        *,
        clean: bool = True,
        high_watermarks: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Close all logs and release the folder. A clean close makes the next start fast."""
        # After a failed start some logs are unknown: a checkpoint would lack their offsets.
        clean = clean and self._is_loaded
        is_clean = clean and self._flush_all()
        for log in self._logs.values():
            try:
                log.close(clean=clean)
            except BrokerError as error:
                is_clean = False
                logger.warning("%s: not closed cleanly: %s", log.topic_partition, error)
                log.close(clean=False)
        try:
            if clean:
                self.checkpoint(high_watermarks)
            if is_clean:
                path = f"{self.data_dir}/{CLEAN_SHUTDOWN_FILE}"
                self._disk.write_file(path, CLEAN_SHUTDOWN_CONTENT, sync=True)
        except BrokerError as error:
            logger.warning("the next start has to read the logs: %s", error)
        finally:
            self._lock.release()

    def _flush_all(self) -> bool:
        """Sync all logs, many at a time: the file system commits them together. True if all succeeded."""
        is_clean = True
        logs = list(self._logs.values())
        with ThreadPoolExecutor(CLOSE_THREADS, thread_name_prefix="zhumq-close") as threads:
            for start in range(0, len(logs), CLOSED_AT_ONCE):
                some = logs[start : start + CLOSED_AT_ONCE]
                tickets: list[tuple[SegmentedLog, FlushTicket]] = []
                for log in some:
                    with contextlib.suppress(BrokerError):  # Its close tries again and logs it.
                        ticket = log.flushing.begin_last()
                        if ticket is not None:
                            tickets.append((log, ticket))
                list(threads.map(lambda each: each[1].run(), tickets))
                for log, ticket in tickets:
                    log.finish_flush(ticket)
                    is_clean = is_clean and ticket.error is None
        return is_clean

"""Helpers of the storage tests: a manual clock, batches, opening logs."""

from collections.abc import Callable
from typing import Any

from tests.manual_time import ManualClock

from zhumq.host.disk import Disk
from zhumq.model.ids import TopicPartition
from zhumq.records.batch import Record, RecordBatch, batches
from zhumq.records.builder import build_batch
from zhumq.storage.log import Log
from zhumq.storage.log_config import LogConfig
from zhumq.storage.log_manager import LogManager
from zhumq.storage.log_retention import delete_segments, log_facts
from zhumq.storage.retention import ReplicaFacts, Watermarks, due_reasons
from zhumq.storage.retention_pass import Retention, RetentionSettings
from zhumq.storage.segmented_log import SegmentedLog

NOW_MS = 1_700_000_000_000
PARTITION = TopicPartition("orders", 0)
FOLDER = "/data/orders-0"
LOG_FILE = f"{FOLDER}/{0:020d}.log"


def make_batch(
    *values: bytes,
    timestamp: int = NOW_MS,
    keys: tuple[bytes | None, ...] | None = None,
    **header: Any,
) -> bytes:
    """A batch with one record for each value."""
    records = [
        Record(timestamp=timestamp, key=None if keys is None else keys[place], value=value)
        for place, value in enumerate(values)
    ]
    return build_batch(records, **header)


def open_log(
    disk: Disk,
    *,
    recovery_point: int = 0,
    clean_shutdown: bool = False,
    log_start_offset: int = 0,
    clock: ManualClock | None = None,
    folder: str = FOLDER,
    **settings: Any,
) -> SegmentedLog:
    """Open the log that the tests use."""
    return SegmentedLog.open(
        folder,
        PARTITION,
        LogConfig(**settings),
        disk=disk,
        clock=clock or ManualClock(),
        recovery_point=recovery_point,
        clean_shutdown=clean_shutdown,
        log_start_offset=log_start_offset,
    )


def append(log: Log, *values: bytes, leader_epoch: int = 0, **header: Any) -> int:
    """Append one batch; returns its base offset."""
    batch = make_batch(*values, **header)
    return log.append(batch, leader_epoch=leader_epoch, now_ms=NOW_MS).base_offset


def flush(log: SegmentedLog, *, checkpoint: bool = False) -> None:
    """Flush, and wait for it."""
    ticket = log.begin_flush(checkpoint=checkpoint)
    if ticket is not None:
        ticket.run()
        log.finish_flush(ticket)
    if log.failure is not None:
        raise log.failure


def apply_retention(log: SegmentedLog, now_ms: int, replica: ReplicaFacts) -> list[str]:
    """Delete what is due by the limits of the log; returns the renamed files."""
    facts = log_facts(log, replica)
    return delete_segments(log, facts, due_reasons(facts, now_ms, by_time=True))[1]


def retention_pass(
    manager: LogManager, now_ms: int, replica_of: Callable[[Log], ReplicaFacts]
) -> int:
    """Apply retention to all logs; returns the number of segments it deleted."""
    settings = RetentionSettings(watermarks=Watermarks())
    retention = Retention(manager, replica_of, ManualClock(now_ms), settings, lambda _: 0)
    return retention.run(manager.disk.usage(manager.data_dir))


def read_batches(log: Log, offset: int | None = None) -> list[RecordBatch]:
    """All batches from an offset on, over all segments."""
    offset = log.log_start_offset if offset is None else offset
    found: list[RecordBatch] = []
    while offset < log.log_end_offset:
        part = log.read(offset, max_bytes=1 << 20, up_to_offset=log.log_end_offset)
        if not len(part):
            break
        found.extend(batches(part.read_bytes()))
        assert part.next_offset > offset
        offset = part.next_offset
    return found


def read_values(log: Log, offset: int | None = None) -> list[bytes | None]:
    """The values of all records from an offset on."""
    return [record.value for batch in read_batches(log, offset) for record in batch.records()]

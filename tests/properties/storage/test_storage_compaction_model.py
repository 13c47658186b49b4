"""Compaction against a dictionary: the last value of each key survives, in order, across restarts."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.manual_time import ManualClock
from tests.unit.storage.storage_support import flush

from zhumq.model.ids import TopicPartition
from zhumq.records.batch import Record, batches
from zhumq.records.builder import build_batch
from zhumq.records.codecs import Compression
from zhumq.storage.log_compaction import begin_compaction, finish_compaction
from zhumq.storage.log_config import CleanupPolicy, LogConfig
from zhumq.storage.segmented_log import SegmentedLog
from zhumq.testing.disk import MemoryDisk

NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(
    segment_bytes=500,
    index_interval_bytes=100,
    cleanup_policy=frozenset({CleanupPolicy.COMPACT}),
    min_cleanable_dirty_ratio=0.0,
)
some_records = st.lists(
    st.tuples(st.integers(0, 5), st.none() | st.binary(max_size=40)), min_size=1, max_size=4
)
steps = st.lists(
    st.sampled_from(["compact", "restart", "crash"])
    | st.tuples(some_records, st.sampled_from(list(Compression))),
    min_size=10,
    max_size=80,
)


def open_log(disk: MemoryDisk, recovery_point: int, *, clean: bool) -> SegmentedLog:
    return SegmentedLog.open(
        "/data/c-0",
        TopicPartition("c", 0),
        CONFIG,
        disk=disk,
        clock=ManualClock(),
        recovery_point=recovery_point,
        clean_shutdown=clean,
    )


def contents(
    log: SegmentedLog, *, for_consumer: bool = False
) -> dict[bytes, tuple[int, bytes | None]]:
    found: dict[bytes, tuple[int, bytes | None]] = {}
    offset, last_offset = log.log_start_offset, -1
    while offset < log.log_end_offset:
        part = log.read(
            offset, max_bytes=300, up_to_offset=log.log_end_offset, for_consumer=for_consumer
        )
        assert part.next_offset > offset
        for batch in batches(part.read_bytes()):
            assert batch.crc_matches
            assert batch.header.records_count or not for_consumer
            for record in batch.records():
                assert record.offset > last_offset
                last_offset = record.offset
                assert record.key is not None
                found[record.key] = (record.offset, record.value)
        offset = part.next_offset
    return found


@given(steps)
@settings(max_examples=60)
def test_the_last_value_of_every_key_survives(
    history: list[str | tuple[list[tuple[int, bytes | None]], Compression]],
) -> None:
    disk = MemoryDisk()
    log = open_log(disk, 0, clean=False)
    expected: dict[bytes, tuple[int, bytes | None]] = {}
    for step in history:
        match step:
            case "compact":
                flush(log, checkpoint=True)
                ticket = begin_compaction(log, NOW_MS, log.log_end_offset)
                if ticket is not None:
                    ticket.run()
                    assert ticket.error is None
                    for path in finish_compaction(log, ticket):
                        disk.unlink(path)
            case "restart":
                log.close()
                log = open_log(disk, log.recovery_point, clean=True)
            case "crash":
                flush(log)
                point = log.recovery_point
                disk.crash()
                log = open_log(disk, point, clean=False)
                assert log.corrupt_ranges == ()
            case (pairs, compression):
                records = [
                    Record(timestamp=NOW_MS, key=b"key %d" % key, value=value)
                    for key, value in pairs
                ]
                base = log.log_end_offset
                data = build_batch(records, compression=compression)
                log.append(data, leader_epoch=0, now_ms=NOW_MS)
                for place, record in enumerate(records):
                    assert record.key is not None
                    expected[record.key] = (base + place, record.value)
        assert contents(log) == expected
        assert contents(log, for_consumer=True) == expected

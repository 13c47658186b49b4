"""Compaction keeps the last record of each key, at its offset, also across crashes and truncations."""

import pytest
from conformance.invalid_batches import batch, record
from storage_support import FOLDER, NOW_MS, append, flush, open_log, read_batches, read_values

from zhumq.model.errors import CorruptMessage, OutOfOrderSequenceNumber
from zhumq.storage import compaction
from zhumq.storage.log_compaction import begin_compaction, finish_compaction
from zhumq.storage.log_config import CleanupPolicy
from zhumq.storage.segmented_log import SegmentedLog
from zhumq.testing.disk import MemoryDisk

DAY_MS = 24 * 60 * 60 * 1000
SETTINGS = {
    "segment_bytes": 400,
    "index_interval_bytes": 100,
    "cleanup_policy": frozenset({CleanupPolicy.COMPACT}),
    "delete_retention_ms": DAY_MS,
}


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def put(log: SegmentedLog, key: bytes, value: bytes | None, **header: int) -> int:
    return append(log, value, keys=(key,), **header)  # type: ignore[arg-type]


def compact(log: SegmentedLog, now_ms: int = NOW_MS) -> list[str]:
    flush(log, checkpoint=True)
    ticket = begin_compaction(log, now_ms, log.log_end_offset)
    if ticket is None:
        return []
    ticket.run()
    return finish_compaction(log, ticket)


def pairs(log: SegmentedLog) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for batch in read_batches(log) for record in batch.records()}


def offsets(log: SegmentedLog) -> list[int]:
    return [record.offset for batch in read_batches(log) for record in batch.records()]


def test_only_the_last_record_of_a_key_stays(disk: MemoryDisk) -> None:
    log = open_log(disk, **SETTINGS)
    for place in range(40):
        put(log, b"key %d" % (place % 3), b"value %d" % place)
    expected = pairs(log)
    active = log.segments.all[-1].base_offset
    size = log.size_bytes
    assert compact(log)
    assert pairs(log) == expected
    kept = [offset for offset in offsets(log) if offset < active]
    assert kept == list(range(active - 3, active))
    assert log.size_bytes < size / 2
    assert log.first_dirty_offset == active
    assert log.log_end_offset == 40
    assert all(batch.crc_matches for batch in read_batches(log))


def test_every_offset_still_leads_to_the_next_record(disk: MemoryDisk) -> None:
    log = open_log(disk, **SETTINGS)
    for place in range(60):
        put(log, b"key %d" % (place % 7), bytes(place % 13))
    compact(log)
    kept = offsets(log)
    for offset in range(60):
        part = log.read(offset, max_bytes=1 << 20, up_to_offset=60)
        assert part.next_offset > offset
        following = [record.offset for b in read_batches(log, offset) for record in b.records()]
        assert [each for each in following if each >= offset] == [e for e in kept if e >= offset]


def test_a_second_pass_goes_over_what_came_since(disk: MemoryDisk) -> None:
    log = open_log(disk, **SETTINGS)
    for round_number in range(5):
        for place in range(20):
            put(log, b"key %d" % (place % 4), b"%d.%d" % (round_number, place))
        expected = pairs(log)
        compact(log)
        assert pairs(log) == expected
    assert len(offsets(log)) < 20


def test_nothing_is_done_before_enough_is_dirty(disk: MemoryDisk) -> None:
    log = open_log(disk, **SETTINGS)
    for place in range(40):
        put(log, b"key %d" % place, b"value")
    assert compact(log)
    for _ in range(5):
        put(log, b"key", b"value")
    assert compact(log) == []


def test_a_tombstone_stays_for_its_time_and_then_goes(disk: MemoryDisk) -> None:
    log = open_log(disk, **SETTINGS)
    put(log, b"gone", b"value")
    put(log, b"gone", None)
    for _ in range(20):
        put(log, b"other", b"value")
    compact(log)
    assert pairs(log)[b"gone"] is None
    horizons = [batch.header.delete_horizon_ms for batch in read_batches(log)]
    assert NOW_MS + DAY_MS in horizons
    for _ in range(20):
        put(log, b"other", b"value")
    compact(log, NOW_MS + DAY_MS)
    assert b"gone" in pairs(log)
    for _ in range(20):
        put(log, b"other", b"value")
    compact(log, NOW_MS + DAY_MS + 1)
    assert b"gone" not in pairs(log)


def test_timestamps_survive_the_delete_horizon(disk: MemoryDisk) -> None:
    log = open_log(disk, **SETTINGS)
    put(log, b"gone", None, timestamp=NOW_MS - 5)
    for _ in range(20):
        put(log, b"other", b"value")
    compact(log)
    first = next(read_batches(log)[0].records())
    assert (first.key, first.timestamp) == (b"gone", NOW_MS - 5)
    assert log.offset_for_timestamp(NOW_MS - 5) == (NOW_MS - 5, 0, 0)


def test_a_producers_last_sequence_survives(disk: MemoryDisk) -> None:
    log = open_log(disk, **SETTINGS)
    for sequence in range(4):
        put(log, b"k", b"v", producer_id=5, producer_epoch=0, base_sequence=sequence)
    for _ in range(20):
        put(log, b"k", b"v")
    compact(log)
    log.close()
    for path in [path for path in disk.files if path.endswith(".snapshot")]:
        disk.unlink(path)
    again = open_log(disk, clean_shutdown=True, recovery_point=24, **SETTINGS)
    with pytest.raises(OutOfOrderSequenceNumber):
        put(again, b"k", b"v", producer_id=5, producer_epoch=0, base_sequence=7)
    assert put(again, b"k", b"v", producer_id=5, producer_epoch=0, base_sequence=4) == 24


def test_a_restart_sees_the_compacted_log(disk: MemoryDisk) -> None:
    log = open_log(disk, **SETTINGS)
    for place in range(40):
        put(log, b"key %d" % (place % 3), b"value %d" % place)
    compact(log)
    expected, kept = pairs(log), offsets(log)
    for clean in (True, False):
        log.close(clean=clean)
        log = open_log(disk, clean_shutdown=clean, recovery_point=40 if clean else 36, **SETTINGS)
        assert (pairs(log), offsets(log)) == (expected, kept)
        assert log.corrupt_ranges == ()


@pytest.mark.parametrize("steps", range(40))
def test_a_crash_at_any_step_loses_nothing(steps: int) -> None:
    class Stopping(MemoryDisk):
        left: int | None = None

        def step(self) -> None:
            if self.left is not None:
                if self.left == 0:
                    raise InterruptedError
                self.left -= 1

        def rename(self, source: str, target: str) -> None:
            self.step()
            super().rename(source, target)

        def unlink(self, path: str) -> None:
            self.step()
            super().unlink(path)

        def write_file(self, path: str, data: bytes, *, sync: bool) -> None:  # type: ignore[override]
            self.step()
            super().write_file(path, data, sync=sync)

    disk = Stopping()
    log = open_log(disk, **SETTINGS)
    for place in range(40):
        put(log, b"key %d" % (place % 3), b"value %d" % place)
    flush(log, checkpoint=True)
    expected = pairs(log)
    ticket = begin_compaction(log, NOW_MS, 40)
    assert ticket is not None
    disk.left = steps
    try:
        ticket.run()
        finish_compaction(log, ticket)
    except InterruptedError:
        pass
    disk.left = None
    disk.crash()
    again = open_log(disk, recovery_point=40, **SETTINGS)
    assert pairs(again) == expected
    assert again.log_end_offset == 40
    assert again.corrupt_ranges == ()
    assert not [path for path in disk.files if "swap" in path or "cleaned" in path]


def test_a_truncation_during_compaction_discards_it(disk: MemoryDisk) -> None:
    log = open_log(disk, **SETTINGS)
    for place in range(40):
        put(log, b"key %d" % (place % 3), b"value %d" % place)
    flush(log, checkpoint=True)
    ticket = begin_compaction(log, NOW_MS, 40)
    assert ticket is not None
    ticket.run()
    log.truncate_to(10)
    assert finish_compaction(log, ticket) == []
    assert offsets(log) == list(range(10))
    assert not [path for path in disk.files if path.endswith(".swap")]


def test_a_full_disk_leaves_the_log_as_it_was(disk: MemoryDisk) -> None:
    log = open_log(disk, **SETTINGS)
    for place in range(40):
        put(log, b"key %d" % (place % 3), b"value %d" % place)
    flush(log, checkpoint=True)
    ticket = begin_compaction(log, NOW_MS, 40)
    assert ticket is not None
    disk.bytes_free = 100
    ticket.run()
    assert finish_compaction(log, ticket) == []
    disk.bytes_free = None
    assert read_values(log) == [b"value %d" % place for place in range(40)]
    assert not [path for path in disk.files if path.startswith(FOLDER) and "cleaned" in path]


def test_more_keys_than_fit_are_done_in_several_passes(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "KEYS_MAX", 8)
    log = open_log(disk, **SETTINGS)
    for place in range(60):
        put(log, b"key %d" % (place % 12), b"value %d" % place)
    expected = pairs(log)
    dirty = [0]
    while compact(log):
        dirty.append(log.first_dirty_offset)
        assert pairs(log) == expected
    assert len(dirty) > 3
    assert dirty == sorted(dirty)


def test_young_records_wait_for_the_compaction_lag(disk: MemoryDisk) -> None:
    log = open_log(disk, min_compaction_lag_ms=1000, **SETTINGS)
    for place in range(40):
        put(log, b"key", b"value %d" % place)
    assert compact(log, NOW_MS + 999) == []
    assert compact(log, NOW_MS + 1001)


def test_a_batch_that_cannot_be_decoded_stays_and_the_rest_is_compacted(
    disk: MemoryDisk, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(disk, **SETTINGS)
    lie = batch(record(value=b"\x7ev"), now_ms=NOW_MS)
    log.append(lie, leader_epoch=0, now_ms=NOW_MS)
    for place in range(40):
        put(log, b"key", b"value %d" % place)
    assert compact(log)
    headers = [each.header for each in read_batches(log)]
    assert headers[0].base_offset == 0
    assert len([each for each in headers if each.records_count]) < 12
    assert "1 batches have records that cannot be decoded" in caplog.text


def test_a_batch_that_the_disk_has_changed_gets_no_new_checksum(disk: MemoryDisk) -> None:
    log = open_log(disk, **SETTINGS)
    for place in range(40):
        put(log, b"key", b"value %d" % place)
    path = log.segments.all[0].paths[0]
    data = bytearray(disk.read_file(path) or b"")
    data[-3] ^= 1
    flush(log, checkpoint=True)
    disk.write_file(path, bytes(data), sync=True)
    ticket = begin_compaction(log, NOW_MS, log.log_end_offset)
    assert ticket is not None
    ticket.run()
    assert isinstance(ticket.error, CorruptMessage)
    assert finish_compaction(log, ticket) == []

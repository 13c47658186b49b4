"""Several appends in one write: the same log as one by one, or nothing at all."""

import random

import pytest
from storage_support import LOG_FILE, NOW_MS, make_batch, open_log, read_values

from zhumq.model.errors import DiskFull, OutOfOrderSequenceNumber
from zhumq.records.batch import TimestampType
from zhumq.storage.partition_log import PartitionLog
from zhumq.testing.disk import MemoryDisk

SEED = 20_261_115


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def append_each(log: PartitionLog, *batches: bytes) -> list[int] | None:
    views = [memoryview(batch) for batch in batches]
    return log.append_each(views, leader_epoch=3, now_ms=NOW_MS)


def numbered(sequence: int, *values: bytes, producer_id: int = 7) -> bytes:
    return make_batch(*values, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


def test_the_log_is_the_same_as_after_single_appends(disk: MemoryDisk) -> None:
    draw = random.Random(SEED)
    batches = []
    sequence = 0
    for _ in range(200):
        values = [draw.randbytes(draw.randint(0, 200)) for _ in range(draw.randint(1, 3))]
        if draw.random() < 0.5:
            batches.append(numbered(sequence, *values))
            sequence += len(values)
        else:
            batches.append(make_batch(*values))
    other_disk = MemoryDisk()
    together = open_log(disk, segment_bytes=4_096)
    alone = open_log(other_disk, segment_bytes=4_096)
    rest = list(batches)
    while rest:
        count = draw.randint(2, 9)
        some, rest = rest[:count], rest[count:]
        expected = [
            alone.append(batch, leader_epoch=3, now_ms=NOW_MS).base_offset for batch in some
        ]
        assert append_each(together, *some) == expected
    assert together.log_end_offset == alone.log_end_offset
    assert read_values(together) == read_values(alone)
    assert together.producer_state == alone.producer_state
    assert together.leader_epochs.latest_epoch == alone.leader_epochs.latest_epoch


def test_one_bad_batch_keeps_all_of_them_out(disk: MemoryDisk) -> None:
    log = open_log(disk)
    damaged = bytearray(make_batch(b"damaged"))
    damaged[-1] ^= 1
    two_in_one = make_batch(b"one") + make_batch(b"two")
    for bad in (bytes(damaged), two_in_one, b"", b"short"):
        assert append_each(log, make_batch(b"good"), bad) is None
    assert log.log_end_offset == 0
    assert append_each(log, make_batch(b"good"), make_batch(b"better")) == [0, 1]


def test_a_repeated_sequence_is_left_to_the_single_append_which_knows_its_offsets(
    disk: MemoryDisk,
) -> None:
    log = open_log(disk)
    assert append_each(log, numbered(0, b"a"), numbered(1, b"b")) == [0, 1]
    assert append_each(log, numbered(1, b"b"), numbered(2, b"c")) is None
    assert log.append(numbered(1, b"b"), leader_epoch=3, now_ms=NOW_MS).duplicate
    assert append_each(log, numbered(2, b"c"), numbered(4, b"e")) is None
    with pytest.raises(OutOfOrderSequenceNumber):
        log.append(numbered(4, b"e"), leader_epoch=3, now_ms=NOW_MS)
    assert append_each(log, numbered(2, b"c"), numbered(0, b"x", producer_id=8)) == [2, 3]
    assert read_values(log) == [b"a", b"b", b"c", b"x"]


def test_what_the_broker_has_to_stamp_goes_one_by_one(disk: MemoryDisk) -> None:
    log = open_log(disk, message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert append_each(log, make_batch(b"a"), make_batch(b"b")) is None


def test_a_full_segment_ends_before_a_run_and_a_run_larger_than_one_is_refused(
    disk: MemoryDisk,
) -> None:
    batch = make_batch(b"x" * 100)
    log = open_log(disk, segment_bytes=5 * len(batch))
    assert append_each(log, *[batch] * 3) == [0, 1, 2]
    assert append_each(log, *[batch] * 3) == [3, 4, 5]
    assert len(disk.read_file(LOG_FILE) or b"") == 3 * len(batch)
    assert append_each(log, *[batch] * 6) is None
    assert log.log_end_offset == 6


def test_a_full_disk_loses_nothing_and_assigns_no_offsets(disk: MemoryDisk) -> None:
    log = open_log(disk)
    assert append_each(log, make_batch(b"a"), make_batch(b"b")) == [0, 1]
    disk.bytes_free = 20
    with pytest.raises(DiskFull):
        append_each(log, make_batch(b"c"), make_batch(b"d"))
    disk.bytes_free = None
    assert append_each(log, make_batch(b"c"), make_batch(b"d")) == [2, 3]
    assert read_values(log) == [b"a", b"b", b"c", b"d"]

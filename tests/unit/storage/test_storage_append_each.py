"""Several appends in one write: the same log as one by one, up to the first that is refused."""

import random

import pytest
from storage_support import LOG_FILE, NOW_MS, make_batch, open_log, read_values

from zhumq.model.errors import CorruptMessage, DiskFull, OutOfOrderSequenceNumber
from zhumq.records.batch import TimestampType
from zhumq.records.codecs import Compression
from zhumq.storage.log_slice import Appended, AppendedRun
from zhumq.storage.segmented_log import SegmentedLog
from zhumq.testing.disk import MemoryDisk

SEED = 20_261_115


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def append_each(log: SegmentedLog, *batches: bytes) -> AppendedRun:
    views = [memoryview(batch) for batch in batches]
    return log.append_each(views, leader_epoch=3, now_ms=NOW_MS)


def offsets_of(log: SegmentedLog, *batches: bytes) -> list[int]:
    """The offsets of batches that are all appended together."""
    run = append_each(log, *batches)
    assert run.last is None
    assert run.size == sum(map(len, batches[: len(run.base_offsets)]))
    return run.base_offsets


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
        assert offsets_of(together, *some) == expected
    assert together.log_end_offset == alone.log_end_offset
    assert read_values(together) == read_values(alone)
    assert together.producer_state == alone.producer_state
    assert together.leader_epochs.latest_epoch == alone.leader_epochs.latest_epoch


def test_a_run_ends_behind_the_batch_that_is_refused(disk: MemoryDisk) -> None:
    log = open_log(disk)
    damaged = bytearray(make_batch(b"damaged"))
    damaged[-1] ^= 1
    for place, bad in enumerate((bytes(damaged), b"", b"short")):
        run = append_each(log, make_batch(b"good"), bad, make_batch(b"not reached"))
        assert run.base_offsets == [place]
        assert isinstance(run.last, CorruptMessage)
        assert log.log_end_offset == place + 1
    run = append_each(log, bytes(damaged), make_batch(b"not reached"))
    assert (run.base_offsets, run.size) == ([], 0)
    assert isinstance(run.last, CorruptMessage)
    assert read_values(log) == [b"good"] * 3


def test_a_run_ends_behind_a_request_with_several_batches(disk: MemoryDisk) -> None:
    log = open_log(disk)
    good, two = make_batch(b"good"), make_batch(b"one") + make_batch(b"two")
    run = append_each(log, good, two, make_batch(b"not reached"))
    assert run.base_offsets == [0]
    assert run.last == Appended(1, 2, -1, 0, duplicate=False)
    assert run.size == len(good) + len(two)
    run = append_each(log, good, make_batch(b"one") + b"short")
    assert run.base_offsets == [3]
    assert isinstance(run.last, CorruptMessage)
    assert run.size == len(good)
    assert read_values(log) == [b"good", b"one", b"two", b"good"]


def test_a_run_ends_behind_a_repeated_batch_which_keeps_its_offset(disk: MemoryDisk) -> None:
    log = open_log(disk)
    assert offsets_of(log, numbered(0, b"a"), numbered(1, b"b")) == [0, 1]
    run = append_each(log, numbered(2, b"c"), numbered(1, b"b"), numbered(3, b"d"))
    assert run.base_offsets == [2]
    assert run.last == Appended(1, 1, -1, 0, duplicate=True)
    # A batch of the same run can be repeated, too.
    run = append_each(log, numbered(3, b"d"), numbered(3, b"d"))
    assert run.base_offsets == [3]
    assert run.last == Appended(3, 3, -1, 0, duplicate=True)
    assert log.log_end_offset == 4


def test_a_run_ends_behind_a_gap_of_its_producer(disk: MemoryDisk) -> None:
    log = open_log(disk)
    run = append_each(log, numbered(0, b"a"), numbered(2, b"c"), make_batch(b"not reached"))
    assert run.base_offsets == [0]
    assert isinstance(run.last, OutOfOrderSequenceNumber)
    assert offsets_of(log, numbered(1, b"b"), numbered(0, b"x", producer_id=8)) == [1, 2]
    assert read_values(log) == [b"a", b"b", b"x"]


def test_a_run_is_stamped_with_one_time(disk: MemoryDisk) -> None:
    log = open_log(disk, message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    run = append_each(log, numbered(0, b"a"), numbered(1, b"b"))
    assert (run.base_offsets, run.log_append_time_ms) == ([0, 1], NOW_MS)
    views = [memoryview(numbered(1, b"b")), memoryview(numbered(2, b"c"))]
    run = log.append_each(views, leader_epoch=3, now_ms=NOW_MS + 9)
    assert run.last == Appended(1, 1, NOW_MS, 0, duplicate=True)


def test_a_run_goes_into_one_segment_and_ends_before_it_is_full(disk: MemoryDisk) -> None:
    batch = make_batch(b"x" * 100)
    log = open_log(disk, segment_bytes=5 * len(batch))
    assert offsets_of(log, *[batch] * 3) == [0, 1, 2]
    assert offsets_of(log, *[batch] * 3) == [3, 4, 5]
    assert len(disk.read_file(LOG_FILE) or b"") == 3 * len(batch)
    assert offsets_of(log, *[batch] * 6) == [6, 7, 8, 9, 10]
    assert log.log_end_offset == 11


def test_the_bytes_that_one_run_may_have_decompressed_are_bounded(disk: MemoryDisk) -> None:
    log = open_log(disk)
    large = make_batch(bytes(30 * 1024 * 1024), compression=Compression.ZSTD)
    # Each of them is within the bound of a request; the run ends where the next one might exceed it.
    assert offsets_of(log, *[large] * 9) == list(range(8))
    assert offsets_of(log, large) == [8]


def test_a_full_disk_loses_nothing_and_assigns_no_offsets(disk: MemoryDisk) -> None:
    log = open_log(disk)
    assert offsets_of(log, make_batch(b"a"), make_batch(b"b")) == [0, 1]
    disk.bytes_free = 20
    with pytest.raises(DiskFull):
        append_each(log, make_batch(b"c"), make_batch(b"d"))
    disk.bytes_free = None
    assert offsets_of(log, make_batch(b"c"), make_batch(b"d")) == [2, 3]
    assert read_values(log) == [b"a", b"b", b"c", b"d"]

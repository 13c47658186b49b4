"""Appending, reading, rolling, truncating and deleting, on a disk in memory."""

import uuid

import pytest
from storage_support import (
    FOLDER,
    LOG_FILE,
    NOW_MS,
    append,
    apply_retention,
    flush,
    make_batch,
    open_log,
    read_values,
)
from tests.manual_time import ManualClock

from zhumq.host.disk import SystemDisk
from zhumq.model.errors import (
    DiskFull,
    InconsistentTopicId,
    OffsetOutOfRange,
)
from zhumq.storage.checkpoints import LEADER_EPOCH_FILE, read_leader_epochs
from zhumq.storage.index_cache import LOADED_INDEXES_MAX
from zhumq.storage.leader_epochs import EpochStart
from zhumq.storage.log_config import CleanupPolicy
from zhumq.storage.retention import ReplicaFacts
from zhumq.storage.segmented_log import SegmentedLog
from zhumq.testing.disk import MemoryDisk


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def test_a_fetch_inside_a_batch_returns_the_whole_batch(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, b"a", b"b", b"c")
    append(log, b"d")
    part = log.read(1, max_bytes=1 << 20, up_to_offset=4)
    assert part.read_bytes() == bytes(disk.files[LOG_FILE].content)
    assert part.next_offset == 4


def test_only_whole_batches_fit_into_max_bytes(disk: MemoryDisk) -> None:
    log = open_log(disk, index_interval_bytes=200)
    size = len(make_batch(b"0"))
    for place in range(50):
        append(log, b"%d" % (place % 10))
    for limit in range(size, size * 7, 13):
        part = log.read(20, max_bytes=limit, up_to_offset=50)
        assert len(part) == limit // size * size
        assert part.next_offset == 20 + limit // size


def test_a_full_segment_is_followed_by_a_new_one(disk: MemoryDisk) -> None:
    log = open_log(disk, segment_bytes=200)
    for place in range(10):
        append(log, b"value %d" % place)
    bases = [segment.base_offset for segment in log.segments.all]
    assert bases == [0, 2, 4, 6, 8]
    assert read_values(log) == [b"value %d" % place for place in range(10)]
    for base in bases:
        for suffix in (".log", ".index", ".timeindex"):
            assert f"{FOLDER}/{base:020d}{suffix}" in disk.files


def test_a_segment_that_is_too_old_is_followed_by_a_new_one(disk: MemoryDisk) -> None:
    log = open_log(disk, segment_ms=1000)
    append(log, b"a", timestamp=NOW_MS)
    append(log, b"b", timestamp=NOW_MS + 1000)
    append(log, b"c", timestamp=NOW_MS + 1001)
    assert [segment.base_offset for segment in log.segments.all] == [0, 2]


def test_a_segment_keeps_its_age_over_a_restart(disk: MemoryDisk) -> None:
    log = open_log(disk, segment_ms=1000)
    append(log, b"a", timestamp=NOW_MS)
    log.close()
    log = open_log(disk, segment_ms=1000, clean_shutdown=True, recovery_point=1)
    append(log, b"b", timestamp=NOW_MS + 500)
    append(log, b"c", timestamp=NOW_MS + 1001)
    assert [segment.base_offset for segment in log.segments.all] == [0, 2]


def test_a_roll_on_a_full_disk_can_be_tried_again(disk: MemoryDisk) -> None:
    log = open_log(disk, segment_bytes=200, index_interval_bytes=1)
    append(log, b"value 0")
    append(log, b"value 1")
    disk.bytes_free = 0
    for _ in range(3):
        with pytest.raises(DiskFull):
            append(log, b"value 2")
    disk.bytes_free = None
    append(log, b"value 2")
    assert read_values(log) == [b"value 0", b"value 1", b"value 2"]
    assert [segment.base_offset for segment in log.segments.all] == [0, 2]


def test_a_flush_reaches_segments_that_were_sealed_meanwhile(disk: MemoryDisk) -> None:
    log = open_log(disk, segment_bytes=200)
    for place in range(6):
        append(log, b"value %d" % place)
    flush(log)
    assert {f"{FOLDER}/{base:020d}.log" for base in (0, 2, 4)} <= set(disk.syncs)
    assert FOLDER in disk.syncs


def test_the_first_flush_makes_the_folder_itself_durable(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, b"a")
    flush(log)
    assert {FOLDER, "/data"} <= set(disk.syncs)
    disk.syncs.clear()
    append(log, b"b")
    flush(log)
    assert disk.syncs == [LOG_FILE]


def test_a_checkpoint_is_due_by_bytes_and_by_time(disk: MemoryDisk) -> None:
    clock = ManualClock()
    log = open_log(disk, clock=clock, checkpoint_bytes=250, checkpoint_ms=1000)
    append(log, b"a")
    assert not log.flushing.is_checkpoint_due
    clock.ms += 1000
    assert log.flushing.is_checkpoint_due
    flush(log)
    assert (log.recovery_point, log.flushing.is_checkpoint_due) == (1, False)
    for _ in range(4):
        append(log, b"a")
    assert log.flushing.is_checkpoint_due
    flush(log)
    assert log.recovery_point == 5
    names = {path for path in disk.files if path.endswith(".snapshot")}
    assert names == {f"{FOLDER}/{5:020d}.snapshot"}


def test_a_checkpoint_is_due_when_there_is_something_for_compaction_to_do(disk: MemoryDisk) -> None:
    log = open_log(disk, segment_bytes=200, cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
    append(log, b"a", keys=(b"key",))
    assert not log.flushing.is_checkpoint_due
    while log.size_bytes <= 200:
        append(log, b"a", keys=(b"key",))
    assert log.flushing.is_checkpoint_due
    flush(log)
    assert not log.flushing.is_checkpoint_due


def test_truncation_removes_whole_batches_and_what_was_known_about_them(disk: MemoryDisk) -> None:
    log = open_log(disk, segment_bytes=200)
    for place in range(9):
        append(log, b"value %d" % place, leader_epoch=place // 3)
    flush(log, checkpoint=True)
    fallen: list[int] = []
    log.before_recovery_point_falls = lambda: fallen.append(log.recovery_point)
    log.truncate_to(4)
    assert fallen == [4]
    assert (log.log_end_offset, log.flushed_offset, log.recovery_point) == (4, 4, 4)
    assert log.leader_epochs.entries == (EpochStart(0, 0), EpochStart(1, 3))
    assert read_values(log) == [b"value %d" % place for place in range(4)]
    assert append(log, b"new", leader_epoch=5) == 4
    assert read_values(log, 3) == [b"value 3", b"new"]


def test_a_cut_inside_a_batch_lowers_the_recovery_point_to_where_the_batch_began(
    disk: MemoryDisk,
) -> None:
    log = open_log(disk)
    for values in ((b"a", b"b"), (b"c", b"d", b"e")):
        log.append(make_batch(*values), leader_epoch=0, now_ms=NOW_MS)
    flush(log, checkpoint=True)
    written: list[int] = []
    log.before_recovery_point_falls = lambda: written.append(log.recovery_point)
    log.truncate_to(3)
    assert (log.log_end_offset, log.recovery_point, written[-1]) == (2, 2, 2)
    # The next write there is not flushed yet, so recovery has to scan it after a crash.
    log.append(make_batch(b"f", b"g"), leader_epoch=1, now_ms=NOW_MS)
    again = open_log(disk, recovery_point=written[-1])
    assert [each.epoch for each in again.leader_epochs.entries] == [0, 1]


def test_a_checkpoint_from_before_a_truncation_does_not_bring_its_epochs_back(
    disk: MemoryDisk,
) -> None:
    log = open_log(disk)
    append(log, b"a", leader_epoch=1)
    flush(log)
    append(log, b"b", leader_epoch=2)
    ticket = log.begin_flush(checkpoint=True)
    assert ticket is not None
    log.truncate_to(1)
    ticket.run()  # In a thread, which may run late.
    log.finish_flush(ticket)
    epochs = read_leader_epochs(disk, f"{FOLDER}/{LEADER_EPOCH_FILE}")
    assert epochs is not None
    assert [each.epoch for each in epochs.entries] == [1]


def test_a_log_can_start_over_at_another_offset(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, b"a", leader_epoch=2)
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    assert append(log, b"b", leader_epoch=3) == 100
    log.close(clean=False)
    again = open_log(disk)
    assert (again.log_start_offset, read_values(again)) == (100, [b"b"])
    assert again.leader_epochs.entries == (EpochStart(3, 100),)


def test_a_log_that_started_over_has_no_flushed_bytes_left(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, b"a" * 100)
    flush(log, checkpoint=True)
    assert log.flushing.flushed_segments() == [(log.segments.active, log.size_bytes)]
    log.truncate_fully_and_start_at(0)
    append(log, b"b")
    assert log.flushing.flushed_segments() == []


def test_records_before_an_offset_can_be_deleted(disk: MemoryDisk) -> None:
    log = open_log(disk, segment_bytes=200)
    for place in range(6):
        append(log, b"value %d" % place)
    assert log.delete_records_before(3) == 3
    assert log.delete_records_before(1) == 3
    with pytest.raises(OffsetOutOfRange):
        log.read(2, max_bytes=100, up_to_offset=6)
    assert read_values(log) == [b"value 3", b"value 4", b"value 5"]
    trash = apply_retention(log, NOW_MS, ReplicaFacts(high_watermark=6))
    assert {path.rpartition("/")[2][:20] for path in trash} == {f"{0:020d}"}
    assert read_values(log) == [b"value 3", b"value 4", b"value 5"]
    with pytest.raises(OffsetOutOfRange):
        log.delete_records_before(7)


def test_deleting_everything_leaves_an_empty_log_that_goes_on(disk: MemoryDisk) -> None:
    log = open_log(disk, segment_bytes=200, retention_ms=10)
    for place in range(5):
        append(log, b"value %d" % place)
    assert apply_retention(log, NOW_MS + 11, ReplicaFacts(high_watermark=5))
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (5, 5, 0)
    assert append(log, b"next") == 5


def test_retention_by_size_keeps_compacted_topics_whole(disk: MemoryDisk) -> None:
    log = open_log(
        disk,
        segment_bytes=200,
        retention_bytes=1,
        cleanup_policy=frozenset({CleanupPolicy.COMPACT}),
    )
    for place in range(5):
        append(log, b"value", keys=(b"key %d" % place,))
    assert apply_retention(log, NOW_MS, ReplicaFacts(high_watermark=5)) == []


def test_a_region_stays_readable_after_retention_deleted_its_segment(tmp_path: object) -> None:
    log = open_log(SystemDisk(), folder=f"{tmp_path}/orders-0", segment_bytes=200, retention_ms=10)
    for place in range(4):
        append(log, b"value %d" % place)
    part = log.read(0, max_bytes=1000, up_to_offset=4)
    for path in apply_retention(log, NOW_MS + 11, ReplicaFacts(high_watermark=4)):
        SystemDisk().unlink(path)
    log.close()
    assert len(part.read_bytes()) == len(part) > 0


def test_offsets_are_found_by_time(disk: MemoryDisk) -> None:
    log = open_log(disk, segment_bytes=300, index_interval_bytes=1)
    for place in range(20):
        append(log, b"a", b"b", timestamp=NOW_MS + 10 * place)
    assert log.offset_for_timestamp(0) == (NOW_MS, 0, 0)
    assert log.offset_for_timestamp(NOW_MS + 51) == (NOW_MS + 60, 12, 0)
    assert log.offset_for_timestamp(NOW_MS + 190) == (NOW_MS + 190, 38, 0)
    assert log.offset_for_timestamp(NOW_MS + 191) is None
    assert log.max_timestamp_offset() == (NOW_MS + 190, 38, 0)
    log.delete_records_before(13)
    assert log.offset_for_timestamp(0) == (NOW_MS + 60, 13, 0)


def test_the_largest_timestamp_may_be_an_early_one(disk: MemoryDisk) -> None:
    log = open_log(disk, segment_bytes=300)
    for timestamp in (5, 9, 7, 9, 3, 1, 2, 4, 8):
        append(log, b"a", timestamp=NOW_MS + timestamp)
    assert log.max_timestamp_offset() == (NOW_MS + 9, 1, 0)
    assert log.offset_for_timestamp(NOW_MS + 6) == (NOW_MS + 9, 1, 0)


def test_a_folder_of_another_topic_is_refused(disk: MemoryDisk) -> None:
    def open_with(topic_id: uuid.UUID | None) -> SegmentedLog:
        log = open_log(disk)
        return SegmentedLog.open(
            FOLDER,
            log.topic_partition,
            log.config,
            disk=disk,
            clock=ManualClock(),
            topic_id=topic_id,
        )

    topic_id = uuid.uuid4()
    assert open_with(topic_id).topic_id == topic_id
    assert open_with(None).topic_id == topic_id
    with pytest.raises(InconsistentTopicId):
        open_with(uuid.uuid4())


def test_tailing_reads_need_no_search(disk: MemoryDisk) -> None:
    log = open_log(disk)
    for place in range(100):
        append(log, b"%d" % place)
    disk.read_fails = lambda _: True
    part = log.read(99, max_bytes=1 << 20, up_to_offset=100)
    disk.read_fails = lambda _: False
    assert part.next_offset == 100


def test_indexes_of_old_segments_do_not_pile_up_in_memory(disk: MemoryDisk) -> None:
    log = open_log(disk, segment_bytes=300, index_interval_bytes=50)
    for place in range(400):
        append(log, b"value", timestamp=NOW_MS + place)
    sealed = log.segments.all[:-1]
    assert len(sealed) > LOADED_INDEXES_MAX
    for offset in range(0, 400, 3):
        assert log.read(offset, max_bytes=1, up_to_offset=400).next_offset == offset + 1
        assert log.offset_for_timestamp(NOW_MS + offset) == (NOW_MS + offset, offset, 0)
    assert sum(segment.has_indexes_loaded for segment in sealed) <= LOADED_INDEXES_MAX

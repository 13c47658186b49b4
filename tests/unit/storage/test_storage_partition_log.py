"""Appending, reading, rolling, truncating and deleting, on a disk in memory."""

import uuid

import pytest
from storage_support import (
    FOLDER,
    LOG_FILE,
    NOW_MS,
    StillClock,
    append,
    make_batch,
    open_log,
    read_batches,
    read_values,
)

from zhumq.host.disk import SystemDisk
from zhumq.model.errors import (
    DiskFull,
    InconsistentTopicId,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
    StorageFailed,
)
from zhumq.records.batch import TimestampType
from zhumq.storage.checkpoints import LEADER_EPOCH_FILE, read_leader_epochs
from zhumq.storage.index_cache import LOADED_INDEXES_MAX
from zhumq.storage.leader_epochs import EpochStart
from zhumq.storage.log_config import CleanupPolicy
from zhumq.storage.partition_log import PartitionLog
from zhumq.testing.disk import MemoryDisk


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def test_offsets_follow_each_other_whatever_the_producer_wrote(disk: MemoryDisk) -> None:
    log = open_log(disk)
    assert append(log, b"a", b"b", base_offset=77) == 0
    assert append(log, b"c") == 2
    assert log.log_end_offset == 3
    assert [batch.header.base_offset for batch in read_batches(log)] == [0, 2]
    assert all(batch.crc_matches for batch in read_batches(log))


def test_several_batches_of_one_append_go_in_together(disk: MemoryDisk) -> None:
    log = open_log(disk)
    data = make_batch(b"a", b"b") + make_batch(b"c")
    appended = log.append(memoryview(data), leader_epoch=4, now_ms=NOW_MS)
    assert (appended.base_offset, appended.last_offset) == (0, 2)
    assert read_values(log) == [b"a", b"b", b"c"]
    assert {batch.header.partition_leader_epoch for batch in read_batches(log)} == {4}


def test_a_fetch_inside_a_batch_returns_the_whole_batch(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, b"a", b"b", b"c")
    append(log, b"d")
    part = log.read(1, max_bytes=1 << 20, up_to_offset=4)
    assert part.read_bytes() == bytes(disk.files[LOG_FILE].content)
    assert part.next_offset == 4


def test_a_read_never_passes_its_limit_and_stays_on_batch_boundaries(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, b"a", b"b")
    append(log, b"c", b"d")
    assert log.read(0, max_bytes=1 << 20, up_to_offset=3).next_offset == 3
    assert len(log.read(0, max_bytes=1 << 20, up_to_offset=3)) == len(make_batch(b"a", b"b"))
    assert len(log.read(0, max_bytes=1 << 20, up_to_offset=1)) == 0
    assert len(log.read(2, max_bytes=1 << 20, up_to_offset=2)) == 0


def test_at_least_one_batch_comes_even_if_it_is_too_large(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, bytes(1000))
    append(log, b"b")
    first = log.read(0, max_bytes=10, up_to_offset=2)
    assert len(first) == len(make_batch(bytes(1000)))
    assert first.next_offset == 1
    assert len(log.read(0, max_bytes=10, up_to_offset=2, at_least_one=False)) == 0


def test_only_whole_batches_fit_into_max_bytes(disk: MemoryDisk) -> None:
    log = open_log(disk, index_interval_bytes=200)
    size = len(make_batch(b"0"))
    for place in range(50):
        append(log, b"%d" % (place % 10))
    for limit in range(size, size * 7, 13):
        part = log.read(20, max_bytes=limit, up_to_offset=50)
        assert len(part) == limit // size * size
        assert part.next_offset == 20 + limit // size


def test_an_offset_outside_of_the_log_is_refused(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, b"a")
    assert len(log.read(1, max_bytes=100, up_to_offset=1)) == 0
    for offset in (-1, 2):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, max_bytes=100, up_to_offset=1)


def test_a_full_segment_is_followed_by_a_new_one(disk: MemoryDisk) -> None:
    log = open_log(disk, segment_bytes=200)
    for place in range(10):
        append(log, b"value %d" % place)
    bases = [segment.base_offset for segment in log.segments]
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
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_segment_keeps_its_age_over_a_restart(disk: MemoryDisk) -> None:
    log = open_log(disk, segment_ms=1000)
    append(log, b"a", timestamp=NOW_MS)
    log.close()
    log = open_log(disk, segment_ms=1000, clean_shutdown=True, recovery_point=1)
    append(log, b"b", timestamp=NOW_MS + 500)
    append(log, b"c", timestamp=NOW_MS + 1001)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_the_broker_stamps_its_own_time_if_the_topic_requires_it(disk: MemoryDisk) -> None:
    log = open_log(disk, message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    batch = make_batch(b"a", b"b", timestamp=5)
    assert log.append(batch, leader_epoch=0, now_ms=NOW_MS).log_append_time_ms == NOW_MS
    (stored,) = read_batches(log)
    assert stored.crc_matches
    assert [record.timestamp for record in stored.records()] == [NOW_MS, NOW_MS]
    assert log.offset_for_timestamp(NOW_MS) == (NOW_MS, 0, 0)


def test_a_repeated_batch_is_answered_with_its_first_offsets(disk: MemoryDisk) -> None:
    log = open_log(disk)
    for sequence in range(6):
        append(log, b"x", producer_id=1, producer_epoch=0, base_sequence=sequence)
    again = log.append(
        make_batch(b"x", producer_id=1, producer_epoch=0, base_sequence=1),
        leader_epoch=0,
        now_ms=NOW_MS,
    )
    assert again.duplicate
    assert (again.base_offset, again.last_offset) == (1, 1)
    assert log.log_end_offset == 6
    with pytest.raises(OutOfOrderSequenceNumber):
        append(log, b"x", producer_id=1, producer_epoch=0, base_sequence=0)


def test_a_full_disk_loses_nothing_and_the_log_works_again_with_room(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, b"a", producer_id=1, producer_epoch=0, base_sequence=0)
    disk.bytes_free = 20
    with pytest.raises(DiskFull):
        append(log, b"b", producer_id=1, producer_epoch=0, base_sequence=1)
    assert log.log_end_offset == 1
    assert read_values(log) == [b"a"]
    disk.bytes_free = None
    assert append(log, b"b", producer_id=1, producer_epoch=0, base_sequence=1) == 1
    assert read_values(log) == [b"a", b"b"]


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
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_failed_sync_takes_the_log_offline_for_good(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, b"a")
    disk.sync_fails = lambda path: path.endswith(".log")
    with pytest.raises(StorageFailed):
        log.flush()
    disk.sync_fails = lambda _: False
    assert log.flushed_offset == 0
    with pytest.raises(StorageFailed):
        append(log, b"b")
    with pytest.raises(StorageFailed):
        log.read(0, max_bytes=100, up_to_offset=1)
    assert log.begin_flush() is None


def test_what_was_appended_during_a_flush_is_not_flushed_by_it(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, b"a")
    ticket = log.begin_flush()
    assert ticket is not None
    append(log, b"b")
    ticket.run()
    log.finish_flush(ticket)
    assert log.flushed_offset == 1
    log.flush()
    assert log.flushed_offset == 2
    assert log.begin_flush() is None


def test_a_flush_reaches_segments_that_were_sealed_meanwhile(disk: MemoryDisk) -> None:
    log = open_log(disk, segment_bytes=200)
    for place in range(6):
        append(log, b"value %d" % place)
    log.flush()
    assert {f"{FOLDER}/{base:020d}.log" for base in (0, 2, 4)} <= set(disk.syncs)
    assert FOLDER in disk.syncs


def test_the_first_flush_makes_the_folder_itself_durable(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, b"a")
    log.flush()
    assert {FOLDER, "/data"} <= set(disk.syncs)
    disk.syncs.clear()
    append(log, b"b")
    log.flush()
    assert disk.syncs == [LOG_FILE]


def test_a_checkpoint_is_due_by_bytes_and_by_time(disk: MemoryDisk) -> None:
    clock = StillClock()
    log = open_log(disk, clock=clock, checkpoint_bytes=250, checkpoint_ms=1000)
    append(log, b"a")
    assert not log.is_checkpoint_due
    clock.ms += 1000
    assert log.is_checkpoint_due
    log.flush()
    assert (log.recovery_point, log.is_checkpoint_due) == (1, False)
    for _ in range(4):
        append(log, b"a")
    assert log.is_checkpoint_due
    log.flush()
    assert log.recovery_point == 5
    names = {path for path in disk.files if path.endswith(".snapshot")}
    assert names == {f"{FOLDER}/{5:020d}.snapshot"}


def test_a_checkpoint_is_due_when_there_is_something_for_compaction_to_do(disk: MemoryDisk) -> None:
    log = open_log(disk, segment_bytes=200, cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
    append(log, b"a", keys=(b"key",))
    assert not log.is_checkpoint_due
    while log.size_bytes <= 200:
        append(log, b"a", keys=(b"key",))
    assert log.is_checkpoint_due
    log.flush()
    assert not log.is_checkpoint_due


def test_truncation_removes_whole_batches_and_what_was_known_about_them(disk: MemoryDisk) -> None:
    log = open_log(disk, segment_bytes=200)
    for place in range(9):
        append(log, b"value %d" % place, leader_epoch=place // 3)
    log.flush(checkpoint=True)
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
    log.flush(checkpoint=True)
    written: list[int] = []
    log.before_recovery_point_falls = lambda: written.append(log.recovery_point)
    log.truncate_to(3)
    assert (log.log_end_offset, log.recovery_point, written[-1]) == (2, 2, 2)
    # The next write there is not flushed yet, so recovery has to scan it after a crash.
    log.append(make_batch(b"f", b"g"), leader_epoch=1, now_ms=NOW_MS)
    again = open_log(disk, recovery_point=written[-1])
    assert [each.epoch for each in again.leader_epochs.entries] == [0, 1]


def test_truncation_into_a_batch_takes_the_whole_batch(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, b"a")
    append(log, b"b", b"c", b"d")
    log.truncate_to(2)
    assert log.log_end_offset == 1
    assert read_values(log) == [b"a"]


def test_truncation_takes_producers_back_to_what_is_left(disk: MemoryDisk) -> None:
    log = open_log(disk, segment_bytes=200)
    for sequence in range(8):
        append(log, b"x", producer_id=1, producer_epoch=0, base_sequence=sequence)
    log.truncate_to(3)
    assert append(log, b"x", producer_id=1, producer_epoch=0, base_sequence=3) == 3


def test_a_checkpoint_from_before_a_truncation_does_not_bring_its_epochs_back(
    disk: MemoryDisk,
) -> None:
    log = open_log(disk)
    append(log, b"a", leader_epoch=1)
    log.flush()
    append(log, b"b", leader_epoch=2)
    ticket = log.begin_flush(checkpoint=True)
    assert ticket is not None
    log.truncate_to(1)
    ticket.run()  # In a thread, which may run late.
    log.finish_flush(ticket)
    epochs = read_leader_epochs(disk, f"{FOLDER}/{LEADER_EPOCH_FILE}")
    assert epochs is not None
    assert [each.epoch for each in epochs.entries] == [1]


def test_a_flush_from_before_a_truncation_flushes_nothing(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, b"a")
    append(log, b"b")
    ticket = log.begin_flush()
    assert ticket is not None
    log.truncate_to(1)
    append(log, b"c")
    ticket.run()
    log.finish_flush(ticket)
    assert log.flushed_offset == 0


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


def test_records_before_an_offset_can_be_deleted(disk: MemoryDisk) -> None:
    log = open_log(disk, segment_bytes=200)
    for place in range(6):
        append(log, b"value %d" % place)
    assert log.delete_records_before(3) == 3
    assert log.delete_records_before(1) == 3
    with pytest.raises(OffsetOutOfRange):
        log.read(2, max_bytes=100, up_to_offset=6)
    assert read_values(log) == [b"value 3", b"value 4", b"value 5"]
    trash = log.apply_retention(NOW_MS, high_watermark=6)
    assert {path.rpartition("/")[2][:20] for path in trash} == {f"{0:020d}"}
    assert read_values(log) == [b"value 3", b"value 4", b"value 5"]
    with pytest.raises(OffsetOutOfRange):
        log.delete_records_before(7)


def test_deleting_everything_leaves_an_empty_log_that_goes_on(disk: MemoryDisk) -> None:
    log = open_log(disk, segment_bytes=200, retention_ms=10)
    for place in range(5):
        append(log, b"value %d" % place)
    assert log.apply_retention(NOW_MS + 11, high_watermark=5)
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
    assert log.apply_retention(NOW_MS, high_watermark=5) == []


def test_a_region_stays_readable_after_retention_deleted_its_segment(tmp_path: object) -> None:
    log = open_log(SystemDisk(), folder=f"{tmp_path}/orders-0", segment_bytes=200, retention_ms=10)
    for place in range(4):
        append(log, b"value %d" % place)
    part = log.read(0, max_bytes=1000, up_to_offset=4)
    for path in log.apply_retention(NOW_MS + 11, high_watermark=4):
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


def test_an_empty_log_has_no_times_and_no_epochs(disk: MemoryDisk) -> None:
    log = open_log(disk)
    assert log.offset_for_timestamp(0) is None
    assert log.max_timestamp_offset() is None
    assert log.end_offset_for_epoch(0) == (-1, -1)
    assert len(log.read(0, max_bytes=100, up_to_offset=0)) == 0


def test_a_folder_of_another_topic_is_refused(disk: MemoryDisk) -> None:
    def open_with(topic_id: uuid.UUID | None) -> PartitionLog:
        log = open_log(disk)
        return PartitionLog.open(
            FOLDER,
            log.topic_partition,
            log.config,
            disk=disk,
            clock=StillClock(),
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
    sealed = log.segments[:-1]
    assert len(sealed) > LOADED_INDEXES_MAX
    for offset in range(0, 400, 3):
        assert log.read(offset, max_bytes=1, up_to_offset=400).next_offset == offset + 1
        assert log.offset_for_timestamp(NOW_MS + offset) == (NOW_MS + offset, offset, 0)
    assert sum(segment.has_indexes_loaded for segment in sealed) <= LOADED_INDEXES_MAX

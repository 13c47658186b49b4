"""Opening a log after a clean shutdown, a crash, a torn write, or damage on the disk."""

import logging

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
    read_batches,
    read_values,
)

from zhumq.model.errors import CorruptMessage, DiskFull, StorageFailed
from zhumq.storage.leader_epochs import EpochStart
from zhumq.storage.log_slice import CorruptRange
from zhumq.storage.retention import ReplicaFacts
from zhumq.testing.disk import MemoryDisk

CUT_FILE = f"{FOLDER}/{0:020d}.cut"
BATCH_BYTES = len(make_batch(b"value 0"))


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def filled(disk: MemoryDisk, count: int = 10, **settings: int) -> bytes:
    """Write a log of `count` batches and do not close it; returns the first segment's bytes."""
    log = open_log(disk, **settings)
    for place in range(count):
        append(log, b"value %d" % (place % 10))
    return bytes(disk.files[LOG_FILE].content)


def put(disk: MemoryDisk, path: str, content: bytes) -> None:
    disk.files[path].content[:] = content


def test_a_log_cut_at_any_byte_holds_exactly_its_complete_batches(disk: MemoryDisk) -> None:
    whole = filled(disk, 4)
    for size in range(len(whole) + 1):
        put(disk, LOG_FILE, whole[:size])
        disk.unlink(CUT_FILE)
        log = open_log(disk)
        complete = size // BATCH_BYTES
        assert log.log_end_offset == log.flushed_offset == complete
        assert read_values(log) == [b"value %d" % place for place in range(complete)]
        torn = size % BATCH_BYTES
        kept = disk.read_file(CUT_FILE)
        assert kept == (whole[size - torn : size] if torn else None)
        assert append(log, b"more") == complete


def test_a_torn_tail_does_not_come_back_with_the_next_crash(disk: MemoryDisk) -> None:
    log = open_log(disk, segment_bytes=200)
    append(log, b"whole")
    flush(log, checkpoint=True)
    append(log, b"torn")
    disk.crash(lambda path, unsynced: unsynced // 2 if path == LOG_FILE else 0)
    again = open_log(disk, segment_bytes=200, recovery_point=1)
    append(again, bytes(150))  # into a new segment
    disk.crash()
    last = open_log(disk, segment_bytes=200, recovery_point=1)
    assert last.corrupt_ranges == ()
    assert read_values(last) == [b"whole"]


def test_a_torn_tail_is_reported_with_what_was_cut(
    disk: MemoryDisk, caplog: pytest.LogCaptureFixture
) -> None:
    whole = filled(disk, 3)
    put(disk, LOG_FILE, whole[:-5])
    with caplog.at_level(logging.WARNING):
        open_log(disk)
    (record,) = [each for each in caplog.records if "torn tail" in each.message]
    assert record.levelno == logging.WARNING
    assert f"cut {BATCH_BYTES - 5} bytes" in record.message
    assert f"to {CUT_FILE}," in record.message


def test_a_torn_tail_that_cannot_be_kept_is_reported_as_lost(
    disk: MemoryDisk, caplog: pytest.LogCaptureFixture
) -> None:
    whole = filled(disk, 3)
    put(disk, LOG_FILE, whole[:-5])
    disk.bytes_free = 0
    with caplog.at_level(logging.WARNING):
        assert open_log(disk).log_end_offset == 2
    (record,) = [each for each in caplog.records if "torn tail" in each.message]
    assert "could not keep them" in record.message
    assert CUT_FILE + "," not in record.message


@pytest.mark.parametrize("flipped", range(BATCH_BYTES))
def test_a_flipped_bit_in_the_last_batch_is_never_served(disk: MemoryDisk, flipped: int) -> None:
    whole = bytearray(filled(disk, 3))
    whole[2 * BATCH_BYTES + flipped] ^= 0x10
    put(disk, LOG_FILE, whole)
    log = open_log(disk)
    if (
        12 <= flipped < 16
    ):  # The leader epoch: the checksum does not cover it, and no record changes.
        assert read_values(log) == [b"value 0", b"value 1", b"value 2"]
        return
    assert log.log_end_offset == 2
    assert read_values(log) == [b"value 0", b"value 1"]
    assert len(disk.read_file(CUT_FILE) or b"") == BATCH_BYTES


@pytest.mark.parametrize("flipped", [*range(12), *range(16, BATCH_BYTES)])
def test_a_flipped_bit_in_the_middle_cuts_nothing(disk: MemoryDisk, flipped: int) -> None:
    whole = bytearray(filled(disk, 5))
    whole[2 * BATCH_BYTES + flipped] ^= 0x10
    put(disk, LOG_FILE, whole)
    log = open_log(disk)
    assert log.log_end_offset == 5
    assert log.size_bytes == len(whole)
    assert log.corrupt_ranges == (CorruptRange(0, 2 * BATCH_BYTES, 3 * BATCH_BYTES, 2, 3),)
    assert read_values(log, 3) == [b"value 3", b"value 4"]
    before = log.read(0, max_bytes=1 << 20, up_to_offset=5)
    assert (len(before), before.next_offset) == (2 * BATCH_BYTES, 2)
    with pytest.raises(CorruptMessage, match="from offset 2 to 2"):
        log.read(2, max_bytes=1 << 20, up_to_offset=5)
    assert append(log, b"more") == 5
    assert read_values(log, 3) == [b"value 3", b"value 4", b"more"]


@pytest.mark.parametrize("recovery_point", [0, 2, 3, 5])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("place", range(5))
def test_a_flipped_bit_anywhere_never_stops_a_log_from_opening(
    disk: MemoryDisk, place: int, clean: bool, recovery_point: int
) -> None:
    log = open_log(disk, index_interval_bytes=BATCH_BYTES)
    for sequence in range(5):
        ids = {"producer_id": 4, "producer_epoch": 0, "base_sequence": sequence}
        append(log, b"value %d" % sequence, timestamp=NOW_MS + sequence, **ids)
    log.close()
    files = {path: bytes(node.content) for path, node in disk.files.items()}
    for flipped in range(BATCH_BYTES):
        for path, content in files.items():
            disk.write_file(path, content, sync=True)
        disk.files[LOG_FILE].content[place * BATCH_BYTES + flipped] ^= 0x04
        log = open_log(
            disk,
            index_interval_bytes=BATCH_BYTES,
            clean_shutdown=clean,
            recovery_point=recovery_point,
        )
        assert log.log_end_offset >= min(recovery_point, 4)
        end = append(log, b"more")
        assert read_values(log, end) == [b"more"]
        for offset in range(log.log_start_offset, end):
            try:
                part = log.read(offset, max_bytes=1, up_to_offset=end)
            except CorruptMessage:
                continue
            # Recovery does not scan what was flushed; a reader detects the damage by the checksum.
            assert part.next_offset > offset or recovery_point > 0


def test_damage_is_reported_as_an_error_and_remembered_over_a_clean_restart(
    disk: MemoryDisk, caplog: pytest.LogCaptureFixture
) -> None:
    whole = bytearray(filled(disk, 5))
    whole[2 * BATCH_BYTES + 70] ^= 1
    put(disk, LOG_FILE, whole)
    with caplog.at_level(logging.ERROR):
        log = open_log(disk)
    assert "offsets 2 to 2 cannot be read" in caplog.text
    log.close()
    again = open_log(disk, clean_shutdown=True, recovery_point=5)
    assert len(again.corrupt_ranges) == 1
    with pytest.raises(CorruptMessage):
        again.read(2, max_bytes=100, up_to_offset=5)
    assert read_values(again, 3) == [b"value 3", b"value 4"]


def test_below_the_recovery_point_nothing_is_scanned_and_nothing_cut(disk: MemoryDisk) -> None:
    whole = bytearray(filled(disk, 5))
    for place in (1, 3):
        whole[place * BATCH_BYTES + 70] ^= 1
    put(disk, LOG_FILE, whole)
    log = open_log(disk, recovery_point=5)
    assert (log.log_end_offset, log.size_bytes) == (5, len(whole))
    assert log.corrupt_ranges == ()


def test_a_damaged_end_below_the_recovery_point_is_not_taken_for_a_torn_tail(
    disk: MemoryDisk,
) -> None:
    whole = bytearray(filled(disk, 5))
    whole[4 * BATCH_BYTES + 16] = 9  # the magic of the last batch, which was flushed once
    put(disk, LOG_FILE, whole)
    log = open_log(disk, recovery_point=5)
    assert (log.log_end_offset, log.size_bytes) == (5, len(whole))
    with pytest.raises(CorruptMessage):
        log.read(4, max_bytes=100, up_to_offset=5)
    assert append(log, b"more") == 5
    assert read_values(log, 5) == [b"more"]


def test_flushed_records_that_are_gone_are_reported(
    disk: MemoryDisk, caplog: pytest.LogCaptureFixture
) -> None:
    whole = filled(disk, 5)
    put(disk, LOG_FILE, whole[: 3 * BATCH_BYTES])
    log = open_log(disk, recovery_point=5)
    assert log.log_end_offset == 3
    assert "ends at offset 3, but was flushed up to 5" in caplog.text


def test_several_damaged_places_are_each_known(disk: MemoryDisk) -> None:
    whole = bytearray(filled(disk, 10))
    for place in (1, 2, 6):
        whole[place * BATCH_BYTES + 70] ^= 1
    put(disk, LOG_FILE, whole)
    log = open_log(disk)
    assert [(bad.first_offset, bad.next_offset) for bad in log.corrupt_ranges] == [(1, 3), (6, 7)]
    assert read_values(log, 7) == [b"value 7", b"value 8", b"value 9"]
    assert log.read(3, max_bytes=1 << 20, up_to_offset=10).next_offset == 6


def test_zeros_behind_the_last_batch_are_a_torn_tail(disk: MemoryDisk) -> None:
    whole = filled(disk, 3)
    put(disk, LOG_FILE, whole + bytes(5000))
    log = open_log(disk)
    assert (log.log_end_offset, log.size_bytes) == (3, len(whole))


def test_a_hole_of_zeros_in_the_middle_cuts_nothing(disk: MemoryDisk) -> None:
    whole = bytearray(filled(disk, 10))
    whole[100:500] = bytes(400)
    put(disk, LOG_FILE, whole)
    log = open_log(disk)
    assert log.log_end_offset == 10
    ((_, start, end, first, following),) = log.corrupt_ranges
    assert (start, first) == (BATCH_BYTES, 1)
    assert end == following * BATCH_BYTES
    assert read_values(log, following) == [b"value %d" % at for at in range(following, 10)]


def test_without_room_for_its_indexes_a_log_is_opened_all_the_same(disk: MemoryDisk) -> None:
    log = open_log(disk, segment_bytes=2000, index_interval_bytes=150)
    for place in range(60):
        append(log, b"value %d" % (place % 10), timestamp=NOW_MS + place)
    log.close(clean=False)
    for name in [path for path in disk.files if path.endswith("index")]:
        disk.unlink(name)
    disk.bytes_free = 0
    log = open_log(disk, segment_bytes=2000, index_interval_bytes=150)
    assert read_values(log) == [b"value %d" % (place % 10) for place in range(60)]
    with pytest.raises(DiskFull):
        append(log, b"no room")
    assert log.writes_without_room == 1
    disk.bytes_free = None
    append(log, b"room")
    log.close()
    log = open_log(
        disk, segment_bytes=2000, index_interval_bytes=150, clean_shutdown=True, recovery_point=61
    )
    assert read_values(log, 60) == [b"room"]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("content", [None, b"", b"abc", bytes(24), b"\xff" * 48])
@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_or_damaged_index_is_built_again(
    disk: MemoryDisk, suffix: str, content: bytes | None, clean: bool
) -> None:
    log = open_log(disk, segment_bytes=2000, index_interval_bytes=150)
    for place in range(60):
        append(log, b"value %d" % (place % 10), timestamp=NOW_MS + place)
    log.close()
    names = sorted(path for path in disk.files if path.endswith(suffix))
    good = {name: disk.read_file(name) for name in names}
    for name in names:
        if content is None:
            disk.unlink(name)
        else:
            disk.files[name].content[:] = content
    log = open_log(
        disk,
        segment_bytes=2000,
        index_interval_bytes=150,
        clean_shutdown=clean,
        recovery_point=60 if clean else 0,
    )
    assert log.log_end_offset == 60
    for offset in range(60):
        part = log.read(offset, max_bytes=1, up_to_offset=60)
        assert part.next_offset == offset + 1
        found = log.offset_for_timestamp(NOW_MS + offset)
        assert found is not None
        assert found.offset == offset
    log.close()
    assert {name: disk.read_file(name) for name in names} == good


def test_an_index_with_wrong_entries_is_detected(disk: MemoryDisk) -> None:
    log = open_log(disk, index_interval_bytes=150)
    for place in range(60):
        append(log, b"value %d" % (place % 10))
    log.close()
    index = disk.files[f"{FOLDER}/{0:020d}.index"].content
    index[8 * 5 + 7] ^= 0x01  # a position that is one off
    index[8 * 9 + 3] ^= 0x01  # an offset that is one off
    log = open_log(disk, index_interval_bytes=150, clean_shutdown=True, recovery_point=60)
    for offset in range(60):
        assert log.read(offset, max_bytes=1, up_to_offset=60).next_offset == offset + 1
        assert log.read(offset, max_bytes=400, up_to_offset=60).next_offset == min(offset + 5, 60)


def test_an_empty_last_segment_goes_on(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append(log, b"a")
    log.flushing.roll()
    log.close(clean=False)
    again = open_log(disk)
    assert again.log_end_offset == 1
    assert [segment.base_offset for segment in again.segments.all] == [0, 1]
    assert append(again, b"b") == 1
    assert read_values(again) == [b"a", b"b"]


def test_an_empty_file_in_an_empty_folder_is_a_log(disk: MemoryDisk) -> None:
    disk.make_directory(FOLDER)
    disk.open_file(LOG_FILE, create=True)
    log = open_log(disk)
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    assert append(log, b"a") == 0


def test_an_empty_segment_in_the_middle_is_damage(disk: MemoryDisk) -> None:
    filled(disk, 6, segment_bytes=2 * BATCH_BYTES)
    disk.files[f"{FOLDER}/{2:020d}.log"].content.clear()
    log = open_log(disk, segment_bytes=2 * BATCH_BYTES)
    assert log.log_end_offset == 6
    with pytest.raises(CorruptMessage, match="from offset 2 to 3"):
        log.read(2, max_bytes=100, up_to_offset=6)
    assert read_values(log, 4) == [b"value 4", b"value 5"]
    assert log.read(0, max_bytes=1000, up_to_offset=6).next_offset == 2


def test_a_last_segment_without_a_valid_batch_is_removed(
    disk: MemoryDisk,
) -> None:
    filled(disk, 5, segment_bytes=2 * BATCH_BYTES)
    put(disk, f"{FOLDER}/{4:020d}.log", b"\x00" * 50)
    put(disk, f"{FOLDER}/{2:020d}.log", bytes(disk.files[f"{FOLDER}/{2:020d}.log"].content[:-3]))
    log = open_log(disk, segment_bytes=2 * BATCH_BYTES)
    assert log.log_end_offset == 3
    assert [segment.base_offset for segment in log.segments.all] == [0, 2]
    assert append(log, b"more") == 3
    assert read_values(log) == [b"value 0", b"value 1", b"value 2", b"more"]


def test_a_sealed_segment_that_lost_its_end_is_damage_if_later_ones_are_there(
    disk: MemoryDisk,
) -> None:
    filled(disk, 6, segment_bytes=2 * BATCH_BYTES)
    put(disk, f"{FOLDER}/{2:020d}.log", bytes(disk.files[f"{FOLDER}/{2:020d}.log"].content[:-3]))
    log = open_log(disk, segment_bytes=2 * BATCH_BYTES)
    assert log.log_end_offset == 6
    with pytest.raises(CorruptMessage, match="from offset 3 to 3"):
        log.read(3, max_bytes=100, up_to_offset=6)
    assert read_values(log, 4) == [b"value 4", b"value 5"]


def test_a_clean_restart_reads_next_to_nothing(disk: MemoryDisk) -> None:
    log = open_log(disk, segment_bytes=1000, index_interval_bytes=100)
    for place in range(200):
        append(log, b"value %d" % place, leader_epoch=place // 100)
    log.close()
    sealed = {segment.prefix for segment in log.segments.all[:-1]}
    disk.read_fails = lambda path: path.rpartition(".")[0] in sealed and path.endswith("log")
    again = open_log(disk, clean_shutdown=True, recovery_point=200)
    assert (again.log_end_offset, again.flushed_offset) == (200, 200)
    assert again.leader_epochs.entries == (EpochStart(0, 0), EpochStart(1, 100))


def test_a_log_that_is_damaged_after_a_clean_shutdown_is_recovered(disk: MemoryDisk) -> None:
    whole = filled(disk, 3)
    put(disk, LOG_FILE, whole[:-1])
    log = open_log(disk, clean_shutdown=True, recovery_point=0)
    assert log.log_end_offset == 2


def test_losing_all_that_was_not_synced_keeps_what_was_flushed(disk: MemoryDisk) -> None:
    log = open_log(disk, segment_bytes=300)
    for sequence in range(20):
        append(log, b"x", producer_id=9, producer_epoch=1, base_sequence=sequence)
        if sequence == 11:
            flush(log, checkpoint=True)
        if sequence == 15:
            flush(log)
    disk.crash()
    again = open_log(disk, recovery_point=12, segment_bytes=300)
    assert again.log_end_offset == 16
    assert again.producer_state.producers[9].next_sequence == 16
    assert again.leader_epochs.entries == (EpochStart(0, 0),)
    assert [batch.header.base_offset for batch in read_batches(again)] == list(range(16))


def test_producers_are_read_from_the_log_if_their_snapshot_is_damaged(disk: MemoryDisk) -> None:
    log = open_log(disk)
    for sequence in range(8):
        append(log, b"x", producer_id=9, producer_epoch=1, base_sequence=sequence)
    state = log.producer_state
    log.close()
    disk.files[f"{FOLDER}/{8:020d}.snapshot"].content[20] ^= 1
    again = open_log(disk, clean_shutdown=True, recovery_point=8)
    assert again.producer_state == state


def test_a_snapshot_past_the_recovery_point_stands_for_deleted_batches(disk: MemoryDisk) -> None:
    log = open_log(disk, segment_bytes=150)
    append(log, b"x", producer_id=9, producer_epoch=1, base_sequence=0)
    append(log, bytes(100))
    again = open_log(disk, segment_bytes=150)  # writes a snapshot at the end, to the disk
    again.delete_records_before(1)
    apply_retention(again, NOW_MS, ReplicaFacts(high_watermark=2))
    disk.files[f"{FOLDER}/{1:020d}.snapshot"].content.clear()  # it was not flushed
    last = open_log(disk, segment_bytes=150, recovery_point=1, log_start_offset=1)
    assert last.producer_state.producers[9].next_sequence == 1


def test_leader_epochs_are_read_from_the_log_if_their_file_is_damaged(disk: MemoryDisk) -> None:
    log = open_log(disk)
    for epoch in (3, 3, 5, 9):
        append(log, b"x", leader_epoch=epoch)
    log.close()
    for content in (b"", b"0\n7\n1 2\n", b"\xff\xff"):
        disk.files[f"{FOLDER}/leader-epoch-checkpoint"].content[:] = content
        again = open_log(disk, clean_shutdown=True, recovery_point=4)
        assert again.leader_epochs.entries == (
            EpochStart(3, 0),
            EpochStart(5, 2),
            EpochStart(9, 3),
        )


def test_an_unreadable_disk_is_an_error_and_changes_nothing(disk: MemoryDisk) -> None:
    whole = filled(disk, 3)
    disk.read_fails = lambda path: path.endswith(".log")
    with pytest.raises(StorageFailed):
        open_log(disk)
    assert bytes(disk.files[LOG_FILE].content) == whole


def test_leftovers_of_interrupted_work_are_removed(disk: MemoryDisk) -> None:
    filled(disk, 2)
    leftovers = [
        f"{FOLDER}/{7:020d}.log.deleted",
        f"{FOLDER}/{0:020d}.log.cleaned",
        f"{FOLDER}/{0:020d}.index.tmp",
    ]
    for path in leftovers:
        disk.open_file(path, create=True)
    log = open_log(disk)
    assert not set(leftovers) & set(disk.files)
    assert log.log_end_offset == 2

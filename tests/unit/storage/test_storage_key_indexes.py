"""The key index of a log: what it finds, and what becomes of it with its segments."""

import logging
from itertools import islice
from pathlib import Path

import pytest
from tests.unit.storage.key_index_support import (
    append_keys,
    candidates,
    check_lookup,
    index_all,
    indexing,
    keyed_batch,
    offsets_with,
)
from tests.unit.storage.storage_support import FOLDER, NOW_MS, apply_retention, flush, open_log

from zhumq.host.disk import Disk, SystemDisk
from zhumq.model.errors import DiskFull
from zhumq.model.message_headers import TAGS_MAX, split_tags
from zhumq.records.codecs import Compression
from zhumq.storage.indexes import IndexCorrupt
from zhumq.storage.key_index_builder import (
    SLOTS_FIRST,
    SLOTS_MAX,
    SLOTS_MIN,
    KeyIndexBuilder,
    slots_after,
)
from zhumq.storage.key_index_file import KeyIndexFile
from zhumq.storage.key_index_pages import (
    ENTRIES_PER_SLOT,
    PAGE_BYTES,
    SECONDS_MAX,
    SECONDS_MIN,
    Opening,
    key_hash,
    may_be_within,
    seconds_between,
    tag_hash,
)
from zhumq.storage.log_compaction import begin_compaction, finish_compaction
from zhumq.storage.log_config import CleanupPolicy
from zhumq.storage.retention import ReplicaFacts
from zhumq.storage.segmented_log import SegmentedLog
from zhumq.testing.disk import MemoryDisk

SOLE = ReplicaFacts(high_watermark=2**62, is_leader=True, is_sole=True)
PATH = f"{FOLDER}/{0:020d}.keyindex"


def index_files(disk: MemoryDisk) -> list[str]:
    return sorted(path for path in disk.files if ".keyindex" in path)


def found_keys(log: SegmentedLog, key: bytes) -> list[int]:
    """The offsets that the index gives for a key, if it covers the whole log."""
    found, gaps = candidates(log, key_hash(key))
    assert not gaps
    return sorted(found)


def compacting(disk: Disk, **settings: object) -> SegmentedLog:
    return open_log(
        disk,
        index_keys=True,
        cleanup_policy=frozenset({CleanupPolicy.COMPACT}),
        min_cleanable_dirty_ratio=0.0,
        **settings,
    )


def compact(log: SegmentedLog) -> None:
    flush(log, checkpoint=True)
    ticket = begin_compaction(log, 2**60, log.log_end_offset)
    assert ticket is not None
    ticket.run()
    finish_compaction(log, ticket)
    assert ticket.error is None


# What it finds


def test_a_key_and_an_equal_tag_are_not_confused() -> None:
    log = open_log(MemoryDisk(), index_keys=True)
    append_keys(log, b"blue", b"red")
    append_keys(log, b"green", tags=b"blue, sale")
    index_all(log)
    assert found_keys(log, b"blue") == [0]
    assert candidates(log, tag_hash(b"blue")) == ({2}, [])
    assert candidates(log, tag_hash(b"sale")) == ({2}, [])


def test_an_empty_key_is_found_and_a_missing_one_is_not() -> None:
    log = open_log(MemoryDisk(), index_keys=True)
    append_keys(log, None, b"", None, b"")
    index_all(log)
    assert found_keys(log, b"") == [1, 3]


def test_a_key_of_a_megabyte_is_found() -> None:
    log = open_log(MemoryDisk(), index_keys=True, max_message_bytes=4 << 20)
    append_keys(log, b"x" * (1 << 20))
    index_all(log)
    assert found_keys(log, b"x" * (1 << 20)) == [0]


@pytest.mark.parametrize("compression", list(Compression))
def test_keys_of_compressed_batches_are_found(compression: Compression) -> None:
    log = open_log(MemoryDisk(), index_keys=True)
    append_keys(log, b"a", b"b", b"a", tags=b"t", compression=compression)
    index_all(log)
    assert found_keys(log, b"a") == [0, 2]
    assert candidates(log, tag_hash(b"t")) == ({0, 1, 2}, [])


def test_the_tags_of_a_message_are_separated_by_commas_and_limited() -> None:
    assert split_tags(b" a , b,,a") == (b"a", b"b")
    assert split_tags(None) == split_tags(b"") == split_tags(b" , ") == ()
    assert len(split_tags(b",".join(b"%d" % number for number in range(1000)))) == TAGS_MAX


def test_a_full_file_is_completed_and_the_next_one_is_larger() -> None:
    disk = MemoryDisk()
    log = open_log(disk, index_keys=True)
    count = SLOTS_FIRST * ENTRIES_PER_SLOT
    for first in range(0, count + 1_000, 1_000):
        keys = (b"%d" % number for number in range(first, first + 1_000))
        append_keys(log, *keys)
    index_all(log)
    assert len(index_files(disk)) == 2
    first = KeyIndexFile(disk, PATH, 0)
    assert first.entries >= count
    assert found_keys(log, b"7") == [7]
    assert found_keys(log, b"%d" % count) == [count]
    assert slots_after(count, was_full=True, slots=SLOTS_FIRST) == SLOTS_FIRST * 4
    assert slots_after(10, was_full=False, slots=SLOTS_FIRST) == SLOTS_MIN
    assert slots_after(10**9, was_full=True, slots=SLOTS_MAX) == SLOTS_MAX


def test_the_files_of_an_index_hold_under_twenty_bytes_for_each_message() -> None:
    disk = MemoryDisk()
    log = open_log(disk, index_keys=True)
    count = SLOTS_FIRST * ENTRIES_PER_SLOT
    for first in range(0, count, 1_024):
        append_keys(log, *(b"%d" % number for number in range(first, first + 1_024)))
    index_all(log)
    assert len(disk.files[PATH].content) < 20 * count


def test_timestamps_that_have_no_room_are_looked_at() -> None:
    begin = NOW_MS
    for timestamp in (-1, 0, begin - 1, begin, begin + 999, begin + 1000, 2**62):
        seconds = seconds_between(begin, timestamp)
        assert SECONDS_MIN <= seconds <= SECONDS_MAX
        assert may_be_within(begin, seconds, timestamp, timestamp + 1)
        assert may_be_within(begin, seconds, None, None)
    assert not may_be_within(begin, 10, begin + 20_000, None)
    assert not may_be_within(begin, 10, None, begin + 10_000)


# Restarts and crashes


def test_a_restart_continues_where_the_index_was() -> None:
    disk = MemoryDisk()
    log = open_log(disk, index_keys=True)
    append_keys(log, b"a", b"b")
    index_all(log)
    log.key_indexes.close()
    log.close()
    log = open_log(disk, clean_shutdown=True, recovery_point=2, index_keys=True)
    list(log.key_indexes.resume())
    assert log.key_indexes.next_offset(0) == 2  # Nothing of the log is read again.
    append_keys(log, b"a")
    index_all(log)
    assert found_keys(log, b"a") == [0, 2]


def test_a_file_that_is_torn_at_any_byte_loses_no_message() -> None:
    disk = MemoryDisk()
    log = open_log(disk, index_keys=True, segment_bytes=100_000)
    for number in range(12):
        append_keys(log, *(b"%d" % (number * 100 + each) for each in range(100)))
    index_all(log)
    log.key_indexes.close()
    flush(log, checkpoint=True)
    whole = bytes(disk.files[PATH].content)
    end = log.log_end_offset
    log.close()
    cuts = {0, 1, len(whole), *range(PAGE_BYTES - 2, len(whole), PAGE_BYTES // 3)}
    for cut in sorted(cuts):
        disk.files[PATH].content[:] = whole[:cut]
        log = open_log(disk, clean_shutdown=True, recovery_point=end, index_keys=True)
        index_all(log)
        for key in (b"0", b"254", b"255", b"256", b"1199"):
            assert found_keys(log, key) == [int(key)]
        log.key_indexes.close()
        log.close()


def test_a_flipped_bit_in_any_page_is_noticed() -> None:
    disk = MemoryDisk()
    disk.make_directory(FOLDER)
    builder = KeyIndexBuilder.begin(
        disk, PATH, Opening(slots=SLOTS_MIN, begin_offset=0, begin_ms=NOW_MS)
    )
    builder.add((offset, NOW_MS, b"%d" % offset, ()) for offset in range(700))
    list(builder.complete())
    content = disk.files[PATH].content
    for page in range(len(content) // PAGE_BYTES):
        content[page * PAGE_BYTES + 100] ^= 4
        with pytest.raises(IndexCorrupt):  # noqa: PT012 - opening or finding
            file = KeyIndexFile(disk, PATH, 0)
            for offset in range(700):
                list(file.find(key_hash(b"%d" % offset)))
        content[page * PAGE_BYTES + 100] ^= 4
    KeyIndexFile(disk, PATH, 0)


def test_a_lookup_goes_on_while_the_file_is_completed(tmp_path: Path) -> None:
    opening = Opening(slots=SLOTS_MIN, begin_offset=0, begin_ms=NOW_MS)
    builder = KeyIndexBuilder.begin(SystemDisk(), str(tmp_path / "a.keyindex"), opening)
    builder.add((offset, NOW_MS, b"same", ()) for offset in range(700))
    builder.write(all_pages=True)
    entries = builder.find(key_hash(b"same"))
    assert next(entries) == (699, 0)
    list(builder.complete())
    assert [entry[0] for entry in entries if entry is not None] == list(range(698, -1, -1))


def test_a_file_of_another_offset_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    log = open_log(disk, index_keys=True)
    append_keys(log, *(b"%d" % number for number in range(40)))
    index_all(log)
    log.key_indexes.close()
    log.close()
    disk.rename(PATH, f"{FOLDER}/{7:020d}.keyindex")
    with caplog.at_level(logging.WARNING):
        log = open_log(disk, clean_shutdown=True, recovery_point=40, index_keys=True)
    assert "is built again" in caplog.text
    index_all(log)
    assert found_keys(log, b"39") == [39]


def test_a_damaged_file_is_discarded_and_built_again(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    log = open_log(disk, index_keys=True, segment_bytes=300)
    for number in range(20):
        append_keys(log, b"%d" % number)
    index_all(log)
    for path in index_files(disk)[:-1]:
        content = disk.files[path].content
        content[PAGE_BYTES + 50] ^= 1
    with caplog.at_level(logging.WARNING):
        _, gaps = candidates(log, key_hash(b"0"))
    assert gaps
    assert "does not match" in caplog.text
    index_all(log)
    for number in range(20):
        check_lookup(log, key=b"%d" % number)


def test_a_full_disk_delays_the_index_and_nothing_else() -> None:
    disk = MemoryDisk()
    log = open_log(disk, index_keys=True)
    for number in range(60):
        append_keys(log, *(b"%d" % (number * 100 + each) for each in range(100)))
    disk.bytes_free = 2 * PAGE_BYTES
    with pytest.raises(DiskFull):
        index_all(log)
    with pytest.raises(DiskFull):
        index_all(log)
    check_lookup(log, key=b"11")
    disk.bytes_free = None
    index_all(log)
    assert found_keys(log, b"11") == [11]
    assert found_keys(log, b"5999") == [5999]


# Retention, truncation, compaction, settings


def test_an_index_goes_with_its_segment() -> None:
    disk = MemoryDisk()
    log = open_log(disk, index_keys=True, segment_bytes=300)
    for number in range(20):
        append_keys(log, b"%d" % number)
    index_all(log)
    before = len(index_files(disk))
    log.delete_records_before(10)
    trash = apply_retention(log, NOW_MS, SOLE)
    assert [path for path in trash if ".keyindex" in path]
    live = [path for path in index_files(disk) if not path.endswith(".deleted")]
    assert len(live) < before
    assert found_keys(log, b"15") == [15]
    assert not offsets_with(log, key=b"3")


def test_records_above_a_truncation_are_not_covered() -> None:
    log = open_log(MemoryDisk(), index_keys=True, segment_bytes=300)
    for number in range(20):
        append_keys(log, b"%d" % number)
    index_all(log)
    log.truncate_to(9)
    append_keys(log, b"new")
    check_lookup(log, key=b"new")
    index_all(log)
    assert found_keys(log, b"new") == [9]
    assert found_keys(log, b"9") == []


def test_a_log_that_starts_over_has_no_index() -> None:
    disk = MemoryDisk()
    log = open_log(disk, index_keys=True)
    append_keys(log, b"a")
    index_all(log)
    log.truncate_fully_and_start_at(100)
    assert index_files(disk) == []
    append_keys(log, b"a")
    index_all(log)
    assert found_keys(log, b"a") == [100]


def test_a_compacted_log_is_looked_up_by_the_old_files_until_the_new_ones_are_built() -> None:
    disk = MemoryDisk()
    log = compacting(disk, segment_bytes=400)
    for number in range(60):
        append_keys(log, b"key%d" % (number % 3))
    index_all(log)
    newest = max(offsets_with(log, key=b"key1"))
    compact(log)
    assert any(path.endswith(".stale") for path in index_files(disk))
    assert newest in found_keys(log, b"key1")  # They cover the whole log.
    index_all(log)
    assert not any(path.endswith(".stale") for path in index_files(disk))
    assert found_keys(log, b"key1") == sorted(offsets_with(log, key=b"key1"))


def test_a_restart_after_a_compaction_keeps_the_old_files_until_then() -> None:
    disk = MemoryDisk()
    log = compacting(disk, segment_bytes=400)
    for number in range(60):
        append_keys(log, b"key%d" % (number % 3))
    index_all(log)
    compact(log)
    log.close()
    log = compacting(disk, segment_bytes=400, clean_shutdown=True, recovery_point=60)
    newest = max(offsets_with(log, key=b"key1"))
    found, gaps = candidates(log, key_hash(b"key1"))
    assert newest in found or any(first <= newest < end for first, end in gaps)
    assert all(first >= log.segments.active.base_offset for first, _ in gaps)
    index_all(log)
    assert newest in found_keys(log, b"key1")
    assert not any(path.endswith(".stale") for path in index_files(disk))


def test_a_file_that_had_to_wait_for_older_records_grows_again() -> None:
    disk = MemoryDisk()
    log = open_log(disk, index_keys=True, segment_bytes=4_000)
    for number in range(120):
        append_keys(log, b"key%d" % (number % 3))
        if number % 20 == 19:
            index_all(log)
            log.key_indexes.close()
            index, _ = log.key_indexes.covering(1)
            if index is not None:
                log.key_indexes.discard(index, IndexCorrupt("for a test"))
            index_all(log)
    bases = [segment.base_offset for segment in log.segments.all]
    assert len(bases) > 2
    assert [int(path.rpartition("/")[2][:20]) for path in index_files(disk)] == bases
    for number in range(3):
        check_lookup(log, key=b"key%d" % number)


def test_what_changes_in_the_middle_of_indexing_stops_it() -> None:
    log = open_log(MemoryDisk(), index_keys=True, segment_bytes=2_000)
    for number in range(40):
        append_keys(log, *(b"%d" % (number * 10 + each) for each in range(10)))
    work = indexing(log)
    list(islice(work, 3))
    log.truncate_to(5)
    append_keys(log, *(b"new%d" % number for number in range(300)))
    list(work)
    index_all(log)
    assert found_keys(log, b"new299") == [299 + log.log_end_offset - 300]


def test_the_files_go_when_the_topic_is_indexed_no_more() -> None:
    disk = MemoryDisk()
    log = open_log(disk, index_keys=True)
    append_keys(log, b"a")
    index_all(log)
    log.key_indexes.close()
    log.close()
    log = open_log(disk, clean_shutdown=True, recovery_point=1)
    assert index_files(disk) == []


def test_a_batch_that_holds_no_records_is_skipped() -> None:
    log = open_log(MemoryDisk(), index_keys=True)
    batch = bytearray(keyed_batch(b"a"))
    log.append(bytes(batch), leader_epoch=0, now_ms=NOW_MS)
    list(log.key_indexes.absorb(b"", 0, 1))
    assert log.key_indexes.next_offset(0) == 1

"""Transactions in a segmented log: index files, recovery of them, and compaction."""

from typing import Any

import pytest
from storage_support import (
    FOLDER,
    NOW_MS,
    append,
    apply_retention,
    flush,
    open_log,
    read_batches,
)

from zhumq.records.control import EndMarker, MarkerType
from zhumq.storage.dump import dump_file
from zhumq.storage.log_compaction import begin_compaction, finish_compaction
from zhumq.storage.log_config import CleanupPolicy
from zhumq.storage.producer_snapshot import decode_snapshot
from zhumq.storage.retention import ReplicaFacts
from zhumq.storage.segmented_log import SegmentedLog
from zhumq.storage.transaction_index import AbortedTransaction
from zhumq.testing.disk import MemoryDisk

ABORT, COMMIT = MarkerType.ABORT, MarkerType.COMMIT
INDEX_FILE = f"{FOLDER}/{0:020d}.txnindex"
COMPACTED: dict[str, Any] = {
    "cleanup_policy": frozenset({CleanupPolicy.COMPACT}),
    "min_cleanable_dirty_ratio": 0.0,
    "delete_retention_ms": 1000,
}


class Producer:
    """A transactional producer of one log."""

    def __init__(self, log: SegmentedLog, producer_id: int) -> None:
        self.log = log
        self.producer_id = producer_id
        self.sequence = 0

    def write(self, value: bytes = b"v", key: bytes = b"k") -> int:
        self.log.producer_state.allow_transaction(
            self.producer_id, 0, self.log.producer_state.verification(self.producer_id)
        )
        offset = append(
            self.log,
            value,
            keys=(key,),
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=self.sequence,
            is_transactional=True,
        )
        self.sequence += 1
        return offset

    def end(self, marker_type: MarkerType, *, epoch: int = 0) -> int:
        return self.log.append_marker(
            EndMarker(marker_type=marker_type, coordinator_epoch=1),
            producer_id=self.producer_id,
            producer_epoch=epoch,
            transaction_version=0,
            leader_epoch=0,
            now_ms=NOW_MS,
        ).base_offset


def aborted(log: SegmentedLog) -> list[AbortedTransaction]:
    return log.aborted_transactions(0, log.log_end_offset)


def interleaved(log: SegmentedLog) -> list[AbortedTransaction]:
    """Two producers whose transactions overlap; the last one of the second stays open."""
    one, two = Producer(log, 1), Producer(log, 2)
    expected = []
    for number in range(12):
        first = one.write(b"%d" % number)
        other = two.write(b"x" * 50)
        end = one.end(ABORT)
        expected.append(AbortedTransaction(1, first, end, other))
        if number < 11:
            two.end(COMMIT if number % 2 else ABORT)
            if not number % 2:
                expected.append(AbortedTransaction(2, other, end + 1, end + 2))
    return expected


def test_aborted_transactions_are_in_kafkas_index_file() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, b"before")
    one, two = Producer(log, 1), Producer(log, 2)
    one.write()
    two.write()
    one.end(ABORT)
    two.end(COMMIT)
    assert disk.read_file(INDEX_FILE) is None
    log.close()
    fields = (0).to_bytes(2, "big") + b"".join(each.to_bytes(8, "big") for each in (1, 1, 3, 2))
    assert disk.read_file(INDEX_FILE) == fields
    assert [str(each) for each in dump_file(INDEX_FILE, disk=disk)] == [
        "version: 0 producerId: 1 firstOffset: 1 lastOffset: 3 lastStableOffset: 2"
    ]


@pytest.mark.parametrize("segment_bytes", [300, 100_000])
@pytest.mark.parametrize("checkpoints", [False, True])
def test_the_indexes_are_the_same_after_a_crash(segment_bytes: int, checkpoints: bool) -> None:
    disk = MemoryDisk()
    log = open_log(disk, segment_bytes=segment_bytes)
    one = Producer(log, 9)
    one.write()
    if checkpoints:
        flush(log, checkpoint=True)
    expected = interleaved(log)
    flush(log)
    one.end(ABORT)
    expected.append(AbortedTransaction(9, 0, log.log_end_offset - 1, log.log_end_offset - 3))
    assert sorted(aborted(log)) == sorted(
        each._replace(last_stable_offset=0) if each.producer_id != 9 else each for each in expected
    )
    flush(log)
    before = aborted(log)
    disk.crash()
    log = open_log(disk, segment_bytes=segment_bytes)
    assert aborted(log) == before
    log.close()
    again = open_log(
        disk, segment_bytes=segment_bytes, clean_shutdown=True, recovery_point=log.log_end_offset
    )
    assert aborted(again) == before
    assert again.producer_state == log.producer_state


@pytest.mark.parametrize("damage", ["lost", "cut", "short", "flipped"])
def test_a_damaged_index_is_built_again(damage: str) -> None:
    disk = MemoryDisk()
    log = open_log(disk, segment_bytes=300)
    interleaved(log)
    before = aborted(log)
    log.close()
    names = [each.name for each in disk.list_directory(FOLDER) if ".txnindex" in each.name]
    assert len(names) > 3
    for name in names[::2]:
        path = f"{FOLDER}/{name}"
        data = bytearray(disk.read_file(path) or b"")
        if damage == "lost":
            disk.unlink(path)
            continue
        if damage == "flipped":
            data[12] ^= 1
        disk.write_file(path, data[:-5] if damage == "cut" else data[:-34], sync=True)
    log = open_log(disk, segment_bytes=300, clean_shutdown=True, recovery_point=log.log_end_offset)
    assert aborted(log) == before


def test_an_index_that_makes_no_sense_is_built_again_without_a_manifest() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    interleaved(log)
    before = aborted(log)
    log.close()
    disk.unlink(f"{FOLDER}/log-manifest")
    data = bytearray(disk.read_file(INDEX_FILE) or b"")
    data[34:68] = bytes(34)
    disk.write_file(INDEX_FILE, data, sync=True)
    log = open_log(disk, clean_shutdown=True, recovery_point=log.log_end_offset)
    assert aborted(log) == before


def test_a_truncation_removes_the_transactions_whose_markers_are_gone() -> None:
    disk = MemoryDisk()
    log = open_log(disk, segment_bytes=300)
    interleaved(log)
    flush(log, checkpoint=True)
    for offset in (30, 17, 3):
        kept = [each for each in aborted(log) if each.last_offset < offset]
        log.truncate_to(offset)
        assert aborted(log) == kept
        assert log.producer_state.first_undecided_offset is not None
    log.truncate_fully_and_start_at(5)
    assert aborted(log) == []
    assert not any(".txnindex" in each.name for each in disk.list_directory(FOLDER))


def test_retention_removes_the_indexes_of_its_segments() -> None:
    disk = MemoryDisk()
    log = open_log(disk, segment_bytes=300, retention_ms=1000)
    interleaved(log)
    flush(log, checkpoint=True)
    facts = ReplicaFacts(high_watermark=log.log_end_offset, is_leader=True, is_sole=True)
    apply_retention(log, NOW_MS + 2000, facts)
    assert log.log_start_offset == log.log_end_offset
    assert aborted(log) == []
    assert not any(".txnindex" in each.name for each in disk.list_directory(FOLDER))


def test_producers_whose_batches_are_deleted_are_known_after_a_crash_without_a_recovery_point() -> (
    None
):
    disk = MemoryDisk()
    log = open_log(disk, retention_ms=1000)
    Producer(log, 4).write()
    log.flushing.roll()
    append(log, b"later", timestamp=NOW_MS + 5000)
    flush(log, checkpoint=True)
    facts = ReplicaFacts(high_watermark=2, is_leader=True, is_sole=True)
    apply_retention(log, NOW_MS + 5000, facts)
    assert log.log_start_offset == 1
    flush(log, checkpoint=True)
    disk.unlink(f"{FOLDER}/log-manifest")
    disk.crash()
    again = open_log(disk)
    assert again.producer_state == log.producer_state
    assert again.producer_state.first_undecided_offset == 0


def test_a_full_disk_leaves_the_index_of_a_compacted_segment_in_memory() -> None:
    disk = MemoryDisk()
    log = open_log(disk, **COMPACTED)
    one = Producer(log, 1)
    one.write()
    one.end(ABORT)
    append(log, b"end", keys=(b"end",))
    log.flushing.roll()
    flush(log, checkpoint=True)
    ticket = begin_compaction(log, NOW_MS, log.log_end_offset)
    assert ticket is not None
    ticket.run()
    disk.bytes_free = 0
    finish_compaction(log, ticket)
    assert aborted(log) == [AbortedTransaction(1, 0, 1, 2)]
    disk.bytes_free = None
    append(log, b"more", keys=(b"more",))
    flush(log, checkpoint=True)
    assert len(disk.read_file(INDEX_FILE) or b"") == 34


def test_a_snapshot_has_the_open_transaction() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, b"before")
    Producer(log, 4).write()
    log.close()
    data = disk.read_file(f"{FOLDER}/{2:020d}.snapshot")
    assert decode_snapshot(data or b"").first_undecided_offset == 1


# Compaction


def compact(log: SegmentedLog, now_ms: int = NOW_MS) -> None:
    log.flushing.roll()
    flush(log, checkpoint=True)
    log.first_dirty_offset = 0  # so that each pass has something to do
    ticket = begin_compaction(log, now_ms, log.log_end_offset)
    assert ticket is not None
    ticket.run()
    finish_compaction(log, ticket)


def contents(log: SegmentedLog) -> list[tuple[int, list[bytes | None] | str]]:
    """The offset and the values of each batch; markers by name."""
    return [
        (
            batch.header.base_offset,
            ("marker" if batch.header.records_count else "emptied marker")
            if batch.header.is_control
            else [record.value for record in batch.records()],
        )
        for batch in read_batches(log)
    ]


def test_compaction_drops_aborted_records_and_then_their_marker() -> None:
    log = open_log(MemoryDisk(), **COMPACTED)
    append(log, b"old", keys=(b"k",))
    one = Producer(log, 1)
    one.write(b"aborted")
    one.end(ABORT)
    one.write(b"other", key=b"other")
    one.end(COMMIT)
    append(log, b"end", keys=(b"end",))
    compact(log)
    # The aborted record replaces none, and is gone. Readers of the old segments still need the index.
    rest = [(3, [b"other"]), (4, "marker"), (5, [b"end"])]
    assert contents(log) == [(0, [b"old"]), (2, "marker"), *rest]
    assert aborted(log) == [AbortedTransaction(1, 1, 2, 3)]
    compact(log)
    assert aborted(log) == []
    assert contents(log)[1] == (2, "marker")
    compact(log, NOW_MS + 1000)
    assert contents(log)[1] == (2, "marker")
    compact(log, NOW_MS + 1001)
    assert contents(log) == [(0, [b"old"]), *rest]


def test_the_marker_of_a_committed_transaction_goes_after_its_records() -> None:
    log = open_log(MemoryDisk(), **COMPACTED)
    one, two = Producer(log, 1), Producer(log, 2)
    one.write(b"old")
    one.end(COMMIT)
    one.write(b"new")
    one.end(COMMIT)
    two.end(COMMIT, epoch=5)
    append(log, b"end", keys=(b"end",))
    for now_ms in (NOW_MS, NOW_MS, NOW_MS + 1001):
        assert contents(log)[0][0] in (0, 1)
        compact(log, now_ms)
    # The marker of producer 2 stays without its record: it has the producer's last epoch.
    assert contents(log) == [(2, [b"new"]), (3, "marker"), (4, "emptied marker"), (5, [b"end"])]
    log.close()


def test_compaction_stops_before_an_open_transaction() -> None:
    log = open_log(MemoryDisk(), **COMPACTED)
    append(log, b"old", keys=(b"k",))
    append(log, b"new", keys=(b"k",))
    log.flushing.roll()
    Producer(log, 1).write(b"open")
    compact(log)
    assert contents(log) == [(1, [b"new"]), (2, [b"open"])]


def test_a_transaction_with_an_uncommitted_marker_counts_as_open_for_compaction() -> None:
    log = open_log(MemoryDisk(), **COMPACTED)
    one = Producer(log, 1)
    one.write(b"aborted")
    one.end(ABORT)
    log.flushing.roll()
    flush(log, checkpoint=True)
    assert begin_compaction(log, NOW_MS, 1) is None
    assert begin_compaction(log, NOW_MS, 2) is not None


def test_a_crash_in_the_middle_of_a_swap_leaves_an_index_that_matches_the_log() -> None:
    disk = MemoryDisk()
    log = open_log(disk, **COMPACTED)
    one = Producer(log, 1)
    one.write(b"aborted")
    one.end(ABORT)
    log.flushing.roll()
    one.write(b"aborted")
    one.end(ABORT)
    append(log, b"end", keys=(b"end",))
    log.flushing.roll()
    for _ in range(2):
        flush(log, checkpoint=True)
        log.first_dirty_offset = 0
        ticket = begin_compaction(log, NOW_MS, log.log_end_offset)
        assert ticket is not None
        ticket.run()
        disk.crash()
        log = open_log(disk, **COMPACTED)
        # Rebuilt from what the compaction left: the marker without batches aborts none. The producer's
        # last batch stays without its record.
        assert aborted(log) == [AbortedTransaction(1, 2, 3, 4)]
        assert [each for _, each in contents(log)] == ["marker", [], "marker", [b"end"]]

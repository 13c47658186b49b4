"""A follower's log: it writes a leader's batches unchanged, or refuses them."""

import struct
from dataclasses import replace

import pytest
from storage_support import (
    NOW_MS,
    append,
    apply_retention,
    flush,
    open_log,
    read_batches,
    read_values,
)

from zhumq.model.errors import StorageFailed
from zhumq.records.batch import Record
from zhumq.records.builder import build_batch
from zhumq.storage.retention import ReplicaFacts
from zhumq.storage.segmented_log import SegmentedLog
from zhumq.testing.disk import MemoryDisk


def _leader(*, folder: str = "/data/leader-0", **settings: int) -> SegmentedLog:
    return open_log(MemoryDisk(), folder=folder, **settings)


def _bytes(log: SegmentedLog, offset: int = 0) -> bytes:
    return b"".join(bytes(batch.data) for batch in read_batches(log, offset))


def _fetch(follower: SegmentedLog, data: bytes, *, epoch_max: int = 9, gaps: bool = False) -> int:
    return follower.append_fetched(data, epoch_max=epoch_max, gaps_allowed=gaps)


def test_a_follower_can_lead_on_and_be_read_after_a_crash() -> None:
    disk = MemoryDisk()
    leader, follower = _leader(), open_log(disk)
    for value in (b"a", b"b"):
        append(leader, value, leader_epoch=1)
    _fetch(follower, _bytes(leader))
    flush(follower)
    disk.crash()
    follower = open_log(disk)
    append(follower, b"c", leader_epoch=2)
    assert read_values(follower) == [b"a", b"b", b"c"]
    assert follower.end_offset_for_epoch(1) == (1, 2)


def test_segments_roll_on_a_follower_as_well() -> None:
    leader, follower = _leader(), open_log(MemoryDisk(), segment_bytes=300)
    for number in range(20):
        append(leader, b"value %d" % number, leader_epoch=1)
    _fetch(follower, _bytes(leader))
    assert len(follower.segments) > 3
    assert read_values(follower) == read_values(leader)


def test_a_full_or_failing_disk_leaves_the_log_as_it_was() -> None:
    disk = MemoryDisk()
    leader, follower = _leader(), open_log(disk)
    append(leader, b"a", leader_epoch=1)
    flush(follower)
    disk.sync_fails = lambda _: True
    _fetch(follower, _bytes(leader))
    with pytest.raises(StorageFailed):
        flush(follower)
    with pytest.raises(StorageFailed):
        _fetch(follower, _bytes(leader, 1))


def test_a_suspect_offset_is_persisted_until_it_is_cleared() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, b"a", leader_epoch=1)
    assert log.suspect_offset is None
    log.mark_suspect(5)
    log.mark_suspect(3)
    log.mark_suspect(4)
    disk.crash()
    assert open_log(disk).suspect_offset == 3
    disk.write_file(f"{log.directory}/suspect-offset", b"?", sync=True)
    assert open_log(disk).suspect_offset == 0
    log.clear_suspect()
    assert open_log(disk).suspect_offset is None


def test_the_leader_change_batches_of_an_earlier_release_stay_readable() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    # Kafka's control record of type 2, with which each leader began its epoch until decision 0023.
    change = Record(
        timestamp=NOW_MS,
        key=struct.pack(">hh", 0, 2),
        value=struct.pack(">hiBBB", 0, 3, 1, 1, 0),
    )
    old = build_batch([change], is_control=True, partition_leader_epoch=4)
    assert _fetch(log, old) == 1
    append(log, b"a message", leader_epoch=4)
    log.close()
    log = open_log(disk)
    marker, message = read_batches(log)
    assert (marker.header.is_control, message.header.is_control) == (True, False)
    assert log.epoch_of(0) == 4
    assert log.producer_state.producers == {}
    follower = open_log(MemoryDisk())
    assert _fetch(follower, _bytes(log)) == 2


def test_retention_leaves_a_follower_what_its_leader_keeps() -> None:
    log = open_log(MemoryDisk(), segment_bytes=200, retention_ms=1_000)
    for number in range(6):
        append(log, b"value %d" % number, leader_epoch=1)
    leader = ReplicaFacts(high_watermark=log.log_end_offset, is_sole=False)
    later_ms = NOW_MS + 10_000
    assert apply_retention(log, later_ms, replace(leader, is_leader=False)) == []
    assert apply_retention(log, later_ms, leader)
    # The last batch stays: it shows the progress of this replica.
    assert log.log_start_offset < log.log_end_offset
    assert log.epoch_of(log.log_end_offset - 1) == 1

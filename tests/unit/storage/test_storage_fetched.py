"""A follower's log: it writes a leader's batches unchanged, or refuses them."""

import struct

import pytest
from storage_support import (
    LOG_FILE,
    NOW_MS,
    append,
    make_batch,
    open_log,
    read_batches,
    read_values,
)

from zhumq.model.errors import CorruptMessage, StorageFailed
from zhumq.records.batch import HEADER, BatchHeader, Record
from zhumq.records.builder import build_batch
from zhumq.storage.partition_log import PartitionLog
from zhumq.storage.validator import AppendOrigin
from zhumq.testing.disk import MemoryDisk


def _leader(*, folder: str = "/data/leader-0", **settings: int) -> PartitionLog:
    return open_log(MemoryDisk(), folder=folder, **settings)


def _bytes(log: PartitionLog, offset: int = 0) -> bytes:
    return b"".join(bytes(batch.data) for batch in read_batches(log, offset))


def _fetch(follower: PartitionLog, data: bytes, *, epoch_max: int = 9, gaps: bool = False) -> int:
    return follower.append_fetched(data, epoch_max=epoch_max, gaps_allowed=gaps)


def _with_header(data: bytes, **fields: int) -> bytes:
    header = BatchHeader._make(HEADER.unpack_from(data))._replace(**fields)
    return HEADER.pack(*header) + data[HEADER.size :]


def test_offsets_epochs_and_producers_are_the_leaders() -> None:
    leader, follower = _leader(), open_log(MemoryDisk())
    append(leader, b"a", b"b", leader_epoch=1, producer_id=5, producer_epoch=0, base_sequence=0)
    append(leader, b"c", leader_epoch=1)
    append(leader, b"d", leader_epoch=3, producer_id=5, producer_epoch=0, base_sequence=2)
    assert _fetch(follower, _bytes(leader)) == 4
    assert _bytes(follower) == _bytes(leader)
    assert follower.leader_epochs.entries == leader.leader_epochs.entries
    assert follower.producer_state == leader.producer_state
    assert (follower.epoch_of(2), follower.epoch_of(3)) == (1, 3)


def test_a_follower_can_lead_on_and_be_read_after_a_crash() -> None:
    disk = MemoryDisk()
    leader, follower = _leader(), open_log(disk)
    for value in (b"a", b"b"):
        append(leader, value, leader_epoch=1)
    _fetch(follower, _bytes(leader))
    follower.flush()
    disk.crash()
    follower = open_log(disk)
    append(follower, b"c", leader_epoch=2)
    assert read_values(follower) == [b"a", b"b", b"c"]
    assert follower.end_offset_for_epoch(1) == (1, 2)


def test_a_batch_that_is_cut_off_at_the_end_is_left_for_the_next_fetch() -> None:
    leader, follower = _leader(), open_log(MemoryDisk())
    append(leader, b"a", leader_epoch=1)
    append(leader, b"b", leader_epoch=1)
    data = _bytes(leader)
    assert _fetch(follower, data[:-3]) == 1
    assert _fetch(follower, data[:10]) == 1
    assert _fetch(follower, _bytes(leader, 1)) == 2


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),  # a flipped bit
        lambda data: _with_header(data, base_offset=7),  # a gap
        lambda data: _with_header(data, base_offset=0),  # an offset that the log has already
        lambda data: _with_header(data, partition_leader_epoch=10),  # later than the leader's
        lambda data: _with_header(data, partition_leader_epoch=0),  # before the log's last one
        lambda data: _with_header(data, partition_leader_epoch=-1),
        lambda data: _with_header(data, magic=1),
        lambda data: _with_header(data, batch_length=3),
        lambda data: bytes(100),
    ],
)
def test_what_does_not_follow_is_refused_and_nothing_is_written(spoil) -> None:  # type: ignore[no-untyped-def]
    leader, follower = _leader(), open_log(MemoryDisk())
    append(leader, b"a", leader_epoch=1)
    _fetch(follower, _bytes(leader))
    append(leader, b"b", leader_epoch=1)
    before = _bytes(follower)
    with pytest.raises(CorruptMessage):
        _fetch(follower, spoil(_bytes(leader, 1)))
    assert _bytes(follower) == before
    assert follower.log_end_offset == 1
    assert _fetch(follower, _bytes(leader, 1)) == 2


def test_gaps_are_taken_from_a_compacted_leader_only() -> None:
    follower = open_log(MemoryDisk())
    data = make_batch(b"a", base_offset=5, partition_leader_epoch=1)
    with pytest.raises(CorruptMessage):
        _fetch(follower, data)
    assert _fetch(follower, data, gaps=True) == 6
    assert read_values(follower) == [b"a"]


def test_segments_roll_on_a_follower_as_well() -> None:
    leader, follower = _leader(), open_log(MemoryDisk(), segment_bytes=300)
    for number in range(20):
        append(leader, b"value %d" % number, leader_epoch=1)
    _fetch(follower, _bytes(leader))
    assert len(follower.segments) > 3
    assert read_values(follower) == read_values(leader)


def test_a_log_may_begin_inside_of_a_batch() -> None:
    """The leader deleted records up to the middle of a batch, and sends the whole batch."""
    leader, follower = _leader(), open_log(MemoryDisk())
    append(leader, b"a", b"b", b"c", leader_epoch=1)
    append(leader, b"d", leader_epoch=1)
    leader.delete_records_before(2)
    follower.truncate_fully_and_start_at(2)
    _fetch(follower, _bytes(leader, 2))
    assert (follower.log_start_offset, follower.log_end_offset) == (2, 4)
    assert _bytes(follower, 2) == _bytes(leader, 2)
    # A batch may not begin inside the log.
    with pytest.raises(CorruptMessage):
        _fetch(follower, _bytes(leader, 2))


def test_a_full_or_failing_disk_leaves_the_log_as_it_was() -> None:
    disk = MemoryDisk()
    leader, follower = _leader(), open_log(disk)
    append(leader, b"a", leader_epoch=1)
    follower.flush()
    disk.sync_fails = lambda _: True
    _fetch(follower, _bytes(leader))
    with pytest.raises(StorageFailed):
        follower.flush()
    with pytest.raises(StorageFailed):
        _fetch(follower, _bytes(leader, 1))


def test_damage_is_found_where_the_log_is_read() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for value in (b"first", b"second", b"third"):
        append(log, value, leader_epoch=1)
    assert log.find_damage(0, 1 << 20) is None
    assert log.find_damage(3, 1 << 20) is None
    data = bytearray(disk.read_file(LOG_FILE) or b"")
    data[data.index(b"second")] ^= 1
    disk.write_file(LOG_FILE, data, sync=True)
    log = open_log(disk, recovery_point=3, clean_shutdown=True)
    assert log.find_damage(0, 1 << 20) == 1
    assert log.find_damage(1, 1 << 20) == 1
    assert log.find_damage(2, 1 << 20) is None


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
    old = build_batch([change], is_control=True)
    log.append(old, leader_epoch=4, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
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
    log.is_replicated = log.is_follower = True
    later_ms = NOW_MS + 10_000
    assert log.apply_retention(later_ms, log.log_end_offset) == []
    log.is_follower = False
    assert log.apply_retention(later_ms, log.log_end_offset)
    # The last batch stays: it shows the progress of this replica.
    assert log.log_start_offset < log.log_end_offset
    assert log.epoch_of(log.log_end_offset - 1) == 1

"""Damage to flushed data: no reader gets a damaged byte, whichever file is damaged."""

import uuid
from collections.abc import Callable, Iterator

import pytest
from storage_support import NOW_MS, PARTITION, append, flush, retention_pass
from tests.manual_time import ManualClock

from zhumq.consensus.contract import QuorumState
from zhumq.model.errors import CorruptMessage, ZhumqError
from zhumq.records.batch import batches
from zhumq.storage.log_config import CleanupPolicy, LogConfig
from zhumq.storage.log_manager import LogManager
from zhumq.storage.quorum_journal import QuorumJournal
from zhumq.storage.retention import ReplicaFacts
from zhumq.storage.segmented_log import SegmentedLog
from zhumq.testing.disk import MemoryDisk

COUNT = 20
TOPIC_ID = uuid.UUID(int=7)
FOLDER = f"/data/{PARTITION}/"
PLAIN = LogConfig(segment_bytes=500, index_interval_bytes=150)
COMPACTED = LogConfig(
    segment_bytes=500,
    index_interval_bytes=150,
    cleanup_policy=frozenset({CleanupPolicy.COMPACT}),
    min_cleanable_dirty_ratio=0.01,
)


def open_manager(disk: MemoryDisk, config: LogConfig) -> LogManager:
    return LogManager.open(
        "/data", disk=disk, clock=ManualClock(), broker_id=1, config_of=lambda _: config
    )


def open_log(manager: LogManager, config: LogConfig) -> SegmentedLog:
    return manager.create_log(PARTITION, TOPIC_ID, config)


def read_all(log: SegmentedLog) -> tuple[dict[int, bytes | None], list[range]]:
    """The records by offset that a reader gets, and the ranges where its reads fail."""
    records: dict[int, bytes | None] = {}
    refused: list[range] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            part = log.read(offset, max_bytes=200, up_to_offset=log.log_end_offset)
        except CorruptMessage:
            behind = min(
                bad.next_offset
                for bad in log.corrupt_ranges
                if bad.first_offset <= offset < bad.next_offset
            )
            refused.append(range(offset, behind))
            offset = behind
            continue
        if not len(part):
            break
        for batch in batches(part.read_bytes()):
            records.update({record.offset: record.value for record in batch.records()})
        offset = part.next_offset
    return records, refused


def write_log(
    config: LogConfig, *, clean: bool = True
) -> tuple[MemoryDisk, dict[int, bytes | None]]:
    """A flushed log of several segments in two epochs, and its records."""
    disk = MemoryDisk()
    manager = open_manager(disk, config)
    log = open_log(manager, config)
    for place in range(COUNT):
        append(
            log,
            b"value %d" % place,
            keys=(b"key %d" % (place % 7),),
            leader_epoch=3 if place < COUNT // 2 else 5,
            timestamp=NOW_MS + place,
            producer_id=1,
            producer_epoch=0,
            base_sequence=place,
        )
    flush(log, checkpoint=True)
    manager.checkpoint({PARTITION: COUNT})
    if config.is_compacted:
        compaction = manager.begin_compaction(NOW_MS, lambda _: ReplicaFacts(high_watermark=COUNT))
        assert compaction is not None
        compaction.run()
        manager.finish_compaction(compaction)
        manager.empty_trash([path for path in disk.files if path.endswith(".deleted")])
    truth, refused = read_all(log)
    assert not refused
    manager.close(clean=clean)
    return disk, truth


def copy_of(disk: MemoryDisk) -> MemoryDisk:
    copy = MemoryDisk()
    copy.directories = set(disk.directories)
    for path in disk.files:
        copy.write_file(path, disk.read_file(path) or b"", sync=True)
    return copy


def check_reads(disk: MemoryDisk, config: LogConfig, truth: dict[int, bytes | None]) -> bool:
    """Assert that a reader gets only written records and skips none without an error. True if a read
    failed."""
    try:
        manager = open_manager(disk, config)
        log = open_log(manager, config)
    except ZhumqError:
        return True  # All reads fail.
    records, refused = read_all(log)
    assert log.log_end_offset == COUNT
    assert records.items() <= truth.items()
    missing = truth.keys() - records.keys()
    assert all(any(offset in each for each in refused) for offset in missing), missing
    for offset in records:
        log.read(offset, max_bytes=1, up_to_offset=COUNT)
    manager.close(clean=False)
    return bool(refused)


def flips(disk: MemoryDisk) -> Iterator[tuple[str, int, int]]:
    """Every byte of every file; those that no batch checksum covers, twice."""
    for path in sorted(disk.files):
        content = disk.read_file(path) or b""
        heads = set()
        if path.endswith(".log"):
            heads = {place for at in positions(content) for place in range(at, at + 17)}
        for position in range(len(content)):
            yield path, position, 1 << (position % 8)
            if position in heads:
                yield path, position, 1 << ((position + 4) % 8)


def positions(content: bytes) -> Iterator[int]:
    position = 0
    while position < len(content):
        yield position
        position += 12 + int.from_bytes(content[position + 8 : position + 12], "big")


@pytest.mark.thorough
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("config", [PLAIN, COMPACTED], ids=["plain", "compacted"])
def test_a_flipped_bit_in_any_byte_of_any_file_is_never_served_and_skips_nothing(
    config: LogConfig, clean: bool
) -> None:
    disk, truth = write_log(config, clean=clean)
    refusals = 0
    for path, position, bit in flips(disk):
        damaged = copy_of(disk)
        damaged.files[path].content[position] ^= bit
        try:
            refusals += check_reads(damaged, config, truth)
        except (AssertionError, IndexError, ValueError, KeyError) as error:
            raise AssertionError(f"{path} byte {position} bit {bit:#x}: {error!r}") from error
    assert refusals > 100


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("config", [PLAIN, COMPACTED], ids=["plain", "compacted"])
def test_a_file_that_is_gone_or_cut_anywhere_skips_nothing(config: LogConfig, clean: bool) -> None:
    disk, truth = write_log(config, clean=clean)
    for path in sorted(disk.files):
        size = len(disk.read_file(path) or b"")
        lengths = {0, size // 2, max(size - 1, 0)}
        if path.endswith(".log"):
            lengths |= {*range(0, size, 7), *positions(disk.read_file(path) or b"")}
        for length in (None, *lengths):
            damaged = copy_of(disk)
            if length is None:
                damaged.unlink(path)
            else:
                del damaged.files[path].content[length:]
            try:
                check_reads(damaged, config, truth)
            except (AssertionError, IndexError, ValueError, KeyError) as error:
                raise AssertionError(f"{path} cut to {length}: {error!r}") from error


@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "cut"])
def test_a_folder_from_before_the_manifest_is_checked_at_the_ends_of_its_segments(
    is_gone: bool,
) -> None:
    disk, truth = write_log(PLAIN)
    disk.unlink(FOLDER + "log-manifest")
    again = copy_of(disk)
    assert not check_reads(again, PLAIN, truth)
    assert again.read_file(FOLDER + "log-manifest") is not None
    logs = sorted(path for path in disk.files if path.endswith(".log"))
    if is_gone:
        disk.unlink(logs[1])
    else:
        second = list(positions(bytes(disk.files[logs[1]].content)))[1]
        del disk.files[logs[1]].content[second:]
    assert check_reads(disk, PLAIN, truth)


def test_what_lies_behind_a_lost_end_is_written_at_new_offsets() -> None:
    disk, truth = write_log(PLAIN)
    last = max(path for path in disk.files if path.endswith(".log"))
    disk.unlink(last)
    manager = open_manager(disk, PLAIN)
    log = open_log(manager, PLAIN)
    assert append(log, b"new", leader_epoch=6) == COUNT
    records, refused = read_all(log)
    assert records.pop(COUNT) == b"new"
    assert records.items() <= truth.items()
    assert [each.stop for each in refused] == [COUNT]
    manager.close()
    records, refused = read_all(open_log(open_manager(disk, PLAIN), PLAIN))
    assert records[COUNT] == b"new"
    assert [each.stop for each in refused] == [COUNT]


def test_retention_compaction_and_truncation_are_not_taken_for_damage() -> None:
    disk, _ = write_log(COMPACTED)
    manager = open_manager(disk, COMPACTED)
    log = open_log(manager, COMPACTED)
    log.truncate_to(16)
    manager.close(clean=False)
    manager = open_manager(copy_of(disk), PLAIN)
    assert manager.log(PARTITION).corrupt_ranges == ()
    log = open_log(manager, PLAIN)
    assert log.log_end_offset == 16
    log.config = LogConfig(segment_bytes=500, retention_bytes=300)
    assert retention_pass(manager, NOW_MS, lambda _: ReplicaFacts(high_watermark=16)) > 0
    start_offset = log.log_start_offset
    assert start_offset > 0
    manager.close(clean=False)
    again = open_manager(manager.disk, PLAIN)  # type: ignore[arg-type]
    assert again.log(PARTITION).corrupt_ranges == ()
    assert again.log(PARTITION).log_start_offset == start_offset


def test_a_read_verifies_what_was_found_on_the_disk_once() -> None:
    disk, truth = write_log(PLAIN)
    manager = open_manager(disk, PLAIN)
    log = open_log(manager, PLAIN)
    assert read_all(log)[0] == truth
    reads: list[str] = []
    read_fails: Callable[[str], bool] = lambda path: bool(reads.append(path))  # noqa: E731
    disk.read_fails = read_fails
    for segment in log.segments.all[:-1]:
        log.read(segment.base_offset, max_bytes=1 << 20, up_to_offset=COUNT)
    assert reads == []


def test_a_read_of_a_damaged_segment_calls_on_damage() -> None:
    disk, _ = write_log(PLAIN)
    manager = open_manager(disk, PLAIN)
    log = open_log(manager, PLAIN)
    reported: list[int] = []
    log.on_damage = reported.append
    second = log.segments.all[1]
    disk.files[second.paths[0]].content[70] ^= 1
    log.read(0, max_bytes=1 << 20, up_to_offset=COUNT)
    assert reported == []
    with pytest.raises(CorruptMessage):
        log.read(second.base_offset, max_bytes=1 << 20, up_to_offset=COUNT)
    assert reported == [second.base_offset]


def test_retention_does_not_use_a_damaged_time_index() -> None:
    config = LogConfig(segment_bytes=500, index_interval_bytes=150, retention_ms=1000)
    disk, truth = write_log(config)
    for path in [each for each in disk.files if each.endswith(".timeindex")]:
        disk.files[path].content[:8] = (1000).to_bytes(8, "big")
        del disk.files[path].content[12:]
    manager = open_manager(disk, config)
    log = open_log(manager, config)
    for _ in range(2):
        assert retention_pass(manager, NOW_MS, lambda _: ReplicaFacts(high_watermark=COUNT)) == 0
    assert read_all(log)[0] == truth
    assert retention_pass(manager, NOW_MS + 2000, lambda _: ReplicaFacts(high_watermark=COUNT)) > 0


@pytest.mark.parametrize("position", range(0, 41, 4))
def test_a_flipped_bit_in_the_last_persisted_vote_is_no_torn_end(position: int) -> None:
    disk = MemoryDisk()
    disk.make_directory("/data")
    journal = QuorumJournal(disk, "/data/quorum-journal")
    key = (TOPIC_ID, 0)
    journal.write([(key, QuorumState(epoch=1))])
    journal.write([(key, QuorumState(epoch=2, voted_for=3))])
    disk.files["/data/quorum-journal"].content[41 + position] ^= 4
    assert not QuorumJournal(disk, "/data/quorum-journal").is_intact

"""The output of dump-log, in the format of Kafka's tool."""

import pytest
from storage_support import FOLDER, LOG_FILE, NOW_MS, append, open_log

from zhumq.model.errors import StorageFailed
from zhumq.records.control import EndMarker, MarkerType
from zhumq.storage.dump import DumpedBatch, DumpedProblem, NotDumpable, dump_file
from zhumq.testing.disk import MemoryDisk


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    log = open_log(disk, index_interval_bytes=100)
    for place in range(4):
        append(
            log,
            b"value %d" % place,
            keys=(b"key",),
            leader_epoch=2,
            producer_id=5,
            producer_epoch=1,
            base_sequence=place,
        )
    log.close()
    return disk


def dump(disk: MemoryDisk, path: str, **options: bool) -> list[str]:
    return [str(each) for each in dump_file(path, disk=disk, **options)]


def test_a_log_is_dumped_batch_by_batch(disk: MemoryDisk) -> None:
    lines = dump(disk, LOG_FILE)
    crc = int.from_bytes(disk.files[LOG_FILE].content[17:21], "big")
    assert len(lines) == 4
    assert lines[0] == (
        "baseOffset: 0 lastOffset: 0 count: 1 baseSequence: 0 lastSequence: 0 producerId: 5 "
        "producerEpoch: 1 partitionLeaderEpoch: 2 isTransactional: false isControl: false "
        f"deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: {NOW_MS} size: 78 magic: 2 "
        f"compresscodec: none crc: {crc} isvalid: true"
    )


def test_records_are_dumped_on_demand(disk: MemoryDisk) -> None:
    lines = dump(disk, LOG_FILE, records=True)
    assert lines[1] == (
        f"| offset: 0 CreateTime: {NOW_MS} keySize: 3 valueSize: 7 sequence: 0 headerKeys: []"
    )
    lines = dump(disk, LOG_FILE, content=True)
    assert lines[1].endswith("headerKeys: [] key: key payload: value 0")


def test_markers_are_dumped(disk: MemoryDisk) -> None:
    log = open_log(disk)
    marker = EndMarker(marker_type=MarkerType.ABORT, coordinator_epoch=9)
    log.append_marker(
        marker,
        producer_id=5,
        producer_epoch=1,
        transaction_version=0,
        leader_epoch=2,
        now_ms=NOW_MS,
    )
    last = dump(disk, LOG_FILE, records=True)[-1]
    assert "endTxnMarker: ABORT coordinatorEpoch: 9" in last


def test_indexes_and_snapshots_are_dumped(disk: MemoryDisk) -> None:
    prefix = f"{FOLDER}/{0:020d}"
    assert dump(disk, f"{prefix}.index") == ["offset: 2 position: 156"]
    assert dump(disk, f"{prefix}.timeindex") == [f"timestamp: {NOW_MS} offset: 0"]
    (line,) = dump(disk, f"{FOLDER}/{4:020d}.snapshot")
    assert line == (
        "producerId: 5 producerEpoch: 1 coordinatorEpoch: -1 "
        f"currentTxnFirstOffset: OptionalLong.empty lastTimestamp: {NOW_MS} firstSequence: 3 "
        f"lastSequence: 3 lastOffset: 3 offsetDelta: 0 timestamp: {NOW_MS}"
    )


def test_damage_is_reported_and_does_not_stop_the_dump(disk: MemoryDisk) -> None:
    content = disk.files[LOG_FILE].content
    content[70] ^= 1
    del content[-5:]
    found = list(dump_file(LOG_FILE, disk=disk, records=True))
    assert [each.is_valid for each in found if isinstance(each, DumpedBatch)] == [
        False,
        True,
        True,
    ]
    assert isinstance(found[-1], DumpedProblem)
    assert str(found[-1]) == "73 bytes from position 234 on are no batches"
    for suffix in (".index", ".timeindex"):
        path = f"{FOLDER}/{0:020d}{suffix}"
        disk.files[path].content += b"xyz"
        assert "3 bytes are no entry" in dump(disk, path)[-1]
    snapshot = f"{FOLDER}/{4:020d}.snapshot"
    disk.files[snapshot].content[9] ^= 1
    assert "not a producer snapshot" in dump(disk, snapshot)[0]


def test_other_files_are_refused(disk: MemoryDisk) -> None:
    with pytest.raises(NotDumpable):
        dump(disk, f"{FOLDER}/partition.metadata")
    with pytest.raises(NotDumpable):
        dump(disk, f"{FOLDER}/{77:020d}.index")
    with pytest.raises(StorageFailed):
        dump(disk, f"{FOLDER}/{77:020d}.log")

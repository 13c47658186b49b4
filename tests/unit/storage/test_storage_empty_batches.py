"""Batches that compaction emptied never reach a consumer, whichever version emptied them."""

import pytest
from storage_support import FOLDER, NOW_MS, append, flush, open_log, read_batches

from zhumq.records.batch import (
    CHECKED_OFFSET,
    CRC_OFFSET,
    HEADER_BYTES,
    BatchHeader,
    RecordBatch,
    batches,
)
from zhumq.records.codecs import Compression, crc32c
from zhumq.storage.log_compaction import begin_compaction, finish_compaction
from zhumq.storage.log_config import CleanupPolicy
from zhumq.storage.segmented_log import SegmentedLog
from zhumq.testing.disk import MemoryDisk

SETTINGS = {
    "segment_bytes": 400,
    "index_interval_bytes": 100,
    "cleanup_policy": frozenset({CleanupPolicy.COMPACT}),
    "min_cleanable_dirty_ratio": 0.01,
}
ATTRIBUTES_OFFSET = CHECKED_OFFSET
CODECS = pytest.mark.parametrize("compression", list(Compression))


def compact(log: SegmentedLog, *, has_checksums: bool = True) -> None:
    flush(log, checkpoint=True)
    ticket = begin_compaction(log, NOW_MS, log.log_end_offset)
    assert ticket is not None
    ticket.run()
    assert ticket.error is None
    for done in ticket.compacted:
        done.checksum = done.checksum if has_checksums else None
    finish_compaction(log, ticket)


def consumed(log: SegmentedLog, offset: int = 0, max_bytes: int = 1 << 20) -> list[RecordBatch]:
    """The records that a consumer gets: it continues behind the batches of each response, and stops
    at an empty response."""
    found: list[RecordBatch] = []
    while True:
        part = log.read(
            offset, max_bytes=max_bytes, up_to_offset=log.log_end_offset, for_consumer=True
        )
        served = list(batches(part.read_bytes()))
        if not served:
            return found
        found.extend(served)
        offset = served[-1].header.next_offset


def fill(log: SegmentedLog, compression: Compression) -> None:
    """One key that is overwritten many times, then a key of its own for each record."""
    for _ in range(30):
        append(log, b"old" * 20, keys=(b"key",), compression=compression)
    for place in range(11):
        append(log, b"new" * 20, keys=(b"key %d" % place,), compression=compression)


def empty_headers(log: SegmentedLog) -> list[BatchHeader]:
    return [batch.header for batch in read_batches(log) if not batch.header.records_count]


def give_codec_bits(disk: MemoryDisk, compression: Compression) -> int:
    """Make the emptied batches look as earlier versions left them: compressed, over no payload."""
    changed = 0
    for path in disk.files:
        if not path.endswith(".log"):
            continue
        data = bytearray(disk.read_file(path) or b"")
        position = 0
        while position < len(data):
            (batch,) = list(batches(bytes(data[position:])))[:1]
            size = batch.header.size
            if not batch.header.records_count:
                assert size == HEADER_BYTES
                data[position + ATTRIBUTES_OFFSET + 1] |= compression
                checksum = crc32c(data[position + CHECKED_OFFSET : position + size])
                data[position + CRC_OFFSET : position + CHECKED_OFFSET] = checksum.to_bytes(
                    4, "big"
                )
                changed += 1
            position += size
        disk.write_file(path, bytes(data), sync=True)
    return changed


@CODECS
def test_a_consumer_gets_past_a_segment_without_records(compression: Compression) -> None:
    log = open_log(MemoryDisk(), **SETTINGS)
    fill(log, compression)
    compact(log)
    assert empty_headers(log), "nothing was emptied, so this shows nothing"
    served = consumed(log)
    assert all(batch.header.records_count for batch in served)
    keys = [record.key for batch in served for record in batch.records()]
    assert keys == [b"key", *[b"key %d" % place for place in range(11)]]


@CODECS
def test_every_offset_leads_a_consumer_to_the_next_record(compression: Compression) -> None:
    log = open_log(MemoryDisk(), **SETTINGS)
    fill(log, compression)
    compact(log)
    kept = [record.offset for batch in consumed(log) for record in batch.records()]
    for offset in range(log.log_end_offset):
        for max_bytes in (1, 150, 1 << 20):
            served = consumed(log, offset, max_bytes)
            found = [record.offset for batch in served for record in batch.records()]
            assert [each for each in found if each >= offset] == [e for e in kept if e >= offset]


@CODECS
def test_an_emptied_batch_is_not_compressed(compression: Compression) -> None:
    log = open_log(MemoryDisk(), **SETTINGS)
    fill(log, compression)
    compact(log)
    assert {header.compression for header in empty_headers(log)} == {Compression.NONE}


@CODECS
def test_a_log_that_an_earlier_version_compacted_is_read(compression: Compression) -> None:
    disk = MemoryDisk()
    log = open_log(disk, **SETTINGS)
    fill(log, compression)
    compact(log, has_checksums=False)
    log.close()
    assert give_codec_bits(disk, compression)
    again = open_log(disk, clean_shutdown=True, recovery_point=log.recovery_point, **SETTINGS)
    assert {header.compression for header in empty_headers(again)} == {compression}
    assert all(batch.header.records_count for batch in consumed(again))
    append(again, b"more" * 80, keys=(b"key",))
    append(again, b"more" * 80, keys=(b"key",))
    compact(again)
    assert {header.compression for header in empty_headers(again)} <= {Compression.NONE}
    assert all(batch.header.records_count for batch in consumed(again))


def test_the_batch_that_holds_a_producers_last_sequence_is_passed_over() -> None:
    log = open_log(MemoryDisk(), **SETTINGS)
    for producer_id in range(12):
        append(
            log, b"v" * 60, keys=(b"k",), producer_id=producer_id, producer_epoch=0, base_sequence=0
        )
    append(log, b"v" * 60, keys=(b"k",))
    compact(log)
    assert len(empty_headers(log)) >= 8
    assert all(batch.header.records_count for batch in consumed(log))


def test_a_consumer_waits_where_only_emptied_batches_are_left() -> None:
    log = open_log(MemoryDisk(), **SETTINGS)
    fill(log, Compression.NONE)
    compact(log)
    first = empty_headers(log)[0]
    part = log.read(
        first.base_offset, max_bytes=1 << 20, up_to_offset=first.next_offset, for_consumer=True
    )
    assert not len(part)


def test_a_replica_is_sent_the_emptied_batches() -> None:
    disk = MemoryDisk()
    log = open_log(disk, **SETTINGS)
    fill(log, Compression.LZ4)
    compact(log)
    copy = open_log(disk, folder=f"{FOLDER}-copy", **SETTINGS)
    while copy.log_end_offset < log.log_end_offset:
        part = log.read(copy.log_end_offset, max_bytes=300, up_to_offset=log.log_end_offset)
        copy.append_fetched(part.read_bytes(), epoch_max=0, gaps_allowed=True)
    assert empty_headers(copy) == empty_headers(log)
    assert [b.header for b in consumed(copy)] == [b.header for b in consumed(log)]

"""The batches that an append refuses, and the error of each."""

import struct

import pytest
from conformance.invalid_batches import batch
from storage_support import NOW_MS, append, make_batch, open_log

from zhumq.model.errors import (
    BrokerError,
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    UnsupportedForMessageFormat,
)
from zhumq.records.batch import CHECKED_OFFSET, CRC_OFFSET, Record, TimestampType
from zhumq.records.builder import build_batch
from zhumq.records.codecs import Compression, crc32c
from zhumq.storage.log_config import CleanupPolicy
from zhumq.storage.validator import (
    BATCH_RECORDS_MAX,
    WALKED_RECORDS_PER_REQUEST_MAX,
    AppendOrigin,
    WalkBudget,
    check_batch,
)
from zhumq.testing.disk import MemoryDisk


def patched(place: int, layout: str, value: int, *, seal: bool = True) -> bytes:
    """A valid batch with one field changed, and with a matching checksum if `seal`."""
    batch = bytearray(make_batch(b"value", b"other"))
    struct.pack_into(layout, batch, place, value)
    if seal:
        batch[CRC_OFFSET:CHECKED_OFFSET] = crc32c(batch[CHECKED_OFFSET:]).to_bytes(4, "big")
    return bytes(batch)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", CorruptMessage),
        (b"short", CorruptMessage),
        (make_batch(b"x")[:60], CorruptMessage),
        (make_batch(b"x")[:-1], CorruptMessage),
        (make_batch(b"x") + b"tail", CorruptMessage),
        (make_batch(b"x") + make_batch(b"y")[:-1], CorruptMessage),
        (patched(8, ">i", 0), CorruptMessage),
        (patched(8, ">i", 48), CorruptMessage),
        (patched(8, ">i", -1), CorruptMessage),
        (patched(8, ">i", 2**31 - 1), CorruptMessage),
        (patched(16, ">b", 1), UnsupportedForMessageFormat),
        (patched(16, ">b", 0), UnsupportedForMessageFormat),
        (patched(16, ">b", 3), UnsupportedForMessageFormat),
        (bytes(16) + b"\x01" + bytes(20), UnsupportedForMessageFormat),
        (patched(70, ">B", 0xFF, seal=False), CorruptMessage),
        (patched(57, ">i", 0), InvalidRecord),
        (patched(57, ">i", -1), InvalidRecord),
        (patched(57, ">i", 3), InvalidRecord),
        (patched(57, ">i", 2**31 - 1), InvalidRecord),
        (patched(23, ">i", 5), InvalidRecord),
        (patched(21, ">h", 5), InvalidRecord),
        (patched(21, ">h", 7), InvalidRecord),
        (patched(21, ">h", 0x20), InvalidRecord),
        (patched(21, ">h", 0x08), InvalidTimestamp),
        (patched(43, ">q", 5), InvalidRecord),
        (make_batch(b"x", producer_id=1, producer_epoch=-1, base_sequence=0), InvalidRecord),
        (make_batch(b"x", timestamp=NOW_MS + 3_600_001), InvalidTimestamp),
    ],
)
def test_a_bad_batch_is_refused_and_nothing_is_written(
    data: bytes, error: type[BrokerError]
) -> None:
    log = open_log(MemoryDisk())
    with pytest.raises(error):
        log.append(data, leader_epoch=0, now_ms=NOW_MS)
    assert (log.log_end_offset, log.size_bytes) == (0, 0)


def test_a_count_that_fits_the_delta_but_not_the_bytes_is_refused() -> None:
    batch = bytearray(make_batch(b"value"))
    struct.pack_into(">i", batch, 23, 10**6 - 1)
    struct.pack_into(">i", batch, 57, 10**6)
    batch[CRC_OFFSET:CHECKED_OFFSET] = crc32c(batch[CHECKED_OFFSET:]).to_bytes(4, "big")
    with pytest.raises(InvalidRecord, match="do not fit"):
        open_log(MemoryDisk()).append(bytes(batch), leader_epoch=0, now_ms=NOW_MS)


def test_a_batch_over_the_topics_size_is_refused() -> None:
    batch = make_batch(bytes(1000))
    log = open_log(MemoryDisk(), max_message_bytes=len(batch) - 1)
    with pytest.raises(MessageTooLarge):
        log.append(batch, leader_epoch=0, now_ms=NOW_MS)
    log = open_log(MemoryDisk(), max_message_bytes=len(batch))
    log.append(batch, leader_epoch=0, now_ms=NOW_MS)


def test_records_that_are_too_old_are_refused_if_the_topic_limits_their_age() -> None:
    log = open_log(MemoryDisk(), message_timestamp_before_max_ms=1000)
    log.append(make_batch(b"x", timestamp=NOW_MS - 1000), leader_epoch=0, now_ms=NOW_MS)
    with pytest.raises(InvalidTimestamp):
        log.append(make_batch(b"x", timestamp=NOW_MS - 1001), leader_epoch=0, now_ms=NOW_MS)


def test_stamping_ignores_the_producers_clock() -> None:
    log = open_log(MemoryDisk(), message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    log.append(make_batch(b"x", timestamp=NOW_MS * 2), leader_epoch=0, now_ms=NOW_MS)


@pytest.mark.parametrize("compression", list(Compression))
def test_a_compacted_topic_requires_a_key_in_every_record(compression: Compression) -> None:
    log = open_log(MemoryDisk(), cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
    keyed = Record(timestamp=NOW_MS, key=b"k")
    good = build_batch([keyed, keyed], compression=compression)
    log.append(good, leader_epoch=0, now_ms=NOW_MS)
    bad = build_batch([keyed, Record(timestamp=NOW_MS)], compression=compression)
    with pytest.raises(InvalidRecord):
        log.append(bad, leader_epoch=0, now_ms=NOW_MS)


def test_a_bomb_on_a_compacted_topic_is_refused() -> None:
    log = open_log(MemoryDisk(), cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
    records = [Record(timestamp=NOW_MS, key=b"k", value=bytes(33 * 1024 * 1024))]
    bomb = build_batch(records, compression=Compression.ZSTD)
    assert len(bomb) < 100_000
    with pytest.raises(InvalidRecord, match="cannot be read"):
        log.append(bomb, leader_epoch=0, now_ms=NOW_MS)


def test_one_bad_batch_of_several_refuses_them_all() -> None:
    log = open_log(MemoryDisk())
    with pytest.raises(CorruptMessage):
        log.append(
            make_batch(b"x") + patched(70, ">B", 0xFF, seal=False), leader_epoch=0, now_ms=NOW_MS
        )
    assert log.log_end_offset == 0


def test_a_write_of_more_offsets_than_a_segment_can_address_is_refused() -> None:
    log = open_log(MemoryDisk())
    append(log, b"first")
    lie = batch(b"", now_ms=NOW_MS, count=BATCH_RECORDS_MAX, codec=Compression.LZ4)
    many = lie * (2**31 // BATCH_RECORDS_MAX + 1)
    with pytest.raises(InvalidRecord, match="more than a segment can hold"):
        log.append(many, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    assert log.log_end_offset == 1
    assert append(log, b"second") == 1


def test_the_records_checked_for_one_request_are_limited() -> None:
    budget = WalkBudget()
    log = open_log(MemoryDisk())
    thousand = make_batch(*[b""] * 1000)
    for _ in range(WALKED_RECORDS_PER_REQUEST_MAX // 1000):
        check_batch(memoryview(thousand), log.config, NOW_MS, AppendOrigin.CLIENT, budget)
    with pytest.raises(InvalidRecord, match="over 2000000 records"):
        check_batch(memoryview(thousand), log.config, NOW_MS, AppendOrigin.CLIENT, budget)

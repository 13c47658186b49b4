"""Record batches: the view, the builder, and the errors of malformed bytes."""

import struct

import pytest

from zhumq.model.errors import CorruptMessage
from zhumq.records.batch import (
    CHECKED_OFFSET,
    CRC_OFFSET,
    HEADER_BYTES,
    Record,
    RecordBatch,
    RecordHeader,
    TimestampType,
    batches,
    decode_header,
    increment_sequence,
    records,
)
from zhumq.records.builder import append_varint, build_batch, rebuild_batch
from zhumq.records.codecs import Compression, crc32c
from zhumq.records.control import EndMarker, MarkerType, decode_end_marker, encode_end_marker


def with_records(payload: bytes, count: int = 1) -> RecordBatch:
    """A batch whose records section is these bytes, with a checksum that matches."""
    batch = bytearray(build_batch([Record(timestamp=1)] * count)[:HEADER_BYTES])
    batch[8:12] = struct.pack(">i", HEADER_BYTES - 12 + len(payload))
    batch += payload
    batch[CRC_OFFSET:CHECKED_OFFSET] = crc32c(batch[CHECKED_OFFSET:]).to_bytes(4, "big")
    return RecordBatch(decode_header(batch), memoryview(bytes(batch)))


def varint(value: int) -> bytes:
    output = bytearray()
    append_varint(output, value)
    return bytes(output)


def test_the_header_describes_the_batch() -> None:
    data = build_batch(
        [Record(timestamp=10), Record(timestamp=30), Record(timestamp=20)],
        base_offset=100,
        compression=Compression.GZIP,
        producer_id=5,
        producer_epoch=6,
        base_sequence=7,
        partition_leader_epoch=8,
        is_transactional=True,
    )
    header = decode_header(data)
    assert header.size == len(data)
    assert (header.base_offset, header.last_offset, header.next_offset) == (100, 102, 103)
    assert (header.base_timestamp, header.max_timestamp) == (10, 30)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, 7)
    assert (header.last_sequence, header.partition_leader_epoch) == (9, 8)
    assert header.compression is Compression.GZIP
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert (header.is_transactional, header.is_control) == (True, False)
    assert header.delete_horizon_ms is None


def test_keys_values_and_headers_may_each_be_null_or_empty() -> None:
    written = [
        Record(timestamp=1, key=None, value=None),
        Record(timestamp=1, key=b"", value=b""),
        Record(timestamp=1, headers=(RecordHeader("", None), RecordHeader("é", b""))),
    ]
    read = list(records(build_batch(written)))
    assert [(each.key, each.value, each.headers) for each in read] == [
        (each.key, each.value, each.headers) for each in written
    ]


def test_append_time_takes_the_place_of_every_timestamp() -> None:
    data = build_batch(
        [Record(timestamp=5), Record(timestamp=9)], timestamp_type=TimestampType.LOG_APPEND_TIME
    )
    assert [record.timestamp for record in records(data)] == [9, 9]


def test_sequences_wrap_to_zero() -> None:
    assert increment_sequence(2**31 - 1, 1) == 0
    assert (
        decode_header(
            build_batch([Record()] * 3, producer_id=1, base_sequence=2**31 - 2)
        ).last_sequence
        == 0
    )


def test_a_batch_without_records_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="at least one"):
        build_batch([])


def test_compaction_keeps_offsets_sequences_and_times() -> None:
    data = build_batch(
        [Record(timestamp=10 + place, value=b"%d" % place) for place in range(5)],
        base_offset=50,
        producer_id=1,
        producer_epoch=0,
        base_sequence=20,
    )
    header = decode_header(data)
    kept = [record for record in records(data) if record.offset in (51, 53)]
    rebuilt = rebuild_batch(header, kept, delete_horizon_ms=7)
    (batch,) = batches(rebuilt)
    assert batch.crc_matches
    assert (batch.header.base_offset, batch.header.last_offset) == (50, 54)
    assert (batch.header.base_sequence, batch.header.last_sequence) == (20, 24)
    assert (batch.header.records_count, batch.header.max_timestamp) == (2, 13)
    assert batch.header.delete_horizon_ms == 7
    assert list(batch.records()) == kept
    (empty,) = batches(rebuild_batch(header, [], delete_horizon_ms=None))
    assert list(empty.records()) == []
    assert empty.header.last_offset == 54


@pytest.mark.parametrize("compression", list(Compression))
def test_every_compression_can_be_rebuilt_empty(compression: Compression) -> None:
    data = build_batch([Record(timestamp=1, value=b"x")], compression=compression)
    (empty,) = batches(rebuild_batch(decode_header(data), [], delete_horizon_ms=None))
    assert list(empty.records()) == []


@pytest.mark.parametrize("size", [0, 1, 11, 60])
def test_too_few_bytes_for_a_header_are_corrupt(size: int) -> None:
    data = build_batch([Record()])[:size]
    with pytest.raises(CorruptMessage):
        decode_header(data)


def test_a_buffer_must_hold_whole_batches() -> None:
    data = build_batch([Record(value=b"x")])
    assert len(list(batches(data * 3))) == 3
    for broken in (data[:-1], data + b"x", data + data[:-1]):
        with pytest.raises(CorruptMessage):
            list(batches(broken))


@pytest.mark.parametrize("length", [0, 48, -1, -(2**31), 2**31 - 1])
def test_an_impossible_batch_length_is_corrupt(length: int) -> None:
    data = bytearray(build_batch([Record()]))
    data[8:12] = struct.pack(">i", length)
    with pytest.raises(CorruptMessage):
        list(batches(data))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        varint(-1),
        varint(100),
        b"\x80" * 20,
        b"\xff" * 9 + b"\x01",
        varint(6) + b"\x00" * 3,
        varint(6) + b"\x00" + varint(0) + varint(9) + varint(-1) + varint(-1) + varint(0),
        varint(6) + b"\x00" + varint(0) + varint(-1) + varint(-1) + varint(-1) + varint(0),
        varint(6) + b"\x00" + varint(0) + varint(0) + varint(-2) + varint(-1) + varint(0),
        varint(6) + b"\x00" + varint(0) + varint(0) + varint(50) + varint(-1) + varint(0),
        varint(6) + b"\x00" + varint(0) + varint(0) + varint(-1) + varint(-1) + varint(-1),
        varint(6) + b"\x00" + varint(0) + varint(0) + varint(-1) + varint(-1) + varint(30),
        varint(7) + b"\x00" + varint(0) + varint(0) + varint(-1) + varint(-1) + varint(0) + b"x",
        varint(7) + b"\x00" + varint(0) + varint(0) + varint(-1) + varint(-1) + varint(1) + b"\x01",
        varint(9) + b"\0\0\0" + varint(-1) + varint(-1) + varint(1) + varint(1) + b"\xff\x01",
        varint(6) + b"\x00" + varint(0) + varint(0) + varint(-1) + varint(-1) + varint(0) + b"xx",
    ],
)
def test_records_that_contradict_themselves_are_corrupt(payload: bytes) -> None:
    with pytest.raises(CorruptMessage):
        list(with_records(payload).records())


def test_a_wrong_record_count_is_corrupt() -> None:
    good = build_batch([Record(value=b"x")])[HEADER_BYTES:]
    with pytest.raises(CorruptMessage):
        list(with_records(good, count=3).records())


def test_a_marker_says_how_a_transaction_ended() -> None:
    marker = EndMarker(marker_type=MarkerType.COMMIT, coordinator_epoch=4)
    data = build_batch([encode_end_marker(marker, timestamp=1)], is_control=True)
    (batch,) = batches(data)
    assert batch.header.is_control
    assert [decode_end_marker(record) for record in batch.records()] == [marker]
    assert list(records(data)) == []
    assert decode_end_marker(Record(key=struct.pack(">hh", 0, 9))) is None
    with pytest.raises(CorruptMessage):
        decode_end_marker(Record(key=b"\x00"))

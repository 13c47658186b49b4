"""The outline of a batch agrees with its decoded records."""

import random

import pytest

from zhumq.model.errors import CorruptMessage
from zhumq.records.batch import HEADER_BYTES, Record, RecordBatch, TimestampType, batches
from zhumq.records.builder import build_batch
from zhumq.records.codecs import Compression
from zhumq.records.outline import outline, payload_of


def batch_of(data: bytes) -> RecordBatch:
    return next(batches(data))


def random_records(draw: random.Random) -> list[Record]:
    return [
        Record(
            offset=delta,
            timestamp=draw.choice((1_000, 0, 1_000 + delta, 10**12)),
            key=draw.choice((None, b"", b"k", b"k" * 200)),
            value=draw.choice((None, b"", b"v" * 70, b"v" * 20_000)),
        )
        for delta in range(draw.choice((1, 2, 70, 300)))
    ]


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("timestamp_type", list(TimestampType))
def test_an_outline_agrees_with_the_records(
    compression: Compression, timestamp_type: TimestampType
) -> None:
    draw = random.Random(7)
    for _ in range(20):
        data = build_batch(
            random_records(draw),
            base_offset=draw.choice((0, 12_345)),
            compression=compression,
            timestamp_type=timestamp_type,
        )
        batch = batch_of(data)
        payload = payload_of(batch)
        outlined = [
            (timestamp, offset, None if begin < 0 else payload[begin:end])
            for timestamp, offset, begin, end, _ in outline(batch)
        ]
        assert outlined == [
            (record.timestamp, record.offset, record.key) for record in batch.records()
        ]


def test_broken_records_are_corrupt_and_nothing_else() -> None:
    draw = random.Random(8)
    data = build_batch(random_records(draw))
    header = batch_of(data).header
    for _ in range(2_000):
        payload = bytearray(data[HEADER_BYTES:])
        for _ in range(draw.randint(1, 4)):
            payload[draw.randrange(len(payload))] = draw.choice((0x00, 0x01, 0x7F, 0x80, 0xFF))
        if draw.random() < 0.3:
            del payload[draw.randrange(len(payload)) :]
        broken = RecordBatch(header, memoryview(data[:HEADER_BYTES] + payload))
        try:
            list(outline(broken))
        except CorruptMessage:
            continue


def test_a_varint_without_end_is_corrupt() -> None:
    data = build_batch([Record(offset=0, timestamp=1, key=b"k", value=b"v")])
    batch = batch_of(data)
    for position in (0, 2, 3, 4):
        payload = data[HEADER_BYTES : HEADER_BYTES + position] + b"\xff" * 20
        with pytest.raises(CorruptMessage):
            list(outline(RecordBatch(batch.header, memoryview(data[:HEADER_BYTES] + payload))))

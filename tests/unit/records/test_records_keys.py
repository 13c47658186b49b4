"""Keys and tags of a batch, and one record of it, without decoding the others."""

import random

import pytest

from zhumq.model.errors import CorruptMessage
from zhumq.records.batch import Record, RecordHeader, batches, record_at
from zhumq.records.builder import build_batch
from zhumq.records.keys import keys_of, tags_of
from zhumq.records.outline import payload_of


def sample(draw: random.Random, offset: int) -> Record:
    headers = [
        RecordHeader("zhumq-tags", draw.choice((None, b"", b"a", b"a, b", b",b,,c")))
        for _ in range(draw.randrange(3))
    ]
    headers.append(RecordHeader("other", b"zhumq-tags"))
    return Record(
        offset=offset,
        timestamp=1_000 + draw.choice((0, 5, 70, 9_000, 3_000_000)),
        key=draw.choice((None, b"", b"key", draw.randbytes(300))),
        value=draw.choice((None, b"zhumq-tags", draw.randbytes(draw.choice((0, 50, 9_000))))),
        headers=tuple(headers[: draw.randrange(4)]),
    )


@pytest.mark.parametrize("seed", range(5))
def test_they_are_those_of_the_decoded_records(seed: int) -> None:
    draw = random.Random(seed)
    records = [sample(draw, offset) for offset in range(300)]
    (batch,) = batches(build_batch(records))
    payload = payload_of(batch)
    decoded = list(batch.records())
    assert list(keys_of(batch.header, payload)) == [
        (each.offset, each.timestamp, each.key, tags_of(each.headers)) for each in decoded
    ]
    for each in decoded:
        assert record_at(batch.header, payload, each.offset) == each
    assert record_at(batch.header, payload, 300) is None


def test_a_record_is_found_far_behind_others_of_equal_length() -> None:
    records = [Record(offset=offset, timestamp=1, key=b"%06d" % offset) for offset in range(5_000)]
    (batch,) = batches(build_batch(records))
    payload = payload_of(batch)
    for place in (0, 15, 16, 17, 63, 64, 1_023, 1_024, 1_025, 4_999):
        assert record_at(batch.header, payload, place) == records[place]


def test_a_record_is_found_in_a_batch_that_lost_others() -> None:
    records = [Record(offset=offset, timestamp=1, key=b"%d" % offset) for offset in range(3)]
    (batch,) = batches(build_batch(records))
    header = batch.header._replace(last_offset_delta=200)
    found = record_at(header, payload_of(batch), 2)
    assert found is not None
    assert found.key == b"2"
    assert record_at(header, payload_of(batch), 150) is None


def test_bytes_that_are_not_records_are_refused() -> None:
    draw = random.Random(1)
    (batch,) = batches(build_batch([sample(draw, offset) for offset in range(20)]))
    payload = payload_of(batch)
    for cut in range(0, len(payload) - 1, 7):
        with pytest.raises(CorruptMessage):
            list(keys_of(batch.header, payload[:cut]))
        with pytest.raises(CorruptMessage):
            record_at(batch.header, payload[:cut], 19)
    for _ in range(500):
        broken = bytearray(payload)
        broken[draw.randrange(len(broken))] = draw.randrange(256)
        try:
            list(keys_of(batch.header, bytes(broken)))
            record_at(batch.header, bytes(broken), 19)
        except CorruptMessage:
            continue

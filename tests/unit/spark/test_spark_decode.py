"""Both decoders, by columns and by records, on the same batches."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

from zhumq.model.errors import CorruptMessage
from zhumq.records.batch import Record, RecordHeader, TimestampType, batches, decode_header
from zhumq.records.builder import build_batch, rebuild_batch
from zhumq.records.codecs import Compression
from zhumq.records.sections import Section, section_of, whole_batches
from zhumq.spark import decode_numpy, decode_pure
from zhumq.spark.batching import ROWS_MAX, record_batches
from zhumq.spark.columns import DEFAULT_COLUMNS, SQL_TYPES, Selection

ALL = tuple(SQL_TYPES)
DECODERS = pytest.mark.parametrize("decoder", [decode_numpy, decode_pure])

fields = st.one_of(st.none(), st.binary(max_size=200))
headers = st.lists(st.builds(RecordHeader, st.text(max_size=5), fields), max_size=3).map(tuple)
one_record = st.builds(
    Record,
    timestamp=st.integers(-1, 2**50),
    key=fields,
    value=fields,
    headers=st.one_of(st.just(()), headers),
)


def sections(data: bytes) -> list[Section]:
    return [section_of(batch) for batch in whole_batches(data)]


def select(
    columns: tuple[str, ...] = ALL, first: int = 0, until: int = 2**60, topic: str = "orders"
) -> Selection:
    return Selection(
        topic=topic, partition=3, columns=columns, first_offset=first, until_offset=until
    )


def rows(batch: Any) -> list[dict[str, Any]]:
    batch.validate(full=True)
    found: list[dict[str, Any]] = batch.to_pylist()
    return found


def batch_bytes(records: Sequence[Record], base_offset: int = 0, **more: Any) -> bytes:
    return build_batch(records, base_offset=base_offset, **more)


@DECODERS
@pytest.mark.parametrize("compression", list(Compression))
def test_every_column_of_a_record_is_read(decoder: Any, compression: Compression) -> None:
    record = Record(
        timestamp=1_700_000_000_123,
        key=b"k",
        value=b"v" * 300,
        headers=(RecordHeader("a", b"1"), RecordHeader("a", None)),
    )
    data = batch_bytes([record, Record(timestamp=1_700_000_000_124)], 7, compression=compression)
    first, second = rows(decoder.decode_sections(sections(data), select()))
    assert first.pop("timestamp").timestamp() == 1_700_000_000.123
    assert first == {
        "key": b"k",
        "value": b"v" * 300,
        "topic": "orders",
        "partition": 3,
        "offset": 7,
        "timestampType": 0,
        "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
    }
    assert (second["key"], second["value"], second["headers"]) == (None, None, None)
    assert second["offset"] == 8


@given(
    groups=st.lists(st.lists(one_record, min_size=1, max_size=40), max_size=5),
    compression=st.sampled_from(Compression),
    timestamp_type=st.sampled_from(TimestampType),
    bounds=st.tuples(st.integers(0, 60), st.integers(0, 200)),
)
@settings(max_examples=150)
def test_both_decoders_make_the_same_of_any_batches(
    groups: list[list[Record]],
    compression: Compression,
    timestamp_type: TimestampType,
    bounds: tuple[int, int],
) -> None:
    data, offset = b"", 0
    for group in groups:
        data += batch_bytes(group, offset, compression=compression, timestamp_type=timestamp_type)
        offset += len(group) + 3
    what = select(first=bounds[0], until=sum(bounds))
    quick = decode_numpy.decode_sections(sections(data), what)
    plain = decode_pure.decode_sections(sections(data), what)
    quick.validate(full=True)
    assert quick.equals(plain)


@given(
    seed=st.integers(0, 2**32),
    changes=st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=4),
)
@settings(max_examples=300)
def test_both_decoders_judge_damaged_records_alike(
    seed: int, changes: list[tuple[int, int]]
) -> None:
    generator = random.Random(seed)
    records = [
        Record(
            timestamp=generator.randrange(1000),
            key=generator.choice([None, b"", b"key"]),
            value=generator.choice([None, generator.randbytes(generator.randrange(150))]),
            headers=(RecordHeader("h", b"x"),) * generator.choice([0, 0, 1, 2]),
        )
        for _ in range(generator.randrange(1, 30))
    ]
    (section,) = sections(batch_bytes(records))
    payload = bytearray(section.payload)
    for place, byte in changes:
        payload[place % len(payload)] = byte
    damaged = [Section(section.header, bytes(payload))]
    results = []
    for decoder in (decode_numpy, decode_pure):
        try:
            results.append(decoder.decode_sections(damaged, select()).to_pydict())
        except (CorruptMessage, OverflowError) as error:
            results.append(type(error))
    # A timestamp that Arrow cannot hold is refused by one decoder, and wraps in the other.
    if OverflowError not in results:
        assert results[0] == results[1]


@DECODERS
def test_offsets_of_a_compacted_batch_keep_their_gaps(decoder: Any) -> None:
    (whole,) = batches(batch_bytes([Record(timestamp=i, value=b"%d" % i) for i in range(10)], 100))
    kept = [record for record in whole.records() if record.offset in (101, 105, 109)]
    compacted = rebuild_batch(whole.header, kept, delete_horizon_ms=5000)
    empty = rebuild_batch(whole.header, [], delete_horizon_ms=None)
    found = rows(decoder.decode_sections(sections(compacted + empty), select()))
    assert [(row["offset"], row["value"]) for row in found] == [
        (101, b"1"),
        (105, b"5"),
        (109, b"9"),
    ]
    assert [int(row["timestamp"].timestamp() * 1000) for row in found] == [1, 5, 9]


@DECODERS
def test_a_batch_stamped_by_the_broker_has_one_timestamp(decoder: Any) -> None:
    records = [Record(timestamp=1000), Record(timestamp=4000), Record(timestamp=2000)]
    data = batch_bytes(records, timestamp_type=TimestampType.LOG_APPEND_TIME)
    found = rows(decoder.decode_sections(sections(data), select()))
    assert {row["timestamp"].timestamp() for row in found} == {4.0}
    assert {row["timestampType"] for row in found} == {1}


@DECODERS
def test_only_the_selected_offsets_and_columns_come_out(decoder: Any) -> None:
    data = batch_bytes([Record(value=b"%d" % index) for index in range(10)])
    what = select(("offset", "value"), first=3, until=6)
    batch = decoder.decode_sections(sections(data), what)
    assert batch.schema.names == ["offset", "value"]
    assert batch.column(1).to_pylist() == [b"3", b"4", b"5"]


@DECODERS
def test_records_before_the_start_of_the_log_stay_hidden(decoder: Any) -> None:
    whole = batch_bytes([Record(value=b"%d" % index) for index in range(10)])
    cut, later = sections(whole + batch_bytes([Record(value=b"x")], 10))
    found = rows(decoder.decode_sections([cut._replace(first_offset=7), later], select()))
    assert [row["offset"] for row in found] == [7, 8, 9, 10]


@DECODERS
def test_nothing_gives_an_empty_batch_of_the_right_schema(decoder: Any) -> None:
    batch = decoder.decode_sections([], select())
    assert batch.num_rows == 0
    assert batch.schema == select().schema


@DECODERS
def test_a_record_with_very_many_headers_is_read(decoder: Any) -> None:
    count = decode_numpy.HEADER_ROUNDS_MAX + 10
    many = Record(headers=tuple(RecordHeader(f"h{index}", b"") for index in range(count)))
    found = rows(decoder.decode_sections(sections(batch_bytes([many, Record()])), select()))
    assert [len(row["headers"] or ()) for row in found] == [count, 0]


@DECODERS
def test_a_header_key_that_is_no_text_is_refused(decoder: Any) -> None:
    (section,) = sections(batch_bytes([Record(headers=(RecordHeader("ab", b"x"),))]))
    damaged = Section(section.header, bytes(section.payload).replace(b"ab", b"\xff\xfe"))
    with pytest.raises(CorruptMessage):
        decoder.decode_sections([damaged], select())


@pytest.mark.parametrize("sizes", [(50,), (50, 51), (100, 3000, 70_000)])
def test_long_runs_of_equal_records_are_read_like_any_other(sizes: tuple[int, ...]) -> None:
    generator = random.Random(1)
    records = [
        Record(timestamp=index // 7, value=bytes(generator.choice(sizes)))
        for index in range(300)
        for _ in range(1 if len(sizes) > 2 else 5)
    ]
    data = batch_bytes(records)
    what = select(DEFAULT_COLUMNS)
    quick = decode_numpy.decode_sections(sections(data), what)
    assert quick.equals(decode_pure.decode_sections(sections(data), what))


def test_small_batches_are_joined_and_large_ones_are_cut() -> None:
    small = b"".join(batch_bytes([Record(value=b"x")], offset) for offset in range(100))
    (joined,) = record_batches(sections(small), select())
    assert joined.num_rows == 100
    (section,) = sections(batch_bytes([Record()]))
    many = ROWS_MAX * 2 + 1
    header = section.header._replace(records_count=many, last_offset_delta=many - 1)
    large = Section(header, bytes(section.payload) * many)
    assert [each.num_rows for each in record_batches([large], select())] == [ROWS_MAX, ROWS_MAX, 1]


def test_the_size_in_a_header_is_the_size_of_the_batch() -> None:
    data = batch_bytes([Record(value=b"x")])
    assert decode_header(data).size == len(data)

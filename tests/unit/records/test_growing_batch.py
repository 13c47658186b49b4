"""A growing batch has the bytes of a batch that is built at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zhumq.records.batch import Record, RecordHeader, batches
from zhumq.records.builder import build_batch
from zhumq.records.codecs import Compression
from zhumq.records.growing_batch import GrowingBatch

fields = st.none() | st.binary(max_size=200)
headers = st.lists(st.builds(RecordHeader, key=st.text(max_size=5), value=fields), max_size=3)
records = st.builds(
    Record,
    key=fields,
    value=fields,
    headers=headers.map(tuple),
    timestamp=st.integers(min_value=0, max_value=2**41),
)


def built(batch: GrowingBatch, compression: Compression = Compression.NONE) -> bytes:
    return batch.build(compression=compression, producer_id=7, producer_epoch=3, base_sequence=11)


def expected(given: list[Record], compression: Compression = Compression.NONE) -> bytes:
    return build_batch(
        given,
        compression=compression,
        producer_id=7,
        producer_epoch=3,
        base_sequence=11,
        is_transactional=True,
    )


@given(st.lists(records, min_size=1, max_size=10), st.sampled_from(Compression))
def test_records_that_are_appended_one_by_one(each: list[Record], compression: Compression) -> None:
    batch = GrowingBatch()
    for record in each:
        batch.append(record.key, record.value, record.headers, record.timestamp)
    assert batch.count == len(each)
    assert built(batch, compression) == expected(each, compression)
    assert batch.bytes == len(built(batch))


def extend(
    batch: GrowingBatch,
    values: list[bytes | None],
    timestamp: int = 5,
    *,
    keys: list[bytes | None] | None = None,
    first: int = 0,
    bytes_max: int = 2**30,
    bytes_limit: int = 2**30,
) -> int:
    return batch.extend(
        keys, values, first, timestamp, bytes_max=bytes_max, bytes_limit=bytes_limit
    )


@given(
    st.lists(records, max_size=3),
    st.lists(st.tuples(fields, fields), min_size=1, max_size=10),
    st.booleans(),
    st.integers(0, 2**41),
)
def test_records_that_are_appended_together(
    before: list[Record],
    pairs: list[tuple[bytes | None, bytes | None]],
    has_keys: bool,
    timestamp: int,
) -> None:
    batch = GrowingBatch()
    for record in before:
        batch.append(record.key, record.value, record.headers, record.timestamp)
    keys = [key for key, _ in pairs] if has_keys else None
    assert extend(batch, [value for _, value in pairs], timestamp, keys=keys) == len(pairs)
    together = [
        Record(key=key if has_keys else None, value=value, timestamp=timestamp)
        for key, value in pairs
    ]
    assert built(batch) == expected([*before, *together])
    assert batch.bytes == len(built(batch))


def test_long_records_and_many_of_them() -> None:
    values = [b"x" * 5_000, *(b"%d" % number for number in range(5_000)), None]
    batch = GrowingBatch()
    assert extend(batch, values) == len(values)
    batch.append(b"k" * 4_096, b"v" * 100_000, (("h", b"1" * 5_000),), 6)
    header = RecordHeader("h", b"1" * 5_000)
    last = Record(key=b"k" * 4_096, value=b"v" * 100_000, headers=(header,), timestamp=6)
    assert built(batch) == expected([*(Record(value=each, timestamp=5) for each in values), last])


def test_a_batch_stops_at_its_size_and_leaves_the_rest() -> None:
    values: list[bytes | None] = [b"x" * 100] * 50
    batch = GrowingBatch()
    after = extend(batch, values, bytes_max=1_000)
    assert 1_000 <= batch.bytes < 1_200
    assert batch.count == after < 50
    assert extend(batch, values, first=after) == 50
    assert batch.count == 50
    assert extend(GrowingBatch(), []) == 0


def test_a_record_that_is_too_large_for_the_rest_of_a_batch_is_left_out() -> None:
    batch = GrowingBatch()
    values: list[bytes | None] = [b"x" * 600, b"y" * 600]
    assert extend(batch, values, bytes_max=1_000, bytes_limit=1_200) == 1
    assert extend(batch, values, first=1, bytes_max=1_000, bytes_limit=1_200) == 1
    alone = GrowingBatch()
    assert extend(alone, [b"z" * 2_000], bytes_max=1_000, bytes_limit=1_200) == 1


def test_a_value_that_is_no_bytes_leaves_a_batch_of_those_before_it() -> None:
    batch = GrowingBatch()
    with pytest.raises(TypeError):
        extend(batch, [b"a", "b", b"c"])  # type: ignore[list-item]
    (found,) = batches(built(batch))
    assert [record.value for record in found.records()] == [b"a"]

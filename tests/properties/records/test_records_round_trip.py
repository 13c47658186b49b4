"""Batches built from any records decode to the same records; damaged batches are refused and never crash."""

from hypothesis import given, settings
from hypothesis import strategies as st

from zhumq.model.errors import BrokerError
from zhumq.records.batch import Record, RecordBatch, RecordHeader, batches, decode_header
from zhumq.records.builder import build_batch, rebuild_batch
from zhumq.records.codecs import Compression

optional_bytes = st.none() | st.binary(max_size=300)
any_records = st.lists(
    st.builds(
        Record,
        timestamp=st.integers(-1, 2**48),
        key=optional_bytes,
        value=optional_bytes,
        headers=st.lists(
            st.builds(RecordHeader, st.text(max_size=10), optional_bytes), max_size=3
        ).map(tuple),
    ),
    min_size=1,
    max_size=20,
)
compressions = st.sampled_from(list(Compression))


@given(any_records, compressions, st.integers(0, 2**40))
def test_a_batch_decodes_to_the_records_it_was_built_from(
    written: list[Record], compression: Compression, base_offset: int
) -> None:
    data = build_batch(written, compression=compression, base_offset=base_offset)
    (batch,) = batches(data)
    assert batch.crc_matches
    read = list(batch.records())
    assert [record.offset for record in read] == list(
        range(base_offset, base_offset + len(written))
    )
    assert [(each.timestamp, each.key, each.value, each.headers) for each in read] == [
        (each.timestamp, each.key, each.value, each.headers) for each in written
    ]


@given(any_records, compressions, st.data())
def test_a_rebuilt_batch_holds_what_was_kept(
    written: list[Record], compression: Compression, data: st.DataObject
) -> None:
    (batch,) = batches(build_batch(written, compression=compression, base_offset=1000))
    kept = [record for record in batch.records() if data.draw(st.booleans())]
    horizon = data.draw(st.none() | st.integers(0, 2**48))
    (rebuilt,) = batches(rebuild_batch(batch.header, kept, delete_horizon_ms=horizon))
    assert rebuilt.crc_matches
    assert list(rebuilt.records()) == kept
    assert rebuilt.header.last_offset == batch.header.last_offset


@given(any_records, compressions, st.data())
@settings(max_examples=300)
def test_damaged_records_are_refused_and_nothing_else(
    written: list[Record], compression: Compression, data: st.DataObject
) -> None:
    """Without the checksum, as if it were forged: decoding alone must refuse damaged records."""
    batch = bytearray(build_batch(written, compression=compression))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(12, len(batch) - 1))
        batch[place] = data.draw(st.integers(0, 255))
    try:
        header = decode_header(batch)
        for _ in RecordBatch(header, memoryview(bytes(batch))).records(
            decompressed_bytes_max=1 << 20
        ):
            pass
    except BrokerError:
        pass


@given(st.binary(max_size=400))
def test_any_bytes_are_batches_or_refused(data: bytes) -> None:
    try:
        for batch in batches(data):
            list(batch.records(decompressed_bytes_max=1 << 20))
    except BrokerError:
        pass

"""Record batches to Arrow columns, one record at a time: the plain twin of decode_numpy."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from zhumq.records.batch import HEADER_BYTES, Record, RecordBatch
from zhumq.records.codecs import Compression
from zhumq.spark.columns import (
    ARROW_TYPES,
    MICROSECONDS,
    Wanted,
)
from zhumq.spark.sections import Section


def decode_sections(sections: Sequence[Section], wanted: Wanted) -> Any:
    """One Arrow RecordBatch of the wanted columns and offsets. Raises CorruptMessage."""
    rows = [
        (record, int(section.header.timestamp_type))
        for section in sections
        for record in _records(section)
        if max(wanted.first_offset, section.first_offset) <= record.offset < wanted.until_offset
    ]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([_cell(name, row, kind, wanted) for row, kind in rows], ARROW_TYPES[name])
            for name in wanted.columns
        ],
        schema=wanted.schema,
    )


def _records(section: Section) -> list[Record]:
    if not section.header.records_count and not section.payload:
        return []
    # The payload is decompressed already, so the view of it must not say otherwise.
    plain = section.header._replace(attributes=section.header.attributes & ~0x07)
    assert plain.compression is Compression.NONE
    view = memoryview(bytes(HEADER_BYTES) + bytes(section.payload))
    return list(RecordBatch(plain, view).records())


def _cell(name: str, record: Record, timestamp_type: int, wanted: Wanted) -> Any:
    match name:
        case "key":
            return record.key
        case "value":
            return record.value
        case "topic":
            return wanted.topic
        case "partition":
            return wanted.partition
        case "offset":
            return record.offset
        case "timestamp":
            return record.timestamp * MICROSECONDS
        case "timestampType":
            return timestamp_type
        case _:
            # Spark's connector says null where a record has no headers.
            return [{"key": key, "value": value} for key, value in record.headers] or None

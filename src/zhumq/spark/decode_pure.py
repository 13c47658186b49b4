"""Decodes record batches to Arrow columns, one record at a time: the reference for decode_numpy."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from zhumq.records.batch import HEADER_BYTES, Record, RecordBatch
from zhumq.records.codecs import Compression
from zhumq.records.sections import Section
from zhumq.spark.columns import (
    ARROW_TYPES,
    MICROSECONDS,
    Selection,
)


def decode_sections(sections: Sequence[Section], selection: Selection) -> Any:
    """One Arrow RecordBatch of the selected columns and offsets. Raises CorruptMessage."""
    rows = [
        (record, int(section.header.timestamp_type))
        for section in sections
        for record in _records(section)
        if max(selection.first_offset, section.first_offset)
        <= record.offset
        < selection.until_offset
    ]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([_cell(name, row, kind, selection) for row, kind in rows], ARROW_TYPES[name])
            for name in selection.columns
        ],
        schema=selection.schema,
    )


def _records(section: Section) -> list[Record]:
    if not section.header.records_count and not section.payload:
        return []
    # The payload is decompressed already, so the header must not name a codec.
    plain = section.header._replace(attributes=section.header.attributes & ~0x07)
    assert plain.compression is Compression.NONE
    view = memoryview(bytes(HEADER_BYTES) + bytes(section.payload))
    return list(RecordBatch(plain, view).records())


def _cell(name: str, record: Record, timestamp_type: int, selection: Selection) -> Any:
    match name:
        case "key":
            return record.key
        case "value":
            return record.value
        case "topic":
            return selection.topic
        case "partition":
            return selection.partition
        case "offset":
            return record.offset
        case "timestamp":
            return record.timestamp * MICROSECONDS
        case "timestampType":
            return timestamp_type
        case _:
            # Spark's connector gives null for a record without headers.
            return [{"key": key, "value": value} for key, value in record.headers] or None

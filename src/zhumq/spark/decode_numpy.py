"""Decodes record batches to Arrow columns, a column at a time, without a Python object per record."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]

from zhumq.model.errors import CorruptMessage
from zhumq.records.batch import TimestampType
from zhumq.records.sections import Section
from zhumq.spark import decode_pure
from zhumq.spark.columns import (
    ARROW_TYPES,
    HEADER_TYPE,
    HEADERS,
    MICROSECONDS,
    TIMESTAMP,
    Selection,
)

Integers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

# After this many records of one size in a row, the decoder compares the sizes of the next ones at once.
RUN_RECORDS_MIN: Final = 8
RUN_RECORDS_MAX: Final = 128  # the limit to which a fruitless comparison doubles it
FIRST_LOOK_RECORDS: Final = 64
LOOK_GROWTH: Final = 8
PIECE_RECORDS_MIN: Final = 256  # below it, a list of numbers is quicker than an array of its own
# Each round decodes one header of every record. decode_pure decodes records with more headers than this.
HEADER_ROUNDS_MAX: Final = 256
VARINT_SHIFT_MAX: Final = 63  # ten bytes


@dataclass(slots=True, kw_only=True)
class _Fields:
    """Where the fields of each record are in the joined payloads; a null field ends at -1."""

    offsets: Integers
    timestamps: Integers
    timestamp_types: Integers
    key_starts: Integers
    key_ends: Integers
    value_starts: Integers
    value_ends: Integers
    header_counts: Integers
    header_starts: Integers
    ends: Integers

    def only(self, kept: Integers) -> "_Fields":
        return _Fields(**{name: getattr(self, name)[kept] for name in self.__slots__})


def decode_sections(sections: Sequence[Section], selection: Selection) -> Any:
    """One Arrow RecordBatch of the selected columns and offsets. Raises CorruptMessage."""
    sections = [each for each in sections if each.header.records_count or each.payload]
    data = b"".join([each.payload for each in sections])
    view = np.frombuffer(data, np.uint8)
    try:
        fields = _fields(sections, data, view)
        firsts = np.repeat(
            [max(each.first_offset, selection.first_offset) for each in sections],
            [each.header.records_count for each in sections],
        )
        inside = (fields.offsets >= firsts) & (fields.offsets < selection.until_offset)
        if not inside.all():
            fields = fields.only(np.flatnonzero(inside))
        if HEADERS in selection.columns and fields.header_counts.max(initial=0) > HEADER_ROUNDS_MAX:
            return decode_pure.decode_sections(sections, selection)
        return _columns(fields, data, view, selection)
    except IndexError:
        raise CorruptMessage("a record reaches past the end of its batch") from None


def _columns(fields: _Fields, data: bytes, view: Bytes, selection: Selection) -> Any:
    count = len(fields.offsets)
    columns: list[Any] = []
    for name in selection.columns:
        match name:
            case "key":
                column = _binary(data, fields.key_starts, fields.key_ends)
            case "value":
                column = _binary(data, fields.value_starts, fields.value_ends)
            case "topic":
                column = pa.repeat(pa.scalar(selection.topic, pa.string()), count)
            case "partition":
                column = pa.repeat(pa.scalar(selection.partition, pa.int32()), count)
            case "offset":
                column = pa.array(fields.offsets, pa.int64())
            case "timestamp":
                column = pa.array(fields.timestamps * MICROSECONDS, pa.int64()).cast(
                    ARROW_TYPES[TIMESTAMP]
                )
            case "timestampType":
                column = pa.array(fields.timestamp_types.astype(np.int32), pa.int32())
            case _:
                column = _headers(data, view, fields)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=selection.schema)


def _fields(sections: Sequence[Section], data: bytes, view: Bytes) -> _Fields:
    # | length varint | attributes i8 | timestamp delta varint | offset delta varint |
    # | key length varint | key | value length varint | value | header count varint | headers |
    counts = np.array([each.header.records_count for each in sections], np.int64)
    starts = _record_starts(sections, data, view)
    lengths, bodies = _varints(view, starts)
    ends = bodies + lengths
    timestamp_deltas, positions = _varints(view, bodies + 1)
    offset_deltas, positions = _varints(view, positions)
    last_deltas = np.repeat([each.header.last_offset_delta for each in sections], counts)
    if ((offset_deltas < 0) | (offset_deltas > last_deltas)).any():
        raise CorruptMessage("a record's offset delta is outside its batch")
    key_starts, key_ends, positions = _field(view, positions, ends)
    value_starts, value_ends, positions = _field(view, positions, ends)
    header_counts, positions = _varints(view, positions)
    if ((positions > ends) | (header_counts < 0) | (header_counts > ends - positions)).any():
        raise CorruptMessage("a record's header count is negative or larger than the record")
    if ((header_counts == 0) & (positions != ends)).any():
        raise CorruptMessage("a record's length does not match its fields")
    stamped = np.array(
        [each.header.timestamp_type is TimestampType.LOG_APPEND_TIME for each in sections], bool
    )
    base_offsets = np.array([each.header.base_offset for each in sections], np.int64)
    # All records of a batch with LogAppendTime have its max timestamp, whatever their deltas are.
    base_timestamps = np.array(
        [
            each.header.max_timestamp if is_stamped else each.header.base_timestamp
            for each, is_stamped in zip(sections, stamped, strict=True)
        ],
        np.int64,
    )
    is_stamped = np.repeat(stamped, counts)
    timestamp_deltas[is_stamped] = 0
    return _Fields(
        offsets=np.repeat(base_offsets, counts) + offset_deltas,
        timestamps=np.repeat(base_timestamps, counts) + timestamp_deltas,
        timestamp_types=is_stamped.astype(np.int64),
        key_starts=key_starts,
        key_ends=key_ends,
        value_starts=value_starts,
        value_ends=value_ends,
        header_counts=header_counts,
        header_starts=positions,
        ends=ends,
    )


def _record_starts(sections: Sequence[Section], data: bytes, view: Bytes) -> Integers:
    """Where each record begins. Only this step cannot be done for all records at once."""
    pieces: list[Integers] = []
    starts: list[int] = []  # of the records after the last piece
    section_start = 0
    for section in sections:
        section_end = section_start + len(section.payload)
        starts = _walk(
            data, view, section_start, section_end, section.header.records_count, pieces, starts
        )
        section_start = section_end
    pieces.append(np.array(starts, np.int64))
    return np.concatenate(pieces)


def _walk(
    data: bytes,
    view: Bytes,
    position: int,
    end: int,
    records_left: int,
    pieces: list[Integers],
    starts: list[int],
) -> list[int]:
    """Go from record to record by their lengths; skip a run of records of one size in one step."""
    last_size = run = 0
    run_min = RUN_RECORDS_MIN
    while records_left > 0:
        starts.append(position)
        byte = data[position]
        if byte < 0x80:
            prefix_bytes, raw = 1, byte
        else:
            second = data[position + 1]
            if second < 0x80:
                prefix_bytes, raw = 2, byte & 0x7F | second << 7
            else:
                prefix_bytes, raw = _long_prefix(data, position)
        size = prefix_bytes + (raw >> 1)
        records_left -= 1
        next_position = position + size
        if raw & 1 or next_position > end:
            raise CorruptMessage("a record's length reaches past the end of its batch")
        if size != last_size:
            last_size, run = size, 0
        else:
            run += 1
            if run >= run_min and prefix_bytes <= 2:
                run = 0
                alike = _count_alike(view, position, next_position, end, size, prefix_bytes)
                alike = min(alike, records_left)
                is_short = alike < FIRST_LOOK_RECORDS
                run_min = min(2 * run_min, RUN_RECORDS_MAX) if is_short else RUN_RECORDS_MIN
                run_end = next_position + alike * size
                if alike >= PIECE_RECORDS_MIN:
                    pieces.append(np.array(starts, np.int64))
                    pieces.append(np.arange(next_position, run_end, size, dtype=np.int64))
                    starts = []
                else:
                    starts.extend(range(next_position, run_end, size))
                records_left -= alike
                next_position = run_end
        position = next_position
    if position != end:
        raise CorruptMessage(f"{end - position} bytes follow the last record of a batch")
    return starts


def _count_alike(
    view: Bytes, position: int, next_position: int, end: int, size: int, prefix_bytes: int
) -> int:
    """How many of the next records have the same length as the one at position."""
    room = (end - next_position) // size
    found = 0
    window = FIRST_LOOK_RECORDS
    while found < room:
        count = min(window, room - found)
        start = next_position + found * size
        stop = start + count * size
        alike = view[start:stop:size] == view[position]
        if prefix_bytes == 2:
            alike &= view[start + 1 : stop : size] == view[position + 1]
        if not alike.all():
            return found + int(alike.argmin())
        found += count
        window *= LOOK_GROWTH
    return found


def _long_prefix(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for index in range(10):
        byte = data[position + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return index + 1, value
    raise CorruptMessage("a varint is longer than ten bytes")


def _varints(view: Bytes, positions: Integers) -> tuple[Integers, Integers]:
    """The zigzag varints at these positions, and the positions after them."""
    byte = view[positions]
    nexts = positions + 1
    more = np.flatnonzero(byte >= 0x80)
    if not more.size:
        small = byte.astype(np.int64)
        return (small >> 1) ^ -(small & 1), nexts
    values = (byte & 0x7F).astype(np.uint64)
    shift = 7
    while more.size:
        if shift > VARINT_SHIFT_MAX:
            raise CorruptMessage("a varint is longer than ten bytes")
        byte = view[nexts[more]]
        values[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        nexts[more] += 1
        more = more[byte >= 0x80]
        shift += 7
    halves = (values >> np.uint64(1)).view(np.int64)
    return halves ^ -(values & np.uint64(1)).view(np.int64), nexts


def _field(view: Bytes, positions: Integers, ends: Integers) -> tuple[Integers, Integers, Integers]:
    """Start, end (-1: null) and the position after a field of each record."""
    lengths, starts = _varints(view, positions)
    if ((lengths < -1) | (lengths > ends - starts)).any():
        raise CorruptMessage("a field of a record is longer than the record")
    is_null = lengths < 0
    nexts = starts + np.where(is_null, 0, lengths)
    return starts, np.where(is_null, -1, nexts), nexts


def _binary(data: bytes, starts: Integers, ends: Integers, kind: Any = None) -> Any:
    """These slices as an Arrow array.

    The payload is viewed as an array whose items are alternately a slice and the gap after it.
    Arrow then takes the slices out of it in one copy.
    """
    count = len(starts)
    if not count:
        return pa.array([], kind or pa.binary())
    is_null = ends < 0
    bounds = np.empty(2 * count + 1, np.int32)
    bounds[:-1:2] = starts
    bounds[1::2] = np.where(is_null, starts, ends)
    bounds[-1] = bounds[-2]
    items = pa.Array.from_buffers(
        kind or pa.binary(), 2 * count, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    places = np.arange(0, 2 * count, 2, dtype=np.int32)
    return items.take(pa.array(places, mask=is_null if is_null.any() else None))


def _headers(data: bytes, view: Bytes, fields: _Fields) -> Any:
    """The headers of each record, decoded in rounds: the first of all records, then the second."""
    counts = fields.header_counts
    rounds: list[tuple[Integers, ...]] = []
    owners = np.flatnonzero(counts > 0)
    positions, ends = fields.header_starts[owners], fields.ends[owners]
    done = 0
    while owners.size:
        key_starts, key_ends, positions = _field(view, positions, ends)
        if (key_ends < 0).any():
            raise CorruptMessage("a record header has no key")
        value_starts, value_ends, positions = _field(view, positions, ends)
        rounds.append((owners, key_starts, key_ends, value_starts, value_ends))
        done += 1
        finished = counts[owners] == done
        if (positions[finished] != ends[finished]).any():
            raise CorruptMessage("a record's length does not match its fields")
        left = ~finished
        owners, positions, ends = owners[left], positions[left], ends[left]
    list_bounds = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=list_bounds[1:])
    if rounds:
        owner, key_starts, key_ends, value_starts, value_ends = (
            np.concatenate(parts) for parts in zip(*rounds, strict=True)
        )
        order = np.argsort(owner, kind="stable")
        keys = _binary(data, key_starts[order], key_ends[order], pa.string())
        values = _binary(data, value_starts[order], value_ends[order])
    else:
        keys, values = pa.array([], pa.string()), pa.array([], pa.binary())
    try:
        keys.validate(full=True)  # Arrow accepts any bytes as text, Spark does not.
    except pa.ArrowInvalid:
        raise CorruptMessage("the key of a record header is not UTF-8") from None
    items = pa.StructArray.from_arrays([keys, values], fields=list(HEADER_TYPE))
    # Spark's connector gives null for a record without headers.
    has_none = pa.array(counts == 0)
    return pa.ListArray.from_arrays(
        pa.array(list_bounds, pa.int32()), items, type=ARROW_TYPES[HEADERS], mask=has_none
    )

"""Finds the parts of each record in a batch: offset, timestamp, key, value, headers; decodes none of them."""

from typing import NamedTuple

from zhumq.model.errors import CorruptMessage
from zhumq.records.batch import BatchHeader, read_varint
from zhumq.records.outline import outline_payload


class RecordLayout(NamedTuple):
    """Positions in decompressed records sections. A key or value that begins at -1 is null."""

    begin: int
    end: int
    offset: int
    timestamp: int
    key_begin: int
    key_end: int
    value_begin: int
    value_end: int  # where the headers begin


def layout_records(header: BatchHeader, payload: bytes, shift: int = 0) -> list[RecordLayout]:
    """The layout of every record in a decompressed section, which begins at `shift` of what the positions are about.

    Raises CorruptMessage.
    """
    found: list[RecordLayout] = []
    begin, last_offset = 0, -1
    for timestamp, offset, key_begin, key_end, end in outline_payload(header, payload):
        if offset <= last_offset:
            raise CorruptMessage(f"offset {offset} follows {last_offset} in a batch")
        value_begin, value_end = field_at(payload, key_end, end)
        # Bypasses NamedTuple's constructor, which costs more than reading a field.
        found.append(
            tuple.__new__(
                RecordLayout,
                (
                    begin + shift,
                    end + shift,
                    offset,
                    timestamp,
                    key_begin if key_begin < 0 else key_begin + shift,
                    key_end + shift,
                    value_begin if value_begin < 0 else value_begin + shift,
                    value_end + shift,
                ),
            )
        )
        begin, last_offset = end, offset
    return found


def decode_headers(payload: bytes, begin: int, end: int) -> dict[bytes, bytes | None]:
    """The headers of a record, which are its last part; of several with one key, the last. Raises CorruptMessage."""
    headers: dict[bytes, bytes | None] = {}
    try:
        count, position = read_varint(payload, begin)
        if not 0 <= count <= end - position:
            raise CorruptMessage(f"a record says it has {count} headers")
        for _ in range(count):
            key_begin, key_end = field_at(payload, position, end)
            if key_begin < 0:
                raise CorruptMessage("a record header has no key")
            value_begin, position = field_at(payload, key_end, end)
            value = None if value_begin < 0 else payload[value_begin:position]
            headers[payload[key_begin:key_end]] = value
    except IndexError:
        raise CorruptMessage("a record header is cut off") from None
    return headers


def field_at(payload: bytes, position: int, end: int) -> tuple[int, int]:
    """Where a field begins and ends; a null field begins at -1. Raises CorruptMessage."""
    try:
        length, position = read_varint(payload, position)
    except IndexError:
        raise CorruptMessage("a field of a record is cut off") from None
    if length < 0:
        if length != -1:
            raise CorruptMessage(f"a field of a record has length {length}")
        return -1, position
    if position + length > end:
        raise CorruptMessage(f"a field of a record says it has {length} bytes")
    return position, position + length

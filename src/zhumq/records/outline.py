"""Walks the records of a batch: timestamp, offset and the place of the key of each, without decoding the rest."""

from collections.abc import Iterator

from zhumq.model.errors import CorruptMessage
from zhumq.records.batch import (
    HEADER_BYTES,
    BatchHeader,
    RecordBatch,
    TimestampType,
    read_varint,
)
from zhumq.records.codecs import DECOMPRESSED_BYTES_MAX, decompress

# Timestamp, offset, where the key begins (null: -1) and ends, where the record ends. The value follows the key.
# A plain tuple: a NamedTuple doubles the cost of the walk.
RecordOutline = tuple[int, int, int, int, int]


def payload_of(
    batch: RecordBatch, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> bytes:
    """The records section of a batch, decompressed."""
    header = batch.header
    if not header.records_count and len(batch.data) == HEADER_BYTES:
        return b""  # Compaction removed all of them.
    section = batch.data[HEADER_BYTES:]
    return bytes(decompress(header.compression, section, size_max=decompressed_bytes_max))


def outline(batch: RecordBatch) -> Iterator[RecordOutline]:
    """The outlines of the records in a batch: several times cheaper than `RecordBatch.records`.

    A batch of a few KiB can hold a million records, and any client may send one.
    """
    return outline_payload(batch.header, payload_of(batch))


def outline_payload(header: BatchHeader, payload: bytes) -> Iterator[RecordOutline]:
    """The outlines of the records in a decompressed section."""
    # | length varint | attributes i8 | timestamp delta varint | offset delta varint |
    # | key length varint | key | value | headers |
    base_timestamp, base_offset = header.base_timestamp, header.base_offset
    is_stamped = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    last_offset_delta, max_timestamp = header.last_offset_delta, header.max_timestamp
    size = len(payload)
    position = 0
    try:
        for _ in range(header.records_count):
            # Nearly all of these varints have one or two bytes, and a call costs more than reading them.
            byte = payload[position]
            if byte < 0x80:
                length, body = (byte >> 1) ^ -(byte & 1), position + 1
            elif (high := payload[position + 1]) < 0x80:
                length, body = (high << 6 | (byte & 0x7F) >> 1) ^ -(byte & 1), position + 2
            else:
                length, body = read_varint(payload, position)
            end = body + length
            if length < 0 or end > size:
                raise CorruptMessage(f"a record says it has {length} bytes")
            byte = payload[body + 1]
            if byte < 0x80:
                timestamp_delta, position = (byte >> 1) ^ -(byte & 1), body + 2
            elif (high := payload[body + 2]) < 0x80:
                timestamp_delta = (high << 6 | (byte & 0x7F) >> 1) ^ -(byte & 1)
                position = body + 3
            else:
                timestamp_delta, position = read_varint(payload, body + 1)
            byte = payload[position]
            if byte < 0x80:
                offset_delta, position = (byte >> 1) ^ -(byte & 1), position + 1
            elif (high := payload[position + 1]) < 0x80:
                offset_delta = (high << 6 | (byte & 0x7F) >> 1) ^ -(byte & 1)
                position += 2
            else:
                offset_delta, position = read_varint(payload, position)
            if not 0 <= offset_delta <= last_offset_delta:
                raise CorruptMessage(f"a record's offset delta is {offset_delta}")
            byte = payload[position]
            if byte < 0x80:
                key_length, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                key_length, position = read_varint(payload, position)
            if key_length >= 0:
                key_begin, key_end = position, position + key_length
            elif key_length == -1:
                key_begin, key_end = -1, position
            else:
                raise CorruptMessage(f"a record's key says it has {key_length} bytes")
            if key_end > end:
                raise CorruptMessage(f"a record's key says it has {key_length} bytes")
            position = end
            yield (
                max_timestamp if is_stamped else base_timestamp + timestamp_delta,
                base_offset + offset_delta,
                key_begin,
                key_end,
                end,
            )
    except IndexError:
        raise CorruptMessage(f"a record is cut off at byte {position} of its batch") from None
    if position != size:
        raise CorruptMessage(f"{size - position} bytes follow the last record of a batch")

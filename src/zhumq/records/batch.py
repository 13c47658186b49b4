"""A record batch of format 2 as a view over bytes; records are decoded on demand only."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from zhumq.model.buffers import Buffer
from zhumq.model.errors import CorruptMessage
from zhumq.records.codecs import (
    DECOMPRESSED_BYTES_MAX,
    Compression,
    compression_of,
    crc32c,
    decompress,
)
from zhumq.records.lengths import FEW, end_of, end_of_many

# | base offset i64 | batch length i32 | partition leader epoch i32 | magic i8 | crc u32 |
# | attributes i16 | last offset delta i32 | base timestamp i64 | max timestamp i64 |
# | producer id i64 | producer epoch i16 | base sequence i32 | records count i32 | records |
HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
PREFIX_BYTES = 12  # base offset and length: the length does not count them
HEAD = struct.Struct(">qii")  # rewritten by the broker: the checksum does not cover it
HEAD_BYTES = HEAD.size
CRC_OFFSET = 17
CHECKED_OFFSET = 21  # the checksum covers everything from the attributes on
BATCH_LENGTH_MIN = HEADER_BYTES - PREFIX_BYTES
MAGIC_OFFSET = 16
MAGIC = 2
FLAGS_OFFSET = 22  # the second byte of the attributes

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

SEQUENCE_MAX = 2**31 - 1
RECORD_BYTES_MIN = 7  # length, attributes, two deltas, no key, no value, no headers
NO_TIMESTAMP = -1


class TimestampType(IntEnum):
    """The source of a record's timestamp: the producer or the broker."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The fixed part of a batch, in the order of the bytes."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequences wrap to 0 after 2^31 - 1; -1 means the batch has none."""
        if self.base_sequence < 0:
            return -1
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def compression(self) -> Compression:
        return compression_of(self.attributes & COMPRESSION_MASK)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType((self.attributes & LOG_APPEND_TIME_FLAG) >> 3)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the tombstones of this batch; KIP-534 keeps it in the base timestamp."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None


class RecordHeader(NamedTuple):
    """A header of one record."""

    key: str
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One message."""

    offset: int = 0
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[RecordHeader, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """One whole batch: its header and all of its bytes."""

    header: BatchHeader
    data: memoryview

    @property
    def crc_matches(self) -> bool:
        return crc32c(self.data[CHECKED_OFFSET:]) == self.header.crc

    def records(self, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
        """Decode the records, one at a time."""
        header = self.header
        if not header.records_count and len(self.data) == HEADER_BYTES:
            return iter(())  # Compaction removed all of them.
        payload = decompress(
            header.compression, self.data[HEADER_BYTES:], size_max=decompressed_bytes_max
        )
        return decode_payload(header, bytes(payload))


def increment_sequence(sequence: int, count: int) -> int:
    """The sequence number `count` records later."""
    return (sequence + count) & SEQUENCE_MAX


def decode_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at this position, with no check of its fields."""
    try:
        # Bypasses NamedTuple's constructor, which costs more than the decoding.
        return tuple.__new__(BatchHeader, HEADER.unpack_from(buffer, position))
    except struct.error:
        raise CorruptMessage(
            f"{len(buffer) - position} bytes are too few for a record batch"
        ) from None


def is_transactional(records: bytes | memoryview | None) -> bool:
    """Whether these bytes begin with a batch of a transaction. Reads that one flag only."""
    return (
        records is not None
        and len(records) > FLAGS_OFFSET
        and bool(records[FLAGS_OFFSET] & TRANSACTIONAL_FLAG)
    )


def batches(buffer: Buffer) -> Iterator[RecordBatch]:
    """The batches in a buffer, which must hold whole ones."""
    view = memoryview(buffer)
    position = 0
    while position < len(view):
        header = decode_header(view, position)
        end = position + header.size
        if header.magic != MAGIC or header.batch_length < BATCH_LENGTH_MIN or end > len(view):
            raise CorruptMessage(
                f"at byte {position}: magic {header.magic}, length {header.batch_length}, "
                f"with {len(view) - position} bytes left"
            )
        yield RecordBatch(header, view[position:end])
        position = end


def records(buffer: Buffer) -> Iterator[Record]:
    """All data records in a buffer of whole batches; control records are left out."""
    for batch in batches(buffer):
        if not batch.header.is_control:
            yield from batch.records()


def decode_payload(header: BatchHeader, payload: bytes) -> Iterator[Record]:
    """The records of a decompressed section."""
    append_time = (
        header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    )
    position = 0
    for _ in range(header.records_count):
        try:
            length, body = read_varint(payload, position)
            end = body + length
            if length < 0 or end > len(payload):
                raise CorruptMessage(f"a record says it has {length} bytes")
            record = _decode_record(header, payload, body, append_time, end)
        except (IndexError, UnicodeDecodeError):
            raise CorruptMessage(
                f"the record after byte {position} of its batch is malformed"
            ) from None
        position = end
        yield record
    if position != len(payload):
        raise CorruptMessage(f"{len(payload) - position} bytes follow the last record of a batch")


def record_at(header: BatchHeader, payload: bytes, offset: int) -> Record | None:
    """The record with this offset in a decompressed section; the others are only skipped."""
    stamp = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    sought = offset - header.base_offset
    position = place = 0
    try:
        if header.records_count == header.last_offset_delta + 1:
            # There are no gaps: the place of a record is its offset delta.
            place = min(sought, header.last_offset_delta)
            position = end_of_many(payload, place) if place > FEW else end_of(payload, 0, place)
        for _ in range(place, header.records_count):
            length, body = read_varint(payload, position)
            position = body + length
            if length < 0 or position > len(payload):
                raise CorruptMessage(f"a record says it has {length} bytes")
            _, delta_position = read_varint(payload, body + 1)
            if read_varint(payload, delta_position)[0] == sought:
                return _decode_record(header, payload, body, stamp, position)
    except (IndexError, UnicodeDecodeError):
        raise CorruptMessage(f"the record of offset {offset} is malformed") from None
    return None


def _decode_record(
    header: BatchHeader, payload: bytes, position: int, append_time: int | None, end: int
) -> Record:
    timestamp_delta, position = read_varint(payload, position + 1)  # one byte of unused attributes
    offset_delta, position = read_varint(payload, position)
    if not 0 <= offset_delta <= header.last_offset_delta:
        raise CorruptMessage(f"a record's offset delta is {offset_delta}")
    key, position = _field(payload, position, end)
    value, position = _field(payload, position, end)
    count, position = read_varint(payload, position)
    if not 0 <= count <= end - position:
        raise CorruptMessage(f"a record says it has {count} headers")
    headers: list[RecordHeader] = []
    for _ in range(count):
        header_key, position = _field(payload, position, end)
        if header_key is None:
            raise CorruptMessage("a record header has no key")
        header_value, position = _field(payload, position, end)
        headers.append(RecordHeader(header_key.decode(), header_value))
    if position != end:
        raise CorruptMessage("a record's length does not match its fields")
    return Record(
        offset=header.base_offset + offset_delta,
        timestamp=header.base_timestamp + timestamp_delta if append_time is None else append_time,
        key=key,
        value=value,
        headers=tuple(headers),
    )


def _field(payload: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    """A length as a varint, then that many bytes; -1 is null."""
    length, position = read_varint(payload, position)
    if length < 0:
        if length != -1:
            raise CorruptMessage(f"a field of a record has length {length}")
        return None, position
    field_end = position + length
    if field_end > end:
        raise CorruptMessage(f"a field of a record says it has {length} bytes")
    return payload[position:field_end], field_end


def read_varint(payload: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint of at most ten bytes."""
    byte = payload[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value = byte & 0x7F
    shift = 7
    while True:
        byte = payload[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise CorruptMessage("a varint is longer than ten bytes")

"""Builds record batches of format 2 from records."""

import struct
from collections.abc import Sequence
from typing import Final

from zhumq.model.buffers import Buffer
from zhumq.records.batch import (
    BATCH_LENGTH_MIN,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Record,
    TimestampType,
)
from zhumq.records.codecs import Compression, compress, crc32c

# The two parts of a header, without and with the checksum; see `zhumq.records.batch`.
UNCHECKED: Final = struct.Struct(">qiibI")
CHECKED: Final = struct.Struct(">hiqqqhii")
CHECKED_FIELD: Final = 5  # the number of the first field that the checksum covers
SHORT_LENGTHS: Final = 1024


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    partition_leader_epoch: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes:
    """One batch of these records, at consecutive offsets from base_offset on."""
    if not records:
        raise ValueError("a record batch holds at least one record")
    base_timestamp = records[0].timestamp
    attributes = int(compression)
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= LOG_APPEND_TIME_FLAG
    if is_transactional:
        attributes |= TRANSACTIONAL_FLAG
    if is_control:
        attributes |= CONTROL_FLAG
    if len(records) == 1:  # as most batches of coordinators, and all markers
        payload = _encode_record(records[0], 0, 0)
        max_timestamp = base_timestamp
    else:
        payload = b"".join(
            _encode_record(record, record.timestamp - base_timestamp, delta)
            for delta, record in enumerate(records)
        )
        max_timestamp = max(record.timestamp for record in records)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=partition_leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=len(records),
    )
    return assemble_batch(header, payload)


def rebuild_batch(
    header: BatchHeader, kept: Sequence[Record], *, delete_horizon_ms: int | None
) -> bytes:
    """The batch with only the kept records, each at its old offset. Compaction writes it.

    The offsets, the producer's sequence and the leader epoch stay those of the original, so that
    readers and the producer state see no difference. KIP-534: a delete horizon, once set, replaces
    the base timestamp. A batch without records is not compressed: no codec reads an empty section,
    and clients stop at a batch they cannot decompress.
    """
    base_timestamp = header.base_timestamp if delete_horizon_ms is None else delete_horizon_ms
    attributes = header.attributes
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_FLAG
    if not kept:
        attributes &= ~COMPRESSION_MASK
    payload = b"".join(
        _encode_record(
            record, record.timestamp - base_timestamp, record.offset - header.base_offset
        )
        for record in kept
    )
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        max_timestamp = header.max_timestamp
    else:
        max_timestamp = max((record.timestamp for record in kept), default=NO_TIMESTAMP)
    rebuilt = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        records_count=len(kept),
    )
    return assemble_batch(rebuilt, payload)


def append_varint(output: bytearray, value: int) -> None:
    """Write a zigzag varint."""
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        output.append((value & 0x7F) | 0x80)
        value >>= 7
    output.append(value)


def _varint(value: int) -> bytes:
    output = bytearray()
    append_varint(output, value)
    return bytes(output)


# Lengths that are written without a loop.
SHORT_VARINTS: Final = tuple(map(_varint, range(SHORT_LENGTHS)))


def assemble_batch(header: BatchHeader, payload: bytes) -> bytes:
    """A whole batch: the header with its length and checksum, and the payload, compressed as the header says."""
    section: Buffer = payload
    if header.attributes & COMPRESSION_MASK:
        section = compress(header.compression, payload)
    checked = CHECKED.pack(*header[CHECKED_FIELD:])
    checksum = crc32c(section, crc32c(checked))
    unchecked = UNCHECKED.pack(
        header.base_offset,
        BATCH_LENGTH_MIN + len(section),
        header.partition_leader_epoch,
        header.magic,
        checksum,
    )
    return b"".join((unchecked, checked, section))


def _encode_record(record: Record, timestamp_delta: int, offset_delta: int) -> bytes:
    key, value, headers = record.key, record.value, record.headers
    if (
        key is not None
        and value is not None
        and not (timestamp_delta or offset_delta or headers)
        and len(key) < SHORT_LENGTHS
        and len(value) < SHORT_LENGTHS
    ):
        # The first record of a batch of a coordinator: its fields are short, and so are their lengths.
        fields = SHORT_VARINTS[len(key)] + key + SHORT_VARINTS[len(value)] + value
        # Attributes, both deltas, and the number of headers are one byte each.
        length = len(fields) + 4
        if length < SHORT_LENGTHS:
            return SHORT_VARINTS[length] + b"\x00\x00\x00" + fields + b"\x00"
    body = bytearray(b"\x00")  # attributes, unused
    append_varint(body, timestamp_delta)
    append_varint(body, offset_delta)
    _append_field(body, key)
    _append_field(body, value)
    append_varint(body, len(headers))
    for name, content in headers:
        _append_field(body, name.encode())
        _append_field(body, content)
    output = bytearray()
    append_varint(output, len(body))
    output += body
    return bytes(output)


def _append_field(output: bytearray, field: bytes | None) -> None:
    if field is None:
        append_varint(output, -1)
    else:
        append_varint(output, len(field))
        output += field

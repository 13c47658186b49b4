"""Builds record batches of format 2 from records."""

from collections.abc import Sequence

from zhumq.records.batch import (
    BATCH_LENGTH_MIN,
    CHECKED_OFFSET,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    CRC_OFFSET,
    DELETE_HORIZON_FLAG,
    HEADER,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Record,
    TimestampType,
)
from zhumq.records.codecs import Compression, compress, crc32c


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
    payload = b"".join(
        _encode_record(record, record.timestamp - base_timestamp, delta)
        for delta, record in enumerate(records)
    )
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=partition_leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in records),
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


def assemble_batch(header: BatchHeader, payload: bytes) -> bytes:
    """A whole batch: the header with its length and checksum, and the payload, compressed as the header says."""
    section = compress(header.compression, payload)
    batch = bytearray(HEADER.pack(*header._replace(batch_length=BATCH_LENGTH_MIN + len(section))))
    batch += section
    checksum = crc32c(memoryview(batch)[CHECKED_OFFSET:])
    batch[CRC_OFFSET:CHECKED_OFFSET] = checksum.to_bytes(4, "big")
    return bytes(batch)


def _encode_record(record: Record, timestamp_delta: int, offset_delta: int) -> bytes:
    body = bytearray(b"\x00")  # attributes, unused
    append_varint(body, timestamp_delta)
    append_varint(body, offset_delta)
    _append_field(body, record.key)
    _append_field(body, record.value)
    append_varint(body, len(record.headers))
    for key, value in record.headers:
        _append_field(body, key.encode())
        _append_field(body, value)
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

"""Whether a client's batches may go into the log. Looks at whole batches, at records only if it must."""

from enum import Enum

from zhumq.model.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    UnsupportedForMessageFormat,
)
from zhumq.records.batch import (
    BATCH_LENGTH_MIN,
    CHECKED_OFFSET,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    CRC_OFFSET,
    HEAD_BYTES,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    MAGIC_OFFSET,
    PREFIX_BYTES,
    RECORD_BYTES_MIN,
    BatchHeader,
    RecordBatch,
    decode_header,
)
from zhumq.records.codecs import Compression, crc32c
from zhumq.records.outline import outline
from zhumq.storage.log_config import LogConfig

ZSTD_CODE = int(Compression.ZSTD)
# A few KiB can decompress to many millions of records, and every lookup by time in that batch
# would have to pass them. librdkafka's batch.num.messages ends at this number too.
BATCH_RECORDS_MAX = 1_000_000


class AppendOrigin(Enum):
    """Who appends: only the broker's own coordinators may write control records."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


# A batch that may be written: its header, and its bytes behind the head the log writes itself.
CheckedBatch = tuple[BatchHeader, tuple[bytes | memoryview, ...]]


def check_batches(
    view: memoryview, config: LogConfig, *, now_ms: int, origin: AppendOrigin
) -> list[CheckedBatch]:
    """All batches of an append, each checked, or the error that says what is wrong with one."""
    header = _check_frame(view, config)
    end = header.batch_length + PREFIX_BYTES
    if end == len(view):  # One batch, as in nearly every request.
        return [_check_content(view, header, config, now_ms, origin)]
    checked = [_check_content(view[:end], header, config, now_ms, origin)]
    while end < len(view):
        rest = view[end:]
        header = _check_frame(rest, config)
        size = header.batch_length + PREFIX_BYTES
        checked.append(_check_content(rest[:size], header, config, now_ms, origin))
        end += size
    return checked


def _check_frame(rest: memoryview, config: LogConfig) -> BatchHeader:
    """The header, if what it says about sizes can be true."""
    available = len(rest) - PREFIX_BYTES
    if available < BATCH_LENGTH_MIN:
        if len(rest) > MAGIC_OFFSET and rest[MAGIC_OFFSET] in (0, 1):
            raise UnsupportedForMessageFormat(f"message format {rest[MAGIC_OFFSET]} is too old")
        raise CorruptMessage(f"{len(rest)} bytes are too few for a record batch")
    header = decode_header(rest)
    if header.magic != MAGIC:
        raise UnsupportedForMessageFormat(
            f"message format {header.magic} is not {MAGIC}, the only one accepted"
        )
    length = header.batch_length
    if not BATCH_LENGTH_MIN <= length <= available:
        raise CorruptMessage(f"a batch says it has {length} bytes, there are {available}")
    if length > config.max_message_bytes - PREFIX_BYTES:
        raise MessageTooLarge(
            f"a batch of {length + PREFIX_BYTES} bytes is over the topic's "
            f"max.message.bytes of {config.max_message_bytes}"
        )
    return header


def _check_content(
    batch: memoryview, header: BatchHeader, config: LogConfig, now_ms: int, origin: AppendOrigin
) -> CheckedBatch:
    if crc32c(batch[CHECKED_OFFSET:]) != header.crc:
        raise CorruptMessage("a batch does not match its checksum")
    count = header.records_count
    if count < 1 or header.last_offset_delta != count - 1:
        raise InvalidRecord(
            f"a batch of {count} records has last offset delta {header.last_offset_delta}"
        )
    if count > BATCH_RECORDS_MAX:
        raise InvalidRecord(f"a batch of {count} records: {BATCH_RECORDS_MAX} are the most")
    attributes = header.attributes
    code = attributes & COMPRESSION_MASK
    if code == 0:
        if count * RECORD_BYTES_MIN > len(batch) - HEADER_BYTES:
            raise InvalidRecord(f"{count} records do not fit into {len(batch)} bytes")
    elif code > ZSTD_CODE:
        raise InvalidRecord(f"unknown compression {code}")
    if origin is AppendOrigin.CLIENT:
        _check_producer(header)
    if config.is_compacted and not attributes & CONTROL_FLAG:
        _check_keys(batch, header)
    if config.stamps_append_time:
        return _stamp(batch, header, now_ms)
    if (
        attributes & LOG_APPEND_TIME_FLAG
        or header.max_timestamp > now_ms + config.message_timestamp_after_max_ms
        or 0 <= header.base_timestamp < now_ms - config.message_timestamp_before_max_ms
    ):
        raise _timestamp_error(header, config, now_ms)
    return header, (batch[HEAD_BYTES:],)


def _check_producer(header: BatchHeader) -> None:
    """What only the broker's own coordinators may leave out or put in."""
    if header.attributes & CONTROL_FLAG:
        raise InvalidRecord("clients may not write control records")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidRecord(
            f"producer {header.producer_id} sent epoch {header.producer_epoch} "
            f"and sequence {header.base_sequence}"
        )


def _timestamp_error(header: BatchHeader, config: LogConfig, now_ms: int) -> InvalidTimestamp:
    if header.attributes & LOG_APPEND_TIME_FLAG:
        return InvalidTimestamp("only the broker may stamp a batch with its append time")
    if header.max_timestamp > now_ms + config.message_timestamp_after_max_ms:
        return InvalidTimestamp(
            f"timestamp {header.max_timestamp} is more than "
            f"{config.message_timestamp_after_max_ms} ms ahead of the broker"
        )
    return InvalidTimestamp(
        f"timestamp {header.base_timestamp} is more than "
        f"{config.message_timestamp_before_max_ms} ms behind the broker"
    )


def _check_keys(batch: memoryview, header: BatchHeader) -> None:
    """Compaction needs a key in every record."""
    for _, _, has_key in outline(RecordBatch(header, batch)):
        if not has_key:
            raise InvalidRecord("a compacted topic takes no record without a key")


def _stamp(batch: memoryview, header: BatchHeader, now_ms: int) -> CheckedBatch:
    """Put the broker's clock into the header. The records keep their deltas, which readers ignore."""
    stamped = header._replace(
        attributes=header.attributes | LOG_APPEND_TIME_FLAG, max_timestamp=now_ms
    )
    packed = bytearray(HEADER.pack(*stamped))
    checksum = crc32c(batch[HEADER_BYTES:], crc32c(memoryview(packed)[CHECKED_OFFSET:]))
    packed[CRC_OFFSET:CHECKED_OFFSET] = checksum.to_bytes(4, "big")
    tail = (bytes(packed[HEAD_BYTES:]), batch[HEADER_BYTES:])
    return stamped._replace(crc=checksum), tail

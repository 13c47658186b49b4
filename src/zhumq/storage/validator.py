"""Validates a client's batches before an append: the headers, and the records where necessary."""

from enum import Enum

from zhumq.model.authorization_errors import TransactionalIdAuthorizationFailed
from zhumq.model.buffers import Buffer
from zhumq.model.errors import (
    BrokerError,
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
    NO_TIMESTAMP,
    PREFIX_BYTES,
    RECORD_BYTES_MIN,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Record,
    decode_payload,
)
from zhumq.records.codecs import Compression, crc32c, decompress
from zhumq.records.lengths import FEW, check_lengths, end_of
from zhumq.records.outline import outline_payload
from zhumq.storage.log_config import LogConfig

# The decompressed size of a batch whose records are checked on the event loop.
WALKED_BYTES_MAX = 32 * 1024 * 1024
NAMED_RECORDS_MAX = 1_000  # the invalid records of a batch that an error lists
# A request can have many partitions, and each batch of a few KiB can decompress to the limit above.
WALKED_BYTES_PER_REQUEST_MAX = 8 * WALKED_BYTES_MAX
# At 0.15 us a record, one request blocks the event loop for at most 0.3 s.
WALKED_RECORDS_PER_REQUEST_MAX = 2_000_000
_new = tuple.__new__  # NamedTuple's own constructor costs more than the decoding
ZSTD_CODE = int(Compression.ZSTD)
SPECIAL_FLAGS = CONTROL_FLAG | TRANSACTIONAL_FLAG
# Of a compressed batch. A few KiB can decompress to many millions of records, and every lookup by
# time in that batch would have to read them. librdkafka's batch.num.messages has the same limit.
BATCH_RECORDS_MAX = 1_000_000


class AppendOrigin(Enum):
    """The source of an append: batches of the broker's own coordinators have no sequences."""

    CLIENT = "client"
    PLAIN_CLIENT = "plain client"  # a request without a transactional id
    COORDINATOR = "coordinator"
    MOVER = "mover"  # staged records on their way into their topic


PLAIN_CLIENT = AppendOrigin.PLAIN_CLIENT  # an attribute of a class costs more than a name
COORDINATOR = AppendOrigin.COORDINATOR
CLIENTS = frozenset({AppendOrigin.CLIENT, PLAIN_CLIENT})
# A valid batch: its header, and its bytes behind the head, which the log writes itself.
CheckedBatch = tuple[BatchHeader, tuple[Buffer, ...]]


class WalkBudget:
    """The bytes that one request may have decompressed, and the records it may have checked."""

    __slots__ = ("bytes_left", "records_left")

    def __init__(self) -> None:
        self.bytes_left = WALKED_BYTES_PER_REQUEST_MAX
        self.records_left = WALKED_RECORDS_PER_REQUEST_MAX

    @property
    def next_bytes_max(self) -> int:
        return max(min(WALKED_BYTES_MAX, self.bytes_left), 0)


def check_batch(
    rest: Buffer,
    config: LogConfig,
    now_ms: int,
    origin: AppendOrigin,
    budget: WalkBudget | None,
) -> CheckedBatch:
    """Check the first batch of `rest`. The code is fast for valid batches; helpers find the exact error."""
    available = len(rest) - PREFIX_BYTES
    if available < BATCH_LENGTH_MIN:
        raise _frame_error(rest, None, config)
    # All fields at once: attribute access one by one would cost more than the rest of this function.
    fields = HEADER.unpack_from(rest)
    (
        _, length, _, magic, crc, attributes, last_offset_delta, base_timestamp, max_timestamp,
        producer_id, _, _, count,
    ) = fields  # fmt: skip
    header: BatchHeader = _new(BatchHeader, fields)
    if (
        magic != MAGIC
        or not BATCH_LENGTH_MIN <= length <= available
        or length > config.max_message_bytes - PREFIX_BYTES
    ):
        raise _frame_error(rest, header, config)
    batch = rest if length == available else rest[: length + PREFIX_BYTES]
    if crc32c(batch[CHECKED_OFFSET:]) != crc:
        raise CorruptMessage("a batch does not match its checksum")
    codec = attributes & COMPRESSION_MASK
    if (
        count != last_offset_delta + 1
        or count < 1
        or codec > ZSTD_CODE
        or (
            count > BATCH_RECORDS_MAX
            if codec
            else count * RECORD_BYTES_MIN > length - BATCH_LENGTH_MIN
        )
    ):
        raise _count_error(header)
    is_from_client = origin is not COORDINATOR
    if attributes & SPECIAL_FLAGS or (is_from_client and producer_id >= 0):
        _check_producer(header, origin)
    # Decision 0027: the lengths of all records are checked, and their fields if the topic requires it.
    if config.checks_records:
        if is_from_client:
            _check_records(batch, header, config, now_ms, budget or WalkBudget())
    elif is_from_client:
        try:
            ends = end_of(batch, HEADER_BYTES, count) if count <= FEW and not codec else 0
        except (CorruptMessage, IndexError):
            ends = 0
        if ends != length + PREFIX_BYTES:
            _check_lengths(batch, header, budget or WalkBudget())
    if config.stamps_append_time:
        return _stamp(batch, header, now_ms)
    if (
        attributes & LOG_APPEND_TIME_FLAG
        or max_timestamp > now_ms + config.message_timestamp_after_max_ms
        or 0 <= base_timestamp < now_ms - config.message_timestamp_before_max_ms
    ):
        raise _timestamp_error(header, config, now_ms)
    return header, (batch[HEAD_BYTES:],)


def _frame_error(rest: Buffer, header: BatchHeader | None, config: LogConfig) -> BrokerError:
    """The error for a batch with invalid sizes or an unsupported format."""
    magic = rest[MAGIC_OFFSET] if len(rest) > MAGIC_OFFSET else MAGIC
    if magic != MAGIC and (header is not None or magic < MAGIC):
        return UnsupportedForMessageFormat(
            f"message format {magic} is not {MAGIC}, the only one accepted"
        )
    if header is None:
        return CorruptMessage(f"{len(rest)} bytes are too few for a record batch")
    if not BATCH_LENGTH_MIN <= header.batch_length <= len(rest) - PREFIX_BYTES:
        return CorruptMessage(
            f"a batch says it has {header.batch_length} bytes, there are {len(rest) - PREFIX_BYTES}"
        )
    return MessageTooLarge(
        f"a batch of {header.size} bytes is over the topic's max.message.bytes of "
        f"{config.max_message_bytes}"
    )


def _count_error(header: BatchHeader) -> InvalidRecord:
    """The error for a batch with an invalid number of records or compression."""
    count = header.records_count
    code = header.attributes & COMPRESSION_MASK
    if code > ZSTD_CODE:
        return InvalidRecord(f"unknown compression {code}")
    if count < 1 or header.last_offset_delta != count - 1:
        return InvalidRecord(
            f"a batch of {count} records has last offset delta {header.last_offset_delta}"
        )
    if code:
        return InvalidRecord(f"{count} records in a batch are more than {BATCH_RECORDS_MAX}")
    return InvalidRecord(f"{count} records do not fit into {header.size} bytes")


def _check_producer(header: BatchHeader, origin: AppendOrigin) -> None:
    """Refuse control records of clients, transactions without an id, and producers without epoch and sequence."""
    if header.attributes & CONTROL_FLAG:
        raise InvalidRecord("clients may not write control records")
    if origin is COORDINATOR:
        return
    if header.attributes & TRANSACTIONAL_FLAG and origin is PLAIN_CLIENT:
        raise TransactionalIdAuthorizationFailed(
            "a batch of a transaction needs a transactional id"
        )
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


def _check_lengths(batch: Buffer, header: BatchHeader, budget: WalkBudget) -> None:
    """Check that the batch holds the number of records in its header; readers would get stuck at it."""
    try:
        check_lengths(_payload(batch, header, budget), header.records_count)
    except CorruptMessage as error:
        raise _unreadable(error) from None


def _check_records(
    batch: Buffer,
    header: BatchHeader,
    config: LogConfig,
    now_ms: int,
    budget: WalkBudget,
) -> None:
    """Check each record: the keys of a compacted topic, and all fields if the topic requires it."""
    keyless: list[int] = []
    try:
        payload = bytes(_payload(batch, header, budget))
        if config.validates_records:
            for index, record in enumerate(decode_payload(header, payload)):
                _check_record(record, index, header, config, now_ms)
                if record.key is None:
                    keyless.append(index)
        else:
            outlines = enumerate(outline_payload(header, payload))
            keyless = [index for index, (_, _, key_begin, *_) in outlines if key_begin < 0]
    except CorruptMessage as error:
        raise _unreadable(error) from None
    if keyless and config.is_compacted:
        raise InvalidRecord(
            "a compacted topic takes no record without a key", tuple(keyless[:NAMED_RECORDS_MAX])
        )


def _check_record(
    record: Record, index: int, header: BatchHeader, config: LogConfig, now_ms: int
) -> None:
    """Check the timestamp of a record as Kafka does, and that its offset delta is the next one."""
    if record.offset != header.base_offset + index:
        raise InvalidRecord(
            f"record {index} of a batch has offset delta {record.offset - header.base_offset}",
            (index,),
        )
    if config.stamps_append_time or record.timestamp == NO_TIMESTAMP:
        return
    ahead_ms = record.timestamp - now_ms
    if not (
        -config.message_timestamp_before_max_ms <= ahead_ms <= config.message_timestamp_after_max_ms
    ):
        raise InvalidTimestamp(f"record {index} of a batch has timestamp {record.timestamp}")


def _payload(batch: Buffer, header: BatchHeader, budget: WalkBudget) -> memoryview:
    """The decompressed records section. Its size counts against the budget, even if decompression fails."""
    budget.records_left -= header.records_count
    if budget.records_left < 0:
        raise CorruptMessage(f"a request has over {WALKED_RECORDS_PER_REQUEST_MAX} records")
    section = memoryview(batch)[HEADER_BYTES:]
    if not header.attributes & COMPRESSION_MASK:
        return section
    size_max = budget.next_bytes_max
    try:
        payload = memoryview(decompress(header.compression, section, size_max=size_max))
    except CorruptMessage:
        budget.bytes_left -= size_max
        raise
    budget.bytes_left -= len(payload)
    return payload


def _unreadable(error: CorruptMessage) -> InvalidRecord:
    # Not CorruptMessage, which is retriable: the checksum matches, so a retry would fail again.
    return InvalidRecord(f"the records of a batch cannot be read: {error}")


def _stamp(batch: Buffer, header: BatchHeader, now_ms: int) -> CheckedBatch:
    """Write the append time into the header. The records keep their deltas, which readers ignore."""
    stamped = header._replace(
        attributes=header.attributes | LOG_APPEND_TIME_FLAG, max_timestamp=now_ms
    )
    packed = bytearray(HEADER.pack(*stamped))
    checksum = crc32c(batch[HEADER_BYTES:], crc32c(memoryview(packed)[CHECKED_OFFSET:]))
    packed[CRC_OFFSET:CHECKED_OFFSET] = checksum.to_bytes(4, "big")
    tail = (bytes(packed[HEAD_BYTES:]), batch[HEADER_BYTES:])
    return stamped._replace(crc=checksum), tail

"""Invalid record batches with the answers of Apache Kafka 4.3.1, from `python -m conformance.bad_batches`."""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from zhumq.model.errors import ErrorCode
from zhumq.records.batch import (
    BATCH_LENGTH_MIN,
    CHECKED_OFFSET,
    CRC_OFFSET,
    HEADER,
    BatchHeader,
)
from zhumq.records.builder import append_varint
from zhumq.records.codecs import Compression, compress, crc32c

COUNT_MAX: Final = 2**31 - 1
CODECS: Final = tuple(codec for codec in Compression if codec is not Compression.NONE)


NONE: Final = ErrorCode.NONE
INVALID: Final = ErrorCode.INVALID_RECORD
CORRUPT: Final = ErrorCode.CORRUPT_MESSAGE
BAD_TIME: Final = ErrorCode.INVALID_TIMESTAMP
OLD_FORMAT: Final = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
UNKNOWN: Final = ErrorCode.UNKNOWN_SERVER_ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class BadBatch:
    """An invalid batch and the error codes that answer it."""

    name: str
    data: bytes
    kafka: ErrorCode
    zhumq: ErrorCode
    validated: ErrorCode  # by a topic with record.validation=full
    topic: str = "plain"  # or compacted


def varint(value: int) -> bytes:
    output = bytearray()
    append_varint(output, value)
    return bytes(output)


def sized(body: bytes, length: int | None = None) -> bytes:
    """A record: its length, which may differ from that of its body, and the body."""
    return varint(len(body) if length is None else length) + body


def body(
    offset_delta: int = 0,
    *,
    attributes: int = 0,
    timestamp_delta: int = 0,
    key: bytes = b"\x02k",  # with its length
    value: bytes = b"\x02v",
    headers: bytes = b"\x00",  # their number, then each
) -> bytes:
    """The fields of a record."""
    deltas = varint(timestamp_delta) + varint(offset_delta)
    return bytes([attributes]) + deltas + key + value + headers


def record(offset_delta: int = 0, **fields: Any) -> bytes:
    return sized(body(offset_delta, **fields))


def batch(
    payload: bytes,
    *,
    now_ms: int,
    count: int = 1,
    codec: Compression = Compression.NONE,
    **header: Any,
) -> bytes:
    """A batch with this payload and a valid checksum."""
    fields = BatchHeader(
        base_offset=0,
        batch_length=BATCH_LENGTH_MIN + len(payload),
        partition_leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=header.pop("attributes", 0) | int(codec),
        last_offset_delta=header.pop("last_offset_delta", count - 1),
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=count,
    )._replace(**header)
    data = bytearray(HEADER.pack(*fields)) + payload
    checksum = crc32c(bytes(data[CHECKED_OFFSET:]))
    data[CRC_OFFSET:CHECKED_OFFSET] = checksum.to_bytes(4, "big")
    return bytes(data)


def bad_batches(now_ms: int) -> list[BadBatch]:
    """Every case, with current timestamps, since brokers check those too."""
    return [
        *_bad_headers(now_ms),
        *_bad_sizes(now_ms),
        *_bad_records(now_ms),
        *_bad_payloads(now_ms),
    ]


def _bad_headers(now_ms: int) -> Iterator[BadBatch]:
    unauthorized = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    changes: Iterable[tuple[str, dict[str, Any], ErrorCode, ErrorCode]] = (
        ("2^31-1 records", {"count": COUNT_MAX}, INVALID, INVALID),
        ("no records", {"count": 0, "last_offset_delta": 0}, INVALID, INVALID),
        ("-1 records", {"count": -1, "last_offset_delta": 0}, INVALID, INVALID),
        ("more records than offsets", {"count": 2, "last_offset_delta": 0}, INVALID, INVALID),
        ("more offsets than records", {"count": 1, "last_offset_delta": 1}, INVALID, INVALID),
        ("a negative last offset delta", {"last_offset_delta": -1}, INVALID, INVALID),
        ("message format 0", {"magic": 0}, INVALID, OLD_FORMAT),
        ("message format 1", {"magic": 1}, INVALID, OLD_FORMAT),
        ("message format 3", {"magic": 3}, CORRUPT, OLD_FORMAT),
        ("a control batch", {"attributes": 0x20}, INVALID, INVALID),
        ("transactional without a producer id", {"attributes": 0x10}, unauthorized, unauthorized),
        ("log append time from a client", {"attributes": 0x08}, NONE, BAD_TIME),
        ("a delete horizon from a client", {"attributes": 0x40}, NONE, NONE),
        ("an attribute that means nothing", {"attributes": 0x80}, NONE, NONE),
        ("codec 5", {"attributes": 0x05}, UNKNOWN, INVALID),
        ("codec 7", {"attributes": 0x07}, UNKNOWN, INVALID),
        ("a producer without a sequence", {"producer_id": 7, "producer_epoch": 0}, INVALID, INVALID),
        ("a producer without an epoch", {"producer_id": 7, "base_sequence": 0}, NONE, INVALID),
        ("a largest timestamp that no record has", {"max_timestamp": now_ms - 5}, NONE, NONE),
    )  # fmt: skip
    for name, change, kafka, zhumq in changes:
        data = batch(record(), now_ms=now_ms, **change)
        yield BadBatch(name=name, data=data, kafka=kafka, zhumq=zhumq, validated=zhumq)


def _bad_sizes(now_ms: int) -> Iterator[BadBatch]:
    good = batch(record(), now_ms=now_ms)
    flipped = bytearray(good)
    flipped[-1] ^= 1
    short = bytearray(good)
    short[8:12] = struct.pack(">i", BATCH_LENGTH_MIN - 1)
    cases: Iterable[tuple[str, bytes, ErrorCode, ErrorCode]] = (
        ("a checksum that does not match", bytes(flipped), CORRUPT, CORRUPT),
        ("a batch that is cut off", good[:-3], INVALID, CORRUPT),
        ("a batch cut off in its header", good[:40], INVALID, CORRUPT),
        ("a length below that of a header", bytes(short), CORRUPT, CORRUPT),
        ("bytes behind the batch", good + b"\x00" * 5, NONE, CORRUPT),
        ("two batches", good + good, INVALID, NONE),
        ("nothing at all", b"", INVALID, CORRUPT),
    )
    for name, data, kafka, zhumq in cases:
        yield BadBatch(name=name, data=data, kafka=kafka, zhumq=zhumq, validated=zhumq)


def _bad_records(now_ms: int) -> Iterator[BadBatch]:
    """Invalid records, each uncompressed and compressed."""
    whole = body()
    two_days_ms = 2 * 86_400_000
    # Name, payload, record count, then the answers of Kafka, Kafka compressed, zhumq, zhumq with full validation.
    cases: Iterable[tuple[str, bytes, int, ErrorCode, ErrorCode, ErrorCode, ErrorCode]] = (
        ("offset deltas with a hole", record() + record(2), 2, NONE, UNKNOWN, NONE, INVALID),
        ("offset deltas backwards", record(1) + record(), 2, NONE, UNKNOWN, NONE, INVALID),
        ("the same offset delta twice", record() + record(), 2, NONE, UNKNOWN, NONE, INVALID),
        ("a negative offset delta", record(-1), 1, NONE, UNKNOWN, NONE, INVALID),
        ("a record that says it is longer", sized(whole, len(whole) + 1), 1, INVALID, NONE, INVALID, INVALID),
        ("a record that says it is shorter", sized(whole, len(whole) - 1), 1, INVALID, NONE, INVALID, INVALID),
        ("a record of no length", sized(whole, 0), 1, INVALID, NONE, INVALID, INVALID),
        ("a record of negative length", sized(whole, -5), 1, INVALID, NONE, INVALID, INVALID),
        ("a record of 2^31-1 bytes", sized(whole, COUNT_MAX), 1, INVALID, NONE, INVALID, INVALID),
        ("a length that never ends", b"\xff" * 20, 1, UNKNOWN, INVALID, INVALID, INVALID),
        ("a key longer than its record", record(key=b"\x7ek"), 1, INVALID, INVALID, NONE, INVALID),
        ("a key of length -2", record(key=b"\x03"), 1, NONE, NONE, NONE, INVALID),
        ("a value longer than its record", record(value=b"\x7ev"), 1, INVALID, INVALID, NONE, INVALID),
        ("a negative number of headers", record(headers=b"\x01"), 1, INVALID, INVALID, NONE, INVALID),
        ("more headers than bytes", record(headers=varint(1000)), 1, INVALID, INVALID, NONE, INVALID),
        ("a header without a key", record(headers=b"\x02\x01\x02h"), 1, INVALID, INVALID, NONE, INVALID),
        ("a header longer than its record", record(headers=b"\x02\x7eh"), 1, INVALID, INVALID, NONE, INVALID),
        ("a header key that is no UTF-8", record(headers=b"\x02\x02\xff\x02h"), 1, NONE, NONE, NONE, INVALID),
        ("an attribute of a record", record(attributes=1), 1, NONE, NONE, NONE, NONE),
        ("bytes behind the last field", sized(whole + b"\x00"), 1, INVALID, INVALID, NONE, INVALID),
        ("bytes behind the last record", record() + b"\x00", 1, INVALID, INVALID, INVALID, INVALID),
        ("a record more than counted", record() + record(1), 1, INVALID, INVALID, INVALID, INVALID),
        ("a record less than counted", record(), 2, INVALID, INVALID, INVALID, INVALID),
        ("a timestamp two days ahead", record(timestamp_delta=two_days_ms), 1, BAD_TIME, BAD_TIME, NONE, BAD_TIME),
        ("rubbish", b"\x17" * 64, 1, INVALID, INVALID, INVALID, INVALID),
        ("nothing", b"", 1, INVALID, INVALID, INVALID, INVALID),
    )  # fmt: skip
    for name, payload, count, kafka, kafka_compressed, zhumq, validated in cases:
        yield BadBatch(
            name=name,
            data=batch(payload, now_ms=now_ms, count=count),
            kafka=kafka,
            zhumq=zhumq,
            validated=validated,
        )
        section = bytes(compress(Compression.LZ4, payload))
        yield BadBatch(
            name=f"{name}, compressed",
            data=batch(section, now_ms=now_ms, count=count, codec=Compression.LZ4),
            kafka=kafka_compressed,
            zhumq=zhumq,
            validated=validated,
        )
    yield BadBatch(
        name="no key",
        data=batch(record(key=b"\x01"), now_ms=now_ms),
        kafka=INVALID,
        zhumq=INVALID,
        validated=NONE,
        topic="compacted",
    )


def _bad_payloads(now_ms: int) -> Iterator[BadBatch]:
    """Payloads that a codec cannot decompress, and payloads with trailing bytes."""
    exceptions = {
        (Compression.GZIP, "rubbish behind the payload"): NONE,
        (Compression.LZ4, "rubbish behind the payload"): NONE,
        (Compression.ZSTD, "an empty payload"): INVALID,
    }
    for codec in CODECS:
        one, forty = (bytes(compress(codec, record() * count)) for count in (1, 40))
        payloads = {
            "rubbish instead of a payload": (b"\x17" * 40, 1),
            "an empty payload": (b"", 1),
            "a payload that is not compressed": (record(), 1),
            "a payload that is cut off": (forty[:-5], 40),
            "rubbish behind the payload": (one + b"\x17" * 9, 1),
        }
        for name, (payload, count) in payloads.items():
            yield BadBatch(
                name=f"{codec.name.lower()}: {name}",
                data=batch(payload, now_ms=now_ms, codec=codec, count=count),
                kafka=exceptions.get((codec, name), UNKNOWN),
                zhumq=INVALID,
                validated=INVALID,
            )
        yield BadBatch(
            name=f"{codec.name.lower()}: 2^31-1 records",
            data=batch(one, now_ms=now_ms, codec=codec, count=COUNT_MAX),
            kafka=INVALID,
            zhumq=INVALID,
            validated=INVALID,
        )

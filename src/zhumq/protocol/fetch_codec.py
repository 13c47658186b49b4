"""Hand-written encoders of Fetch responses: one pack per partition, file regions between joined bytes."""

import struct
from functools import cache
from typing import Any

from zhumq.protocol.compiler import Encode, compile_encoder, use_encoder
from zhumq.protocol.messages.fetch import FetchableTopicResponse, FetchResponse
from zhumq.protocol.primitives import SMALL_UVARINTS, encode_uvarint

UNTUNED_VERSIONS = range(4, 11)
LEGACY_VERSION = 11  # the last that is not flexible, used by older clients
FLEXIBLE_VERSIONS = range(12, 19)
ID_VERSION_MIN = 13  # topics by id from this version on
ENDPOINTS_VERSION_MIN = 16

# Records up to this size are cheaper to copy into the bytes around them than to send on their own.
RECORDS_BYTES_JOINED_MAX = 4096

# | index i32 | error i16 | high watermark i64 | last stable i64 | log start i64 | aborted i32 | preferred i32 | records length i32 |
_LEGACY_PARTITION = struct.Struct(">ihqqqiii")
# The same with the number of aborted transactions compact; the records' length follows as a varint.
_PARTITION = struct.Struct(">ihqqqBi")
_LEGACY_HEAD = struct.Struct(
    ">ihii"
)  # | throttle time i32 | error i16 | session id i32 | topics i32 |
_HEAD = struct.Struct(">ihi")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_NO_TAGS = b"\x00"

_generated_encoder = cache(compile_encoder)


def install() -> None:
    """Replaces the generated functions by these, which all leave joined parts."""
    for version in UNTUNED_VERSIONS:
        use_encoder(FetchResponse, version, _joining_encoder(version))
    use_encoder(FetchResponse, LEGACY_VERSION, _encode_legacy)
    for version in FLEXIBLE_VERSIONS:
        use_encoder(FetchResponse, version, _flexible_encoder(version))


def join_parts(parts: list[Any]) -> None:
    """Joins neighbouring bytes in place; large bytes and other objects stay as they are."""
    joined: list[Any] = []
    run: list[bytes] = []
    for part in parts:
        length = len(part)
        if type(part) is bytes and length <= RECORDS_BYTES_JOINED_MAX:
            run.append(part)
        elif length:
            joined += (b"".join(run), part)
            run = []
    if run:
        joined.append(b"".join(run))
    parts[:] = joined


def _joining_encoder(version: int) -> Encode:
    def encode(response: FetchResponse, parts: list[Any]) -> None:
        _generated_encoder(FetchResponse, version)(response, parts)
        join_parts(parts)

    return encode


def _encode_legacy(response: FetchResponse, parts: list[Any]) -> None:
    topics = response.responses
    run: list[Any] = [
        _LEGACY_HEAD.pack(
            response.throttle_time_ms, response.error_code, response.session_id, len(topics)
        )
    ]
    for topic in topics:
        name = topic.topic.encode()
        run += (_INT16.pack(len(name)), name, _INT32.pack(len(topic.partitions)))
        for partition in topic.partitions:
            aborted = partition.aborted_transactions
            records = partition.records
            if aborted or records is None:
                parts.clear()
                _joining_encoder(LEGACY_VERSION)(response, parts)
                return
            size = len(records)
            run.append(
                _LEGACY_PARTITION.pack(
                    partition.partition_index,
                    partition.error_code,
                    partition.high_watermark,
                    partition.last_stable_offset,
                    partition.log_start_offset,
                    -1 if aborted is None else 0,
                    partition.preferred_read_replica,
                    size,
                )
            )
            if type(records) is bytes and size <= RECORDS_BYTES_JOINED_MAX:
                run.append(records)
            elif size:
                parts += (b"".join(run), records)
                run = []
    if run:
        parts.append(b"".join(run))


def _flexible_encoder(version: int) -> Encode:
    by_id = version >= ID_VERSION_MIN
    has_endpoints = version >= ENDPOINTS_VERSION_MIN

    def encode(response: FetchResponse, parts: list[Any]) -> None:
        topics = response.responses
        if has_endpoints and response.node_endpoints:
            _joining_encoder(version)(response, parts)
            return
        count = len(topics) + 1
        run: list[Any] = [
            _HEAD.pack(response.throttle_time_ms, response.error_code, response.session_id),
            SMALL_UVARINTS[count] if count < 128 else encode_uvarint(count),
        ]
        for topic in topics:
            partitions = topic.partitions
            count = len(partitions) + 1
            run += (
                topic.topic_id.bytes if by_id else _compact_name(topic),
                SMALL_UVARINTS[count] if count < 128 else encode_uvarint(count),
            )
            for partition in partitions:
                aborted = partition.aborted_transactions
                records = partition.records
                if (
                    aborted
                    or records is None
                    or partition.diverging_epoch is not None
                    or partition.current_leader is not None
                    or partition.snapshot_id is not None
                ):
                    # Rare, so the generated code encodes the whole response.
                    parts.clear()
                    _joining_encoder(version)(response, parts)
                    return
                size = len(records)
                run += (
                    _PARTITION.pack(
                        partition.partition_index,
                        partition.error_code,
                        partition.high_watermark,
                        partition.last_stable_offset,
                        partition.log_start_offset,
                        0 if aborted is None else 1,
                        partition.preferred_read_replica,
                    ),
                    SMALL_UVARINTS[size + 1] if size < 127 else encode_uvarint(size + 1),
                )
                if type(records) is bytes and size <= RECORDS_BYTES_JOINED_MAX:
                    run += (records, _NO_TAGS)
                elif size:
                    parts += (b"".join(run), records)
                    run = [_NO_TAGS]
                else:
                    run.append(_NO_TAGS)
            run.append(_NO_TAGS)
        run.append(_NO_TAGS)
        parts.append(b"".join(run))

    return encode


def _compact_name(topic: FetchableTopicResponse) -> bytes:
    name = topic.topic.encode()
    return encode_uvarint(len(name) + 1) + name

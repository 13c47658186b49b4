"""Fast path of Produce: reads and answers the most common request without creating messages."""

import struct
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

from zhumq.model.buffers import COPIED_BYTES_MAX
from zhumq.protocol.compiler import Encode, compile_encoder, use_encoder
from zhumq.protocol.messages.produce import ProduceResponse
from zhumq.protocol.primitives import (
    BAD_BYTES,
    INT32,
    SMALL_UVARINTS,
    decode_uvarint,
    encode_uvarint,
)

LEGACY_VERSIONS = range(3, 9)
NAMED_VERSIONS = range(9, 13)  # flexible, topics by name
ID_VERSION = 13  # flexible, topics by id

# | api key i16 | version i16 | correlation id i32 | client id length i16 | client id | tags u8 if flexible |
_REQUEST_HEADER = struct.Struct(">hhih")
_CORRELATION_AT = 4
_CLIENT_AT = 8
_CLIENT_ID_AT = 10
_read_correlation_id = INT32.unpack_from
# Legacy: | transactional id length -1 i16 | acks i16 | timeout i32 | topics i32 | name length i16 | name ...
_LEGACY_HEAD = struct.Struct(">hhiih")
# ... | partitions i32 | index i32 | records length i32 | records |
_LEGACY_PARTITION = struct.Struct(">iii")
# Flexible: | transactional id length 0 u8 | acks i16 | timeout i32 | topics + 1 u8 | name length + 1 u8 | name ...
_NAMED_HEAD = struct.Struct(">BhiBB")
# ... | partitions + 1 u8 | index i32 | records length + 1, its first byte u8 | ... | records | tags u8 x 3 |
_PARTITION = struct.Struct(">BiB")
# With an id instead of the name, all of that has a fixed size.
_ID_HEAD = struct.Struct(">BhiB16sBiB")
_NO_TAGS = b"\x00\x00\x00"  # of the partition, the topic and the request

# | index i32 | error i16 | base offset i64 | append time i64 | log start i64 | record errors + 1 u8 | message u8 | tags u8 |
_RESULT = struct.Struct(">ihqqqBBB")
_END = struct.Struct(">ix")  # | throttle time i32 | tags u8 |
# A whole answer about one partition: | size i32 | correlation id i32 | tags u8 | topics + 1 u8 | topic |
# | partitions + 1 u8 | result | topic's tags u8 | throttle time i32 | tags u8 |
_ONE = ">iixB{topic}BihqqqBBBxix"
# Legacy: | size i32 | correlation id i32 | topics i32 | name length i16 | name | partitions i32 | index i32 | error i16 |
# | base offset i64 | append time i64 | log start i64 | record errors i32 | message length -1 i16 | throttle time i32 |,
# some of them only from these versions on.
_LEGACY_ONE = ">iiih{topic}iihqq{log_start}{record_errors}i"
LOG_START_SINCE_VERSION = 5
RECORD_ERRORS_SINCE_VERSION = 8
ENCODERS_REMEMBERED_MAX = 4_096  # one for each partition that is written to

_generated_encoder = cache(compile_encoder)


def install() -> None:
    """Replaces the generated encoders by these."""
    for version in (*NAMED_VERSIONS, ID_VERSION):
        use_encoder(ProduceResponse, version, _response_encoder(version))


# Version, correlation id, acks, timeout, the topic's name or id as sent, partition, records.
Records = bytes | memoryview
OneProduce = tuple[int, int, int, int, bytes, int, Records]


def parse_one(frame: bytes) -> OneProduce | None:
    """A Produce request about one partition and outside of transactions, read without creating
    messages. None for every other request, also for a malformed one."""
    try:
        _, version, correlation_id, length = _REQUEST_HEADER.unpack_from(frame)
        position = _REQUEST_HEADER.size + max(length, 0)
        if version in LEGACY_VERSIONS:
            found = _find_legacy(frame, position)
        elif frame[position]:
            return None  # Tagged fields in a header, which no known client sends.
        elif version in NAMED_VERSIONS:
            found = _find_named(frame, position + 1)
        elif version == ID_VERSION:
            found = _find_by_id(frame, position + 1)
        else:
            return None
    except BAD_BYTES:
        return None
    if found is None:
        return None
    acks, timeout_ms, topic, index, begin, end = found
    records = _cut(frame, begin, end)
    return version, correlation_id, acks, timeout_ms, topic, index, records


class ProduceRun(NamedTuple):
    """Requests that one client sent one after another, all about one partition."""

    first: bytes  # its frame
    version: int
    acks: int
    timeout_ms: int
    topic: bytes
    partition: int
    correlation_ids: list[int]
    records: list[Records]

    @property
    def client_id(self) -> str | None:
        """Decoded only where it is asked for. Bytes that are no text are replaced."""
        _, _, _, length = _REQUEST_HEADER.unpack_from(self.first)
        if length < 0:
            return None
        return self.first[_CLIENT_ID_AT : _CLIENT_ID_AT + length].decode(errors="replace")


def parse_run(frames: Sequence[bytes]) -> ProduceRun | None:
    """The leading frames that differ only in their correlation ids and their records. None if the
    first one is not a Produce request for one partition."""
    first = frames[0]
    one = parse_one(first)
    if one is None:
        return None
    version, correlation_id, acks, timeout_ms, topic, index, records = one
    ids = [correlation_id]
    run = ProduceRun(first, version, acks, timeout_ms, topic, index, ids, [records])
    if len(frames) == 1:
        return run
    legacy = version in LEGACY_VERSIONS
    trailer = b"" if legacy else _NO_TAGS
    end = len(first) - len(trailer)
    begin = end - len(records)
    # Only the length of the records is between what all frames share and the records.
    length_at = begin - (4 if legacy else len(encode_uvarint(len(records) + 1)))
    key_and_version = first[:_CORRELATION_AT]
    shared = first[_CLIENT_AT:length_at]
    shared_with_length = first[_CLIENT_AT:begin]
    size = len(first)
    for frame in frames[1:]:
        if not frame.startswith(key_and_version):
            break
        if (
            len(frame) == size
            and frame[_CLIENT_AT:begin] == shared_with_length
            and frame.endswith(trailer)
        ):
            run.records.append(_cut(frame, begin, end))
        elif frame[_CLIENT_AT:length_at] == shared and (other := parse_one(frame)) is not None:
            run.records.append(other[-1])
        else:
            break
        run.correlation_ids.append(_read_correlation_id(frame, _CORRELATION_AT)[0])
    return run


def _cut(frame: bytes, begin: int, end: int) -> Records:
    """A part of a frame."""
    if end - begin <= COPIED_BYTES_MAX:
        return frame[begin:end]
    return memoryview(frame)[begin:end]


# Acks, timeout, topic, partition, begin and end of the records.
_Found = tuple[int, int, bytes, int, int, int]


def _find_legacy(frame: bytes, position: int) -> _Found | None:
    null, acks, timeout_ms, topics, length = _LEGACY_HEAD.unpack_from(frame, position)
    name_at = position + _LEGACY_HEAD.size
    at = name_at + length
    if null >= 0 or topics != 1 or length < 0:
        return None
    partitions, index, size = _LEGACY_PARTITION.unpack_from(frame, at)
    records_at = at + _LEGACY_PARTITION.size
    if partitions != 1 or size < 0 or records_at + size != len(frame):
        return None
    return acks, timeout_ms, frame[name_at:at], index, records_at, len(frame)


def _find_named(frame: bytes, position: int) -> _Found | None:
    null, acks, timeout_ms, topics, length = _NAMED_HEAD.unpack_from(frame, position)
    if null or topics != 2 or not 0 < length < 128:
        return None
    name_at = position + _NAMED_HEAD.size
    at = name_at + length - 1
    partitions, index, size = _PARTITION.unpack_from(frame, at)
    records_at = at + _PARTITION.size
    if size > 127:
        size, records_at = decode_uvarint(frame, records_at - 1)
    end = records_at + size - 1
    # Equal only if the records end three bytes before the frame does.
    if partitions != 2 or not size or frame[end : end + 4] != _NO_TAGS:
        return None
    return acks, timeout_ms, frame[name_at:at], index, records_at, end


def _find_by_id(frame: bytes, position: int) -> _Found | None:
    null, acks, timeout_ms, topics, topic_id, partitions, index, size = _ID_HEAD.unpack_from(
        frame, position
    )
    if null or topics != 2 or partitions != 2:
        return None
    records_at = position + _ID_HEAD.size
    if size > 127:
        size, records_at = decode_uvarint(frame, records_at - 1)
    end = records_at + size - 1
    if not size or frame[end : end + 4] != _NO_TAGS:
        return None
    return acks, timeout_ms, topic_id, index, records_at, end


def _response_encoder(version: int) -> Encode:
    by_id = version >= ID_VERSION

    def encode(response: ProduceResponse, parts: list[Any]) -> None:
        start = len(parts)
        count = len(response.responses) + 1
        parts.append(SMALL_UVARINTS[count] if count < 128 else encode_uvarint(count))
        for topic in response.responses:
            if by_id:
                parts.append(topic.topic_id.bytes)
            else:
                name = topic.name.encode()
                length = len(name) + 1
                parts += (SMALL_UVARINTS[length] if length < 128 else encode_uvarint(length), name)
            results = topic.partition_responses
            count = len(results) + 1
            parts.append(SMALL_UVARINTS[count] if count < 128 else encode_uvarint(count))
            for result in results:
                if (
                    result.record_errors
                    or result.error_message is not None
                    or result.current_leader is not None
                ):
                    del parts[start:]
                    _generated_encoder(ProduceResponse, version)(response, parts)
                    return
                parts.append(
                    _RESULT.pack(
                        result.index,
                        result.error_code,
                        result.base_offset,
                        result.log_append_time_ms,
                        result.log_start_offset,
                        1,
                        0,
                        0,
                    )
                )
            parts.append(b"\x00")
        if response.node_endpoints:
            del parts[start:]
            _generated_encoder(ProduceResponse, version)(response, parts)
            return
        parts.append(_END.pack(response.throttle_time_ms))

    return encode


# Correlation id, base offset, append time, log start offset, throttle time.
EncodeOne = Callable[[int, int, int, int, int], bytes]


@lru_cache(ENCODERS_REMEMBERED_MAX)
def encoder_of_one(version: int, topic: bytes, index: int) -> EncodeOne:
    """Encodes the successful answers to such requests, with size and header."""
    if version in LEGACY_VERSIONS:
        return _legacy_encoder_of_one(version, topic, index)
    if version < ID_VERSION:
        topic = SMALL_UVARINTS[len(topic) + 1] + topic
    whole = struct.Struct(_ONE.format(topic=f"{len(topic)}s"))
    size = whole.size - 4
    pack = whole.pack
    return lambda correlation_id, base_offset, append_time_ms, log_start_offset, throttle_ms: pack(
        size,
        correlation_id,
        2,
        topic,
        2,
        index,
        0,
        base_offset,
        append_time_ms,
        log_start_offset,
        1,
        0,
        0,
        throttle_ms,
    )


def _legacy_encoder_of_one(version: int, topic: bytes, index: int) -> EncodeOne:
    has_log_start = version >= LOG_START_SINCE_VERSION
    has_record_errors = version >= RECORD_ERRORS_SINCE_VERSION
    whole = struct.Struct(
        _LEGACY_ONE.format(
            topic=f"{len(topic)}s",
            log_start="q" if has_log_start else "",
            record_errors="ih" if has_record_errors else "",
        )
    )
    size = whole.size - 4
    pack = whole.pack
    no_errors = (0, -1) if has_record_errors else ()

    def encode(
        correlation_id: int,
        base_offset: int,
        append_time_ms: int,
        log_start_offset: int,
        throttle_ms: int,
    ) -> bytes:
        start = (log_start_offset,) if has_log_start else ()
        times = (base_offset, append_time_ms, *start, *no_errors, throttle_ms)
        return pack(size, correlation_id, 1, len(topic), topic, 1, index, 0, *times)

    return encode

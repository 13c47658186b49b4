"""Produce by hand: the shape nearly every request has is read in three steps, all else by the generated code."""

import struct
from functools import cache
from typing import Any

from zhumq.model.ids import ZERO_UUID
from zhumq.protocol.compiler import (
    Decode,
    Encode,
    compile_decoder,
    compile_encoder,
    use_decoder,
    use_encoder,
)
from zhumq.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from zhumq.protocol.primitives import (
    SMALL_UVARINTS,
    decode_uvarint,
    encode_uvarint,
    uuid_from_bytes,
)

LEGACY_VERSIONS = range(3, 9)
NAMED_VERSIONS = range(9, 13)  # flexible, topics by name
ID_VERSION = 13  # flexible, topics by id

# Legacy: | transactional id length -1 i16 | acks i16 | timeout i32 | topics i32 | name length i16 | name ...
_LEGACY_HEAD = struct.Struct(">hhiih")
# ... | partitions i32 | index i32 | records length i32 | records |
_LEGACY_PARTITION = struct.Struct(">iii")
# Flexible: | transactional id length 0 u8 | acks i16 | timeout i32 | topics + 1 u8 | name length + 1 u8 | name ...
_NAMED_HEAD = struct.Struct(">BhiBB")
# ... | partitions + 1 u8 | index i32 | records length + 1, its first byte u8 | ... | records | tags u8 x 3 |
_PARTITION = struct.Struct(">BiB")
# With an id in the place of the name all of that has one size.
_ID_HEAD = struct.Struct(">BhiB16sBiB")
_NO_TAGS = b"\x00\x00\x00"  # of the partition, the topic and the request

# | index i32 | error i16 | base offset i64 | append time i64 | log start i64 | record errors + 1 u8 | message u8 | tags u8 |
_RESULT = struct.Struct(">ihqqqBBB")
_END = struct.Struct(">ix")  # | throttle time i32 | tags u8 |
# A whole answer about one partition: | size i32 | correlation id i32 | tags u8 | topics + 1 u8 | topic ...
_ONE_HEAD = struct.Struct(">iixB")
# ... | partitions + 1 u8 | result | topic's tags u8 | throttle time i32 | tags u8 |
_ONE_TAIL = struct.Struct(">BihqqqBBBxix")
# Legacy: | size i32 | correlation id i32 | topics i32 | name length i16 | name ...
_LEGACY_ONE_HEAD = struct.Struct(">iiih")
# ... | partitions i32 | index i32 | error i16 | base offset i64 | append time i64 | log start i64 |
# | record errors i32 | message length -1 i16 | throttle time i32 |, the later ones since these versions.
LOG_START_SINCE_VERSION = 5
RECORD_ERRORS_SINCE_VERSION = 8
_LEGACY_TAILS = {
    version: struct.Struct(
        ">iihqq"
        + ("q" if version >= LOG_START_SINCE_VERSION else "")
        + ("ih" if version >= RECORD_ERRORS_SINCE_VERSION else "")
        + "i"
    )
    for version in LEGACY_VERSIONS
}

_generated_decoder = cache(compile_decoder)
_generated_encoder = cache(compile_encoder)
_new = object.__new__


def install() -> None:
    """Puts these functions in the place of the generated ones."""
    for version in LEGACY_VERSIONS:
        use_decoder(ProduceRequest, version, _legacy_decoder(version))
    for version in NAMED_VERSIONS:
        use_decoder(ProduceRequest, version, _named_decoder(version))
        use_encoder(ProduceResponse, version, _response_encoder(version))
    use_decoder(ProduceRequest, ID_VERSION, _decode_with_id)
    use_encoder(ProduceResponse, ID_VERSION, _response_encoder(ID_VERSION))


def _one_partition(
    acks: int, timeout_ms: int, topic: TopicProduceData, index: int, records: memoryview
) -> ProduceRequest:
    data = _new(PartitionProduceData)
    data.index = index
    data.records = records
    topic.partition_data = [data]
    request = _new(ProduceRequest)
    request.transactional_id = None
    request.acks = acks
    request.timeout_ms = timeout_ms
    request.topic_data = [topic]
    return request


def _legacy_decoder(version: int) -> Decode:
    def decode(frame: bytes, position: int) -> tuple[Any, int]:
        end = len(frame)
        if end - position > _LEGACY_HEAD.size:
            null, acks, timeout_ms, topics, length = _LEGACY_HEAD.unpack_from(frame, position)
            name_at = position + _LEGACY_HEAD.size
            at = name_at + length
            records_at = at + _LEGACY_PARTITION.size
            if null < 0 and topics == 1 and length >= 0 and records_at <= end:
                partitions, index, size = _LEGACY_PARTITION.unpack_from(frame, at)
                if partitions == 1 and records_at + size == end and size >= 0:
                    topic = _new(TopicProduceData)
                    topic.name = frame[name_at:at].decode()
                    topic.topic_id = ZERO_UUID
                    records = memoryview(frame)[records_at:]
                    return _one_partition(acks, timeout_ms, topic, index, records), end
        return _generated_decoder(ProduceRequest, version)(frame, position)

    return decode


def _named_decoder(version: int) -> Decode:
    def decode(frame: bytes, position: int) -> tuple[Any, int]:
        null, acks, timeout_ms, topics, length = _NAMED_HEAD.unpack_from(frame, position)
        if null == 0 and topics == 2 and 0 < length < 128:
            name_at = position + 9
            at = name_at + length - 1
            if at + 9 <= len(frame):
                partitions, index, size = _PARTITION.unpack_from(frame, at)
                records_at = at + 6
                if size > 127:
                    size, records_at = decode_uvarint(frame, at + 5)
                end = records_at + size - 1
                # Equal only if the records end three bytes before the frame does.
                if partitions == 2 and size and frame[end : end + 4] == _NO_TAGS:
                    topic = _new(TopicProduceData)
                    topic.name = frame[name_at:at].decode()
                    topic.topic_id = ZERO_UUID
                    records = memoryview(frame)[records_at:end]
                    return _one_partition(acks, timeout_ms, topic, index, records), end + 3
        return _generated_decoder(ProduceRequest, version)(frame, position)

    return decode


def _decode_with_id(frame: bytes, position: int) -> tuple[Any, int]:
    if len(frame) - position >= _ID_HEAD.size + len(_NO_TAGS):
        null, acks, timeout_ms, topics, topic_id, partitions, index, size = _ID_HEAD.unpack_from(
            frame, position
        )
        if null == 0 and topics == 2 and partitions == 2:
            records_at = position + _ID_HEAD.size
            if size > 127:
                size, records_at = decode_uvarint(frame, records_at - 1)
            end = records_at + size - 1
            if size and frame[end : end + 4] == _NO_TAGS:
                topic = _new(TopicProduceData)
                topic.name = ""
                topic.topic_id = uuid_from_bytes(topic_id)
                records = memoryview(frame)[records_at:end]
                return _one_partition(acks, timeout_ms, topic, index, records), end + 3
    return _generated_decoder(ProduceRequest, ID_VERSION)(frame, position)


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


def encode_one_success(
    version: int,
    correlation_id: int,
    topic: TopicProduceData,
    index: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
) -> bytes:
    """The answer nearly every request gets, size and header included."""
    if version in LEGACY_VERSIONS:
        name = topic.name.encode()
        tail = _LEGACY_TAILS[version]
        size = _LEGACY_ONE_HEAD.size - 4 + len(name) + tail.size
        head = _LEGACY_ONE_HEAD.pack(size, correlation_id, 1, len(name))
        if version < LOG_START_SINCE_VERSION:
            return head + name + tail.pack(1, index, 0, base_offset, log_append_time_ms, 0)
        if version < RECORD_ERRORS_SINCE_VERSION:
            rest = tail.pack(1, index, 0, base_offset, log_append_time_ms, log_start_offset, 0)
        else:
            rest = tail.pack(
                1, index, 0, base_offset, log_append_time_ms, log_start_offset, 0, -1, 0
            )
        return head + name + rest
    if version >= ID_VERSION:
        name = topic.topic_id.bytes
    else:
        encoded = topic.name.encode()
        length = len(encoded) + 1
        name = (SMALL_UVARINTS[length] if length < 128 else encode_uvarint(length)) + encoded
    size = _ONE_HEAD.size - 4 + len(name) + _ONE_TAIL.size
    return (
        _ONE_HEAD.pack(size, correlation_id, 2)
        + name
        + _ONE_TAIL.pack(2, index, 0, base_offset, log_append_time_ms, log_start_offset, 1, 0, 0, 0)
    )

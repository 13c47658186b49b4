"""The generated functions: round trips of every message, and errors for bytes that are not a message."""

import random
import struct

import pytest
from protocol_samples import all_versions, encode_body, sample

from zhumq.model.errors import MalformedFrame
from zhumq.protocol.compiler import compile_encoder, decode_message, encoder
from zhumq.protocol.messages.configs import DescribableLogDirTopic, DescribeLogDirsRequest
from zhumq.protocol.messages.fetch import FetchRequest, FetchTopic
from zhumq.protocol.messages.groups import JoinGroupRequest, JoinGroupResponse
from zhumq.protocol.messages.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    Cursor,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from zhumq.protocol.messages.produce import ProduceRequest
from zhumq.protocol.primitives import encode_uvarint
from zhumq.protocol.schema import KeptList, Message
from zhumq.protocol.source import ELEMENTS_MAX

EVERY_MESSAGE = list(all_versions())
SEED = 20_240_607


def refused(cls: type[Message], version: int, body: bytes) -> str:
    with pytest.raises(MalformedFrame) as caught:
        decode_message(cls, version, body, 0)
    return str(caught.value)


def test_every_message_comes_back_as_it_was_written_in_every_version() -> None:
    for cls, version in EVERY_MESSAGE:
        for elements in (0, 1, 2):
            message = sample(cls, version, elements)
            assert decode_message(cls, version, encode_body(message, version), 0) == message


def test_a_kept_list_is_encoded_as_a_plain_one_and_once_by_each_version() -> None:
    kept: dict[int, bytes] = {}
    for cls, version in EVERY_MESSAGE:
        if cls is MetadataResponse:
            response = sample(cls, version, 2)
            plain = encode_body(response, version)
            for topic in response.topics:
                topic.partitions = KeptList(topic.partitions)
            assert encode_body(response, version) == plain
            for topic in response.topics:
                topic.partitions.clear()
            assert encode_body(response, version) == plain
            kept |= response.topics[0].partitions.encodings
    assert len(kept) > 10


def test_the_defaults_of_every_message_come_back_in_every_version() -> None:
    for cls, version in EVERY_MESSAGE:
        assert decode_message(cls, version, encode_body(cls(), version), 0) == cls()


def test_a_message_cut_off_at_any_byte_is_malformed() -> None:
    for cls, version in EVERY_MESSAGE:
        body = encode_body(sample(cls, version), version)
        for size in range(len(body)):
            with pytest.raises(MalformedFrame):
                decode_message(cls, version, body[:size], 0)


def test_bytes_after_the_end_of_a_message_are_malformed() -> None:
    for cls, version in EVERY_MESSAGE:
        body = encode_body(sample(cls, version), version)
        with pytest.raises(MalformedFrame):
            decode_message(cls, version, body + b"\x00", 0)


def test_damaged_bytes_are_read_or_refused_and_nothing_else() -> None:
    draw = random.Random(SEED)
    for cls, version in EVERY_MESSAGE:
        body = encode_body(sample(cls, version), version)
        for _ in range(40 if body else 0):
            damaged = bytearray(body)
            for _ in range(draw.randint(1, 3)):
                damaged[draw.randrange(len(damaged))] = draw.choice((0, 1, 0x7F, 0x80, 0xFF))
            _read_or_refuse(cls, version, bytes(damaged))


def test_random_bytes_are_read_or_refused_and_nothing_else() -> None:
    draw = random.Random(SEED)
    for cls, version in EVERY_MESSAGE:
        for _ in range(40):
            _read_or_refuse(cls, version, draw.randbytes(draw.randint(0, 60)))


def _read_or_refuse(cls: type[Message], version: int, body: bytes) -> None:
    try:
        message = decode_message(cls, version, body, 0)
    except MalformedFrame:
        return
    # What was read can be written again.
    encode_body(message, version)


@pytest.mark.parametrize("length", [2**31 - 1, 1_000_000, 13])
def test_a_string_longer_than_the_frame_is_refused(length: int) -> None:
    if length <= 0x7FFF:
        assert "past the end" in refused(JoinGroupRequest, 0, struct.pack(">h", length) + b"g")
    compact = encode_uvarint(length + 1) + b"g"
    assert refused(JoinGroupRequest, 6, compact)


def test_a_compact_string_is_held_to_the_size_of_a_legacy_one() -> None:
    whole = "x" * 0x7FFF
    body = encode_body(JoinGroupRequest(group_id=whole), 6)
    assert decode_message(JoinGroupRequest, 6, body, 0).group_id == whole
    body = encode_body(JoinGroupRequest(group_id=whole + "x"), 6)
    assert "too long" in refused(JoinGroupRequest, 6, body)


@pytest.mark.parametrize("count", [2**31 - 1, 1_000_000, 4])
def test_an_array_that_claims_more_elements_than_fit_the_frame_is_refused(count: int) -> None:
    legacy = struct.pack(">i", count) + bytes(4)
    assert "too many" in refused(MetadataRequest, 1, legacy)
    compact = encode_uvarint(count + 1) + bytes(4)
    assert "too many" in refused(MetadataRequest, 9, compact)
    numbers = struct.pack(">h1si", 1, b"t", count) + bytes(8)
    assert "too many" in refused(FetchTopic, 4, numbers)


def test_a_message_of_more_elements_than_the_bound_is_refused_before_they_are_made() -> None:
    body = encode_uvarint(ELEMENTS_MAX + 2) + b"\x01\x00" * (ELEMENTS_MAX + 1) + b"\x00\x00\x00"
    assert "array elements" in refused(MetadataRequest, 9, body)


def test_nested_arrays_share_one_bound() -> None:
    topic = DescribableLogDirTopic(topic="t", partitions=[0] * (ELEMENTS_MAX // 100))
    whole = DescribeLogDirsRequest(topics=[topic] * 99)
    assert decode_message(DescribeLogDirsRequest, 2, encode_body(whole, 2), 0) == whole
    beyond = DescribeLogDirsRequest(topics=[topic] * 100)
    assert "array elements" in refused(DescribeLogDirsRequest, 2, encode_body(beyond, 2))


def test_a_varint_of_more_than_five_bytes_is_refused() -> None:
    assert "varint" in refused(MetadataRequest, 9, b"\xff" * 1000)
    assert "varint" in refused(ApiVersionsRequest, 3, b"\x80" * 5 + b"\x01")
    assert "32 bits" in refused(ApiVersionsRequest, 3, b"\xff\xff\xff\xff\x7f")


def test_null_where_the_version_has_no_null_is_refused() -> None:
    assert "null" in refused(MetadataRequest, 0, b"\xff\xff\xff\xff")
    assert decode_message(MetadataRequest, 1, b"\xff\xff\xff\xff", 0).topics is None
    assert "null" in refused(JoinGroupRequest, 0, b"\xff\xff")
    assert "null" in refused(JoinGroupRequest, 6, b"\x00")


def test_text_that_is_not_utf_8_is_refused() -> None:
    assert refused(JoinGroupRequest, 0, b"\x00\x02\xff\xfe" + bytes(20))


def test_unknown_tagged_fields_are_skipped() -> None:
    known = encode_body(ApiVersionsRequest(client_software_name="a"), 3)
    assert known[-1:] == b"\x00"
    with_tags = known[:-1] + b"\x02" + b"\x05\x03abc" + b"\xff\x01\x00"
    assert decode_message(ApiVersionsRequest, 3, with_tags, 0).client_software_name == "a"


def test_unknown_tags_between_known_ones_are_skipped() -> None:
    body = encode_body(FetchRequest(cluster_id="c"), 12)
    head, tags = body[:-5], body[-5:]
    assert tags == b"\x01\x00\x02\x02c"
    mixed = head + b"\x03" + b"\x07\x01x" + tags[1:] + b"\x63\x00"
    assert decode_message(FetchRequest, 12, mixed, 0) == FetchRequest(cluster_id="c")


@pytest.mark.parametrize("size", [1, 3, 40, 0xFFFFFFFF])
def test_a_tagged_field_whose_size_lies_is_refused(size: int) -> None:
    body = encode_body(FetchRequest(cluster_id="c"), 12)
    lying = body[:-5] + b"\x01\x00" + encode_uvarint(size) + b"\x02c"
    assert refused(FetchRequest, 12, lying)


def test_a_claim_of_four_billion_tagged_fields_is_refused() -> None:
    known = encode_body(ApiVersionsRequest(client_software_name="a"), 3)
    assert refused(ApiVersionsRequest, 3, known[:-1] + b"\xff\xff\xff\xff\x0f" + b"\x05\x00" * 8)


def test_a_tagged_field_with_its_default_does_not_travel() -> None:
    plain = encode_body(ApiVersionsResponse(), 3)
    assert encode_body(ApiVersionsResponse(finalized_features_epoch=-1), 3) == plain
    assert len(encode_body(ApiVersionsResponse(finalized_features_epoch=4), 3)) == len(plain) + 10


def test_a_nullable_struct_has_a_byte_before_it() -> None:
    absent = encode_body(DescribeTopicPartitionsRequest(), 0)
    assert absent == b"\x01" + struct.pack(">i", 2000) + b"\xff" + b"\x00"
    cursor = Cursor(topic_name="t", partition_index=5)
    present = encode_body(DescribeTopicPartitionsRequest(cursor=cursor), 0)
    assert present == b"\x01" + struct.pack(">i", 2000) + b"\x01\x02t\x00\x00\x00\x05\x00" + b"\x00"
    assert decode_message(DescribeTopicPartitionsRequest, 0, present, 0).cursor == cursor


def test_a_field_the_version_does_not_know_is_left_out() -> None:
    new = MetadataResponse(cluster_id="c", controller_id=4, throttle_time_ms=9)
    old = decode_message(MetadataResponse, 0, encode_body(new, 0), 0)
    assert old == MetadataResponse()


def test_none_where_the_version_has_no_null_is_written_as_empty() -> None:
    for version in range(7):
        response = JoinGroupResponse(protocol_name=None)
        body = encode_body(response, version)
        assert decode_message(JoinGroupResponse, version, body, 0).protocol_name == ""
    body = encode_body(MetadataRequest(topics=None), 0)
    assert decode_message(MetadataRequest, 0, body, 0).topics == []
    topic = MetadataResponseTopic(name=None)
    body = encode_body(MetadataResponse(topics=[topic]), 9)
    assert decode_message(MetadataResponse, 9, body, 0).topics[0].name == ""


def test_records_are_a_view_of_the_frame() -> None:
    body = encode_body(sample(ProduceRequest, 3), 3)
    request = decode_message(ProduceRequest, 3, body, 0)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is body


def test_functions_are_made_once_for_a_version() -> None:
    assert encoder(MetadataRequestTopic, 9) is encoder(MetadataRequestTopic, 9)
    assert compile_encoder(MetadataRequestTopic, 9) is not encoder(MetadataRequestTopic, 9)

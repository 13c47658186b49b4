"""Keys, versions and headers, with the known traps of the protocol."""

import struct
import uuid
from collections.abc import Sized

import pytest
from protocol_samples import sample

from zhumq.model.errors import ErrorCode, MalformedFrame
from zhumq.protocol.api import (
    APIS,
    OWN_KEY_MIN,
    ApiKey,
    RequestHeader,
    UnsupportedApiVersion,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from zhumq.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from zhumq.protocol.messages.metadata import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
)

# key: (first version, last version, first flexible version), as a Kafka 4.3 broker has them.
KAFKA_VERSIONS = {
    0: (3, 13, 9), 1: (4, 18, 12), 2: (1, 11, 6), 3: (0, 13, 9), 8: (2, 10, 8), 9: (1, 10, 6),
    10: (0, 6, 3), 11: (0, 9, 6), 12: (0, 4, 4), 13: (0, 5, 4), 14: (0, 5, 4), 15: (0, 6, 5),
    16: (0, 5, 3), 17: (0, 1, 2), 18: (0, 4, 3), 19: (2, 7, 5), 20: (1, 6, 4), 21: (0, 2, 2),
    22: (0, 6, 2),  # 6 is KIP-939
    23: (2, 4, 4), 24: (0, 5, 3), 25: (0, 4, 3), 26: (0, 5, 3), 27: (1, 2, 1), 28: (0, 5, 3), 29: (1, 3, 2),
    30: (1, 3, 2), 31: (1, 3, 2), 32: (1, 4, 4), 33: (0, 2, 2), 35: (1, 5, 2), 36: (0, 2, 2), 37: (0, 3, 2),
    42: (0, 2, 2),
    43: (0, 2, 2), 44: (0, 1, 1), 45: (0, 1, 0), 46: (0, 0, 0), 47: (0, 0, 1), 48: (0, 1, 1), 49: (0, 1, 1),
    50: (0, 0, 0), 51: (0, 0, 0), 60: (0, 2, 0), 61: (0, 0, 0), 65: (0, 0, 0), 66: (0, 2, 0),
    68: (0, 1, 0), 69: (0, 1, 0), 74: (0, 1, 0), 75: (0, 0, 0),
    76: (1, 1, 1), 77: (1, 1, 1), 78: (1, 2, 1), 79: (1, 2, 1), 90: (0, 1, 0), 91: (0, 0, 0), 92: (0, 0, 0),
}  # fmt: skip


class Region:
    """Stands for a stretch of a file."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size


def whole(parts: list[Sized]) -> bytes:
    return b"".join(bytes(part.size) if isinstance(part, Region) else part for part in parts)


def test_the_versions_are_those_of_a_kafka_broker() -> None:
    ours = {
        int(key): (spec.min_version, spec.max_version, spec.flexible_from)
        for key, spec in APIS.items()
        if key < OWN_KEY_MIN
    }
    assert ours == KAFKA_VERSIONS


def test_requests_and_responses_of_an_api_agree() -> None:
    for key, spec in APIS.items():
        assert spec.key == key
        assert spec.request.__declared__ == spec.response.__declared__
        assert spec.request.__name__.removesuffix("Request") == spec.response.__name__.removesuffix(
            "Response"
        )


def test_produce_is_advertised_from_version_0_but_read_from_3() -> None:
    assert APIS[ApiKey.PRODUCE].advertised_min_version == 0
    assert APIS[ApiKey.PRODUCE].min_version == 3
    assert APIS[ApiKey.FETCH].advertised_min_version == 4
    for version in range(3):
        with pytest.raises(UnsupportedApiVersion):
            decode_request(struct.pack(">hhih", 0, version, 1, -1) + bytes(20))


def test_the_gates_of_librdkafka_are_open() -> None:
    produce, fetch = APIS[ApiKey.PRODUCE], APIS[ApiKey.FETCH]
    assert produce.max_version >= 7  # MsgVer2 needs 3, zstd needs 7
    assert fetch.max_version >= 10  # MsgVer2 needs 4, zstd needs 10
    assert ApiKey.INIT_PRODUCER_ID in APIS


def test_every_request_comes_back_with_its_header() -> None:
    for spec in APIS.values():
        for version in range(spec.min_version, spec.max_version + 1):
            for client_id in (None, "", "me", "ü" * 100):
                header = RequestHeader(spec.key, version, -7, client_id)
                body = sample(spec.request, version)
                frame = encode_request(header, body)
                assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
                assert decode_request(frame[4:]) == (header, body)


def test_every_response_comes_back_with_its_correlation_id() -> None:
    for spec in APIS.values():
        for version in range(spec.min_version, spec.max_version + 1):
            header = RequestHeader(spec.key, version, 2**31 - 1, None)
            body = sample(spec.response, version)
            frame = whole(encode_response(header, body))
            assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
            assert decode_response(spec.key, version, frame[4:]) == (2**31 - 1, body)


def test_the_client_id_is_a_legacy_string_in_flexible_headers_too() -> None:
    frame = encode_request(RequestHeader(ApiKey.METADATA, 12, 5, "me"), MetadataRequest())
    assert frame[4:17] == struct.pack(">hhih", 3, 12, 5, 2) + b"me" + b"\x00"


def test_tagged_fields_of_a_request_header_are_skipped() -> None:
    frame = encode_request(RequestHeader(ApiKey.METADATA, 12, 5, None), MetadataRequest())[4:]
    assert frame[10:11] == b"\x00"
    tagged = frame[:10] + b"\x01\x00\x03abc" + frame[11:]
    assert decode_request(tagged).body == MetadataRequest()


def test_the_apiversions_response_header_never_has_tagged_fields() -> None:
    for version in range(5):
        header = RequestHeader(ApiKey.API_VERSIONS, version, 9, None)
        response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, max_version=4)])
        frame = whole(encode_response(header, response))
        # The error code follows the correlation id at once.
        assert frame[4:10] == struct.pack(">ih", 9, 0)
        assert decode_response(18, version, frame[4:]) == (9, response)


def test_other_flexible_response_headers_have_tagged_fields() -> None:
    header = RequestHeader(ApiKey.HEARTBEAT, 4, 9, None)
    assert whole(encode_response(header, APIS[ApiKey.HEARTBEAT].response()))[4:9] == (
        struct.pack(">i", 9) + b"\x00"
    )


@pytest.mark.parametrize("version", [5, 99, 0x7FFF, -1])
def test_apiversions_in_an_unknown_version_is_answered_in_version_0(version: int) -> None:
    frame = struct.pack(">hhih", 18, version, 33, 3) + b"new" + b"unreadable bytes"
    with pytest.raises(UnsupportedApiVersion) as caught:
        decode_request(frame)
    header = caught.value.header
    assert header == RequestHeader(ApiKey.API_VERSIONS, version, 33, "new")
    answer = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)],
        throttle_time_ms=7,
    )
    frame = whole(encode_response(header, answer))
    assert frame == struct.pack(">iihihhh", 16, 33, 35, 1, 18, 0, 4)


def test_any_api_in_an_unknown_version_says_so_with_its_header() -> None:
    for spec in APIS.values():
        for version in (spec.min_version - 1, spec.max_version + 1):
            with pytest.raises(UnsupportedApiVersion) as caught:
                decode_request(struct.pack(">hhih", spec.key, version, 4, -1))
            assert caught.value.header == RequestHeader(spec.key, version, 4, None)
            assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_a_response_in_an_unknown_version_is_not_written() -> None:
    header = RequestHeader(ApiKey.HEARTBEAT, 77, 1, None)
    with pytest.raises(ValueError, match="77"):
        encode_response(header, APIS[ApiKey.HEARTBEAT].response())


@pytest.mark.parametrize("key", [4, 5, 6, 7, 38, 1000, -1, -32768])
def test_an_unknown_api_is_malformed_and_named(key: int) -> None:
    with pytest.raises(MalformedFrame, match=f"key {key}$"):
        decode_request(struct.pack(">hhih", key, 0, 1, -1))


def test_a_request_cut_off_at_any_byte_is_malformed() -> None:
    frame = encode_request(
        RequestHeader(ApiKey.API_VERSIONS, 3, 1, "me"),
        ApiVersionsRequest(client_software_name="n", client_software_version="v"),
    )[4:]
    assert decode_request(frame)
    for size in range(len(frame)):
        with pytest.raises(MalformedFrame):
            decode_request(frame[:size])


def test_a_client_id_that_lies_or_is_not_text_is_malformed() -> None:
    for length, client_id in ((100, b"me"), (2, b"\xff\xfe")):
        with pytest.raises(MalformedFrame):
            decode_request(struct.pack(">hhih", 18, 0, 1, length) + client_id)


@pytest.mark.parametrize("frame", [b"", b"\x00", b"\x00\x00\x00\x01"])
def test_a_response_that_is_cut_off_is_malformed(frame: bytes) -> None:
    with pytest.raises(MalformedFrame):
        decode_response(ApiKey.HEARTBEAT, 4, frame)


def fetch_response(*records: Sized | None) -> FetchResponse:
    partitions = [
        PartitionData(partition_index=index, high_watermark=8, records=part)
        for index, part in enumerate(records)
    ]
    topic = FetchableTopicResponse(topic="t", topic_id=uuid.UUID(int=5), partitions=partitions)
    return FetchResponse(session_id=4, responses=[topic])


@pytest.mark.parametrize("version", range(4, 19))
def test_a_file_region_is_handed_on_as_the_object_it_is(version: int) -> None:
    region, other = Region(70_000), Region(5)
    header = RequestHeader(ApiKey.FETCH, version, 1, None)
    parts = encode_response(header, fetch_response(region, b"", other))
    assert [part for part in parts if isinstance(part, Region)] == [region, other]
    frame = whole(parts)
    assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
    _, response = decode_response(ApiKey.FETCH, version, frame[4:])
    sizes = [len(partition.records) for partition in response.responses[0].partitions]
    assert sizes == [70_000, 0, 5]


@pytest.mark.parametrize("version", range(4, 19))
def test_large_records_are_not_copied_and_small_ones_are_joined(version: int) -> None:
    large, view = bytes(10_000), memoryview(b"12345")
    header = RequestHeader(ApiKey.FETCH, version, 1, None)
    parts = encode_response(header, fetch_response(b"small", large, view, None))
    assert [part for part in parts if part is large or part is view] == [large, view]
    assert len(parts) == 5
    _, response = decode_response(ApiKey.FETCH, version, whole(parts)[4:])
    records = [partition.records for partition in response.responses[0].partitions]
    assert records == [b"small", large, b"12345", None]


@pytest.mark.parametrize("version", range(4, 19))
def test_an_empty_region_takes_no_part(version: int) -> None:
    header = RequestHeader(ApiKey.FETCH, version, 1, None)
    parts = encode_response(header, fetch_response(Region(0), Region(0)))
    assert len(parts) == 1
    assert decode_response(ApiKey.FETCH, version, whole(parts)[4:])


@pytest.mark.parametrize("version", range(4, 19))
def test_rare_fields_late_in_a_fetch_response_do_not_spoil_what_came_before(version: int) -> None:
    region = Region(9000)
    message = fetch_response(region, b"abc", region)
    last = message.responses[0].partitions[2]
    last.aborted_transactions = [AbortedTransaction(producer_id=1, first_offset=2)]
    if version >= 12:
        last.current_leader = LeaderIdAndEpoch(leader_id=3, leader_epoch=4)
    parts = encode_response(RequestHeader(ApiKey.FETCH, version, 1, None), message)
    _, response = decode_response(ApiKey.FETCH, version, whole(parts)[4:])
    partitions = response.responses[0].partitions
    assert [len(partition.records) for partition in partitions] == [9000, 3, 9000]
    assert partitions[2].aborted_transactions == last.aborted_transactions
    assert partitions[2].current_leader == last.current_leader


def test_bytes_after_a_request_are_ignored_as_librdkafka_sends_them() -> None:
    # librdkafka 2.16 asks for all topics, and writes the list's length in four bytes instead of one.
    frame = bytes.fromhex("0003000d00000007000772646b61666b610000000000010000")
    request = decode_request(frame)
    assert request.header.api_key is ApiKey.METADATA
    assert request.body.topics is None

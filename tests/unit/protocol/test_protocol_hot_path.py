"""The hand-written functions for Produce and Fetch do exactly what the generated ones do."""

import random
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from protocol_samples import encode_body, sample

from zhumq.model.errors import MalformedFrame
from zhumq.protocol import api
from zhumq.protocol.compiler import compile_decoder, compile_encoder, decoder, encoder
from zhumq.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from zhumq.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from zhumq.protocol.primitives import BAD_BYTES
from zhumq.protocol.produce_codec import encode_one_success
from zhumq.protocol.schema import Message

SEED = 7
TOPIC_ID = uuid.UUID(int=99)
PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)

assert api.APIS  # importing it puts the hand-written functions in place


def produce_requests() -> Iterator[ProduceRequest]:
    """All shapes: of the common one and of every way to be not quite it."""
    for records in (None, b"", b"x", b"y" * 126, b"y" * 127, b"z" * 20_000):
        for name in ("", "t", "n" * 126, "n" * 127, "ü" * 80):
            for topics in (0, 1, 2):
                for partitions in (0, 1, 2):
                    yield ProduceRequest(
                        transactional_id="id" if records == b"x" else None,
                        acks=-1,
                        timeout_ms=30_000,
                        topic_data=[
                            TopicProduceData(
                                name=name,
                                topic_id=TOPIC_ID,
                                partition_data=[
                                    PartitionProduceData(index=index + 1, records=records)
                                    for index in range(partitions)
                                ],
                            )
                            for _ in range(topics)
                        ],
                    )


def outcome(decode: Callable[[bytes, int], tuple[Any, int]], body: bytes) -> object:
    """What a decoder makes of the bytes, followed by what its caller checks."""
    try:
        message, end = decode(body, 0)
    except (*BAD_BYTES, MalformedFrame):
        return MalformedFrame
    return message if end == len(body) else MalformedFrame


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_requests_of_every_shape_are_read_alike(version: int) -> None:
    tuned, generated = decoder(ProduceRequest, version), compile_decoder(ProduceRequest, version)
    assert tuned is not generated
    for request in produce_requests():
        body = encode_body(request, version)
        message, end = tuned(body, 0)
        assert (message, end) == generated(body, 0)
        assert end == len(body)
        # And behind a header, where positions do not begin at 0.
        assert tuned(b"header" + body, 6) == (message, end + 6)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_damaged_produce_requests_are_read_or_refused_alike(version: int) -> None:
    tuned, generated = decoder(ProduceRequest, version), compile_decoder(ProduceRequest, version)
    draw = random.Random(SEED)
    for name, records in (("topic", b"records"), ("", b""), ("t" * 200, b"r" * 300)):
        partition = PartitionProduceData(index=1, records=records)
        topic = TopicProduceData(name=name, topic_id=TOPIC_ID, partition_data=[partition])
        body = encode_body(ProduceRequest(topic_data=[topic]), version)
        for size in range(len(body)):
            assert outcome(tuned, body[:size]) is MalformedFrame
        assert outcome(tuned, body + b"\x00") is MalformedFrame
        for _ in range(600):
            damaged = bytearray(body)
            for _ in range(draw.randint(1, 3)):
                at = draw.randrange(min(60, len(body)))
                damaged[draw.choice((at, -1 - at))] = draw.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFF))
            assert outcome(tuned, bytes(damaged)) == outcome(generated, bytes(damaged))


@pytest.mark.parametrize("version", range(9, 14))
def test_unknown_tags_in_a_produce_request_are_skipped(version: int) -> None:
    partition = PartitionProduceData(index=1, records=b"records")
    topic = TopicProduceData(name="t", topic_id=TOPIC_ID, partition_data=[partition])
    body = encode_body(ProduceRequest(topic_data=[topic]), version)
    assert body.endswith(b"\x00\x00\x00")
    expected = decoder(ProduceRequest, version)(body, 0)[0]
    for at in (1, 2, 3):
        end = len(body) - at
        tagged = body[:end] + b"\x01\x2a\x02hi" + body[end + 1 :]
        assert decoder(ProduceRequest, version)(tagged, 0) == (expected, len(tagged))


def test_the_records_of_a_produce_request_are_a_view_of_its_frame() -> None:
    for version in PRODUCE_VERSIONS:
        partition = PartitionProduceData(index=1, records=b"records")
        body = encode_body(
            ProduceRequest(topic_data=[TopicProduceData(partition_data=[partition])]), version
        )
        request, _ = decoder(ProduceRequest, version)(body, 0)
        records = request.topic_data[0].partition_data[0].records
        assert isinstance(records, memoryview)
        assert records.obj is body


def produce_responses() -> Iterator[ProduceResponse]:
    rare: list[dict[str, Any]] = [
        {},
        {"error_code": 3, "base_offset": -1, "log_append_time_ms": 5, "log_start_offset": 8},
        {"error_message": "no"},
        {"error_message": ""},
        {"record_errors": [BatchIndexAndErrorMessage(batch_index=4)]},
        {"current_leader": LeaderIdAndEpoch(leader_id=1, leader_epoch=2)},
        {"current_leader": LeaderIdAndEpoch()},
    ]
    for last in rare:
        for name in ("", "t", "n" * 127):
            for partitions in (0, 1, 2, 127, 128):
                results = [PartitionProduceResponse(index=index) for index in range(partitions)]
                topic = TopicProduceResponse(
                    name=name,
                    topic_id=TOPIC_ID,
                    partition_responses=[*results, PartitionProduceResponse(**last)],
                )
                yield ProduceResponse(responses=[topic], throttle_time_ms=1)
    yield ProduceResponse()
    yield ProduceResponse(responses=[TopicProduceResponse(name="t")] * 130)
    yield ProduceResponse(node_endpoints=[NodeEndpoint(node_id=1, host="h", port=2)])


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_responses_of_every_shape_are_written_alike(version: int) -> None:
    for response in [*produce_responses(), sample(ProduceResponse, version)]:
        assert_written_alike(response, version)


def fetch_responses() -> Iterator[FetchResponse]:
    rare: list[dict[str, Any]] = [
        {},
        {"records": None},
        {"records": b"r" * 126},
        {"records": b"r" * 127},
        {"records": b"r" * 5000},
        {"records": memoryview(b"view")},
        {"aborted_transactions": None},
        {"aborted_transactions": [AbortedTransaction(producer_id=1, first_offset=2)]},
        {"diverging_epoch": EpochEndOffset(epoch=1, end_offset=2)},
        {"diverging_epoch": EpochEndOffset()},
        {"error_code": 1, "high_watermark": 9, "last_stable_offset": 8, "log_start_offset": 7},
        {"preferred_read_replica": 6},
    ]
    for middle in rare:
        for name in ("", "t", "n" * 127):
            partitions = [
                PartitionData(partition_index=0, records=b"first" * 2000),
                PartitionData(partition_index=1, **middle),
                PartitionData(partition_index=2, records=b"last"),
            ]
            topic = FetchableTopicResponse(topic=name, topic_id=TOPIC_ID, partitions=partitions)
            yield FetchResponse(session_id=3, responses=[topic, topic])
    many = [PartitionData(partition_index=index) for index in range(130)]
    yield FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=many)] * 130)
    yield FetchResponse(error_code=70)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_responses_of_every_shape_are_written_alike(version: int) -> None:
    for response in [*fetch_responses(), sample(FetchResponse, version)]:
        assert_written_alike(response, version)


def assert_written_alike(response: Message, version: int) -> None:
    tuned: list[Any] = []
    generated: list[Any] = []
    encoder(type(response), version)(response, tuned)
    compile_encoder(type(response), version)(response, generated)
    assert b"".join(tuned) == b"".join(generated)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@pytest.mark.parametrize("name", ["t", "x" * 126, "x" * 127, "x" * 249])
def test_the_answer_about_one_partition_is_the_same_on_the_short_road(
    version: int, name: str
) -> None:
    topic_id = uuid.UUID(int=2**100 + 7)
    result = PartitionProduceResponse(
        index=3, base_offset=2**40, log_append_time_ms=-1, log_start_offset=17
    )
    response = ProduceResponse(
        responses=[TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[result])]
    )
    header = api.RequestHeader(api.ApiKey.PRODUCE, version, 99, "client")
    (long_road,) = api.encode_response(header, response)
    topic = TopicProduceData(name=name, topic_id=topic_id)
    assert encode_one_success(version, 99, topic, 3, 2**40, -1, 17) == long_road

"""The hand-written functions for Produce and Fetch give the same results as the generated ones."""

import random
import struct
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from protocol_samples import encode_body, sample

from zhumq.model.errors import MalformedFrame
from zhumq.protocol import api
from zhumq.protocol.compiler import compile_encoder, decoder, encoder
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
from zhumq.protocol.produce_codec import encoder_of_one, parse_one, parse_run
from zhumq.protocol.schema import Message

SEED = 7
TOPIC_ID = uuid.UUID(int=99)
PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)
FIRST_FLEXIBLE_VERSION = 9
FIRST_VERSION_WITH_IDS = 13

assert api.APIS  # importing it puts the hand-written functions in place


def produce_requests() -> Iterator[ProduceRequest]:
    """Requests of all shapes: the common one, and each deviation from it."""
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


def framed(body: bytes, version: int, client_id: str | None = "client") -> bytes:
    """The body behind a request header, as it comes from a connection."""
    name = (client_id or "").encode()
    length = -1 if client_id is None else len(name)
    tags = b"\x00" if version >= FIRST_FLEXIBLE_VERSION else b""
    return struct.pack(">hhih", api.ApiKey.PRODUCE, version, 77, length) + name + tags + body


def read_on_the_slow_path(frame: bytes, version: int) -> object:
    """What `parse_one` has to agree with: the request if it is about one partition, else None."""
    try:
        request = api.decode_request(frame)
    except MalformedFrame:
        return None
    body = request.body
    if body.transactional_id is not None or [len(t.partition_data) for t in body.topic_data] != [1]:
        return None
    (topic,) = body.topic_data
    (data,) = topic.partition_data
    name = topic.topic_id.bytes if version >= FIRST_VERSION_WITH_IDS else topic.name.encode()
    return (version, 77, body.acks, body.timeout_ms, name, data.index, data.records)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_the_fast_path_reads_a_request_as_the_slow_path_does(version: int) -> None:
    taken = 0
    for request in produce_requests():
        for client_id in ("client", "", None):
            frame = framed(encode_body(request, version), version, client_id)
            one = parse_one(frame)
            if one is not None:
                run = parse_run([frame])
                assert run is not None
                assert run.client_id == client_id
                taken += 1
                assert one == read_on_the_slow_path(frame, version)
    assert taken > 20


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_a_damaged_request_leaves_the_fast_path_or_reads_as_on_the_slow_path(version: int) -> None:
    draw = random.Random(SEED)
    for name, records in (("topic", b"records"), ("", b""), ("t" * 200, b"r" * 300)):
        partition = PartitionProduceData(index=1, records=records)
        topic = TopicProduceData(name=name, topic_id=TOPIC_ID, partition_data=[partition])
        request = ProduceRequest(transactional_id=None, topic_data=[topic])
        frame = framed(encode_body(request, version), version)
        for size in range(len(frame)):
            assert parse_one(frame[:size]) is None
        for _ in range(600):
            damaged = bytearray(frame)
            for _ in range(draw.randint(1, 3)):
                # The first four bytes are the API key and version, which this test leaves alone.
                at = draw.randrange(4, min(80, len(frame)))
                position = max(draw.choice((at, len(frame) + 3 - at)), 4)
                damaged[position] = draw.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFF))
            one = parse_one(bytes(damaged))
            if one is not None:
                slow_path = read_on_the_slow_path(bytes(damaged), version)
                if isinstance(slow_path, tuple):
                    assert (*one[:1], *one[2:]) == (*slow_path[:1], *slow_path[2:])
                else:
                    # Only the slow path checks that the topic's name and the client id are UTF-8.
                    assert not is_text(one[4]) or not is_text(bytes(damaged[10:16]))


def is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize("version", range(9, 14))
def test_unknown_tags_in_a_produce_request_take_the_slow_path(version: int) -> None:
    partition = PartitionProduceData(index=1, records=b"records")
    topic = TopicProduceData(name="t", topic_id=TOPIC_ID, partition_data=[partition])
    body = encode_body(ProduceRequest(transactional_id=None, topic_data=[topic]), version)
    assert body.endswith(b"\x00\x00\x00")
    expected = decoder(ProduceRequest, version)(body, 0)[0]
    for at in (1, 2, 3):
        end = len(body) - at
        tagged = body[:end] + b"\x01\x2a\x02hi" + body[end + 1 :]
        assert decoder(ProduceRequest, version)(tagged, 0) == (expected, len(tagged))
        assert parse_one(framed(tagged, version)) is None


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
@pytest.mark.parametrize("name", ["t", "x" * 126])
def test_the_answer_about_one_partition_is_the_same_on_the_fast_path(
    version: int, name: str
) -> None:
    topic_id = uuid.UUID(int=2**100 + 7)
    result = PartitionProduceResponse(
        index=3, base_offset=2**40, log_append_time_ms=-1, log_start_offset=17
    )
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[result])
        ],
        throttle_time_ms=250,
    )
    header = api.RequestHeader(api.ApiKey.PRODUCE, version, 99, "client")
    (slow_path,) = api.encode_response(header, response)
    topic = topic_id.bytes if version >= FIRST_VERSION_WITH_IDS else name.encode()
    assert encoder_of_one(version, topic, 3)(99, 2**40, -1, 17, 250) == slow_path


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_a_run_is_read_as_its_requests_one_by_one_are(version: int) -> None:
    draw = random.Random(SEED)
    requests = list(produce_requests())
    longest = 0
    for _ in range(300):
        # Few different ones, so that neighbours are often equal.
        few = draw.sample(requests, 3)
        frames = [
            framed(encode_body(draw.choice(few), version), version, draw.choice(("a", "a", "b")))
            for _ in range(draw.randint(1, 6))
        ]
        frames = [
            frame[:4] + number.to_bytes(4, "big") + frame[8:] for number, frame in enumerate(frames)
        ]
        run = parse_run(frames)
        alone = [parse_one(frame) for frame in frames]
        if run is None:
            assert alone[0] is None
            continue
        assert run.client_id in ("a", "b")
        assert all(frame[10:11].decode() == run.client_id for frame in frames[: len(run.records)])
        longest = max(longest, len(run.records))
        for number, (correlation_id, records) in enumerate(
            zip(run.correlation_ids, run.records, strict=True)
        ):
            assert alone[number] == (
                version,
                correlation_id,
                run.acks,
                run.timeout_ms,
                run.topic,
                run.partition,
                records,
            )
            assert correlation_id == number
    assert longest > 1


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_records_of_different_lengths_make_one_run_and_another_partition_ends_it(
    version: int,
) -> None:
    def frame(records: bytes, index: int = 1, acks: int = 1, timeout_ms: int = 9) -> bytes:
        partition = PartitionProduceData(index=index, records=records)
        topic = TopicProduceData(name="topic", topic_id=TOPIC_ID, partition_data=[partition])
        request = ProduceRequest(
            transactional_id=None, acks=acks, timeout_ms=timeout_ms, topic_data=[topic]
        )
        return framed(encode_body(request, version), version)

    many = [b"r" * length for length in (100, 100, 1, 500, 100, 127, 126, 20_000)]
    frames = [frame(records) for records in many]
    for last in (
        frame(b"other", index=2),
        frame(b"other", acks=-1),
        frame(b"other", timeout_ms=8),
        frame(b"cut off")[:-1],
        b"\0",
    ):
        run = parse_run([*frames, last, frames[0]])
        assert run is not None
        assert run.records == many

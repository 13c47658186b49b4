"""Recorded frames of real clients: decoded to the last byte, and encoded again to the same bytes."""

import json
from pathlib import Path
from typing import Any

import pytest

from zhumq.protocol.api import ApiKey, Request, decode_request, encode_request
from zhumq.protocol.messages.coordinator_records import (
    ConsumerProtocolSubscription,
    decode_versioned,
)

# Recorded from the clients named in it, each producing one record to the topic "golden" and consuming
# it as the group "golden-group", against a server that advertised every supported version.
FRAMES: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("client_frames.json").read_text(encoding="utf-8")
)
CLIENTS = sorted({frame["client"] for frame in FRAMES})


def requests_of(client: str, api: ApiKey) -> list[Request]:
    return [
        decode_request(bytes.fromhex(frame["frame"]))
        for frame in FRAMES
        if (frame["client"], frame["api"]) == (client, api.name)
    ]


@pytest.mark.parametrize(
    "recorded", FRAMES, ids=lambda frame: f"{frame['client']}-{frame['api']}-{frame['version']}"
)
def test_what_a_client_sent_is_read_and_written_again(recorded: dict[str, Any]) -> None:
    frame = bytes.fromhex(recorded["frame"])
    header, body = decode_request(frame)
    assert header.api_key.name == recorded["api"]
    assert header.api_version == recorded["version"]
    assert encode_request(header, body) == len(frame).to_bytes(4, "big") + frame


@pytest.mark.parametrize("client", CLIENTS)
def test_what_a_client_meant_is_what_is_read(client: str) -> None:
    for header, body in requests_of(client, ApiKey.PRODUCE):
        assert header.client_id == "golden"
        (topic,) = body.topic_data
        (partition,) = topic.partition_data
        assert (topic.name, partition.index) == ("golden", 0)
        assert partition.records[16] == 2  # the magic byte of a record batch
    for _, body in requests_of(client, ApiKey.JOIN_GROUP):
        assert (body.group_id, body.protocol_type) == ("golden-group", "consumer")
        _, subscription = decode_versioned(ConsumerProtocolSubscription, body.protocols[0].metadata)
        assert subscription.topics == ["golden"]
    for _, body in requests_of(client, ApiKey.LIST_OFFSETS):
        assert body.replica_id == -1
        assert body.topics[0].partitions[0].timestamp in (-1, -2)


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_is_recorded_from_its_first_request_to_its_last(client: str) -> None:
    for api in (ApiKey.API_VERSIONS, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LEAVE_GROUP):
        assert requests_of(client, api)

"""Long lists are handled in pieces and answered whole and in order, while the loop goes on."""

import asyncio
from typing import Any

import pytest

from zhumq.broker.dispatch import Dispatcher, RequestContext
from zhumq.broker.long_requests import LONG_FRAME_BYTES_MIN, PIECE_ELEMENTS, is_long
from zhumq.model.errors import InvalidRequest, MalformedFrame
from zhumq.net.service import ConnectionInfo
from zhumq.protocol.api import ApiKey, RequestHeader, decode_response, encode_request
from zhumq.protocol.messages.groups import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from zhumq.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from zhumq.protocol.schema import Message

CONNECTION = ConnectionInfo(id=1, client_host="h", client_port=1, listener="l")
NAMES = [f"name-{number}" for number in range(10_000)]


def frame_of(key: ApiKey, version: int, body: Message) -> bytes:
    header = RequestHeader(api_key=key, api_version=version, correlation_id=7, client_id="c")
    return encode_request(header, body)[4:]


async def answer(handlers: dict[ApiKey, Any], frame: bytes) -> bytes:
    _, future = Dispatcher(handlers, lambda run, throttle_ms: None).handle([frame], CONNECTION)
    assert isinstance(future, asyncio.Future), "it is answered later"
    parts = await future
    assert parts is not None
    return b"".join(bytes(part) for part in parts)[4:]


def find_coordinators() -> bytes:
    return frame_of(ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=NAMES))


def test_a_long_list_is_handled_in_pieces_and_answered_whole() -> None:
    sizes: list[int] = []
    turns = 0

    async def find(_: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        sizes.append(len(request.coordinator_keys))
        return FindCoordinatorResponse(
            coordinators=[Coordinator(key=key) for key in request.coordinator_keys]
        )

    async def scenario() -> None:
        nonlocal turns

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(others())
        data = await answer({ApiKey.FIND_COORDINATOR: find}, find_coordinators())
        task.cancel()
        response = decode_response(ApiKey.FIND_COORDINATOR, 4, data)[1]
        assert [each.key for each in response.coordinators] == NAMES

    asyncio.run(scenario())
    assert max(sizes) <= PIECE_ELEMENTS
    assert turns >= len(sizes), "others had their turn between any two pieces"


def test_a_topic_named_again_and_again_is_described_once() -> None:
    def describe(_: RequestContext, request: MetadataRequest) -> MetadataResponse:
        return MetadataResponse(
            topics=[MetadataResponseTopic(name=each.name) for each in request.topics or ()]
        )

    topics = [MetadataRequestTopic(name=name) for name in NAMES[:5_000] * 2]
    body = MetadataRequest(topics=topics, allow_auto_topic_creation=False)

    async def scenario() -> None:
        data = await answer({ApiKey.METADATA: describe}, frame_of(ApiKey.METADATA, 9, body))
        response = decode_response(ApiKey.METADATA, 9, data)[1]
        assert [each.name for each in response.topics] == NAMES[:5_000]

    asyncio.run(scenario())


def test_a_request_that_may_create_topics_is_not_split() -> None:
    sizes: list[int] = []

    def describe(_: RequestContext, request: MetadataRequest) -> MetadataResponse:
        sizes.append(len(request.topics or ()))
        return MetadataResponse()

    topics = [MetadataRequestTopic(name=name) for name in NAMES]
    frame = frame_of(ApiKey.METADATA, 9, MetadataRequest(topics=topics))
    asyncio.run(_ignore(answer({ApiKey.METADATA: describe}, frame)))
    assert sizes == [len(NAMES)]


async def _ignore(work: Any) -> None:
    await work


def test_a_long_request_that_fails_is_answered_and_one_that_is_cut_short_is_malformed() -> None:
    def fail(_: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        raise InvalidRequest("not today")

    async def scenario() -> None:
        data = await answer({ApiKey.FIND_COORDINATOR: fail}, find_coordinators())
        response = decode_response(ApiKey.FIND_COORDINATOR, 4, data)[1]
        assert response.coordinators == [], "this version has no error for the request as a whole"
        with pytest.raises(MalformedFrame):
            await answer({ApiKey.FIND_COORDINATOR: fail}, find_coordinators()[:-100])

    asyncio.run(scenario())


def test_only_long_requests_that_read_are_set_aside() -> None:
    assert is_long(find_coordinators())
    assert not is_long(find_coordinators()[: LONG_FRAME_BYTES_MIN - 1])
    assert not is_long(b"\x00\x00" + bytes(LONG_FRAME_BYTES_MIN))

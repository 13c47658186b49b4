"""The request pipeline: every request takes every step, and every failure has its answer."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from broker_support import (
    CLIENT_ID,
    StrictAccess,
    connection,
    dispatcher,
    frame_of,
    response,
)

from zhumq.broker.access import Access
from zhumq.broker.dispatch import DeferredAnswer, EncodedAnswer, RequestContext
from zhumq.broker.quotas import NoQuotas
from zhumq.model.errors import ErrorCode, InvalidRequest, MalformedFrame
from zhumq.model.ids import ANONYMOUS, Principal
from zhumq.net.service import ConnectionInfo
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
)
from zhumq.protocol.messages.metadata import ApiVersionsRequest, ApiVersionsResponse
from zhumq.protocol.messages.share import (
    ShareFetchableTopicResponse,
    ShareFetchPartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)
from zhumq.security.acl import Operation, ResourceType

HEARTBEAT = ApiKey.HEARTBEAT
VERSION = 4
BODY = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
FRAME = frame_of(HEARTBEAT, VERSION, BODY)
LONG_FRAME = frame_of(
    ApiKey.FIND_COORDINATOR,
    4,
    FindCoordinatorRequest(coordinator_keys=[f"group-{number}" for number in range(5_000)]),
)


def beat(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    assert request.group_id == "g"
    return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)


def test_a_request_reaches_its_handler_and_its_response_the_client() -> None:
    pipeline = dispatcher({HEARTBEAT: beat})
    count, answer = pipeline.handle([FRAME, FRAME], connection())
    assert count == 1, "the second request is for the next call"
    assert response(HEARTBEAT, VERSION, answer).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert pipeline.requests_handled == 1


def test_a_request_that_is_not_served_closes_the_connection() -> None:
    with pytest.raises(MalformedFrame, match="HEARTBEAT is not served here"):
        response(HEARTBEAT, VERSION, dispatcher({}).handle([FRAME], connection())[1])


@pytest.mark.parametrize("frame", [b"", b"\x00", b"\x7f\xff\x00\x00\x00\x00\x00\x07\xff\xff"])
def test_bytes_that_are_no_request_close_the_connection(frame: bytes) -> None:
    with pytest.raises(MalformedFrame):
        dispatcher({HEARTBEAT: beat}).handle([frame], connection())


def test_a_request_cut_short_closes_the_connection_and_reaches_no_handler() -> None:
    pipeline = dispatcher({HEARTBEAT: beat})
    for size in range(len(FRAME)):
        with pytest.raises(MalformedFrame):
            pipeline.handle([FRAME[:size]], connection())
    assert pipeline.requests_handled == 0


def test_a_version_that_is_not_supported_closes_the_connection() -> None:
    unsupported = FRAME[:2] + (99).to_bytes(2, "big") + FRAME[4:]
    with pytest.raises(MalformedFrame, match="HEARTBEAT v99 is not supported"):
        dispatcher({HEARTBEAT: beat}).handle([unsupported], connection())


def test_api_versions_of_any_version_are_answered_in_version_0() -> None:
    key = ApiKey.API_VERSIONS
    frame = frame_of(key, 3, ApiVersionsRequest())
    newer = frame[:2] + (99).to_bytes(2, "big") + frame[4:]
    access = StrictAccess()
    pipeline = dispatcher({key: lambda context, request: ApiVersionsResponse()}, access)
    found = response(key, 0, pipeline.handle([newer], connection())[1])
    assert found.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert access.authorized == [(ANONYMOUS, "10.0.0.9", key)]


def test_an_error_of_the_handler_becomes_the_error_of_the_response() -> None:
    def refuse(context: RequestContext, request: Any) -> None:
        raise InvalidRequest("not today")

    _, answer = dispatcher({HEARTBEAT: refuse}).handle([FRAME], connection())
    assert response(HEARTBEAT, VERSION, answer).error_code == ErrorCode.INVALID_REQUEST


def test_a_bug_of_the_handler_is_logged_and_answered(caplog: pytest.LogCaptureFixture) -> None:
    def fail(context: RequestContext, request: Any) -> None:
        raise KeyError("a bug")

    with caplog.at_level(logging.ERROR):
        _, answer = dispatcher({HEARTBEAT: fail}).handle([FRAME], connection())
    assert response(HEARTBEAT, VERSION, answer).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "HEARTBEAT v4 failed" in caplog.text


def test_a_request_without_an_answer_has_none() -> None:
    pipeline = dispatcher({HEARTBEAT: lambda context, request: None})
    assert pipeline.handle([FRAME], connection()) == (1, None)


def test_an_answer_that_comes_later_is_a_future_and_its_failure_a_response() -> None:
    async def scenario() -> None:
        waits: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        pipeline = dispatcher({HEARTBEAT: lambda context, request: waits})
        answers = [pipeline.handle([FRAME], connection())[1] for _ in range(2)]
        assert all(isinstance(answer, asyncio.Future) for answer in answers)
        assert not any(answer.done() for answer in answers)  # type: ignore[union-attr]
        waits.set_exception(InvalidRequest("not today"))
        for answer in answers:
            await answer  # type: ignore[misc]
            assert response(HEARTBEAT, VERSION, answer).error_code == ErrorCode.INVALID_REQUEST

    asyncio.run(scenario())


def test_a_lost_connection_stops_the_work_for_it() -> None:
    async def scenario() -> None:
        stopped = asyncio.Event()

        async def work(context: RequestContext, request: Any) -> HeartbeatResponse:
            try:
                return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]
            finally:
                stopped.set()

        lost: list[int] = []
        pipeline = dispatcher({HEARTBEAT: work}, on_connection_lost=lost.append)
        client = connection(5)
        _, answer = pipeline.handle([FRAME], client)
        await asyncio.sleep(0)  # the work begins
        answer.cancel()  # type: ignore[union-attr]
        async with asyncio.timeout(10):
            await stopped.wait()
        pipeline.connection_lost(client)
        assert lost == [5]

    asyncio.run(scenario())


def test_a_handler_may_encode_its_answer_itself() -> None:
    async def scenario() -> None:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        pipeline = dispatcher({HEARTBEAT: lambda context, request: EncodedAnswer(done)})
        assert pipeline.handle([FRAME], connection()) == (1, done)

    asyncio.run(scenario())


class Waiting:
    """A handler whose requests wait for `ready` and are then answered by `respond`."""

    def __init__(self, respond: Callable[[], HeartbeatResponse]) -> None:
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_released = asyncio.Event()
        self._respond = respond

    def __call__(self, context: RequestContext, request: Any) -> DeferredAnswer:
        answer = DeferredAnswer(context)
        answer.settle_after(self.ready, self._respond, release=self.is_released.set)
        return answer

    def ask(self) -> asyncio.Future[Any]:
        _, answer = dispatcher({HEARTBEAT: self}).handle([FRAME], connection())
        assert isinstance(answer, asyncio.Future)
        return answer


def answer_once_ready(respond: Callable[[], HeartbeatResponse]) -> asyncio.Future[Any]:
    async def scenario() -> asyncio.Future[Any]:
        handler = Waiting(respond)
        answer = handler.ask()
        assert not answer.done()
        handler.ready.set_result(None)
        async with asyncio.timeout(10):
            await handler.is_released.wait()
        return answer

    return asyncio.run(scenario())


def failing(failure: Exception) -> Callable[[], HeartbeatResponse]:
    def fail() -> HeartbeatResponse:
        raise failure

    return fail


def test_an_answer_is_made_once_what_it_waits_for_is_there() -> None:
    found = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    answer = answer_once_ready(lambda: found)
    assert response(HEARTBEAT, VERSION, answer).error_code == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (InvalidRequest("not today"), ErrorCode.INVALID_REQUEST),
        (KeyError("a bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_answer_that_cannot_be_made_is_an_error(failure: Exception, code: ErrorCode) -> None:
    answer = answer_once_ready(failing(failure))
    assert response(HEARTBEAT, VERSION, answer).error_code == code


def test_an_answer_to_a_malformed_request_closes_the_connection() -> None:
    answer = answer_once_ready(failing(MalformedFrame("no such thing")))
    assert isinstance(answer.exception(), MalformedFrame)


def test_no_answer_is_made_for_a_connection_that_is_gone() -> None:
    made: list[str] = []

    def respond() -> HeartbeatResponse:
        made.append("an answer")
        return HeartbeatResponse()

    async def scenario() -> None:
        handler = Waiting(respond)
        answer = handler.ask()
        answer.cancel()
        async with asyncio.timeout(10):
            await handler.is_released.wait()
            # This coroutine goes on behind the callback of the answer.
            asyncio.get_running_loop().call_soon(handler.ready.set_result, None)
            await handler.ready
        assert answer.cancelled()
        assert made == []

    asyncio.run(scenario())


def test_every_request_is_authorized_for_the_principal_of_its_connection() -> None:
    access = StrictAccess()
    pipeline = dispatcher({HEARTBEAT: beat}, access)
    client = connection()
    pipeline.handle([FRAME], client)
    client.principal = Principal("User:alice")
    pipeline.handle([FRAME], client)
    assert access.authorized == [
        (ANONYMOUS, "10.0.0.9", HEARTBEAT),
        ("User:alice", "10.0.0.9", HEARTBEAT),
    ]
    assert access.recorded == [(CLIENT_ID, HEARTBEAT, len(FRAME))] * 2


def test_a_request_that_is_not_authorized_is_answered_and_reaches_no_handler() -> None:
    def reached(context: RequestContext, request: Any) -> None:
        pytest.fail("a refused request reached its handler")

    access = StrictAccess()
    access.refusal = InvalidRequest("not for you")
    _, answer = dispatcher({HEARTBEAT: reached}, access).handle([FRAME], connection())
    assert response(HEARTBEAT, VERSION, answer).error_code == ErrorCode.INVALID_REQUEST
    assert access.recorded == [(CLIENT_ID, HEARTBEAT, len(FRAME))], "refusing costs time, too"


def test_the_handler_sees_what_is_denied_and_the_response_has_the_throttle_time() -> None:
    def look(context: RequestContext, request: Any) -> HeartbeatResponse:
        assert context.may(Operation.READ, ResourceType.GROUP, "h")
        assert not context.may(Operation.READ, ResourceType.GROUP, "g")
        return HeartbeatResponse()

    access = StrictAccess(denied={"g"}, throttle_ms=250)
    _, answer = dispatcher({HEARTBEAT: look}, access).handle([FRAME], connection())
    assert response(HEARTBEAT, VERSION, answer).throttle_time_ms == 250


def test_each_piece_of_a_long_request_is_authorized_and_the_quota_counts_it_once() -> None:
    pieces = 0

    def find(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        nonlocal pieces
        pieces += 1
        return FindCoordinatorResponse()

    async def scenario() -> None:
        access = StrictAccess(throttle_ms=9)
        pipeline = dispatcher({ApiKey.FIND_COORDINATOR: find}, access)
        count, answer = pipeline.handle([LONG_FRAME], connection())
        assert isinstance(answer, asyncio.Future)
        await answer
        assert count == 1
        assert pieces > 1
        assert len(access.authorized) == pieces
        assert access.recorded == [(CLIENT_ID, ApiKey.FIND_COORDINATOR, len(LONG_FRAME))]
        assert response(ApiKey.FIND_COORDINATOR, 4, answer).throttle_time_ms == 9
        assert pipeline.requests_handled == 1

    asyncio.run(scenario())


def test_a_long_request_that_is_not_authorized_closes_or_is_answered() -> None:
    async def scenario() -> None:
        access = StrictAccess()
        access.refusal = MalformedFrame("authenticate first")
        pipeline = dispatcher({ApiKey.FIND_COORDINATOR: lambda context, request: None}, access)
        _, answer = pipeline.handle([LONG_FRAME], connection())
        assert isinstance(answer, asyncio.Future)
        with pytest.raises(MalformedFrame, match="authenticate first"):
            await answer

    asyncio.run(scenario())


def test_a_share_fetch_is_sent_and_counted() -> None:
    class Counting(NoQuotas):
        is_active = True

        def record_fetch(
            self, connection: ConnectionInfo, client_id: str | None, answer_bytes: int
        ) -> int:
            counted.append((client_id, answer_bytes))
            return 80

    counted: list[tuple[str | None, int]] = []

    async def fetch(context: RequestContext, request: Any) -> ShareFetchResponse:
        partitions = [ShareFetchPartitionData(records=b"1234"), ShareFetchPartitionData()]
        return ShareFetchResponse(responses=[ShareFetchableTopicResponse(partitions=partitions)])

    async def scenario() -> None:
        pipeline = dispatcher({ApiKey.SHARE_FETCH: fetch}, Access(None, Counting()))
        frame = frame_of(ApiKey.SHARE_FETCH, 1, ShareFetchRequest())
        _, answer = pipeline.handle([frame], connection())
        assert isinstance(answer, asyncio.Future)
        await answer
        found = response(ApiKey.SHARE_FETCH, 1, answer)
        assert found.throttle_time_ms == 80
        assert bytes(found.responses[0].partitions[0].records) == b"1234"
        assert counted == [(CLIENT_ID, 4)]

    asyncio.run(scenario())

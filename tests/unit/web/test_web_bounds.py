"""Bounds of the REST API: threads, waiting requests, deadlines, and the memory of bodies."""

import asyncio
import threading
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import pytest
from starlette.requests import Request

from zhumq.web.bodies import Bodies
from zhumq.web.problems import RequestRefused
from zhumq.web.workers import Workers

SECONDS_MAX = 30.0


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_requests_above_the_bound_are_refused_at_once(release: threading.Event) -> None:
    async def run() -> None:
        workers = Workers(threads_max=1, requests_max=2)
        begun = [asyncio.create_task(workers.run(release.wait)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(RequestRefused) as caught:
            await workers.run(lambda: None)
        assert caught.value.status is HTTPStatus.SERVICE_UNAVAILABLE
        assert caught.value.headers["Retry-After"]
        release.set()
        assert await asyncio.gather(*begun) == [True, True]
        await until_served(workers)
        workers.close()

    asyncio.run(run())


def test_a_call_after_its_deadline_counts_until_it_ends(release: threading.Event) -> None:
    async def run() -> None:
        workers = Workers(threads_max=1, requests_max=1, seconds_max=0.05)
        with pytest.raises(RequestRefused) as caught:
            await workers.run(release.wait)
        assert caught.value.status is HTTPStatus.GATEWAY_TIMEOUT
        with pytest.raises(RequestRefused) as caught:
            await workers.run(lambda: None)
        assert caught.value.status is HTTPStatus.SERVICE_UNAVAILABLE
        release.set()
        await until_served(workers)
        workers.close()

    asyncio.run(run())


async def until_served(workers: Workers) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            try:
                assert await workers.run(lambda: 1) == 1
            except RequestRefused:
                await asyncio.sleep(0)
            else:
                return


def request_of(chunks: list[bytes], kind: str = "application/json") -> Request:
    """A request whose body comes in these chunks; after the last one the client says nothing more."""

    async def receive() -> dict[str, Any]:
        if chunks:
            body = chunks.pop(0)
            return {"type": "http.request", "body": body, "more_body": body != b""}
        await asyncio.Event().wait()
        return {}

    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", kind.encode())]}
    return Request(scope, receive)


def status_of(bodies: Bodies, request: Request) -> HTTPStatus:
    async def read() -> None:
        async with bodies.read(request):
            raise AssertionError("the body was read")

    with pytest.raises(RequestRefused) as caught:
        asyncio.run(read())
    return caught.value.status


def test_a_body_is_bounded_in_bytes_and_seconds_and_is_json() -> None:
    bodies = Bodies(bytes_max=4, seconds_max=0.05)
    assert (
        status_of(bodies, request_of([b"abc", b"de", b""])) == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    )
    assert status_of(bodies, request_of([b"abc"])) == HTTPStatus.REQUEST_TIMEOUT
    assert status_of(bodies, request_of([b"a", b""], "text/plain")) == HTTPStatus.UNSUPPORTED_MEDIA_TYPE  # fmt: skip


def test_all_bodies_together_are_bounded_and_room_comes_back() -> None:
    bodies = Bodies(bytes_max=4, all_bytes_max=6)

    async def run() -> None:
        async with bodies.read(request_of([b"abcd", b""])) as first:
            assert first == b"abcd"
            with pytest.raises(RequestRefused, match="take all the room"):
                async with bodies.read(request_of([b"efg", b""])):
                    pass
            async with bodies.read(request_of([b"ef", b""])) as second:
                assert second == b"ef"
        async with bodies.read(
            request_of([b"efgh", b""], "Application/JSON; charset=utf-8")
        ) as third:
            assert third == b"efgh"

    asyncio.run(run())

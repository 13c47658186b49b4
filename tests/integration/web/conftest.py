"""One broker with its REST API for all tests of a module; each test has its own topic."""

from collections.abc import Iterator

import httpx
import pytest

from zhumq.testing.broker import RunningBroker, broker
from zhumq.testing.web import rest_api
from zhumq.web.app import WebConfig

SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker() as started:
        yield started


@pytest.fixture(scope="module")
def url(running: RunningBroker) -> Iterator[str]:
    with rest_api(WebConfig(bootstrap=running.bootstrap, event_seconds=0.2)) as address:
        yield address


@pytest.fixture
def api(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{url}/api/v1", timeout=SECONDS_MAX) as client:
        yield client


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"topic-{abs(hash(request.node.name)):x}"


@pytest.fixture
def registry(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{url}/registry", timeout=SECONDS_MAX) as client:
        yield client

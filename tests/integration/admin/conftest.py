"""One broker for all tests of a module; each test has its own topic."""

from collections.abc import Iterator

import pytest

from zhumq.admin.connection import ClusterConnection
from zhumq.testing.broker import broker


@pytest.fixture(scope="module")
def connection() -> Iterator[ClusterConnection]:
    with broker() as running, ClusterConnection(running.bootstrap) as connected:
        yield connected


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"topic-{abs(hash(request.node.name)):x}"

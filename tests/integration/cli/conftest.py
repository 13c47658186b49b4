"""One broker for all command-line tests of a module; each test has its own topics."""

from collections.abc import Iterator

import pytest
from cli_support import Cli

from zhumq.testing.broker import broker


@pytest.fixture(scope="module")
def cli() -> Iterator[Cli]:
    with broker() as running:
        yield Cli(running.bootstrap)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"topic-{abs(hash(request.node.name)):x}"

"""The pytest fixture `zhumq_broker`: a real broker for one test, ready in milliseconds."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from zhumq.testing.broker import RunningBroker


@pytest.fixture
def zhumq_broker(tmp_path: Path) -> "Iterator[RunningBroker]":
    """A broker with an empty data folder, at `zhumq_broker.bootstrap`."""
    # Imported here so that the plugin costs nothing in a test run without a broker.
    from zhumq.testing.broker import broker  # noqa: PLC0415

    with broker(data_dir=tmp_path / "zhumq-data") as running:
        yield running

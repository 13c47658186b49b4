"""The pytest fixtures `zhumq_broker` and `zhumq_broker_secured`: a real broker for one test, ready in milliseconds."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from zhumq.testing.broker import RunningBroker
    from zhumq.testing.secured import SecuredBroker


@pytest.fixture
def zhumq_broker(tmp_path: Path) -> "Iterator[RunningBroker]":
    """A broker with an empty data folder, at `zhumq_broker.bootstrap`."""
    # Imported here so that the plugin costs nothing in a test run without a broker.
    from zhumq.testing.broker import broker  # noqa: PLC0415

    with broker(data_dir=tmp_path / "zhumq-data") as running:
        yield running


@pytest.fixture
def zhumq_broker_secured(tmp_path: Path) -> "Iterator[SecuredBroker]":
    """A broker with SASL_SSL and the users admin and alice; needs `zhumq[security]`.

    `zhumq_broker_secured.security` and `.client_properties` are alice's.
    """
    # Imported here, as above; the certificates need an extra.
    from zhumq.testing.secured import secured_broker  # noqa: PLC0415

    with secured_broker(tmp_path / "zhumq-secured") as running:
        yield running

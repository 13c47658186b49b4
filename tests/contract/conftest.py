from collections.abc import Iterator

import pytest

from zhumq.cluster.dev_zookeeper import DevZookeeper, dev_zookeeper


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[DevZookeeper]:
    """One real server for all tests, each of which uses a chroot of its own."""
    with dev_zookeeper() as ensemble:
        yield ensemble

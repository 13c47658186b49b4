import uuid
from collections.abc import Iterator

import pytest

from zhumq.cluster.dev_zookeeper import DevZookeeper, dev_zookeeper


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[DevZookeeper]:
    """One real server for all tests, each of which uses a chroot of its own."""
    with dev_zookeeper() as ensemble:
        yield ensemble


@pytest.fixture
def chroot(zookeeper: DevZookeeper) -> str:
    """The connect string of a chroot for this test's own cluster."""
    return f"{zookeeper.connect}/{uuid.uuid4()}"

"""One broker with short backoffs for all push tests of a module; each test has its own topics."""

from collections.abc import Iterator

import pytest

from zhumq.testing.broker import RunningBroker, broker

SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    "delivery.backoff.ms": "20",
    "delivery.backoff.max.ms": "100",
}


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(settings=SETTINGS) as broker_:
        yield broker_

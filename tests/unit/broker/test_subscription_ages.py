"""The lag of subscriptions in seconds: the oldest of their partitions, and zero where nothing waits."""

import asyncio
from collections.abc import Sequence

from tests.manual_time import ManualClock

from zhumq.broker.delivery_metrics import Behind
from zhumq.broker.subscription_ages import SubscriptionAges
from zhumq.coordinators.offset_times import Place
from zhumq.model.ids import TopicPartition


class WrittenTimes:
    """Each message was written so many seconds after the epoch as its offset is; odd partitions do not answer."""

    async def ask(self, places: Sequence[Place]) -> dict[Place, int]:
        return {
            place: place.offset * 1000
            for place in places
            if place.topic_partition.partition % 2 == 0
        }


def behind(group: str, partition: int, offset: int, messages: int) -> Behind:
    return Behind(group, "t", Place(TopicPartition("t", partition), offset), messages)


def test_a_group_is_as_late_as_its_oldest_partition() -> None:
    found = [
        behind("late", 0, 90, 5),
        behind("late", 2, 40, 5),
        behind("late", 4, 99, 0),
        behind("done", 0, 99, 0),
        behind("unknown", 1, 10, 5),
    ]
    ages = SubscriptionAges(lambda: found, WrittenTimes(), ManualClock(100_000))
    asyncio.run(ages.sample())
    assert ages.of_group("late") == 60.0
    assert ages.of_group("done") == 0.0
    assert ages.of_group("unknown") is None
    (metric,) = ages.metrics()
    assert dict(metric.samples) == {
        '{group="late",topic="t"}': 60.0,
        '{group="done",topic="t"}': 0.0,
    }

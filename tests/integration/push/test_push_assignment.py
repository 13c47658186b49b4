"""Many consumers: each gets an even, stable share while others join and leave."""

import asyncio
from collections import Counter

import pytest
from push_support import new_topic, run, until

from zhumq import Admin, PushConsumer
from zhumq.testing.broker import RunningBroker

CONSUMERS = 100
TOPICS = 20
PARTITIONS = 25


@pytest.mark.thorough
def test_a_hundred_consumers_over_twenty_topics_are_five_for_each_topic(
    running: RunningBroker,
) -> None:
    topics = [new_topic(running.bootstrap, partitions=PARTITIONS) for _ in range(TOPICS)]

    async def scenario() -> None:
        consumers = [
            PushConsumer(topics, group="hundred", mode="ptp", push=running.push)
            for _ in range(CONSUMERS)
        ]
        await asyncio.gather(*(consumer.__aenter__() for consumer in consumers))
        try:

            def shares() -> Counter[int]:
                return Counter(len(consumer.assignment) for consumer in consumers)

            def readers() -> Counter[str]:
                return Counter(
                    topic for each in consumers for topic in {place[0] for place in each.assignment}
                )

            # Members get partitions evenly, and topics get members evenly.
            await until(
                lambda: (
                    shares() == {5: CONSUMERS}
                    and readers() == dict.fromkeys(topics, CONSUMERS // TOPICS)
                ),
                90,
            )
            owned = [place for consumer in consumers for place in consumer.assignment]
            assert len(set(owned)) == len(owned) == TOPICS * PARTITIONS
            # One leaves: its five partitions go to others, and no other consumer loses a partition.
            before = {consumer: consumer.assignment for consumer in consumers[1:]}
            await consumers[0].close()
            await until(
                lambda: sum(len(each.assignment) for each in consumers[1:]) == TOPICS * PARTITIONS,
                90,
            )
            for consumer, places in before.items():
                assert places <= consumer.assignment
        finally:
            await asyncio.gather(*(consumer.close() for consumer in consumers))

    run(scenario(), 200)
    with Admin(running.bootstrap) as admin:
        assert [session for session in admin.sessions("hundred") if session.connected] == []


def test_a_member_that_has_left_does_not_rejoin_on_a_new_metadata_image(
    running: RunningBroker,
) -> None:
    topic = new_topic(running.bootstrap)

    async def scenario() -> None:
        for _ in range(5):
            consumer = PushConsumer(topic, group="leavers", mode="ptp", push=running.push)
            await consumer.__aenter__()
            await until(lambda consumer=consumer: consumer.assignment)
            # New metadata images arrive while it leaves.
            topics = [asyncio.to_thread(new_topic, running.bootstrap) for _ in range(4)]
            await asyncio.gather(consumer.close(), *topics)
        async with PushConsumer(topic, group="leavers", mode="ptp", push=running.push) as last:
            await until(lambda: last.assignment == {(topic, 0)}, 20)

    run(scenario(), 90)

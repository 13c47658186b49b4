"""Filters of subscriptions: the broker pushes only what passes, to every kind of consumer."""

import asyncio
import urllib.request
from collections.abc import Iterable

import pytest
from push_support import AT_ONCE, new_topic, run, until

from zhumq import Admin, Consumer, Producer, PushConsumer
from zhumq.admin.groups import describe_group
from zhumq.client.errors import SubscriptionRefused
from zhumq.testing.broker import RunningBroker

COUNT = 300


def send(running: RunningBroker, topic: str, numbers: Iterable[int]) -> None:
    with Producer(running.bootstrap, settings=AT_ONCE) as producer:
        for number in numbers:
            producer.send(
                topic,
                b'{"n": %d, "big": %s}' % (number, b"true" if number >= 200 else b"false"),
                key=b"even" if number % 2 == 0 else b"odd",
                tags="third" if number % 3 == 0 else (),
            )


async def pushed(running: RunningBroker, topic: str, last: int, **options: object) -> list[int]:
    """The offsets up to the last one expected."""
    seen: list[int] = []
    async with PushConsumer(topic, bootstrap=running.bootstrap, **options) as consumer:
        async for message in consumer:
            seen.append(message.offset)
            if message.offset == last:
                break
    return seen


@pytest.mark.parametrize("mode", ["psb", "ptp", "ptp-shared"])
@pytest.mark.parametrize("credits_max", [1, 1_000])
def test_a_subscription_gets_what_passes_its_filter(
    running: RunningBroker, mode: str, credits_max: int
) -> None:
    topic = new_topic(running.bootstrap)
    send(running, topic, range(COUNT))
    options = {"group": f"filtered-{mode}-{credits_max}", "mode": mode, "credits": credits_max}
    text = "tags = 'third' AND key = 'even'"
    seen = run(pushed(running, topic, 270, filter=text, **options))
    assert seen == [number for number in range(271) if number % 6 == 0]


def test_a_pulled_subscription_and_one_without_a_mode_filter_alike(running: RunningBroker) -> None:
    topic = new_topic(running.bootstrap)
    send(running, topic, range(COUNT))
    for options in ({"mode": "psb", "group": "pulled"}, {"group": "fetched"}, {}):
        seen: list[int] = []
        with Consumer(
            topic, bootstrap=running.bootstrap, filter="value.big", **options
        ) as consumer:
            for message in consumer:
                seen.append(message.offset)
                if message.offset == COUNT - 1:
                    break
        assert seen == list(range(200, COUNT)), options


def test_a_group_without_a_mode_commits_what_it_filtered(running: RunningBroker) -> None:
    topic = new_topic(running.bootstrap)
    send(running, topic, range(10))
    with Consumer(
        topic, group="commits-filtered", bootstrap=running.bootstrap, filter="offset = 4"
    ) as consumer:
        message = next(iter(consumer))
        assert message.offset == 4
        message.ack()
        assert consumer.poll(0.5) == []
    with Admin(running.bootstrap) as admin:
        (described,) = describe_group(admin, "commits-filtered").offsets
    assert described.committed == 10


def test_a_new_filter_of_a_group_applies_from_the_next_message(running: RunningBroker) -> None:
    topic = new_topic(running.bootstrap)
    send(running, topic, range(COUNT))

    async def scenario() -> None:
        group = {"group": "changes", "mode": "psb"}
        first = await pushed(running, topic, 30, filter="third", credits=1, **group)
        assert first == list(range(0, 31, 3))
        second = await pushed(running, topic, 60, filter="offset % 10 = 0", credits=1, **group)
        assert second == [40, 50, 60]
        send(running, topic, range(COUNT, COUNT + 10))
        third = await pushed(running, topic, COUNT + 9, **group)
        # The broker may have filtered up to the next one, which was released.
        assert third in (list(range(61, COUNT + 10)), list(range(70, COUNT + 10)))

    run(scenario())


def test_messages_that_no_filter_lets_pass_are_done_and_counted(running: RunningBroker) -> None:
    topic = new_topic(running.bootstrap)
    send(running, topic, range(COUNT))

    async def scenario() -> None:
        async with PushConsumer(
            topic, group="takes-nothing", bootstrap=running.bootstrap, filter="no-such-tag"
        ) as consumer:
            assert await consumer.poll(0.1) == []

            def lag() -> int:
                with Admin(running.bootstrap) as admin:
                    (partition,) = describe_group(admin, "takes-nothing").offsets
                    return COUNT if partition.lag is None else partition.lag

            await until(lambda: asyncio.to_thread(lambda: lag() == 0))

    run(scenario())
    metrics = urllib.request.urlopen(f"http://{running.http}/metrics").read().decode()
    labels = f'{{group="takes-nothing",topic="{topic}"}}'
    assert f"zhumq_subscription_filtered_total{labels} {COUNT}" in metrics


def test_a_filter_with_an_error_is_refused_with_its_place(running: RunningBroker) -> None:
    topic = new_topic(running.bootstrap)

    async def scenario() -> None:
        with pytest.raises(SubscriptionRefused) as raised:
            await pushed(running, topic, 0, filter="value.n >> 5")
        assert str(raised.value).endswith("  value.n >> 5\n           ^")
        with pytest.raises(SubscriptionRefused, match="at most 8192 characters"):
            await pushed(running, topic, 0, filter=" OR ".join(["value.n = 1"] * 10_000))

    run(scenario())
    with pytest.raises(ValueError, match="character 10"):
        Consumer(topic, bootstrap=running.bootstrap, filter="value.n >> 5")


def test_a_nacked_message_comes_again_and_a_rejected_one_is_a_dead_letter(
    running: RunningBroker,
) -> None:
    topic = new_topic(running.bootstrap)
    send(running, topic, range(30))

    async def scenario() -> None:
        async with PushConsumer(
            topic,
            group="fails",
            mode="ptp-shared",
            bootstrap=running.bootstrap,
            filter="third",
            auto_ack=False,
        ) as consumer:
            counts: dict[int, int] = {}
            async for message in consumer:
                counts[message.offset] = message.delivery_count
                if message.offset == 3 and message.delivery_count == 1:
                    message.nack("once more")
                elif message.offset == 6:
                    message.reject("bad")
                else:
                    message.ack()
                if len(counts) == 10 and counts[3] == 2:
                    break
            await consumer.flush()
        assert sorted(counts) == list(range(0, 30, 3))
        dead = await pushed(running, f"{topic}.dlq", 0, group="dead", mode="psb")
        assert dead == [0]

    run(scenario())

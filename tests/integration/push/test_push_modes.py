"""Point-to-point and publish-subscribe, pushed and pulled, with the client library."""

import asyncio
from collections import defaultdict

import pytest
from push_support import AT_ONCE, new_topic, numbered, run, send, until

from zhumq import Admin, Consumer, PushConsumer
from zhumq.client.errors import RequestFailed, SubscriptionRefused
from zhumq.testing.broker import RunningBroker

COUNT = 300
Places = dict[int, list[int]]


async def drain(consumer: PushConsumer, count: int) -> Places:
    """The offsets of `count` messages by partition, in order of arrival."""
    seen: Places = defaultdict(list)
    left = count
    async for message in consumer:
        seen[message.partition].append(message.offset)
        left -= 1
        if not left:
            break
    return seen


def in_order(seen: Places, partitions: int) -> bool:
    return all(seen[each] == list(range(COUNT // partitions)) for each in range(partitions))


def test_psb_push_gives_every_group_everything_in_order(running: RunningBroker) -> None:
    topic = new_topic(running.bootstrap, partitions=3)
    send(running.bootstrap, topic, numbered(COUNT), partitions=3)

    async def one(group: str | None) -> Places:
        async with PushConsumer(
            topic, group=group, mode="psb", bootstrap=running.bootstrap, credits=50
        ) as consumer:
            return await drain(consumer, COUNT)

    async def scenario() -> None:
        for seen in await asyncio.gather(one("a"), one("b"), one(None)):
            assert in_order(seen, 3)

    run(scenario())


def test_a_psb_group_that_stalls_does_not_slow_the_others(running: RunningBroker) -> None:
    topic = new_topic(running.bootstrap)
    send(running.bootstrap, topic, numbered(COUNT))

    async def scenario() -> None:
        async with PushConsumer(
            topic, group="stalls", mode="psb", push=running.push, credits=10
        ) as stalled:
            first = await anext(aiter(stalled))
            async with (
                PushConsumer(topic, group="b", mode="psb", push=running.push) as second,
                PushConsumer(topic, group="c", mode="psb", push=running.push) as third,
            ):
                for consumer in (second, third):
                    assert in_order(await drain(consumer, COUNT), 1)
            assert first.offset == 0
            assert await drain(stalled, COUNT - 1) == {0: list(range(1, COUNT))}
            sessions = await asyncio.to_thread(lambda: Admin(running.bootstrap).sessions("stalls"))
            assert [session.delivered for session in sessions] == [COUNT]

    run(scenario())


def test_a_consumer_raises_its_credits_while_it_runs(running: RunningBroker) -> None:
    topic = new_topic(running.bootstrap)
    send(running.bootstrap, topic, numbered(COUNT))

    async def in_flight() -> int:
        sessions = await asyncio.to_thread(lambda: Admin(running.bootstrap).sessions("raises"))
        return sum(session.in_flight for session in sessions)

    async def scenario() -> None:
        async with PushConsumer(
            topic, group="raises", mode="psb", push=running.push, credits=2
        ) as consumer:
            held = await anext(aiter(consumer))
            assert await in_flight() == 2
            consumer.set_credits(20)

            async def has_twenty() -> bool:
                return await in_flight() == 20

            await until(has_twenty)
            assert held.offset == 0

    run(scenario())


def test_psb_reads_chosen_partitions_from_a_chosen_place(running: RunningBroker) -> None:
    topic = new_topic(running.bootstrap, partitions=3)
    send(running.bootstrap, topic, numbered(COUNT), partitions=3)

    async def scenario() -> None:
        async with PushConsumer(
            {topic: [2]}, group="chooser", mode="psb", push=running.push, start=90
        ) as consumer:
            assert await drain(consumer, 10) == {2: list(range(90, 100))}
        # Without a start it continues at the group's position, which is the end.
        async with PushConsumer(
            {topic: [2]}, group="chooser", mode="psb", push=running.push
        ) as consumer:
            await asyncio.to_thread(send, running.bootstrap, topic, numbered(3), partitions=3)
            assert await drain(consumer, 1) == {2: [100]}
        async with PushConsumer(
            {topic: [2]}, group="chooser", mode="psb", push=running.push, restart=True
        ) as consumer:
            assert (await drain(consumer, 1))[2] == [0]
        async with PushConsumer(topic, mode="psb", push=running.push, start="latest") as consumer:
            await until(lambda: any(link.is_open for link, _ in consumer._links.values()))
            await asyncio.to_thread(send, running.bootstrap, topic, [b"new"])
            assert await drain(consumer, 1) == {0: [101]}

    run(scenario())


def test_psb_starts_at_a_time(running: RunningBroker) -> None:
    from zhumq import Producer

    topic = new_topic(running.bootstrap)
    with Producer(running.bootstrap, settings=AT_ONCE) as producer:
        for number in range(10):
            producer.send(topic, b"x", partition=0, timestamp_ms=1_700_000_000_000 + number * 1000)

    async def scenario() -> None:
        async with PushConsumer(
            topic, mode="psb", push=running.push, start_time_ms=1_700_000_006_500
        ) as consumer:
            assert await drain(consumer, 3) == {0: [7, 8, 9]}

    run(scenario())


@pytest.mark.parametrize("mode", ["ptp", "ptp-shared"])
def test_ptp_push_gives_every_message_to_one_consumer(running: RunningBroker, mode: str) -> None:
    topic = new_topic(running.bootstrap, partitions=4)
    send(running.bootstrap, topic, numbered(COUNT), partitions=4)

    async def scenario() -> None:
        seen: dict[str, Places] = {"one": defaultdict(list), "two": defaultdict(list)}

        async def one(name: str) -> None:
            async with PushConsumer(
                topic,
                group="together",
                mode=mode,  # type: ignore[arg-type]
                push=running.push,
                credits=5,
            ) as consumer:
                async for message in consumer:
                    seen[name][message.partition].append(message.offset)
                    await asyncio.sleep(0)

        def total() -> int:
            return sum(len(offsets) for places in seen.values() for offsets in places.values())

        workers = [asyncio.create_task(one(name)) for name in seen]
        await until(lambda: total() >= COUNT)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        assert total() == COUNT
        for partition in range(4):
            offsets = seen["one"][partition] + seen["two"][partition]
            assert sorted(offsets) == list(range(COUNT // 4))
            if mode == "ptp":
                for places in seen.values():
                    assert places[partition] == sorted(places[partition])

    run(scenario())


def test_point_to_point_and_publish_subscribe_share_one_topic(running: RunningBroker) -> None:
    topic = new_topic(running.bootstrap)
    send(running.bootstrap, topic, numbered(COUNT))

    async def one(group: str, mode: str) -> Places:
        async with PushConsumer(
            topic,
            group=group,
            mode=mode,  # type: ignore[arg-type]
            push=running.push,
        ) as consumer:
            return await drain(consumer, COUNT)

    async def scenario() -> None:
        places = await asyncio.gather(one("ptp", "ptp"), one("psb-1", "psb"), one("psb-2", "psb"))
        assert [in_order(each, 1) for each in places] == [True] * 3

    run(scenario())


def test_psb_pull_keeps_each_groups_own_position(running: RunningBroker) -> None:
    topic = new_topic(running.bootstrap, partitions=2)
    send(running.bootstrap, topic, numbered(COUNT), partitions=2)
    for group in ("p", "q", "p"):
        with Consumer(topic, group=group, mode="psb", bootstrap=running.bootstrap) as consumer:
            seen = []
            for message in consumer:
                seen.append((message.partition, message.offset))
                if len(seen) == COUNT // 2:
                    break
        assert len(set(seen)) == COUNT // 2
    with Consumer({topic: [1]}, mode="psb", bootstrap=running.bootstrap, start=140) as consumer:
        assert next(iter(consumer)).offset == 140


def test_ptp_pull_claims_the_topic_and_continues_at_its_position(running: RunningBroker) -> None:
    topic = new_topic(running.bootstrap)
    send(running.bootstrap, topic, numbered(10))
    for first in (0, 5):
        with Consumer(topic, group="pullers", mode="ptp", bootstrap=running.bootstrap) as consumer:
            seen = []
            for message in consumer:
                seen.append(message.offset)
                if len(seen) == 5:
                    break
        assert seen == list(range(first, first + 5))
    with pytest.raises(SubscriptionRefused, match="'pullers'") as refused:
        Consumer(topic, group="others", mode="ptp", bootstrap=running.bootstrap)
    assert refused.value.code == "GROUP_CONFLICT"


def test_an_ordered_pull_repeats_nacked_messages_and_dead_letters_rejected_ones(
    running: RunningBroker,
) -> None:
    topic = new_topic(running.bootstrap)
    send(running.bootstrap, topic, numbered(4))
    seen = []
    with Consumer(topic, group="nackers", mode="ptp", bootstrap=running.bootstrap) as consumer:
        for message in consumer:
            seen.append(message.offset)
            if message.offset == 1 and seen.count(1) == 1:
                message.nack("again, please")
            elif message.offset == 2:
                message.reject("no use")
            elif message.offset == 3:
                break
    assert seen == [0, 1, 1, 2, 3]
    with Admin(running.bootstrap) as admin:
        (dead_letter,) = admin.dead_letters(topic)
        assert (dead_letter.value, dead_letter.story.reason, dead_letter.story.offset) == (
            b"2",
            "no use",
            2,
        )


def test_a_pull_of_what_is_not_there_is_refused(running: RunningBroker) -> None:
    topic = new_topic(running.bootstrap)
    with pytest.raises(SubscriptionRefused, match="0 to 0, not 3"):
        Consumer({topic: [3]}, mode="psb", bootstrap=running.bootstrap)
    with pytest.raises(RequestFailed, match="0 to 0, not 3"):
        Consumer({topic: [3]}, bootstrap=running.bootstrap)
    with pytest.raises(SubscriptionRefused, match="offset 17"):
        Consumer(topic, mode="psb", start=17, bootstrap=running.bootstrap)
    with pytest.raises(RequestFailed, match="not 17"):
        Consumer(topic, start=17, bootstrap=running.bootstrap)
    with pytest.raises(SubscriptionRefused, match="no topic 'absent'"):
        Consumer("absent", group="g", mode="ptp", bootstrap=running.bootstrap)


def test_options_that_do_not_go_together_are_refused(running: RunningBroker) -> None:
    with pytest.raises(ValueError, match="need a mode"):
        Consumer("t", group="g", restart=True, bootstrap=running.bootstrap)
    with pytest.raises(ValueError, match="librdkafka"):
        Consumer("t", mode="psb", settings={"client.id": "x"}, bootstrap=running.bootstrap)
    with pytest.raises(ValueError, match="earliest, latest or an offset"):
        Consumer("t", mode="psb", start="middle", bootstrap=running.bootstrap)  # type: ignore[arg-type]

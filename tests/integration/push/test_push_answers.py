"""Ack, nack, reject, extend: their effect on a message, and the order of deliveries in ordered modes."""

import asyncio

import pytest
from push_support import (
    answer,
    bare_stream,
    new_topic,
    numbered,
    psb,
    run,
    send,
    shared,
    until,
)

from zhumq import Admin, Message, PushConsumer
from zhumq.protocol.push import push_pb2 as pb
from zhumq.testing.broker import RunningBroker


def test_a_nacked_message_comes_again_in_its_place(running: RunningBroker) -> None:
    topic = new_topic(running.bootstrap)
    send(running.bootstrap, topic, numbered(20))
    seen: list[tuple[int, int]] = []

    async def scenario() -> None:
        async with PushConsumer(topic, group="nack", mode="ptp", push=running.push) as consumer:
            async for message in consumer:
                seen.append((message.offset, message.delivery_count))
                if message.offset == 5 and message.delivery_count < 3:
                    message.nack("not yet")
                if message.offset == 19:
                    break

    run(scenario())
    offsets = [offset for offset, _ in seen]
    assert offsets == [*range(6), 5, *range(5, 20)]
    assert [count for offset, count in seen if offset == 5] == [1, 2, 3]


def test_a_message_nacked_too_often_is_a_dead_letter_with_its_story(running: RunningBroker) -> None:
    topic = new_topic(running.bootstrap)
    send(running.bootstrap, topic, [b"good", b"bad", b"good too"])
    done: list[bytes | None] = []

    async def handler(message: Message) -> None:
        if message.value == b"bad":
            raise RuntimeError("cannot digest it")
        done.append(message.value)

    async def scenario() -> None:
        async with PushConsumer(
            topic, group="eaters", mode="ptp-shared", push=running.push
        ) as consumer:
            task = asyncio.create_task(consumer.run(handler))

            def dead_letters() -> list[object]:
                topics = Admin(running.bootstrap).topics()
                if f"{topic}.dlq" not in topics:
                    return []
                return list(Admin(running.bootstrap).dead_letters(topic))

            (dead_letter,) = await until(lambda: asyncio.to_thread(dead_letters))
            story = dead_letter.story
            assert (dead_letter.value, dead_letter.headers) == (b"bad", ())
            assert (story.group, story.topic, story.partition, story.offset) == (
                "eaters",
                topic,
                0,
                1,
            )
            assert story.reason.endswith("RuntimeError: cannot digest it")
            assert story.deliveries == 16
            assert story.time_ms > 0
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run(scenario(), 60)
    assert sorted(value or b"" for value in done) == [b"good", b"good too"]


def test_a_rejected_message_is_a_dead_letter_at_once_and_can_be_replayed(
    running: RunningBroker,
) -> None:
    topic = new_topic(running.bootstrap)
    send(running.bootstrap, topic, numbered(3))

    async def scenario() -> None:
        async with PushConsumer(topic, group="r", mode="ptp", push=running.push) as consumer:
            async for message in consumer:
                if message.offset == 1:
                    message.reject("broken")
                elif message.offset == 2:
                    break
        assert not consumer.refused_answers

    run(scenario())
    with Admin(running.bootstrap) as admin:
        # The answer is durable at once; the dead letter is written after it.
        run(until(lambda: admin.dead_letter_topics().get(f"{topic}.dlq")))
        assert [dead_letter.value for dead_letter in admin.dead_letters(topic)] == [b"1"]
        assert admin.replay(topic) == 1
        assert admin.dead_letter_topics()[f"{topic}.dlq"] == 0, "nothing is left to replay"
        assert admin.replay(topic) == 0, "what was replayed is not replayed again"
        assert admin.replay(topic, again=True) == 1

    async def again() -> list[tuple[int, bytes | None]]:
        async with PushConsumer(topic, group="r", mode="ptp", push=running.push) as consumer:
            seen = []
            async for message in consumer:
                seen.append((message.offset, message.value))
                if len(seen) == 2:
                    break
            return seen

    assert run(again()) == [(3, b"1"), (4, b"1")]


@pytest.mark.thorough
def test_an_extended_message_is_not_delivered_again_in_time(running: RunningBroker) -> None:
    topic = new_topic(running.bootstrap)
    send(running.bootstrap, topic, numbered(2))

    async def scenario() -> None:
        # Long enough for a busy machine between two extensions.
        timeout_seconds = 4.0
        subscribe = psb(topic, group="slow", credits=1, ack_timeout_ms=int(timeout_seconds * 1_000))
        async with bare_stream(running.push, subscribe) as stream:
            first = await stream.receive_kind("messages")
            loop = asyncio.get_running_loop()
            begun = loop.time()
            while loop.time() < begun + 1.2 * timeout_seconds:  # longer than the ack timeout
                await asyncio.sleep(0.2)
                await stream.send(answer=answer(first, pb.EXTEND, id=1))
                assert (await stream.receive_kind("answered")).code == pb.OK
            await stream.send(answer=answer(first, id=2))
            assert (await stream.receive_kind("answered")).code == pb.OK
            following = await stream.receive_kind("messages")
            assert following.ranges[0].first_offset == 1
            assert following.ranges[0].delivery_count == 1

    run(scenario())


def test_messages_of_a_lost_consumer_go_to_another_member(running: RunningBroker) -> None:
    topic = new_topic(running.bootstrap)
    send(running.bootstrap, topic, numbered(10))

    async def scenario() -> None:
        async with bare_stream(running.push, shared(topic, "heirs", credits=10)) as lost:
            held = 0
            while held < 10:  # they may arrive in several frames
                messages = await lost.receive_kind("messages")
                held += sum(each.last_offset - each.first_offset + 1 for each in messages.ranges)
        async with bare_stream(running.push, shared(topic, "heirs", credits=10)) as heir:
            taken: set[int] = set()
            while len(taken) < 10:
                messages = await heir.receive_kind("messages")
                for each in messages.ranges:
                    taken.update(range(each.first_offset, each.last_offset + 1))
                    assert each.delivery_count == 2

    run(scenario())


def test_what_was_acknowledged_stays_so_over_a_reconnect(running: RunningBroker) -> None:
    topic = new_topic(running.bootstrap)
    send(running.bootstrap, topic, numbered(10))

    async def scenario() -> None:
        async with PushConsumer(topic, group="again", mode="psb", push=running.push) as consumer:
            async for message in consumer:
                if message.offset == 4:
                    break
        async with PushConsumer(topic, group="again", mode="psb", push=running.push) as consumer:
            assert (await anext(aiter(consumer))).offset == 5

    run(scenario())


def test_dead_letters_that_were_replayed_one_by_one_are_left_out_and_not_counted(
    running: RunningBroker,
) -> None:
    topic = new_topic(running.bootstrap)
    send(running.bootstrap, topic, numbered(5))

    async def scenario() -> None:
        async with PushConsumer(topic, group="picky", mode="ptp", push=running.push) as consumer:
            async for message in consumer:
                message.reject("no")
                if message.offset == 4:
                    break

    run(scenario())
    name = f"{topic}.dlq"
    with Admin(running.bootstrap) as admin:
        run(until(lambda: admin.dead_letter_topics().get(name) == 5))
        assert admin.replay(topic, offsets={0: {1, 3}}) == 2
        count = admin.dead_letter_counts()[name]
        assert (count.left, count.replayed) == (3, 2)
        assert [dead_letter.replayed for dead_letter in admin.dead_letters(topic)] == [
            False,
            True,
            False,
            True,
            False,
        ]
        assert admin.replay(topic, group="picky") == 3
        assert admin.replay(topic, group="picky") == 0
        assert admin.dead_letter_topics()[name] == 0
        assert admin.replay(topic, offsets={0: {1}}) == 1, "one that is named is replayed again"

"""Refusals of the push endpoint: each has a clear message, and no message is lost."""

from collections.abc import Callable
from typing import Any

import pytest
from push_support import answer, bare_stream, exclusive, new_topic, numbered, psb, run, send, shared

from zhumq.protocol.push import push_pb2 as pb
from zhumq.testing.broker import RunningBroker


async def refusal(push: str, subscribe: pb.Subscribe) -> pb.Refused:
    async with bare_stream(push, subscribe) as stream:
        frame = await stream.receive()
        while frame is not None and not frame.HasField("refused"):
            frame = await stream.receive()
        assert frame is not None
        assert await stream.receive() is None, "a refused stream ends"
        return frame.refused


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        (lambda topic: psb("no-such-topic"), pb.UNKNOWN_TOPIC, "no-such-topic"),
        (lambda topic: psb(topic, partitions=[2]), pb.PARTITION_OUT_OF_RANGE, "0 to 1"),
        (lambda topic: psb(topic, partitions=[-1]), pb.PARTITION_OUT_OF_RANGE, "not -1"),
        (
            lambda topic: psb(topic, start=pb.Start(kind=pb.OFFSET, offset=99)),
            pb.OFFSET_OUT_OF_RANGE,
            "99",
        ),
        (
            lambda topic: psb(topic, start=pb.Start(kind=pb.OFFSET, offset=-1)),
            pb.OFFSET_OUT_OF_RANGE,
            "-1",
        ),
        (lambda topic: psb(topic, credits=0), pb.CREDIT_INVALID, "credit 0"),
        (lambda topic: psb(topic, credits=-5), pb.CREDIT_INVALID, "credit -5"),
        (lambda topic: psb(topic, filter="tag = "), pb.FILTER_INVALID, "character 7"),
        (
            lambda topic: pb.Subscribe(
                topics=[pb.TopicChoice(name=topic, partitions=[0]), pb.TopicChoice(name="other")],
                mode=pb.PTP_EXCLUSIVE,
                credits=1,
            ),
            pb.INVALID,
            "for all of its topics",
        ),
        (
            lambda topic: pb.Subscribe(
                topics=[pb.TopicChoice(name=topic, partitions=[0, 0])], mode=pb.PSB, credits=1
            ),
            pb.INVALID,
            "named twice",
        ),
        (lambda topic: pb.Subscribe(mode=pb.PSB, credits=1), pb.INVALID, "topics"),
        (lambda topic: psb(topic, ack_timeout_ms=-1), pb.INVALID, "ack_timeout_ms"),
        (lambda topic: psb(topic, group="x" * 300), pb.INVALID, "characters"),
        (
            lambda topic: shared(topic, "g", restart=True),
            pb.INVALID,
            "keeps its own position",
        ),
    ],
)
def test_a_subscription_that_cannot_be_served_is_refused_with_a_message(
    running: RunningBroker, make: Callable[[str], pb.Subscribe], code: int, words: str
) -> None:
    topic = new_topic(running.bootstrap, partitions=2)
    send(running.bootstrap, topic, numbered(4), partitions=2)
    refused = run(refusal(running.push, make(topic)))
    assert (pb.Code.Name(refused.code), refused.retry) == (pb.Code.Name(code), False)
    assert words in refused.message


@pytest.mark.parametrize("other", [shared, exclusive])
def test_a_second_point_to_point_group_is_refused_with_the_first_ones_name(
    running: RunningBroker, other: Any
) -> None:
    topic = new_topic(running.bootstrap)

    async def scenario() -> None:
        async with bare_stream(running.push, shared(topic, "first")) as stream:
            await stream.receive_kind("subscribed")
            refused = await refusal(running.push, other(topic, "second"))
            assert refused.code == pb.GROUP_CONFLICT
            assert "'first'" in refused.message

    run(scenario())


def test_the_same_group_in_another_mode_is_refused(running: RunningBroker) -> None:
    topic = new_topic(running.bootstrap)

    async def scenario() -> None:
        async with bare_stream(running.push, shared(topic, "both-ways")) as stream:
            await stream.receive_kind("subscribed")
        refused = await refusal(running.push, exclusive(topic, "both-ways"))
        assert refused.code == pb.GROUP_CONFLICT

    run(scenario())


def test_a_psb_group_has_one_consumer(running: RunningBroker) -> None:
    topic = new_topic(running.bootstrap)

    async def scenario() -> None:
        async with bare_stream(running.push, psb(topic, group="solo")) as stream:
            await stream.receive_kind("subscribed")
            refused = await refusal(running.push, psb(topic, group="solo"))
            assert refused.code == pb.GROUP_CONFLICT
            assert refused.retry

    run(scenario())


def test_an_ack_of_what_was_never_delivered_is_refused_and_changes_nothing(
    running: RunningBroker,
) -> None:
    topic = new_topic(running.bootstrap)
    send(running.bootstrap, topic, numbered(5))

    async def scenario() -> None:
        async with bare_stream(running.push, psb(topic, group="acker", credits=2)) as stream:
            messages = await stream.receive_kind("messages")
            assert [(each.first_offset, each.last_offset) for each in messages.ranges] == [(0, 1)]
            for first, last in ((2, 2), (1, 3), (7, 900), (-3, 0)):
                wrong = pb.Answer(
                    id=9,
                    topic=topic,
                    ranges=[pb.Range(first_offset=first, last_offset=last)],
                )
                await stream.send(answer=wrong)
                answered = await stream.receive_kind("answered")
                assert (answered.id, answered.code) == (9, pb.NOT_DELIVERED)
            elsewhere = pb.Answer(id=10, topic="other", ranges=messages.ranges)
            await stream.send(answer=elsewhere)
            assert (await stream.receive_kind("answered")).code == pb.NOT_DELIVERED
            await stream.send(answer=answer(messages, id=11))
            assert (await stream.receive_kind("answered")).code == pb.OK
            await stream.send(answer=answer(messages, id=12))
            assert (await stream.receive_kind("answered")).code == pb.NOT_DELIVERED
            following = await stream.receive_kind("messages")
            assert following.ranges[0].first_offset == 2

    run(scenario())


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (b"\xff\xff\xff\xff garbage", "first frame"),
        (pb.ClientFrame().SerializeToString(), "first frame"),
        (pb.ClientFrame(pause=pb.Pause()).SerializeToString(), "first frame"),
    ],
)
def test_a_stream_that_begins_with_something_else_is_refused(
    running: RunningBroker, frame: bytes, words: str
) -> None:
    async def scenario() -> None:
        async with bare_stream(running.push) as stream:
            await stream.send_bytes(frame)
            answered = await stream.receive()
            assert answered is not None
            assert answered.refused.code == pb.INVALID
            assert words in answered.refused.message
            assert await stream.receive() is None

    run(scenario())


def test_garbage_in_the_middle_ends_the_stream_and_its_messages_are_redelivered(
    running: RunningBroker,
) -> None:
    topic = new_topic(running.bootstrap)
    send(running.bootstrap, topic, numbered(10))

    async def scenario() -> None:
        async with bare_stream(running.push, shared(topic, "garbage", credits=10)) as stream:
            await stream.receive_kind("messages")
            await stream.send_bytes(b"\x00\x01\x02 no frame at all")
            frame = await stream.receive()
            while frame is not None and not frame.HasField("refused"):
                frame = await stream.receive()
            assert frame is not None
            assert frame.refused.code == pb.INVALID
        async with bare_stream(running.push, shared(topic, "garbage", credits=10)) as stream:
            seen = 0
            while seen < 10:
                messages = await stream.receive_kind("messages")
                seen += sum(r.last_offset - r.first_offset + 1 for r in messages.ranges)
                await stream.send(answer=answer(messages))

    run(scenario())


def test_a_negative_credit_ends_the_stream(running: RunningBroker) -> None:
    topic = new_topic(running.bootstrap)

    async def scenario() -> None:
        async with bare_stream(running.push, psb(topic)) as stream:
            await stream.receive_kind("subscribed")
            await stream.send(credit=pb.Credit(messages=-1))
            frame = await stream.receive()
            assert frame is not None
            assert frame.refused.code == pb.CREDIT_INVALID

    run(scenario())

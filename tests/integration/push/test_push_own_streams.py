"""Several streams of one consumer on one broker, in the order in which they were not opened: the newest stays."""

import asyncio
import contextlib

from push_support import BareStream, answer, bare_stream, exclusive, new_topic, numbered, run, send

from zhumq.protocol.push import push_pb2 as pb
from zhumq.testing.broker import RunningBroker


def test_a_members_later_stream_begins_where_its_earlier_one_did_not_answer(
    running: RunningBroker,
) -> None:
    topic = new_topic(running.bootstrap)
    send(running.bootstrap, topic, numbered(20))

    async def scenario() -> None:
        home = exclusive(topic, "one-stream", instance="member-1", credits=5)
        async with bare_stream(running.push, home) as first:
            assigned = await first.receive_kind("assigned")
            messages = await first.receive_kind("messages")
            assert (messages.ranges[0].first_offset, messages.ranges[0].last_offset) == (0, 4)
            # The consumer lost this connection, which the broker has not detected, and attaches again.
            attached = exclusive(topic, "one-stream", credits=5)
            attached.topics[0].partitions.append(0)
            attached.attachment.member_id = assigned.member_id
            attached.attachment.member_epoch = assigned.member_epoch
            async with bare_stream(running.push, attached) as second:
                again = await second.receive_kind("messages")
                assert again.ranges[0].first_offset == 0

    run(scenario())


def test_an_attachment_that_was_on_its_way_for_long_does_not_end_the_members_later_home_stream(
    running: RunningBroker,
) -> None:
    topic = new_topic(running.bootstrap)
    send(running.bootstrap, topic, numbered(20))

    async def scenario() -> None:
        home = exclusive(topic, "late", instance="member-2", credits=5, generation=2)
        async with bare_stream(running.push, home) as stream:
            assigned = await stream.receive_kind("assigned")
            late = exclusive(topic, "late", credits=5, generation=1)
            late.topics[0].partitions.append(0)
            late.attachment.member_id = assigned.member_id
            late.attachment.member_epoch = assigned.member_epoch
            async with bare_stream(running.push, late) as attachment:
                refused = await refusal(attachment)
                assert refused.code == pb.FENCED
                assert refused.retry
            messages = await stream.receive_kind("messages")
            await stream.send(answer=answer(messages, id=1))
            assert (await stream.receive_kind("answered")).code == pb.OK

    run(scenario())


def test_of_streams_of_a_consumer_that_arrive_together_the_newest_stays(
    running: RunningBroker,
) -> None:
    topic = new_topic(running.bootstrap)
    send(running.bootstrap, topic, numbered(20))

    async def scenario() -> None:
        async with contextlib.AsyncExitStack() as opened:
            first, *later = [
                exclusive(topic, "together", instance="member-3", credits=5, generation=number)
                for number in range(1, 6)
            ]
            held = await opened.enter_async_context(bare_stream(running.push, first))
            await held.receive_kind("messages")
            # Each of them finds the first one, and waits for its end.
            streams = await asyncio.gather(
                *(
                    opened.enter_async_context(bare_stream(running.push, each))
                    for each in reversed(later)
                )
            )
            newest, *older = streams
            ends = await asyncio.gather(*(refusal(each) for each in (held, *older)))
            assert {each.code for each in ends} == {pb.FENCED}
            messages = await newest.receive_kind("messages")
            assert messages.ranges[0].first_offset == 0
            await newest.send(answer=answer(messages, id=1))
            assert (await newest.receive_kind("answered")).code == pb.OK

    run(scenario())


async def refusal(stream: BareStream) -> pb.Refused:
    """Why the broker ends the stream."""
    while (frame := await stream.receive()) is not None:
        if frame.HasField("refused"):
            return frame.refused
    raise AssertionError("the stream ended without a reason")

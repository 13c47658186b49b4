"""A member that was silent speaks again, at the worst moment: it is a member again, and takes what it is given."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from push_support import answer, bare_stream, exclusive, new_topic, numbered, run, send, until

from zhumq import PushConsumer
from zhumq.client.message import Message
from zhumq.coordinators.share_partition_delivery import SharePartitionDelivery
from zhumq.protocol.push import push_pb2 as pb
from zhumq.push.membership import Membership
from zhumq.testing.broker import RunningBroker, broker
from zhumq.testing.process import broker_process

PING_TIMEOUT_SECONDS = 0.6
SHORT_WAITS = {
    "push.ping.interval.ms": "100",
    "push.ping.timeout.ms": f"{PING_TIMEOUT_SECONDS * 1_000:.0f}",
    "push.retry.backoff.ms": "100",
    "offsets.topic.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
}
HOLD_SECONDS_MAX = 30.0


@pytest.fixture(scope="module")
def short_waits() -> Iterator[RunningBroker]:
    with broker(settings=SHORT_WAITS) as running:
        yield running


class HeldUp:
    """A step of the broker's that begins when it wants to and goes on when the test wants it to."""

    def __init__(self, owner: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        step = getattr(owner, name)

        async def held_up(*arguments: Any, **more: Any) -> Any:
            self.begun.set()
            assert await asyncio.to_thread(self.go_on.wait, HOLD_SECONDS_MAX)
            return await step(*arguments, **more)

        monkeypatch.setattr(owner, name, held_up)


@pytest.mark.parametrize(
    ("owner", "step"), [(SharePartitionDelivery, "release_member"), (Membership, "leave")]
)
def test_a_member_that_speaks_while_it_is_being_put_out_comes_in_again(
    short_waits: RunningBroker, monkeypatch: pytest.MonkeyPatch, owner: type, step: str
) -> None:
    topic = new_topic(short_waits.bootstrap)
    send(short_waits.bootstrap, topic, numbered(10))
    held_up = HeldUp(owner, step, monkeypatch)

    async def scenario() -> None:
        async with bare_stream(short_waits.push, exclusive(topic, "crew", credits=10)) as stream:
            first = await stream.receive_kind("messages")
            # It does not answer, pings included, until the broker has lost patience.
            await until(held_up.begun.is_set)
            await stream.send(pong=pb.Pong(number=1))
            held_up.go_on.set()
            again = await stream.receive_kind("messages")
            assert again.ranges[0].first_offset == first.ranges[0].first_offset == 0
            assert again.round > first.round
            await stream.send(answer=answer(again, id=1))
            answered = await stream.receive_kind("answered")
            assert answered.code == pb.OK

    run(scenario())


def test_a_broker_that_was_itself_stopped_puts_nobody_out(tmp_path: Path) -> None:
    with broker_process(tmp_path / "data", settings=SHORT_WAITS) as process:
        topic = new_topic(process.bootstrap)
        send(process.bootstrap, topic, numbered(10))

        async def scenario() -> None:
            async with PushConsumer(
                topic, group="crew", mode="ptp", push=process.push, auto_ack=False
            ) as consumer:
                messages: list[Message] = []
                while len(messages) < 10:
                    messages += await consumer.poll(30)
                process.pause()
                assert await consumer.poll(3 * PING_TIMEOUT_SECONDS) == []
                process.resume()
                for message in messages:
                    message.ack()
                assert await consumer.flush() == 0, "it holds what it held before"

        run(scenario())
        assert "no answer" not in process.log

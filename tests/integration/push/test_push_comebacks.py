"""A silent member that sends a frame while the broker removes it joins again and gets its deliveries."""

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
    """Makes a method of the broker wait, once called, until the test sets `go_on`."""

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
def test_a_member_that_sends_a_frame_while_it_is_removed_joins_again(
    short_waits: RunningBroker, monkeypatch: pytest.MonkeyPatch, owner: type, step: str
) -> None:
    topic = new_topic(short_waits.bootstrap)
    send(short_waits.bootstrap, topic, numbered(10))
    held_up = HeldUp(owner, step, monkeypatch)

    async def scenario() -> None:
        async with bare_stream(short_waits.push, exclusive(topic, "crew", credits=10)) as stream:
            first = await stream.receive_kind("messages")
            # It answers nothing, not even pings, until the ping timeout.
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


def test_a_broker_that_was_itself_stopped_removes_no_member(tmp_path: Path) -> None:
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
                assert await consumer.flush() == 0, "its in-flight deliveries are unchanged"

        run(scenario())
        assert "no answer" not in process.log

"""A consumer that stops answering is retried, parked, and resumed exactly at its position."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from push_support import (
    answer,
    bare_stream,
    exclusive,
    new_topic,
    numbered,
    psb,
    run,
    send,
    shared,
    until,
)

from zhumq import Admin, PushConsumer
from zhumq.admin.sessions import Session
from zhumq.client.errors import RequestFailed, SessionParked
from zhumq.protocol.push import push_pb2 as pb
from zhumq.testing.process import BrokerProcess, broker_process

SHORT_WAITS = {
    "push.ping.interval.ms": "100",
    "push.ping.timeout.ms": "600",
    "push.retries.max": "2",
    "push.retry.backoff.ms": "100",
    "offsets.topic.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    "delivery.backoff.ms": "20",
}
PROGRAM = Path(__file__).with_name("stalling_consumer.py")


@pytest.fixture
def short_waits(tmp_path: Path) -> Iterator[BrokerProcess]:
    with broker_process(tmp_path / "data", settings=SHORT_WAITS) as process:
        yield process


@contextmanager
def consumer_process(
    process: BrokerProcess, topic: str, group: str, mode: str
) -> "Iterator[subprocess.Popen[str]]":
    command = [sys.executable, str(PROGRAM), process.push, topic, group, mode, "10", "5000"]
    with subprocess.Popen(
        [*command, "named"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as consumer:
        try:
            yield consumer
        finally:
            consumer.send_signal(signal.SIGCONT)
            consumer.kill()


def line(consumer: "subprocess.Popen[str]") -> str:
    assert consumer.stdout is not None
    return consumer.stdout.readline().strip()


def acknowledged(consumer: "subprocess.Popen[str]", count: int) -> set[int]:
    """The first `count` offsets that the consumer acknowledged."""
    offsets: set[int] = set()
    while len(offsets) < count:
        words = line(consumer).split()
        if words[0] == "ack":
            offsets.update(range(int(words[3]), int(words[4]) + 1))
    return offsets


async def session_in_state(process: BrokerProcess, group: str, state: str) -> Session:
    def look() -> Session | None:
        found = Admin(process.bootstrap, push=process.push).sessions(group)
        return next((each for each in found if each.state == state), None)

    session = await until(lambda: asyncio.to_thread(look))
    assert isinstance(session, Session)
    return session


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["psb", "ptp", "ptp-shared"])
def test_a_stalled_process_is_retried_parked_and_resumed_across_a_restart_of_the_broker(
    short_waits: BrokerProcess, mode: str
) -> None:
    topic = new_topic(short_waits.bootstrap)
    send(short_waits.bootstrap, topic, numbered(5))

    async def scenario() -> None:
        with consumer_process(short_waits, topic, "stalled", mode) as consumer:
            assert acknowledged(consumer, 5) == set(range(5))
            consumer.send_signal(signal.SIGSTOP)
            await asyncio.to_thread(send, short_waits.bootstrap, topic, numbered(5, first=5))
            await session_in_state(short_waits, "stalled", "retrying")
            parked = await session_in_state(short_waits, "stalled", "parked")
            assert parked.reason
            assert parked.connected
            # The broker dies and restarts while the consumer is still stopped.
            await asyncio.to_thread(short_waits.kill)
            await asyncio.to_thread(short_waits.start)
            parked = await session_in_state(short_waits, "stalled", "parked")
            assert not parked.connected
            consumer.send_signal(signal.SIGCONT)
            await until(lambda: consumer.poll() is not None or parked_again(consumer))
            await asyncio.to_thread(
                Admin(short_waits.bootstrap, push=short_waits.push).resume_session, parked.name
            )
        with consumer_process(short_waits, topic, "stalled", mode) as consumer:
            assert acknowledged(consumer, 5) == set(range(5, 10))

    def parked_again(consumer: "subprocess.Popen[str]") -> bool:
        return line(consumer).startswith("parked")

    run(scenario(), 60)


def test_a_consumer_that_answers_pings_but_no_deliveries_is_parked_and_resumes_itself(
    short_waits: BrokerProcess,
) -> None:
    topic = new_topic(short_waits.bootstrap)
    send(short_waits.bootstrap, topic, numbered(3))

    async def scenario() -> None:
        subscribe = psb(topic, group="idle", credits=1, ack_timeout_ms=250)
        async with bare_stream(short_waits.push, subscribe) as stream:
            parked = await stream.receive_kind("parked")
            assert "deliveries" in parked.reason
            await session_in_state(short_waits, "idle", "parked")
            await stream.send(resume=pb.Resume())
            # It continues with the message that it never answered.
            counts = []
            while (messages := await stream.receive_kind("messages")).ranges[0].first_offset == 0:
                counts.append(messages.ranges[0].delivery_count)
                if len(counts) > 3:
                    await stream.send(answer=answer(messages))
            assert counts[:4] == [1, 2, 3, 4]
            assert messages.ranges[0].first_offset == 1

    run(scenario())


def test_a_late_answer_takes_a_consumer_out_of_the_timeout_queue(
    short_waits: BrokerProcess,
) -> None:
    topic = new_topic(short_waits.bootstrap)
    send(short_waits.bootstrap, topic, numbered(3))

    async def scenario() -> None:
        subscribe = psb(topic, group="late", credits=1, ack_timeout_ms=400)
        async with bare_stream(short_waits.push, subscribe) as stream:
            await stream.receive_kind("messages")
            again = await stream.receive_kind("messages")
            assert (again.ranges[0].first_offset, again.ranges[0].delivery_count) == (0, 2)
            await stream.send(answer=answer(again))
            assert (await stream.receive_kind("messages")).ranges[0].first_offset == 1

    run(scenario())


def test_a_parked_session_is_refused_until_it_is_resumed(short_waits: BrokerProcess) -> None:
    topic = new_topic(short_waits.bootstrap)
    send(short_waits.bootstrap, topic, numbered(3))

    async def scenario() -> None:
        async with bare_stream(short_waits.push, psb(topic, group="gone", credits=2)) as stream:
            await stream.receive_kind("messages")
        await session_in_state(short_waits, "gone", "parked")
        with pytest.raises(SessionParked, match="resume"):
            async with PushConsumer(
                topic, group="gone", mode="psb", push=short_waits.push
            ) as refused:
                await anext(refused)
        async with PushConsumer(
            topic, group="gone", mode="psb", push=short_waits.push, resume=True
        ) as consumer:
            message = await anext(consumer)
            assert (message.offset, message.delivery_count) == (0, 2)

    run(scenario())


def test_a_cancelled_call_is_never_taken_for_one_that_is_finished(tmp_path: Path) -> None:
    """gRPC reports the end of the frames and the cancellation in either order."""
    long_waits = SHORT_WAITS | {"push.retry.backoff.ms": "60000", "push.ping.timeout.ms": "15000"}
    groups = {f"cancelled-{number}" for number in range(100)}

    async def vanish(push: str, topic: str, group: str) -> None:
        async with bare_stream(push, psb(topic, group=group, credits=1)) as stream:
            await stream.receive_kind("messages")

    with broker_process(tmp_path / "data", settings=long_waits) as process:
        topic = new_topic(process.bootstrap)
        send(process.bootstrap, topic, numbered(3))

        async def scenario() -> None:
            await asyncio.gather(*(vanish(process.push, topic, group) for group in groups))

            def retrying() -> bool:
                sessions = Admin(process.bootstrap, push=process.push).sessions()
                return {each.group for each in sessions if each.state == "retrying"} == groups

            await until(lambda: asyncio.to_thread(retrying))

        run(scenario())


def test_a_consumer_that_reconnects_in_time_continues(tmp_path: Path) -> None:
    # A long ping timeout, so that the reconnected consumer is not lost to a late pong as well.
    long_waits = SHORT_WAITS | {"push.retry.backoff.ms": "60000", "push.ping.timeout.ms": "15000"}
    with broker_process(tmp_path / "data", settings=long_waits) as process:
        _come_back(process)


def _come_back(short_waits: BrokerProcess) -> None:
    topic = new_topic(short_waits.bootstrap)
    send(short_waits.bootstrap, topic, numbered(3))

    async def scenario() -> None:
        async with bare_stream(short_waits.push, psb(topic, group="back", credits=1)) as stream:
            await stream.receive_kind("messages")
        await session_in_state(short_waits, "back", "retrying")
        async with PushConsumer(topic, group="back", mode="psb", push=short_waits.push) as consumer:
            assert (await anext(consumer)).offset == 0
            await session_in_state(short_waits, "back", "active")

    run(scenario())


@pytest.mark.parametrize("subscribe", [shared, exclusive])
def test_a_silent_members_messages_go_to_another_member(
    short_waits: BrokerProcess, subscribe: object
) -> None:
    topic = new_topic(short_waits.bootstrap)
    send(short_waits.bootstrap, topic, numbered(10))

    async def scenario() -> None:
        assert callable(subscribe)
        async with bare_stream(short_waits.push, subscribe(topic, "pair", credits=10)) as silent:
            await silent.receive_kind("messages")
            # From here on it answers nothing, pings included.
            async with bare_stream(short_waits.push, subscribe(topic, "pair", credits=10)) as other:
                taken: set[int] = set()
                while len(taken) < 10:
                    messages = await other.receive_kind("messages")
                    for each in messages.ranges:
                        taken.update(range(each.first_offset, each.last_offset + 1))
                    await other.send(answer=answer(messages))

    run(scenario())


def test_resuming_a_session_that_does_not_exist_fails(short_waits: BrokerProcess) -> None:
    with pytest.raises(RequestFailed, match="no session 'a/b'"):
        Admin(short_waits.bootstrap, push=short_waits.push).resume_session("a/b")

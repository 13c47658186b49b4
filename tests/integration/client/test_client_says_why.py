"""Clients log what they wait for, raise the cause when they give up, and log handlers that fail."""

import asyncio
import logging
import socket
import time
from collections.abc import Iterator

import pytest

from zhumq import Admin, Consumer, Message, Producer, PushConsumer, Worker
from zhumq.client.errors import HandlerFailed, RequestFailed
from zhumq.client.waiting import Waiting
from zhumq.testing.broker import RunningBroker, broker

SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    settings = {"delivery.backoff.ms": "20", "delivery.backoff.max.ms": "100"}
    with broker(settings=settings) as running_:
        yield running_


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An address without a listener, reserved for the test."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "zhumq.client"]


def test_a_producer_that_gives_up_names_the_cause(
    nowhere: str, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer(nowhere)
    producer.send("orders", b"one")
    with pytest.raises(RequestFailed, match=r"1 messages are still not sent after 1 s: .*refused"):
        producer.flush(1)
    assert lines(caplog)[0].startswith(f"waiting for a broker at {nowhere}: ")


def test_a_producer_suggests_how_to_add_a_partition_that_does_not_exist(
    running: RunningBroker,
) -> None:
    with Admin(running.bootstrap) as admin:
        admin.create_topic("narrow", partitions=2)
    advice = r"there is no partition 7: .* `zhumq topic alter narrow --partitions 8`"
    with pytest.raises(RequestFailed, match=advice), Producer(running.bootstrap) as producer:
        producer.send("narrow", b"one", partition=7)


def test_a_producer_spreads_messages_without_a_key_in_turn_if_it_is_to(
    running: RunningBroker,
) -> None:
    with Admin(running.bootstrap) as admin:
        admin.create_topic("spread", partitions=3)
    chosen: list[int] = []
    with Producer(running.bootstrap, keyless="round_robin") as producer:
        for number in range(30):
            producer.send(
                "spread", b"%d" % number, on_sent=lambda partition, _: chosen.append(partition)
            )
        producer.send("spread", b"keyed", key=b"k", on_sent=lambda *_: None)
    assert sorted(chosen) == sorted([0, 1, 2] * 10)
    with pytest.raises(ValueError, match="neither 'random' nor 'round_robin'"):
        Producer(running.bootstrap, keyless="sticky")  # type: ignore[arg-type]


def test_a_consumer_that_waits_for_a_broker_logs_it_now_and_then(
    nowhere: str, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = Consumer("orders", group="readers", bootstrap=nowhere)
    deadline = time.monotonic() + SECONDS_MAX
    while not lines(caplog):
        assert time.monotonic() < deadline, "it waits without a log line"
        consumer.poll(0.1)
    consumer.poll(1)  # librdkafka tries to connect many times in a second
    consumer.close()
    assert len(lines(caplog)) == 1
    assert f"waiting for a broker at {nowhere}: " in lines(caplog)[0]


def test_a_push_consumer_that_cannot_ask_for_its_listener_logs_it(
    nowhere: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def connect() -> None:
        async with asyncio.timeout(SECONDS_MAX):
            entering = asyncio.create_task(
                PushConsumer("orders", group="g", bootstrap=nowhere).__aenter__()
            )
            while not lines(caplog):
                await asyncio.sleep(0.02)
            entering.cancel()

    asyncio.run(connect())
    assert f"waiting for a broker at {nowhere}: " in lines(caplog)[0]


def test_a_push_consumer_that_lost_its_broker_logs_it(
    running: RunningBroker, nowhere: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def connect() -> None:
        async with (
            asyncio.timeout(SECONDS_MAX),
            PushConsumer("orders", group="g", push=nowhere, bootstrap=running.bootstrap),
        ):
            while not lines(caplog):
                await asyncio.sleep(0.02)

    asyncio.run(connect())
    assert lines(caplog)[0].startswith(f"waiting for a broker at {nowhere}: ")


def test_an_admin_that_gives_up_names_the_cause(nowhere: str) -> None:
    with pytest.raises(RequestFailed, match=r"cannot create 'a': .*refused"):
        Admin(nowhere, retry_seconds=1.0).create_topic("a")


def test_a_handler_that_fails_is_in_the_log_with_its_traceback(
    running: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    Admin(running.bootstrap).create_topic("failing")
    with Producer(running.bootstrap) as producer:
        producer.send("failing", b"bad")
    handled = asyncio.Event()

    def handler(message: Message) -> None:
        if message.delivery_count == 2:
            handled.set()
            return
        raise RuntimeError("cannot digest it")

    async def consume() -> None:
        async with (
            asyncio.timeout(SECONDS_MAX),
            PushConsumer("failing", group="g", mode="ptp", push=running.push) as consumer,
        ):
            task = asyncio.create_task(consumer.run(handler))
            await handled.wait()
            task.cancel()

    asyncio.run(consume())
    (record,) = [each for each in caplog.records if "handler failed" in each.getMessage()]
    assert record.getMessage() == "the handler failed for failing-0@0, delivery 1"
    assert record.exc_info is not None
    assert "cannot digest it" in str(record.exc_info[1])


def test_a_workers_handler_that_fails_is_in_the_log_with_its_traceback(
    running: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    Admin(running.bootstrap).create_topic("jobs")
    with Producer(running.bootstrap) as producer:
        producer.send("jobs", b"bad")

    def handler(_: object) -> None:
        raise RuntimeError("cannot digest it")

    worker = Worker("jobs", handler, group="w", bootstrap=running.bootstrap, retries=0)
    with pytest.raises(HandlerFailed):
        worker.run()
    (record,) = [each for each in caplog.records if "handler failed" in each.getMessage()]
    assert record.getMessage() == "the handler failed for jobs-0@0, attempt 1"
    assert record.levelno == logging.WARNING
    assert record.exc_info is not None


@pytest.mark.parametrize("mode", ["ptp", "ptp-shared", "psb"])
def test_a_subscription_sets_after_how_many_deliveries_a_message_is_a_dead_letter(
    running: RunningBroker, mode: str
) -> None:
    topic = f"limited-{mode}"
    Admin(running.bootstrap).create_topic(topic)
    with Producer(running.bootstrap) as producer:
        producer.send(topic, b"bad")
        producer.send(topic, b"good")
    counts: list[int] = []
    done = asyncio.Event()

    def handler(message: Message) -> None:
        if message.value == b"good" and len(counts) == 3:
            done.set()
        if message.value == b"bad":
            counts.append(message.delivery_count)
            raise RuntimeError("cannot digest it")

    async def consume() -> None:
        async with (
            asyncio.timeout(SECONDS_MAX),
            PushConsumer(
                topic,
                group=f"g-{mode}",
                mode=mode,  # type: ignore[arg-type]
                push=running.push,
                max_deliveries=3,
            ) as consumer,
        ):
            task = asyncio.create_task(consumer.run(handler))
            if mode == "ptp-shared":
                while not _dead_letters(running, topic):
                    await asyncio.sleep(0.05)
            else:
                await done.wait()
            task.cancel()

    asyncio.run(consume())
    assert counts == [1, 2, 3]
    deadline = time.monotonic() + SECONDS_MAX
    while not (dead_letters := _dead_letters(running, topic)):
        assert time.monotonic() < deadline
    assert [each.story.deliveries for each in dead_letters] == [3]


def _dead_letters(running: RunningBroker, topic: str) -> list:
    with Admin(running.bootstrap) as admin:
        if f"{topic}.dlq" not in admin.topics():
            return []
        return list(admin.dead_letters(topic))


def test_a_nack_sets_the_delay_of_the_redelivery(running: RunningBroker) -> None:
    topic = "delayed"
    Admin(running.bootstrap).create_topic(topic)
    with Producer(running.bootstrap) as producer:
        producer.send(topic, b"later")
        producer.send(topic, b"now")
    order: list[tuple[bytes | None, int]] = []

    async def consume() -> float:
        async with (
            asyncio.timeout(SECONDS_MAX),
            PushConsumer(topic, group="g", mode="ptp-shared", push=running.push) as consumer,
        ):
            begun = time.monotonic()
            async for message in consumer:
                order.append((message.value, message.delivery_count))
                if order[-1] == (b"later", 1):
                    message.nack("not yet", delay_ms=1_500)
                if order[-1] == (b"later", 2):
                    return time.monotonic() - begun
        raise AssertionError("it never came again")

    waited = asyncio.run(consume())
    assert order == [(b"later", 1), (b"now", 1), (b"later", 2)]
    assert waited >= 1.4, "the broker's own backoff is 20 ms here"


@pytest.mark.parametrize("delay_ms", [-1, 12 * 3_600_000 + 1])
def test_a_delay_out_of_range_is_refused_and_the_message_is_still_held(
    running: RunningBroker, delay_ms: int
) -> None:
    topic = f"impossible-{abs(delay_ms)}"
    Admin(running.bootstrap).create_topic(topic)
    with Producer(running.bootstrap) as producer:
        producer.send(topic, b"one")

    async def consume() -> str:
        async with (
            asyncio.timeout(SECONDS_MAX),
            PushConsumer(
                topic, group="g", mode="ptp-shared", push=running.push, auto_ack=False
            ) as consumer,
        ):
            (message,) = await consumer.poll(SECONDS_MAX)
            message.nack("no", delay_ms=delay_ms)
            assert await consumer.flush() == 1
            return str(consumer.refused_answers[-1])

    assert "delay_ms" in asyncio.run(consume())


def test_a_negative_limit_of_deliveries_is_refused(running: RunningBroker) -> None:
    Admin(running.bootstrap).create_topic("no-limit")

    async def consume() -> None:
        async with (
            asyncio.timeout(SECONDS_MAX),
            PushConsumer(
                "no-limit", group="g", mode="ptp", push=running.push, max_deliveries=-1
            ) as consumer,
        ):
            await anext(consumer)

    with pytest.raises(Exception, match="max_deliveries is 1 to 1000"):
        asyncio.run(consume())


def test_a_cause_that_the_message_names_already_is_not_repeated() -> None:
    waiting = Waiting("nowhere:1")
    assert waiting.explain("it failed") == "it failed"
    waiting.note("connection refused")
    assert waiting.explain("it failed") == "it failed: connection refused"
    assert waiting.explain("connection refused by it") == "connection refused by it"

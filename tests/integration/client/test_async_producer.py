"""The async producer waits for acknowledgements, bounds what it holds, and never blocks the event loop."""

import asyncio
import inspect
import socket
import threading
from collections.abc import Iterator

import pytest
from client_support import until

import zhumq
import zhumq.aio
from zhumq import Admin
from zhumq.client.errors import RequestFailed
from zhumq.testing.broker import RunningBroker

SECONDS_MAX = 30.0


def values(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    with zhumq.Consumer(topic, bootstrap=bootstrap) as consumer:
        found: list[bytes | None] = []
        for message in consumer:
            found.append(message.value)
            if len(found) == count:
                break
        return found


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("zhumq-aio")]


@pytest.fixture
def silent_address() -> Iterator[str]:
    """A listener that accepts connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_send_returns_where_the_message_is(zhumq_broker: RunningBroker) -> None:
    async def run() -> None:
        async with zhumq.aio.Producer(zhumq_broker.bootstrap) as producer:
            for number in range(3):
                sent = await producer.send("sent", b"%d" % number, partition=0)
                assert sent == zhumq.aio.RecordMetadata("sent", 0, number)

    asyncio.run(run())
    assert values(zhumq_broker.bootstrap, "sent", 3) == [b"0", b"1", b"2"]
    until(lambda: not threads())


def test_many_messages_are_sent_in_order_with_few_in_flight(zhumq_broker: RunningBroker) -> None:
    async def run() -> list[int]:
        async with zhumq.aio.Producer(zhumq_broker.bootstrap, in_flight_max=20) as producer:
            sent = []
            for number in range(1000):
                sent.append(await producer.send_soon("many", b"%d" % number, partition=0))
                # Its caller holds the futures; the producer holds no more than this.
                assert sum(not each.done() for each in sent[-100:]) <= 20
            return [each.offset for each in await asyncio.gather(*sent)]

    assert asyncio.run(run()) == list(range(1000))
    assert values(zhumq_broker.bootstrap, "many", 1000) == [b"%d" % each for each in range(1000)]


def test_the_end_of_the_block_waits_for_messages_that_were_sent_soon(
    zhumq_broker: RunningBroker,
) -> None:
    async def run() -> None:
        async with zhumq.aio.Producer(
            zhumq_broker.bootstrap, keyless="round_robin", settings={"linger.ms": 100}
        ) as producer:
            last = [await producer.send_soon("soon", b"%d" % each) for each in range(10)][-1]
        assert last.done()

    asyncio.run(run())
    assert len(values(zhumq_broker.bootstrap, "soon", 10)) == 10


def test_a_message_that_cannot_be_sent_raises_where_the_program_waits(
    zhumq_broker: RunningBroker,
) -> None:
    with Admin(zhumq_broker.bootstrap) as admin:
        admin.create_topic("narrow", partitions=1)

    async def run() -> None:
        async with zhumq.aio.Producer(zhumq_broker.bootstrap) as producer:
            with pytest.raises(RequestFailed, match=r"there is no partition 7.*topic alter narrow"):
                await producer.send("narrow", b"x", partition=7)
            await producer.flush()  # The failure has been reported.
            with pytest.raises(ValueError, match="ttl_ms=-1"):
                await producer.send("narrow", b"x", ttl_ms=-1)
            await producer.send_soon("narrow", b"x", partition=7)
            await producer.send_soon("narrow", b"y", partition=0)
            with pytest.raises(RequestFailed, match=r"1 messages were not sent: .*no partition 7"):
                await producer.flush()
            await producer.flush()

    asyncio.run(run())
    assert values(zhumq_broker.bootstrap, "narrow", 1) == [b"y"]


@pytest.mark.thorough
def test_without_room_a_send_waits_and_the_event_loop_goes_on(silent_address: str) -> None:
    async def run() -> None:
        producer = zhumq.aio.Producer(
            silent_address,
            in_flight_max=3,
            # The sending thread blocks at the second message.
            settings={"queue.buffering.max.messages": 1, "message.timeout.ms": 1000},
        )
        async with producer:
            sent = [await producer.send_soon("full", b"%d" % each) for each in range(3)]
            fourth = asyncio.create_task(producer.send_soon("full", b"3"))
            for _ in range(100):
                await asyncio.sleep(0)
            assert not fourth.done()
            assert not any(each.done() for each in sent)
            # There is room when the first message has failed.
            done, _ = await asyncio.wait([fourth], timeout=SECONDS_MAX)
            assert done
            failed = await asyncio.gather(*sent, await fourth, return_exceptions=True)
            assert [type(each) for each in failed] == [RequestFailed] * 4
            with pytest.raises(RequestFailed, match="4 messages were not sent: full: "):
                await producer.flush()

    asyncio.run(run())
    until(lambda: not threads())


def test_a_cancelled_send_leaves_the_producer_usable(zhumq_broker: RunningBroker) -> None:
    async def run() -> int:
        async with zhumq.aio.Producer(
            zhumq_broker.bootstrap, in_flight_max=1, settings={"linger.ms": 50}
        ) as producer:
            for _ in range(5):
                first = asyncio.create_task(producer.send("cancelled", b"x", partition=0))
                second = asyncio.create_task(producer.send("cancelled", b"never", partition=0))
                await asyncio.sleep(0)
                first.cancel()
                second.cancel()
                await asyncio.wait([first, second])
            return (await producer.send("cancelled", b"last", partition=0)).offset

    offset = asyncio.run(run())
    # What had been queued was sent, what still waited for room was not.
    found = values(zhumq_broker.bootstrap, "cancelled", offset + 1)
    assert set(found[:-1]) == {b"x"}
    assert found[-1] == b"last"


def test_a_producer_that_is_not_open_says_so(zhumq_broker: RunningBroker) -> None:
    async def run() -> None:
        producer = zhumq.aio.Producer(zhumq_broker.bootstrap)
        with pytest.raises(RequestFailed, match="not open: use `async with"):
            await producer.send("closed", b"x")
        async with producer:
            await producer.send("closed", b"x")
        with pytest.raises(RequestFailed, match="not open"):
            await producer.send_soon("closed", b"x")

    asyncio.run(run())
    with pytest.raises(ValueError, match="in_flight_max=0"):
        zhumq.aio.Producer(in_flight_max=0)


@pytest.mark.parametrize(
    ("ours", "theirs", "more"),
    [
        (zhumq.aio.Producer, zhumq.Producer, {"in_flight_max"}),
        (zhumq.aio.Producer.send, zhumq.Producer.send, set()),
        (zhumq.aio.Producer.send_soon, zhumq.Producer.send, set()),
        (zhumq.aio.Producer.flush, zhumq.Producer.flush, set()),
        (zhumq.aio.Consumer, zhumq.Consumer, set()),
        (zhumq.aio.Consumer.poll, zhumq.Consumer.poll, set()),
        (zhumq.aio.Worker, zhumq.Worker, set()),
        (zhumq.aio.Worker.run, zhumq.Worker.run, set()),
    ],
    ids=lambda each: getattr(each, "__qualname__", ""),
)
def test_the_async_client_takes_what_the_other_one_takes(
    ours: object, theirs: object, more: set[str]
) -> None:
    """An await replaces the callbacks."""
    own = inspect.signature(ours).parameters  # type: ignore[arg-type]
    others = inspect.signature(theirs).parameters  # type: ignore[arg-type]
    assert set(own) - set(others) == more
    assert set(others) - set(own) <= {"on_sent", "on_failed"}
    assert {name: own[name].default for name in own if name in others} == {
        name: others[name].default for name in others if name in own
    }

"""The async consumer: `async for`, answers, cancellation, and the group that it leaves."""

import asyncio
import threading
from collections import Counter

import pytest
from client_support import send, until

import zhumq
import zhumq.aio
from zhumq import Admin
from zhumq.admin.groups import describe_group
from zhumq.client.errors import RequestFailed, SubscriptionRefused
from zhumq.testing.broker import RunningBroker


def members(bootstrap: str, group: str) -> int:
    with Admin(bootstrap) as admin:
        return len(describe_group(admin, group).members)


async def read(count: int, *arguments: object, **options: object) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with zhumq.aio.Consumer(*arguments, **options) as consumer:  # type: ignore[arg-type]
        async for message in consumer:
            found.append(message.value)
            if len(found) == count:
                break
    return found


@pytest.mark.parametrize("mode", [None, "ptp", "ptp-shared"])
def test_the_next_consumer_goes_on_where_the_last_one_left(
    zhumq_broker: RunningBroker, mode: str | None
) -> None:
    bootstrap = zhumq_broker.bootstrap
    send(bootstrap, "numbers", 10)

    async def run() -> None:
        first = await read(4, "numbers", group="readers", mode=mode, bootstrap=bootstrap)
        assert first == [b"0", b"1", b"2", b"3"]
        rest = await read(6, "numbers", group="readers", mode=mode, bootstrap=bootstrap)
        assert rest == [b"4", b"5", b"6", b"7", b"8", b"9"]

    asyncio.run(run())


def test_a_cancelled_reader_leaves_the_group_and_its_message_to_the_next(
    zhumq_broker: RunningBroker,
) -> None:
    bootstrap = zhumq_broker.bootstrap
    send(bootstrap, "cut", 3)
    in_hand = asyncio.Event()

    async def work() -> None:
        async with zhumq.aio.Consumer("cut", group="cutters", bootstrap=bootstrap) as consumer:
            async for message in consumer:
                if message.value == b"1":
                    in_hand.set()
                    await asyncio.Event().wait()

    async def run() -> list[bytes | None]:
        task = asyncio.create_task(work())
        await in_hand.wait()
        assert await asyncio.to_thread(members, bootstrap, "cutters") == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(members, bootstrap, "cutters") == 0
        return await read(2, "cut", group="cutters", bootstrap=bootstrap)

    assert asyncio.run(run()) == [b"1", b"2"]
    until(lambda: not [each for each in threading.enumerate() if "zhumq-aio" in each.name])


def test_a_reader_that_is_cancelled_while_it_waits_leaves_the_group(
    zhumq_broker: RunningBroker,
) -> None:
    bootstrap = zhumq_broker.bootstrap
    with Admin(bootstrap) as admin:
        admin.create_topic("quiet", partitions=1)

    async def run() -> None:
        task = asyncio.create_task(read(1, "quiet", group="waiters", bootstrap=bootstrap))
        async with asyncio.timeout(60):
            while not await asyncio.to_thread(joined, bootstrap):
                await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert await asyncio.to_thread(members, bootstrap, "waiters") == 0

    def joined(bootstrap: str) -> bool:
        try:
            return members(bootstrap, "waiters") == 1
        except RequestFailed:
            return False

    asyncio.run(run())


def test_a_cancelled_wait_for_the_next_message_loses_none(zhumq_broker: RunningBroker) -> None:
    bootstrap = zhumq_broker.bootstrap

    async def run() -> list[bytes | None]:
        found: list[bytes | None] = []
        interrupted = 0
        async with zhumq.aio.Consumer("late", group="late", bootstrap=bootstrap) as consumer:
            sending = asyncio.create_task(asyncio.to_thread(send, bootstrap, "late", 50))
            while len(found) < 50 or not interrupted:
                try:
                    async with asyncio.timeout(0.001 if len(found) % 7 else 5):
                        found.append((await anext(consumer)).value)
                except TimeoutError:
                    interrupted += 1
            await sending
        return found

    with Admin(bootstrap) as admin:
        admin.create_topic("late", partitions=1)
    assert asyncio.run(run()) == [b"%d" % each for each in range(50)]


def test_a_nacked_message_comes_again_before_those_behind_it(zhumq_broker: RunningBroker) -> None:
    bootstrap = zhumq_broker.bootstrap
    send(bootstrap, "again", 4)

    async def run() -> list[tuple[bytes | None, int]]:
        found = []
        async with zhumq.aio.Consumer("again", group="again", bootstrap=bootstrap) as consumer:
            async for message in consumer:
                found.append((message.value, message.delivery_count))
                if message.value == b"1" and message.delivery_count < 3:
                    message.nack("not yet", delay_ms=10)
                if message.value == b"3":
                    break
        return found

    assert asyncio.run(run()) == [
        (b"0", 1), (b"1", 1), (b"1", 2), (b"1", 3), (b"2", 1), (b"3", 1),
    ]  # fmt: skip


def test_a_message_that_fails_too_often_is_a_dead_letter_and_the_rest_is_read(
    zhumq_broker: RunningBroker,
) -> None:
    bootstrap = zhumq_broker.bootstrap
    send(bootstrap, "hard", 5)

    async def run() -> list[bytes | None]:
        done = []
        async with zhumq.aio.Consumer(
            "hard", group="hard", bootstrap=bootstrap, auto_ack=False, max_deliveries=2
        ) as consumer:
            async for message in consumer:
                if message.value == b"1":
                    message.nack("too hard", delay_ms=0)
                elif message.value == b"2":
                    message.reject("no use")
                else:
                    done.append(message.value)
                    message.ack()
                if message.value == b"4":
                    break
        return done

    assert asyncio.run(run()) == [b"0", b"3", b"4"]
    with Admin(bootstrap) as admin:
        dead = {each.value: each.story.reason for each in admin.dead_letters("hard")}
        assert dead == {
            b"1": "delivered 2 times without success: too hard",
            b"2": "no use",
        }
        (offset,) = describe_group(admin, "hard").offsets
        assert (offset.committed, offset.lag) == (5, 0)


def test_several_tasks_can_read_one_consumer(zhumq_broker: RunningBroker) -> None:
    bootstrap = zhumq_broker.bootstrap
    send(bootstrap, "shared", 200)
    seen: Counter[bytes | None] = Counter()

    async def run() -> None:
        async with zhumq.aio.Consumer(
            "shared", group="shared", bootstrap=bootstrap, auto_ack=False
        ) as consumer:

            async def work() -> None:
                async for message in consumer:
                    await asyncio.sleep(0)
                    seen[message.value] += 1
                    message.ack()
                    if len(seen) == 200:
                        await consumer.close()

            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                for _ in range(5):
                    group.create_task(work())

    asyncio.run(run())
    assert set(seen.values()) == {1}
    with Admin(bootstrap) as admin:
        (offset,) = describe_group(admin, "shared").offsets
        assert offset.committed == 200


def test_poll_returns_what_is_there(zhumq_broker: RunningBroker) -> None:
    bootstrap = zhumq_broker.bootstrap
    send(bootstrap, "polled", 3)

    async def run() -> None:
        async with zhumq.aio.Consumer("polled", bootstrap=bootstrap) as consumer:
            found = []
            while len(found) < 3:
                found += await consumer.poll(5)
            assert [each.value for each in found] == [b"0", b"1", b"2"]
            assert await consumer.poll(0.01) == []
            assert consumer.expired.dropped == 0

    asyncio.run(run())


def test_wrong_options_and_refusals_raise_where_the_block_begins(
    zhumq_broker: RunningBroker,
) -> None:
    bootstrap = zhumq_broker.bootstrap
    send(bootstrap, "owned", 1)

    async def run() -> None:
        with pytest.raises(ValueError, match="restart, resume, consumer"):
            async with zhumq.aio.Consumer("owned", restart=True, bootstrap=bootstrap):
                pass
        closed = zhumq.aio.Consumer("owned", bootstrap=bootstrap)
        with pytest.raises(RequestFailed, match="not open: use `async with"):
            await anext(closed)
        async with zhumq.aio.Consumer("owned", group="one", mode="ptp", bootstrap=bootstrap):
            with pytest.raises(SubscriptionRefused):
                async with zhumq.aio.Consumer(
                    "owned", group="two", mode="ptp", bootstrap=bootstrap
                ):
                    pass

    asyncio.run(run())

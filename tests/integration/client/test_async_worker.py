"""The async worker: handlers in the event loop, the rules of the worker, and an orderly end."""

import asyncio
import threading
from collections import Counter

import pytest
from client_support import send

import zhumq
import zhumq.aio
from zhumq import Admin
from zhumq.admin.groups import describe_group
from zhumq.client.errors import HandlerFailed
from zhumq.testing.broker import RunningBroker


def committed(bootstrap: str, group: str) -> int | None:
    with Admin(bootstrap) as admin:
        found = describe_group(admin, group)
        assert found.members == ()
        return sum(each.committed or 0 for each in found.offsets)


def test_handlers_run_in_the_event_loop_and_together(zhumq_broker: RunningBroker) -> None:
    bootstrap = zhumq_broker.bootstrap
    with Admin(bootstrap) as admin:
        admin.create_topic("jobs", partitions=4)
    send(bootstrap, "jobs", 40, partitions=4)
    seen: Counter[bytes | None] = Counter()
    running: set[int] = set()
    most: list[int] = []

    async def run() -> None:
        home = threading.current_thread()
        together = asyncio.Event()

        async def handle(task: zhumq.Task) -> None:
            assert threading.current_thread() is home
            running.add(task.partition)
            most.append(len(running))
            if len(running) >= 2:
                together.set()
            await together.wait()
            seen[task.value] += 1
            running.discard(task.partition)

        worker = zhumq.aio.Worker("jobs", handle, group="workers", bootstrap=bootstrap)
        async with asyncio.timeout(60):
            await worker.run(until=lambda: len(seen) == 40)

    asyncio.run(run())
    assert set(seen.values()) == {1}
    assert max(most) >= 2
    assert committed(bootstrap, "workers") == 40


def test_a_cancelled_worker_finishes_the_message_in_hand(zhumq_broker: RunningBroker) -> None:
    bootstrap = zhumq_broker.bootstrap
    send(bootstrap, "jobs", 10)
    done: list[int] = []

    async def run() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def handle(task: zhumq.Task) -> None:
            begun.set()
            await go_on.wait()
            done.append(task.offset)

        worker = zhumq.aio.Worker(
            "jobs", handle, group="cancelled", bootstrap=bootstrap, processors=1
        )
        task = asyncio.create_task(worker.run())
        await begun.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()  # It waits nevertheless.
        await asyncio.sleep(0)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert done == [0]
    assert committed(bootstrap, "cancelled") == 1


def test_a_handler_that_fails_for_good_ends_the_run(zhumq_broker: RunningBroker) -> None:
    bootstrap = zhumq_broker.bootstrap
    send(bootstrap, "fragile", 3)
    attempts: Counter[int] = Counter()

    async def handle(task: zhumq.Task) -> None:
        attempts[task.offset] += 1
        if task.offset == 1:
            raise RuntimeError("no")

    worker = zhumq.aio.Worker(
        "fragile", handle, group="stops", bootstrap=bootstrap, retries=1, backoff_ms=1
    )
    with pytest.raises(HandlerFailed, match="failed 2 times for fragile-0@1: RuntimeError: no"):
        asyncio.run(worker.run())
    assert attempts == {0: 1, 1: 2}
    assert committed(bootstrap, "stops") == 1


def test_outputs_of_an_async_handler_are_committed_with_their_task(
    zhumq_broker: RunningBroker,
) -> None:
    bootstrap = zhumq_broker.bootstrap
    send(bootstrap, "orders", 3)
    done: list[int] = []

    async def bill(task: zhumq.Task, outputs: zhumq.Outputs) -> None:
        outputs.send("bills", b"bill " + (task.value or b""))
        done.append(task.offset)

    worker = zhumq.aio.Worker(
        "orders", bill, group="billing", bootstrap=bootstrap, exactly_once=True
    )
    asyncio.run(worker.run(until=lambda: len(done) == 3))
    with zhumq.Consumer("bills", bootstrap=bootstrap) as consumer:
        found = []
        while len(found) < 3:
            found += [each.value for each in consumer.poll(5)]
    assert sorted(found) == [b"bill 0", b"bill 1", b"bill 2"]

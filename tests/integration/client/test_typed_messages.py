"""Values and keys through serializers, on every client; what cannot be decoded is named and not lost."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from client_support import until

import zhumq
import zhumq.aio
from zhumq import Admin, Json, Text
from zhumq.admin.groups import describe_group
from zhumq.client.errors import DecodeFailed, EncodeFailed
from zhumq.testing.broker import RunningBroker


@dataclass(frozen=True)
class Order:
    item: str
    count: int = 1


ORDERS = [Order("chair"), Order("table", 2), Order("lamp", 3)]


def send_orders(bootstrap: str, *, bad_after: int | None = None) -> None:
    """Send the orders, with a message in between that is no order."""
    with zhumq.Producer(bootstrap, value=Json(Order), key=Text()) as producer:
        for number, order in enumerate(ORDERS):
            producer.send("orders", order, key=order.item, partition=0)
            producer.flush()
            if number == bad_after:
                with zhumq.Producer(bootstrap) as raw:
                    raw.send("orders", b'{"count": 7}', key=b"bad", partition=0)


def committed(bootstrap: str, group: str) -> int | None:
    with Admin(bootstrap) as admin:
        (offset,) = describe_group(admin, group).offsets
        return offset.committed


@pytest.mark.parametrize("mode", [None, "ptp"])
def test_a_consumer_returns_what_the_producer_sent(zhumq_broker: RunningBroker, mode: Any) -> None:
    bootstrap = zhumq_broker.bootstrap
    send_orders(bootstrap)
    consumer: zhumq.Consumer[Order, str] = zhumq.Consumer(
        "orders", group="typed", mode=mode, bootstrap=bootstrap, value=Json(Order), key=Text()
    )
    found = []
    with consumer:
        for message in consumer:
            found.append((message.key, message.value))
            if len(found) == 3:
                break
    assert found == [(order.item, order) for order in ORDERS]
    with Admin(bootstrap) as admin:
        (offset,) = describe_group(admin, "typed").offsets
        assert offset.committed == 3


def test_a_value_that_cannot_be_encoded_is_not_sent(zhumq_broker: RunningBroker) -> None:
    bootstrap = zhumq_broker.bootstrap
    with zhumq.Producer(bootstrap, value=Json(Order)) as producer:
        with pytest.raises(EncodeFailed, match="for 'orders': TypeError: a dict is not a Order"):
            producer.send("orders", {"item": "chair"})  # type: ignore[arg-type]
        producer.send("orders", None, key=b"tombstone")

    async def run() -> None:
        async with zhumq.aio.Producer(bootstrap, value=Json(Order)) as producer:
            with pytest.raises(EncodeFailed):
                await producer.send("orders", "chair")  # type: ignore[arg-type]
            await producer.send_soon("orders", "chair")  # type: ignore[arg-type]
            with pytest.raises(zhumq.client.errors.RequestFailed, match="1 messages were not sent"):
                await producer.flush()
            await producer.send("orders", ORDERS[0])

    asyncio.run(run())
    with zhumq.Consumer("orders", bootstrap=bootstrap, value=Json(Order)) as consumer:
        found: list[zhumq.Message[Order]] = []
        while len(found) < 2:
            found += consumer.poll(5)
    assert {each.value for each in found} == {None, ORDERS[0]}


def test_an_iterator_raises_with_the_place_and_goes_on_behind_it(
    zhumq_broker: RunningBroker,
) -> None:
    bootstrap = zhumq_broker.bootstrap
    send_orders(bootstrap, bad_after=0)
    options: dict[str, Any] = {"group": "g", "bootstrap": bootstrap, "value": Json(Order)}
    with zhumq.Consumer("orders", **options) as consumer:
        messages = iter(consumer)
        assert next(messages).value == ORDERS[0]
        with pytest.raises(
            DecodeFailed, match="the value of orders-0@1: ValueError: item is missing"
        ):
            next(messages)
    # It was not answered: the next consumer begins with it, and may look at its bytes.
    assert committed(bootstrap, "g") == 1
    with zhumq.Consumer("orders", **options) as consumer:
        with pytest.raises(DecodeFailed) as caught:
            next(iter(consumer))
        assert caught.value.message.value == b'{"count": 7}'
        caught.value.message.reject("no order")  # type: ignore[union-attr]
        rest = iter(consumer)
        assert [next(rest).value, next(rest).value] == ORDERS[1:]
    assert committed(bootstrap, "g") == 4
    with Admin(bootstrap) as admin:
        (dead_letter,) = admin.dead_letters("orders")
        assert (dead_letter.value, dead_letter.key) == (b'{"count": 7}', b"bad")


def test_poll_returns_what_is_before_the_message_and_then_raises(
    zhumq_broker: RunningBroker,
) -> None:
    bootstrap = zhumq_broker.bootstrap
    send_orders(bootstrap, bad_after=1)

    with zhumq.Consumer("orders", bootstrap=bootstrap, value=Json(Order)) as consumer:
        found: list[Order | None] = []
        while len(found) < 2:
            found += [each.value for each in consumer.poll(5)]
        assert found == ORDERS[:2]
        with pytest.raises(DecodeFailed, match="orders-0@2"):
            until(lambda: consumer.poll(5))
        while len(found) < 3:
            found += [each.value for each in consumer.poll(5)]
        assert found == ORDERS


@pytest.mark.parametrize("choice", ["dead-letter", "skip"])
@pytest.mark.parametrize("kind", ["sync", "async", "ptp", "push"])
def test_by_choice_it_is_dead_lettered_or_skipped(
    zhumq_broker: RunningBroker, kind: str, choice: Any
) -> None:
    bootstrap = zhumq_broker.bootstrap
    send_orders(bootstrap, bad_after=0)
    options: dict[str, Any] = {
        "group": "g", "bootstrap": bootstrap, "value": Json(Order), "on_undecodable": choice,
    }  # fmt: skip

    async def read(consumer: Any) -> list[Order | None]:
        found = []
        async with consumer:
            async for message in consumer:
                found.append(message.value)
                if len(found) == 3:
                    break
        return found

    if kind in ("sync", "ptp"):
        mode = None if kind == "sync" else "ptp"
        with zhumq.Consumer("orders", mode=mode, **options) as consumer:  # type: ignore[arg-type]
            found = [message.value for _, message in zip(range(3), consumer, strict=False)]
    elif kind == "async":
        found = asyncio.run(read(zhumq.aio.Consumer("orders", **options)))
    else:
        found = asyncio.run(read(zhumq.PushConsumer("orders", mode="ptp", **options)))
    assert found == ORDERS
    with Admin(bootstrap) as admin:
        if choice == "dead-letter":
            until(admin.dead_letter_topics)
            dead = until(lambda: list(admin.dead_letters("orders")))
            assert "cannot decode the value of orders-0@1" in dead[0].story.reason
            assert dead[0].value == b'{"count": 7}'
        else:
            assert admin.dead_letter_topics() == {}
    until(lambda: committed(bootstrap, "g") == 4)


def test_push_consumers_raise_and_go_on(zhumq_broker: RunningBroker) -> None:
    bootstrap = zhumq_broker.bootstrap
    send_orders(bootstrap, bad_after=0)

    async def run() -> None:
        found: list[Order | None] = []
        async with zhumq.PushConsumer(
            "orders", mode="psb", bootstrap=bootstrap, value=Json(Order)
        ) as consumer:
            async for message in consumer:
                found.append(message.value)
                break
            with pytest.raises(DecodeFailed, match="orders-0@1"):
                await anext(consumer)
            while len(found) < 3:
                found += [each.value for each in await consumer.poll(5)]
        assert found == ORDERS

        handled: list[Order | None] = []
        async with zhumq.PushConsumer(
            "orders", mode="psb", bootstrap=bootstrap, value=Json(Order)
        ) as consumer:
            with pytest.raises(DecodeFailed, match="orders-0@1"):
                await consumer.run(lambda message: handled.append(message.value))
        assert handled == ORDERS[:1]

    asyncio.run(run())


def test_an_async_consumer_raises_and_goes_on(zhumq_broker: RunningBroker) -> None:
    bootstrap = zhumq_broker.bootstrap
    send_orders(bootstrap, bad_after=0)

    async def values(consumer: "zhumq.aio.Consumer[Order]") -> AsyncIterator[Order | None]:
        while True:
            try:
                async for message in consumer:
                    yield message.value
            except DecodeFailed as error:
                error.message.reject("no order")  # type: ignore[union-attr]

    async def run() -> list[Order | None]:
        found: list[Order | None] = []
        async with zhumq.aio.Consumer(
            "orders", group="g", bootstrap=bootstrap, value=Json(Order)
        ) as consumer:
            async for value in values(consumer):
                found.append(value)
                if len(found) == 3:
                    return found
        return found

    assert asyncio.run(run()) == ORDERS
    with Admin(bootstrap) as admin:
        assert [each.story.reason for each in admin.dead_letters("orders")] == ["no order"]
    assert committed(bootstrap, "g") == 4


@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("choice", ["raise", "dead-letter", "skip"])
def test_a_worker_hands_typed_tasks_to_its_handler(
    zhumq_broker: RunningBroker, choice: Any, exactly_once: bool
) -> None:
    bootstrap = zhumq_broker.bootstrap
    send_orders(bootstrap, bad_after=1)
    handled: list[tuple[str | None, Order | None]] = []

    def handle(task: zhumq.Task[Order, str], *_outputs: zhumq.Outputs) -> None:
        handled.append((task.key, task.value))

    worker = zhumq.Worker(
        "orders",
        handle,
        group="g",
        bootstrap=bootstrap,
        processors=1,
        value=Json(Order),
        key=Text(),
        on_undecodable=choice,
        exactly_once=exactly_once,
    )
    expected = [(order.item, order) for order in ORDERS]
    if choice == "raise":
        with pytest.raises(
            DecodeFailed, match="the value of orders-0@2: ValueError: item is missing"
        ):
            worker.run()
        assert handled == expected[:2]
        if not exactly_once:  # A round is committed as a whole.
            assert committed(bootstrap, "g") == 2
        return
    worker.run(until=lambda: len(handled) == 3)
    assert handled == expected
    assert committed(bootstrap, "g") == 4
    with Admin(bootstrap) as admin:
        assert list(admin.dead_letter_topics()) == ([] if choice == "skip" else ["orders.dlq"])


def test_an_async_worker_hands_typed_tasks_to_its_handler(zhumq_broker: RunningBroker) -> None:
    bootstrap = zhumq_broker.bootstrap
    send_orders(bootstrap)
    handled: list[Order | None] = []

    async def handle(task: zhumq.Task[Order]) -> None:
        handled.append(task.value)

    worker = zhumq.aio.Worker(
        "orders", handle, group="g", bootstrap=bootstrap, processors=1, value=Json(Order)
    )
    asyncio.run(worker.run(until=lambda: len(handled) == 3))
    assert handled == ORDERS

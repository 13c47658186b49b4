"""The live traffic of `zhumq demo`: a small shop, whose every part is a program that a user could write."""

import asyncio
import contextlib
import itertools
import random
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import zhumq
import zhumq.aio
from zhumq.admin.errors import AlreadyExists
from zhumq.cli import demo_refunds
from zhumq.client.errors import ClientError

# About 20 messages a second: each order becomes a payment and a delivery.
ORDERS_PER_ROUND: Final = 6
ROUND_SECONDS: Final = 1.0
BURST_ORDERS: Final = 300
BURST_SECONDS: Final = 60.0
PICK_SECONDS: Final = 0.06  # what the warehouse needs for an order: a burst takes it half a minute
UNKNOWN_ADDRESS_EVERY: Final = 240  # orders: such a delivery is a dead letter
NOT_AT_HOME: Final = 0.02  # of the deliveries: tried again after a while
LATER_EVERY: Final = 40  # orders: such a customer also wants a visit later
PHONE_SECONDS: Final = 20.0  # between two orders by phone
BANK_SECONDS: Final = 16.0  # until the bank has decided on one
REFUND_SECONDS: Final = 5.0  # between two refunds
RETRY_SECONDS: Final = 5.0
CHECK_SECONDS: Final = 0.5  # between two calls of `on_check`

_KEPT: Final = {"retention.ms": "3600000", "segment.ms": "600000"}
TOPICS: Final[dict[str, tuple[int, dict[str, str]]]] = {
    "orders": (3, {"index.keys": "true"}),  # found by customer and by tag
    "payments": (3, {}),
    "deliveries": (2, {"delay.enable": "true"}),
    demo_refunds.TOPIC: (1, demo_refunds.SETTINGS),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a customer buys."""

    number: int
    customer: str
    item: str
    count: int
    total: float
    city: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Payment:
    """What a customer has paid for an order."""

    order: int
    customer: str
    amount: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Where an order goes."""

    order: int
    customer: str
    city: str


ORDER: Final = zhumq.Json(Order)
PAYMENT: Final = zhumq.Json(Payment)
DELIVERY: Final = zhumq.Json(Delivery)

_ITEMS: Final = {"chair": 89.0, "table": 240.0, "lamp": 35.5, "bench": 120.0, "carpet": 310.0}
_CITIES: Final = ("Berlin", "Lyon", "Porto", "Turin", "Uppsala")
_EXPRESS: Final = 0.2


def new_orders() -> Iterator[Order]:
    """Orders without end. Of every so many, the address is not known."""
    draw = random.Random()  # noqa: S311  a sample, not a secret
    for number in itertools.count(1):
        item, price = draw.choice(list(_ITEMS.items()))
        count = draw.randint(1, 4)
        yield Order(
            number=number,
            customer=f"customer-{draw.randint(1, 200)}",
            item=item,
            count=count,
            total=round(price * count, 2),
            city=""
            if number % UNKNOWN_ADDRESS_EVERY == UNKNOWN_ADDRESS_EVERY // 4
            else draw.choice(_CITIES),
        )


def _named(program: str) -> dict[str, str]:
    """The name that the console shows for a client."""
    return {"client.id": f"shop-{program}"}


class Shop:
    """The programs of the shop, each with its own clients; all of them run until they are cancelled."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._orders = new_orders()
        self._draw = random.Random()  # noqa: S311  a sample, not a secret

    def programs(self, *, has_push: bool) -> Mapping[str, Callable[[], Awaitable[None]]]:
        """The programs by name. Some need the push listener of the broker."""
        plain = {
            "operator": self.operator,
            "website": self.website,
            "billing": self.billing,
            "warehouse": self.warehouse,
        }
        if demo_refunds.can_refund():
            plain["refunds"] = self.refunds
        pushed = {"couriers": self.couriers, "partner": self.partner, "phone": self.phone}
        return plain | (pushed if has_push else {})

    async def operator(self) -> None:
        """Creates the topics, and one again that was deleted in the console."""
        with zhumq.Admin(self._bootstrap) as admin:
            while True:
                await asyncio.to_thread(create_topics, admin)
                await asyncio.sleep(RETRY_SECONDS)

    async def website(self) -> None:
        """Sends orders with an idempotent producer: a few each second, and many at once each minute."""
        async with (
            zhumq.aio.Producer(
                self._bootstrap, value=ORDER, key=zhumq.Text(), settings=_named("website")
            ) as orders,
            zhumq.aio.Producer(
                self._bootstrap, value=DELIVERY, key=zhumq.Text(), settings=_named("website")
            ) as deliveries,
        ):
            rounds_per_burst = round(BURST_SECONDS / ROUND_SECONDS)
            for number in itertools.count(1):
                size = BURST_ORDERS if number % rounds_per_burst == 0 else ORDERS_PER_ROUND
                for order in itertools.islice(self._orders, size):
                    is_express = self._draw.random() < _EXPRESS
                    await orders.send_soon(
                        "orders",
                        order,
                        key=order.customer,
                        tags=[order.item, "express"] if is_express else [order.item],
                        headers={"source": self._draw.choice(("web", "app"))},
                    )
                    if order.number % LATER_EVERY == 1:
                        visit = Delivery(
                            order=order.number, customer=order.customer, city=_CITIES[0]
                        )
                        delay = self._draw.choice(("2m", "5m", "10m"))
                        await deliveries.send_soon(
                            "deliveries", visit, key=order.customer, delay=delay
                        )
                await orders.flush()
                await deliveries.flush()
                await asyncio.sleep(ROUND_SECONDS)

    async def billing(self) -> None:
        """Makes a payment and a delivery of each order, exactly once: in the transaction that commits its position."""

        async def bill(task: zhumq.Task[Order, str], outputs: zhumq.Outputs) -> None:
            order = task.value
            assert order is not None
            payment = Payment(order=order.number, customer=order.customer, amount=order.total)
            delivery = Delivery(order=order.number, customer=order.customer, city=order.city)
            key = order.customer.encode()
            headers = {"source": "billing"}
            outputs.send(
                "payments", PAYMENT.serialize("payments", payment), key=key, headers=headers
            )
            outputs.send(
                "deliveries", DELIVERY.serialize("deliveries", delivery), key=key, headers=headers
            )

        await zhumq.aio.Worker(
            "orders",
            bill,
            group="billing",
            bootstrap=self._bootstrap,
            processors=1,
            exactly_once=True,
            value=ORDER,
            key=zhumq.Text(),
            on_undecodable="dead-letter",
            settings=_named("billing"),
        ).run()

    async def warehouse(self) -> None:
        """Picks one order after the other: its lag grows with each burst, and falls again."""
        async with zhumq.aio.Consumer(
            "orders",
            group="warehouse",
            bootstrap=self._bootstrap,
            value=ORDER,
            key=zhumq.Text(),
            on_undecodable="dead-letter",
            settings=_named("warehouse"),
        ) as consumer:
            async for _order in consumer:
                await asyncio.sleep(PICK_SECONDS)

    async def refunds(self) -> None:
        """Pays money back now and then, in messages with a schema of the registry."""
        settings = _named("refunds")
        async with zhumq.aio.Producer(self._bootstrap, key=zhumq.Text(), settings=settings) as out:
            with demo_refunds.open_refunds(self._bootstrap) as refunds:
                for customer, value in refunds:
                    await out.send(demo_refunds.TOPIC, value, key=customer)
                    await asyncio.sleep(REFUND_SECONDS)

    async def couriers(self) -> None:
        """Share the deliveries. One without an address is rejected, which makes it a dead letter."""

        async def deliver(message: zhumq.Message[Delivery, str]) -> None:
            delivery = message.value
            if delivery is None or not delivery.city:
                message.reject("the address is not known")
            elif self._draw.random() < NOT_AT_HOME:
                message.nack("not at home", delay_ms=5_000)

        async with zhumq.PushConsumer(
            "deliveries",
            group="couriers",
            mode="ptp-shared",
            bootstrap=self._bootstrap,
            value=DELIVERY,
            key=zhumq.Text(),
            on_undecodable="dead-letter",
        ) as consumer:
            await consumer.run(deliver, concurrency=4)

    async def partner(self) -> None:
        """A program that hangs: it answers no message, so the broker parks its session."""
        async with zhumq.PushConsumer(
            "payments",
            group="partner",
            mode="psb",
            bootstrap=self._bootstrap,
            credits=5,
            auto_ack=False,
            ack_timeout_ms=2_000,
            start="latest",
            resume=True,
        ):
            await asyncio.Event().wait()

    async def phone(self) -> None:
        """Orders by phone are half messages: consumers see them once the bank has agreed, which takes a while."""
        with zhumq.HalfMessageProducer(
            self._bootstrap,
            group="phone",
            check=lambda _half: None,  # The bank has not decided yet.
            timeout=10.0,
        ) as producer:
            for order in self._orders:
                value = ORDER.serialize("orders", order)
                key = order.customer.encode()
                half = await asyncio.to_thread(producer.prepare, "orders", value, key=key)
                await asyncio.sleep(BANK_SECONDS)
                agrees = self._draw.random() < 0.8
                await asyncio.to_thread(half.commit if agrees else half.rollback)
                await asyncio.sleep(PHONE_SECONDS - BANK_SECONDS)


def run_traffic(
    bootstrap: str, *, has_push: bool, on_open: Callable[[], None], on_check: Callable[[], None]
) -> None:
    """Run the shop until SIGINT or SIGTERM. Every client has left when this returns.

    `on_open` is called when the topics are there and a signal ends it in order, `on_check` every moment from then on.
    """
    asyncio.run(_run(bootstrap, has_push, on_open, on_check))


async def _run(
    bootstrap: str, has_push: bool, on_open: Callable[[], None], on_check: Callable[[], None]
) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    with zhumq.Admin(bootstrap) as admin:  # Before a program sends to a topic that is not there.
        await asyncio.to_thread(create_topics, admin)
    on_open()
    programs = Shop(bootstrap).programs(has_push=has_push)
    tasks = [
        asyncio.create_task(_keep_running(name, program, stopping))
        for name, program in programs.items()
    ]
    while not stopping.is_set() and not any(task.done() for task in tasks):
        on_check()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), CHECK_SECONDS)
    stopping.set()
    sys.stdout.write("\nstopping\n")
    sys.stdout.flush()
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        # Errors of the clients were reported: another one is a bug.
        if result is not None and not isinstance(result, asyncio.CancelledError):
            raise result


async def _keep_running(
    name: str, program: Callable[[], Awaitable[None]], stopping: asyncio.Event
) -> None:
    """Start a program again that has failed, e.g. because a topic was deleted in the console."""
    reported = ""
    # A client that cannot leave in order, because the broker is gone, raises instead of being cancelled.
    while not stopping.is_set():
        try:
            await program()
        except ClientError as error:
            if reported != str(error) and not stopping.is_set():
                reported = str(error)  # What goes on failing is reported once.
                sys.stderr.write(f"{name}: {error}; it starts again\n")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), RETRY_SECONDS)


def create_topics(admin: zhumq.Admin) -> None:
    """Create the shop's topics that do not exist."""
    existing = admin.topics()
    for name, (partitions, settings) in TOPICS.items():
        if name not in existing:
            with contextlib.suppress(AlreadyExists):
                admin.create_topic(name, partitions=partitions, settings=settings | _KEPT)

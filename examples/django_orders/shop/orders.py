"""What the view and the command know: an order, its topic, and how it is sent."""

from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache

from django.conf import settings

import zhumq

TOPIC = "orders"
SEND_SECONDS_MAX = 10.0
# An order that is answered with 503 is not sent later.
SETTINGS = {"message.timeout.ms": 4000}


@dataclass
class Order:
    customer: str
    item: str
    count: int = 1


@cache
def producer() -> "zhumq.Producer[Order, str]":
    """One producer for the process, which its threads share."""
    return zhumq.Producer(
        settings.ZHUMQ_BOOTSTRAP, value=zhumq.Json(Order), key=zhumq.Text(), settings=SETTINGS
    )


def send(order: Order) -> int:
    """Send an order, and wait until it is acknowledged. Returns its offset, or raises ClientError."""
    sent: Future[int] = Future()
    producer().send(
        TOPIC,
        order,
        key=order.customer,  # Orders of a customer are packed in their order.
        on_sent=lambda _partition, offset: sent.set_result(offset),
        on_failed=sent.set_exception,
    )
    producer().flush(SEND_SECONDS_MAX)
    return sent.result(SEND_SECONDS_MAX)

"""The cart of each customer as state: a payment empties it, and half an hour without an event gives it up."""

# ruff: noqa: ARG002, N802, N803 - the names of the methods of a processor, and of what they take, are Spark's
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

CART = "items INT, amount DOUBLE, last_ms BIGINT"


def abandoned(rows: DataFrame, minutes: str) -> DataFrame:
    """A row for each cart that was left alone for so long. The rows need a watermark on `timestamp`."""
    events = rows.select(
        "customer", "kind", "amount", F.unix_millis("timestamp").alias("at_ms"), "timestamp"
    )
    found = events.groupBy("customer").transformWithState(
        statefulProcessor=Carts(int(minutes) * 60_000),
        outputStructType=f"customer STRING, {CART}",
        outputMode="Append",
        timeMode="EventTime",
    )
    return found.select(
        "customer", "items", "amount", F.timestamp_millis("last_ms").alias("last_at")
    )


class Carts(StatefulProcessor):
    """Spark calls it with the new rows of a customer, and when the timer of a customer has come.

    Event time moves with the watermark, so a timer comes when later events of any customer were read.
    """

    def __init__(self, wait_ms: int) -> None:
        self._wait_ms = wait_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._cart = handle.getValueState("cart", CART)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        items, amount, last_ms = self._cart.get() if self._cart.exists() else (0, 0.0, 0)
        # A micro-batch may have the rows of a customer in any order.
        for row in sorted(rows, key=lambda row: row.at_ms):
            last_ms = max(last_ms, row.at_ms)
            if row.kind == "pay":
                items, amount = 0, 0.0
            else:
                items, amount = items + 1, amount + (row.amount or 0.0)
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        if items:
            self._cart.update((items, amount, last_ms))
            self._handle.registerTimer(last_ms + self._wait_ms)
        else:
            self._cart.clear()
        yield from ()

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        items, amount, last_ms = self._cart.get()
        self._cart.clear()
        yield Row(customer=key[0], items=items, amount=amount, last_ms=last_ms)

    def close(self) -> None:
        """Nothing is open."""

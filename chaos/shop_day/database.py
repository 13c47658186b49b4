"""A shop's database as a seed has it: customers, orders and payments, and their changes in order of commit."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from chaos.shop_day.facts import (
    CUSTOMERS,
    DAY_BEGINS_MS,
    DAY_ENDS_MS,
    FAILURES_MIN,
    HOUR_MS,
    LARGE,
    MINUTE_MS,
    NOON_MS,
    ORDERS,
    PAYMENTS,
    Change,
    Row,
    Value,
)

FIRST_LSN: Final = 23_904_112
CITIES: Final = (
    "Köln",
    "Łódź",
    "São Paulo",
    "東京",
    "Reykjavík",
    "O'Fallon",
    'Nieuw "West"',
    "Bern",
)
NAMES: Final = ("Ana", "Björn", "Chiara", "Đorđe", "Eloïse", "Faizah", "Zoë", "王芳")
TIERS: Final = ("gold", "silver", None)
REFUSED_SHARE: Final = 0.01
LARGE_SHARE: Final = 0.03
_ACTIONS: Final = {
    "new_order": 30, "order_goes_on": 30, "payment_goes_on": 25, "new_customer": 4,
    "customer_moves": 8, "customer_leaves": 1, "order_is_purged": 2,
}  # fmt: skip
_NEXT: Final = {"new": "packed", "packed": "sent", "sent": "delivered"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A change with the topic of its table and what the row was before, as far as the log of the database has it."""

    topic: str
    change: Change
    before: Row | None


@dataclass(slots=True, kw_only=True)
class Database:
    """Rows by key. Every change takes the next place in the log."""

    draw: random.Random
    customers: dict[int, Row] = field(default_factory=dict)
    orders: dict[int, Row] = field(default_factory=dict)
    payments: dict[int, Row] = field(default_factory=dict)
    _lsn: int = FIRST_LSN
    _keys: int = 0

    def commits(self, count: int) -> Iterator[Commit]:
        """About so many changes of a day, in order."""
        for number in range(max(20, count // 100)):
            yield self._write(
                CUSTOMERS, self.customers, "r", self._customer(), DAY_BEGINS_MS + number
            )
        bursts = max(3, count // 2000)
        steps = [("fails", self._moment(HOUR_MS)) for _ in range(bursts)]
        steps += [("truncate", self._moment(HOUR_MS)) for _ in range(2)]
        rest = max(0, count - count // 100 - bursts * 8)
        names, weights = list(_ACTIONS), list(_ACTIONS.values())
        # A new order is two changes.
        actions = self.draw.choices(names, weights, k=int(rest / 1.3))
        steps += [(name, self._moment(MINUTE_MS)) for name in actions]
        for name, ts_ms in sorted(steps, key=lambda step: step[1]):
            yield from self._step(name, ts_ms)

    def _step(self, name: str, ts_ms: int) -> Iterator[Commit]:
        match name:
            case "new_order":
                yield from self._new_order(ts_ms, self._pick(self.customers)["id"])
            case "order_goes_on":
                row = self._pick(self.orders)
                if row and row["status"] in _NEXT:
                    changed = {**row, "status": _NEXT[str(row["status"])]}
                    yield self._write(ORDERS, self.orders, "u", changed, ts_ms)
            case "payment_goes_on":
                row = self._pick(self.payments)
                if row and row["state"] == "authorized":
                    state = "failed" if self.draw.random() < 0.1 else "captured"
                    changed = {**row, "state": state}
                    yield self._write(PAYMENTS, self.payments, "u", changed, ts_ms)
            case "new_customer":
                yield self._write(CUSTOMERS, self.customers, "c", self._customer(ts_ms), ts_ms)
            case "customer_moves":
                row = {**self._pick(self.customers), "city": self.draw.choice(CITIES)}
                if ts_ms >= NOON_MS:
                    row["tier"] = self.draw.choice(TIERS)
                yield self._write(CUSTOMERS, self.customers, "u", row, ts_ms)
            case "customer_leaves":
                if len(self.customers) > 10:
                    yield self._delete(CUSTOMERS, self.customers, ts_ms)
            case "order_is_purged":
                if self.orders:
                    yield self._delete(ORDERS, self.orders, ts_ms)
            case "truncate":  # of a partition of the table: the connector says no more than that
                yield Commit(topic=ORDERS, change=self._change("t", {}, ts_ms), before=None)
            case "fails":
                yield from self._failures(ts_ms)

    def _new_order(self, ts_ms: int, customer: Value) -> Iterator[Commit]:
        share = self.draw.random()
        cents = self.draw.randint(500, 30_000)
        if share < REFUSED_SHARE:
            cents = -cents if share < REFUSED_SHARE / 2 else 0
        elif share < REFUSED_SHARE + LARGE_SHARE:
            cents = int(LARGE) * 100 + self.draw.choice((0, 1, 25_000))
        order: Row = {
            "id": self._next_key(),
            "customer_id": customer,
            "status": "new",
            "total": Decimal(cents).scaleb(-2),
            "created_at": ts_ms * 1000,
        }
        yield self._write(ORDERS, self.orders, "c", order, ts_ms)
        payment: Row = {
            "id": self._next_key(),
            "order_id": order["id"],
            "customer_id": order["customer_id"],
            "amount": order["total"],
            "state": "authorized",
        }
        yield self._write(PAYMENTS, self.payments, "c", payment, ts_ms + 1)
        if cents <= 0:
            # The pipeline refuses it, and the shop never hears of it again.
            del self.payments[int(str(payment["id"]))]

    def _failures(self, ts_ms: int) -> Iterator[Commit]:
        """Several payments of one customer fail at once."""
        customer = self._pick(self.customers)["id"]
        for _ in range(FAILURES_MIN + self.draw.randint(0, 1)):
            payment: Row = {
                "id": self._next_key(),
                "order_id": self._next_key(),
                "customer_id": customer,
                "amount": Decimal("19.90"),
                "state": "authorized",
            }
            yield self._write(PAYMENTS, self.payments, "c", payment, ts_ms)
            failed = {**payment, "state": "failed"}
            yield self._write(PAYMENTS, self.payments, "u", failed, ts_ms)

    def _customer(self, ts_ms: int = DAY_BEGINS_MS) -> Row:
        name = f"{self.draw.choice(NAMES)} {self.draw.randint(1, 99)}"
        row: dict[str, Value] = {
            "id": self._next_key(),
            "name": name,
            "city": self.draw.choice(CITIES),
        }
        return {**row, "tier": self.draw.choice(TIERS)} if ts_ms >= NOON_MS else row

    def _write(self, topic: str, rows: dict[int, Row], op: str, row: Row, ts_ms: int) -> Commit:
        key = int(str(row["id"]))
        # Only the customers have REPLICA IDENTITY FULL.
        before = rows.get(key) if topic == CUSTOMERS else None
        rows[key] = row
        return Commit(topic=topic, change=self._change(op, row, ts_ms), before=before)

    def _delete(self, topic: str, rows: dict[int, Row], ts_ms: int) -> Commit:
        row = rows.pop(int(str(self._pick(rows)["id"])))
        before = row if topic == CUSTOMERS else dict.fromkeys(row) | {"id": row["id"]}
        change = self._change("d", {"id": row["id"]}, ts_ms)
        return Commit(topic=topic, change=change, before=before)

    def _change(self, op: str, row: Row, ts_ms: int) -> Change:
        self._lsn += self.draw.randint(1, 500)
        return Change(op=op, lsn=self._lsn, ts_ms=ts_ms, row=row)

    def _pick(self, rows: dict[int, Row]) -> Row:
        """Mostly one of the newest; empty if there is none."""
        if not rows:
            return {}
        keys = list(rows)[-50:] if self.draw.random() < 0.7 else list(rows)
        return rows[self.draw.choice(keys)]

    def _next_key(self) -> int:
        self._keys += 1
        return self._keys

    def _moment(self, margin_ms: int) -> int:
        return self.draw.randrange(DAY_BEGINS_MS + margin_ms, DAY_ENDS_MS - margin_ms)

"""What the messages of a day are about, and the rules of the pipelines' files as numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
DAY_BEGINS_MS: Final = int(datetime(2026, 6, 12, tzinfo=UTC).timestamp()) * 1000
DAY_ENDS_MS: Final = DAY_BEGINS_MS + DAY_MS
NOON_MS: Final = DAY_BEGINS_MS + DAY_MS // 2
TICK_MS: Final = 5 * MINUTE_MS
TICKS: Final = DAY_MS // TICK_MS
NOON_TICK: Final = TICKS // 2

# The topics, as connectors and log shippers name them.
CUSTOMERS: Final = "shop.public.customers"
ORDERS: Final = "shop.public.orders"
PAYMENTS: Final = "shop.public.payments"
CHANGE_TOPICS: Final = (CUSTOMERS, ORDERS, PAYMENTS)
WEB: Final = "clicks.web"  # JSON
APP: Final = "clicks.app"  # logfmt
EDGE: Final = "clicks.edge"  # the combined format of nginx and Apache
KIOSK: Final = "clicks.kiosk"  # CSV
CLICK_TOPICS: Final = (WEB, APP, EDGE, KIOSK)
TOPICS: Final = (*CHANGE_TOPICS, *CLICK_TOPICS)
ALERTS: Final = "shop.alerts"
CHANGES_DEAD: Final = "shop.changes.dlq"
CHANGES_REFUSED: Final = "shop.changes.refused"
CLICKS_DEAD: Final = "shop.clicks.dlq"
CLICKS_REFUSED: Final = "shop.clicks.refused"

# The rules of files/changes.yml and files/clicks.yml.
KNOWN_OPERATIONS: Final = ("c", "r", "u", "d")
LARGE: Final = Decimal(500)
FAILURES_MIN: Final = 3
ALERT_WINDOW_MS: Final = HOUR_MS
LATE_MAX_MS: Final = HOUR_MS
WITHIN_MS: Final = 3 * HOUR_MS  # of duplicates, and so the delay of the watermarks
SESSION_GAP_MS: Final = 30 * MINUTE_MS

Value = int | str | Decimal | None
Row = Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A committed change of a row; of a delete, `row` has the key."""

    op: str
    lsn: int
    ts_ms: int
    row: Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Click:
    """One look at a page."""

    event: str
    user: str  # "-": not logged in
    moment_ms: int
    promotion: str | None = None  # a field that the web's clicks have from noon on


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A message that its format does not allow."""

    reason: str  # in its dead letter


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """The message without a value that follows a delete."""


Fact = Change | Click | Broken | Tombstone


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message, when it arrives, and what it is about."""

    number: int
    topic: str
    key: bytes | None
    value: bytes | None
    at_ms: int
    fact: Fact

    @property
    def tick(self) -> int:
        return (self.at_ms - DAY_BEGINS_MS) // TICK_MS

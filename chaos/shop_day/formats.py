"""Writes facts as foreign programs do: envelopes of Debezium, JSON, logfmt, combined access logs, CSV."""

import csv
import io
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from chaos.shop_day.facts import CUSTOMERS, ORDERS, Change, Click, Row

# The connector of the orders writes the schema beside each row.
_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "struct",
    "name": "shop.public.orders.Envelope",
    "optional": False,
    "version": 2,
    "fields": [
        {"field": "before", "type": "struct", "optional": True},
        {"field": "after", "type": "struct", "optional": True},
        {"field": "op", "type": "string", "optional": False},
        {"field": "ts_ms", "type": "int64", "optional": True},
    ],
}


def envelope(topic: str, change: Change, before: Row | None, *, sent_ms: int) -> bytes:
    """A change as Debezium's connector for PostgreSQL writes it; repeated, it has another `sent_ms`."""
    after = None if change.op in ("d", "t") else _plain(change.row)
    payload = {
        "before": None if before is None else _plain(before),
        "after": after,
        "source": {
            "version": "2.7.0.Final",
            "connector": "postgresql",
            "name": "shop",
            "ts_ms": change.ts_ms,
            "snapshot": "true" if change.op == "r" else "false",
            "db": "shop",
            "sequence": f'["{change.lsn - 1}","{change.lsn}"]',
            "schema": "public",
            "table": topic.rpartition(".")[2],
            "txId": change.lsn % 100_000,
            "lsn": change.lsn,
            "xmin": None,
        },
        "transaction": None,
        "op": change.op,
        "ts_ms": sent_ms,
    }
    whole = {"schema": _SCHEMA, "payload": payload} if topic == ORDERS else payload
    # The connector of the customers escapes what is not ASCII, the others write UTF-8.
    return json.dumps(whole, ensure_ascii=topic == CUSTOMERS, separators=(",", ":")).encode()


def change_key(number: Any) -> bytes:
    return b'{"id":%d}' % int(number)


def click_json(click: Click, page: str, title: str) -> bytes:
    fields: dict[str, Any] = {
        "event_id": click.event,
        "user": click.user,
        "at": f"{_moment(click):%Y-%m-%dT%H:%M:%S}.000Z",
        "page": page,
        "title": title,
        "client": {"os": "Linux", "screen": [1920, 1080]},
    }
    if click.promotion is not None:
        fields["promotion"] = click.promotion
    return json.dumps(fields, ensure_ascii=False).encode()


def click_logfmt(click: Click, page: str, title: str) -> bytes:
    quoted = title.replace("\\", "\\\\").replace('"', '\\"')
    at = f"{_moment(click):%Y-%m-%dT%H:%M:%SZ}"
    words = f'ts={at} level=info event={click.event} user={click.user} page={page} title="{quoted}"'
    return words.encode()


def click_combined(click: Click, page: str, address: str) -> bytes:
    """A line of nginx, and of Apache's `combined`."""
    at = f"{_moment(click):%d/%b/%Y:%H:%M:%S} +0000"
    request = f"GET {page}?rid={click.event} HTTP/1.1"
    agent = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"
    line = f'{address} - {click.user} [{at}] "{request}" 200 5123 "https://shop.example/" "{agent}"'
    return line.encode()


def click_csv(click: Click, page: str, title: str) -> bytes:
    text = io.StringIO()
    row = [click.event, click.user, f"{_moment(click):%Y-%m-%d %H:%M:%S}", page, title]
    csv.writer(text, lineterminator="\n").writerow(row)
    return text.getvalue().encode()


def _moment(click: Click) -> datetime:
    return datetime.fromtimestamp(click.moment_ms / 1000, UTC)


def _plain(row: Row) -> dict[str, int | str | None]:
    """Decimals as texts: `decimal.handling.mode=string`."""
    return {
        name: each if isinstance(each, int | str) or each is None else str(each)
        for name, each in row.items()
    }

"""The sample of `zhumq demo`: an hour of a small shop's application logs, the same in every run."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

SEED = 20260101
FIRST_MOMENT = datetime(2026, 1, 1, 8, 0, 0, tzinfo=UTC)
MINUTES = 60
LINES = 20_000
BROKEN_EVERY = 250  # every 250th line is broken

LEVELS = ("INFO", "WARN", "ERROR")
LEVEL_WEIGHTS = (93, 6, 1)
# Each service has its own log format.
SERVICES = ("deliveries", "orders", "payments", "web")
SERVICE_WEIGHTS = (2, 4, 3, 6)
TEXTS: dict[str, dict[str, tuple[str, ...]]] = {
    "orders": {
        "INFO": ("order {number} placed by customer {customer}", "order {number} paid"),
        "WARN": ("order {number} waited {duration} ms for stock",),
        "ERROR": ("order {number} refused: item {item} is not in stock",),
    },
    "payments": {
        "INFO": ("payment {number} of {amount} EUR accepted",),
        "WARN": ("payment {number} tried again after {duration} ms",),
        "ERROR": ("payment {number} failed: card network timed out after {duration} ms",),
    },
    "deliveries": {
        "INFO": ("parcel {number} left for district {district}", "parcel {number} delivered"),
        "WARN": ("parcel {number} is {duration} s late",),
        "ERROR": ("parcel {number} has no route: route service unreachable",),
    },
    "web": {
        "INFO": ("GET /items/{item} HTTP/1.1",),
        "WARN": ("GET /items/{item} HTTP/1.1",),
        "ERROR": ("POST /orders HTTP/1.1",),
    },
}
STATUSES = {"INFO": "200", "WARN": "404", "ERROR": "503"}
BROKEN = (
    '{{"time": "{time}", "level": "ERROR", "service": "orders", "mess',
    "Segmentation fault (core dumped)",
    "#### {item} #### dump of the cart follows",
    'level=info msg="a line without a time"',
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """Minutes in which a service mostly fails."""

    service: str
    first_minute: int
    minutes: int
    errors: int  # in each of them


OUTAGES = (
    Outage(service="payments", first_minute=17, minutes=3, errors=90),
    Outage(service="orders", first_minute=29, minutes=1, errors=45),
    Outage(service="deliveries", first_minute=41, minutes=2, errors=60),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of one service's log. A broken line has no level."""

    service: str
    level: str | None
    minute: datetime
    text: str


def sample_lines(count: int = LINES) -> list[LogLine]:
    """The sample: `count` lines over an hour, ordered by time."""
    draw = random.Random(SEED)  # noqa: S311  a repeatable sample, not a secret
    moments: list[tuple[timedelta, str, str]] = []
    for outage in OUTAGES:
        for index in range(outage.minutes * outage.errors):
            minute = outage.first_minute + index // outage.errors
            moments.append((_moment(draw, minute), outage.service, "ERROR"))
    while len(moments) < count:
        service = draw.choices(SERVICES, SERVICE_WEIGHTS)[0]
        level = draw.choices(LEVELS, LEVEL_WEIGHTS)[0]
        moments.append((_moment(draw, draw.randrange(MINUTES)), service, level))
    moments.sort()
    return list(_lines(draw, moments[:count]))


def expected_errors(lines: list[LogLine]) -> Counter[tuple[str, datetime]]:
    """How many errors each service has in each minute."""
    return Counter((line.service, line.minute) for line in lines if line.level == "ERROR")


def _moment(draw: random.Random, minute: int) -> timedelta:
    return timedelta(minutes=minute, milliseconds=draw.randrange(60_000))


def _lines(draw: random.Random, moments: list[tuple[timedelta, str, str]]) -> Iterator[LogLine]:
    for index, (after, service, level) in enumerate(moments, 1):
        moment = FIRST_MOMENT + after
        facts = {
            "number": draw.randrange(10_000, 99_999),
            "customer": draw.randrange(100, 999),
            "item": draw.randrange(1, 400),
            "amount": f"{draw.randrange(300, 20_000) / 100:.2f}",
            "district": draw.randrange(1, 12),
            "duration": draw.randrange(200, 9_000),
            "time": _iso(moment),
        }
        broken = index % BROKEN_EVERY == 0
        if broken:
            text = BROKEN[index // BROKEN_EVERY % len(BROKEN)].format(**facts)
        else:
            words = draw.choice(TEXTS[service][level]).format(**facts)
            text = _format(service, level, moment, words, draw)
        yield LogLine(
            service=service,
            level=None if broken else level,
            minute=moment.replace(second=0, microsecond=0),
            text=text,
        )


def _format(service: str, level: str, moment: datetime, words: str, draw: random.Random) -> str:
    match service:
        case "orders":
            fields = {"time": _iso(moment), "level": level, "service": service, "message": words}
            return json.dumps(fields)
        case "payments":
            return f'ts={_iso(moment)} level={level.lower()} service={service} msg="{words}"'
        case "deliveries":
            return f"{_iso(moment)} {level:<5} {service}: {words}"
        case _:
            address = f"10.0.{draw.randrange(4)}.{draw.randrange(1, 250)}"
            size = draw.randrange(200, 9_000)
            return f'{address} - - [{moment:%d/%b/%Y:%H:%M:%S} +0000] "{words}" {STATUSES[level]} {size}'


def _iso(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"

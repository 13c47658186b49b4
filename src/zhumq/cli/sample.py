"""Application log lines that look real and are the same every time: the sample of `zhumq demo`."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

SEED = 20260101
FIRST_MOMENT = datetime(2026, 1, 1, 8, 0, 0, tzinfo=UTC)

SERVICES = ("checkout", "gateway", "inventory", "payments", "search", "sessions")
LEVELS = ("INFO", "WARN", "ERROR")
LEVEL_WEIGHTS = (90, 8, 2)
TEXTS = {
    "INFO": (
        "GET /items/{number} 200 in {duration} ms",
        "POST /orders 201 in {duration} ms order={number}",
        "job {number} finished in {duration} ms",
    ),
    "WARN": (
        "GET /items/{number} took {duration} ms, over the budget of 250 ms",
        "cache miss rate {rate} % on shard {shard}",
    ),
    "ERROR": (
        "POST /orders 503 in {duration} ms order={number}: upstream timed out",
        "job {number} failed: connection reset by peer",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of one service's log."""

    service: str
    level: str
    text: str


def sample_lines(count: int) -> Iterator[LogLine]:
    """The first `count` lines of the sample."""
    draw = random.Random(SEED)  # noqa: S311  a repeatable sample, not a secret
    moment = FIRST_MOMENT
    for _ in range(count):
        moment += timedelta(milliseconds=draw.randrange(1, 400))
        service = draw.choice(SERVICES)
        level = draw.choices(LEVELS, LEVEL_WEIGHTS)[0]
        words = draw.choice(TEXTS[level]).format(
            number=draw.randrange(10_000, 99_999),
            duration=draw.randrange(2, 180) * (1 if level == "INFO" else 20),
            rate=draw.randrange(20, 80),
            shard=draw.randrange(16),
        )
        stamp = moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
        yield LogLine(service=service, level=level, text=f"{stamp} {level:<5} {service} {words}")

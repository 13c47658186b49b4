"""The messages of a day from a seed, in order of arrival: late, repeated, broken and changed ones among them. Pure."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from chaos.shop_day.database import Commit, Database
from chaos.shop_day.facts import (
    APP,
    CHANGE_TOPICS,
    CLICK_TOPICS,
    CUSTOMERS,
    DAY_BEGINS_MS,
    DAY_ENDS_MS,
    DAY_MS,
    EDGE,
    HOUR_MS,
    KIOSK,
    LATE_MAX_MS,
    MINUTE_MS,
    NOON_MS,
    PAYMENTS,
    WEB,
    Broken,
    Change,
    Click,
    Fact,
    Message,
    Row,
    Tombstone,
)
from chaos.shop_day.formats import (
    change_key,
    click_combined,
    click_csv,
    click_json,
    click_logfmt,
    envelope,
)

ROWS_MIN: Final = 500
CHANGES_SHARE: Final = 0.4  # of all messages
LATE_SHARE: Final = 0.03
REPEATED_SHARE: Final = 0.02
TOO_LATE_SHARE: Final = 0.05  # of the visits whose last click comes so late
ANONYMOUS_SHARE: Final = 0.02
BROKEN_ONE_OF: Final = 150
CHANGE_LATE_MAX_MS: Final = 40 * MINUTE_MS
CLICK_LATE_MAX_MS: Final = 50 * MINUTE_MS
REPEATED_WITHIN_MS: Final = 20 * MINUTE_MS
CLICKS_MAX: Final = 15  # of a visit
# Between the clicks of a visit, and between visits: never near the gap that ends a session.
PAUSE_SECONDS: Final = (5, 1100)
AWAY_SECONDS: Final = (46 * 60, 5 * 3600)
CLOSER_MS: Final = DAY_BEGINS_MS + 2 * DAY_MS  # past the watermarks of everything before
TITLES: Final = (
    "Chair, oak",
    'Table "Ana"',
    "Стол",
    "Lampe à pied",
    "椅子",
    "back\\slash",
    "plain",
)
NOT_DEBEZIUM: Final = "not a change of Debezium of the given schema"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    at_ms: int
    topic: str
    key: bytes | None
    value: bytes | None
    fact: Fact


def day(*, rows: int, seed: int) -> list[Message]:
    """About so many messages in the order in which they arrive."""
    if rows < ROWS_MIN:
        raise ValueError(f"a day has at least {ROWS_MIN} rows, not {rows}")
    draw = random.Random(seed)  # noqa: S311 (reproducible, not secret)
    changes = int(rows * CHANGES_SHARE)
    drafts = [*_changes(draw, changes), *_clicks(draw, rows - changes)]
    drafts += [_broken(draw, drafts) for _ in range(max(14, rows // BROKEN_ONE_OF))]
    drafts.sort(key=lambda draft: draft.at_ms)
    return _numbered(drafts, 0)


def closing(*, first: int) -> list[Message]:
    """Two messages of two days later, numbered from `first`: they move the watermarks past the day."""
    row: Row = {
        "id": 9_999_999,
        "order_id": 0,
        "customer_id": 0,
        "amount": "1.00",
        "state": "authorized",
    }
    change = Change(op="c", lsn=9_000_000_000, ts_ms=CLOSER_MS, row=row)
    click = Click(event="e-closing", user="u-closing", moment_ms=CLOSER_MS)
    drafts = [
        _Draft(
            at_ms=CLOSER_MS,
            topic=PAYMENTS,
            key=change_key(row["id"]),
            value=envelope(PAYMENTS, change, None, sent_ms=CLOSER_MS),
            fact=change,
        ),
        _Draft(
            at_ms=CLOSER_MS, topic=WEB, key=b"u-closing",
            value=click_json(click, "/", "closing"), fact=click,
        ),
    ]  # fmt: skip
    return _numbered(drafts, first)


def _numbered(drafts: Sequence[_Draft], first: int) -> list[Message]:
    return [
        Message(
            number=number, topic=each.topic, key=each.key, value=each.value, at_ms=each.at_ms,
            fact=each.fact,
        )
        for number, each in enumerate(drafts, start=first)
    ]  # fmt: skip


# Changes


def _changes(draw: random.Random, count: int) -> Iterator[_Draft]:
    for commit in Database(draw=draw).commits(count):
        change = commit.change
        first = _change(commit, _arrival(draw, change.ts_ms, CHANGE_LATE_MAX_MS))
        yield first
        if draw.random() < REPEATED_SHARE:
            # A connector that starts again sends the last changes once more.
            yield _change(commit, _later(draw, first.at_ms, REPEATED_WITHIN_MS))
        if change.op == "d":
            yield _Draft(
                at_ms=first.at_ms, topic=commit.topic, key=first.key, value=None, fact=Tombstone()
            )


def _change(commit: Commit, at_ms: int) -> _Draft:
    change = commit.change
    return _Draft(
        at_ms=at_ms,
        topic=commit.topic,
        key=change_key(change.row["id"]) if change.row else None,
        value=envelope(commit.topic, change, commit.before, sent_ms=at_ms),
        fact=change,
    )


# Clicks


def _clicks(draw: random.Random, count: int) -> Iterator[_Draft]:
    done = users = events = 0
    while done < count:
        users += 1
        moment_ms = DAY_BEGINS_MS + draw.randrange(18 * HOUR_MS) // 1000 * 1000
        while moment_ms < DAY_ENDS_MS - LATE_MAX_MS and done < count:
            clicks = min(CLICKS_MAX, 1 + int(draw.expovariate(0.2)))
            main = draw.choice(CLICK_TOPICS)
            for number in range(clicks):
                topic = main if draw.random() < 0.8 else draw.choice(CLICK_TOPICS)
                user = f"u{users:05d}"
                if topic == EDGE and draw.random() < ANONYMOUS_SHARE:
                    user = "-"
                events += 1
                click = Click(
                    event=f"e-{events:07d}",
                    user=user,
                    moment_ms=moment_ms,
                    promotion=_promotion(draw, topic, moment_ms),
                )
                # Only the last click of a visit comes too late: without it the others are still one session.
                too_late = number == clicks - 1 and draw.random() < TOO_LATE_SHARE
                drafts = _arrivals(draw, topic, click, too_late=too_late)
                done += len(drafts)
                yield from drafts
                moment_ms += 1000 * draw.randint(*PAUSE_SECONDS)
            moment_ms += 1000 * draw.randint(*AWAY_SECONDS)


def _promotion(draw: random.Random, topic: str, moment_ms: int) -> str | None:
    if topic != WEB or moment_ms < NOON_MS or draw.random() < 0.5:
        return None
    return draw.choice(("mittag", "déjeuner"))


def _arrivals(draw: random.Random, topic: str, click: Click, *, too_late: bool) -> list[_Draft]:
    if too_late:
        at_ms = click.moment_ms + LATE_MAX_MS + draw.randrange(MINUTE_MS, 4 * HOUR_MS)
        at_ms = min(at_ms, DAY_ENDS_MS - 1)
    else:
        at_ms = _arrival(draw, click.moment_ms, CLICK_LATE_MAX_MS)
    page, title = f"/p/{draw.randint(1, 400)}", draw.choice(TITLES)
    address = f"203.0.113.{draw.randint(1, 254)}"
    write: dict[str, Callable[[], bytes]] = {
        WEB: lambda: click_json(click, page, title),
        APP: lambda: click_logfmt(click, page, title),
        EDGE: lambda: click_combined(click, page, address),
        KIOSK: lambda: click_csv(click, page, title),
    }
    moments = [at_ms]
    if draw.random() < REPEATED_SHARE:
        moments.append(_later(draw, at_ms, REPEATED_WITHIN_MS))
    return [
        _Draft(at_ms=each, topic=topic, key=click.user.encode(), value=write[topic](), fact=click)
        for each in moments
    ]


def _arrival(draw: random.Random, happened_ms: int, late_max_ms: int) -> int:
    """Mostly within two seconds; some are late."""
    if draw.random() < LATE_SHARE:
        return _later(draw, happened_ms, late_max_ms)
    return min(happened_ms + draw.randrange(2000), DAY_ENDS_MS - 1)


def _later(draw: random.Random, at_ms: int, within_ms: int) -> int:
    return min(at_ms + draw.randrange(1, within_ms), DAY_ENDS_MS - 1)


# Broken messages


def _broken(draw: random.Random, drafts: Sequence[_Draft]) -> _Draft:
    """What became of a message on its way, or what has no business in its topic."""
    topic = draw.choice((*CHANGE_TOPICS, *CLICK_TOPICS))
    victim = draw.choice(drafts)
    while victim.topic != topic or victim.value is None or isinstance(victim.fact, Broken):
        victim = draw.choice(drafts)
    value, reason = _damaged(draw, topic, victim.value)
    fact = Broken(reason=reason)
    return _Draft(at_ms=victim.at_ms, topic=topic, key=victim.key, value=value, fact=fact)


def _damaged(draw: random.Random, topic: str, value: bytes) -> tuple[bytes, str]:
    match topic:
        case _ if topic in CHANGE_TOPICS:
            choices = [
                (value[: len(value) * 2 // 3], NOT_DEBEZIUM),
                (b'{"status":"UP","components":[]}', NOT_DEBEZIUM),
                (b"<html><h1>502 Bad Gateway</h1></html>", NOT_DEBEZIUM),
                (b"", NOT_DEBEZIUM),
            ]
            if topic == CUSTOMERS:
                wrong = b'{"before":null,"after":{"id":"sieben","name":"Ana"},"op":"c","ts_ms":1}'
                choices.append((wrong, NOT_DEBEZIUM))
        case _ if topic == WEB:
            reason = "not JSON of the given schema"
            wrong = b'{"event_id":"e-x","user":"u-x","at":"gestern","page":"/"}'
            choices = [(value[: len(value) // 2], reason), (wrong, reason), (b"[]x", reason)]
        case _ if topic == APP:
            reason = "not logfmt of the given schema"
            choices = [
                (value + b" panic", reason),
                (value.replace(b"ts=2026", b"ts=MMXXVI"), reason),
                (b"goroutine 1 [running]:", reason),
            ]
        case _ if topic == EDGE:
            garbage = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
            choices = [
                (garbage, "not a log line of a known format"),
                (value.replace(b"[12/Jun/2026", b"[99/Jun/2026"), "its time cannot be read"),
            ]
        case _:
            reason = "not CSV of the given schema"
            choices = [
                (value.partition(b",")[0], reason),
                (value.rstrip(b"\n") + b",one,more\n", reason),
                (value.replace(b"2026-06-12", b"12.6.26"), reason),
            ]
    return draw.choice(choices)

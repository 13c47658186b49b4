"""What becomes of a day's messages, by a plain model of the pipelines' files. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from chaos.shop_day.facts import (
    ALERT_WINDOW_MS,
    CHANGE_TOPICS,
    CHANGES_DEAD,
    CHANGES_REFUSED,
    CLICKS_DEAD,
    CLICKS_REFUSED,
    CUSTOMERS,
    FAILURES_MIN,
    KNOWN_OPERATIONS,
    LARGE,
    LATE_MAX_MS,
    ORDERS,
    PAYMENTS,
    SESSION_GAP_MS,
    WITHIN_MS,
    Broken,
    Change,
    Click,
    Message,
    Tombstone,
)

COLUMNS: Final = {
    CUSTOMERS: ("id", "name", "city", "tier"),
    ORDERS: ("id", "customer_id", "status", "total", "created_at"),
    PAYMENTS: ("id", "order_id", "customer_id", "amount", "state"),
}
DECIMALS: Final = ("total", "amount")
Cells = tuple[object, ...]


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The rows that there are at the end, each once, and the messages that were rejected."""

    newest: dict[str, list[Cells]]  # by topic: the columns and the sequence
    history: list[Cells]  # of customers: the columns, valid from, valid to
    sessions: list[Cells]  # user, begin and end in milliseconds, events, clicks with a promotion
    large: list[Cells]  # payment, customer, amount
    troubled: list[Cells]  # customer, hour, failures
    rejected: dict[int, tuple[str, str]] = field(default_factory=dict)  # number: topic, reason


def outcome_of(messages: Sequence[Message]) -> Outcome:
    rejected: dict[int, tuple[str, str]] = {}
    changes: dict[str, dict[int, Change]] = {topic: {} for topic in CHANGE_TOPICS}
    clicks: dict[str, Click] = {}
    for message in messages:
        match message.fact:
            case Broken(reason=reason):
                dead = CHANGES_DEAD if message.topic in CHANGE_TOPICS else CLICKS_DEAD
                rejected[message.number] = (dead, reason)
            case Change() as change:
                broken = _broken_by_change(message.topic, change)
                if broken:
                    rejected[message.number] = (CHANGES_REFUSED, _reason(broken))
                else:
                    changes[message.topic][change.lsn] = change
            case Click() as click:
                broken = _broken_by_click(message, click)
                if "in_time" in broken:
                    rejected[message.number] = (CLICKS_REFUSED, _reason(broken))
                elif not broken:
                    clicks[click.event] = click
            case Tombstone():
                pass
    return Outcome(
        newest={topic: _newest(topic, each.values()) for topic, each in changes.items()},
        history=_history(changes[CUSTOMERS].values()),
        sessions=_sessions(clicks.values()),
        large=_large(changes[PAYMENTS].values()),
        troubled=_troubled(changes[PAYMENTS].values()),
        rejected=rejected,
    )


def _broken_by_change(topic: str, change: Change) -> list[str]:
    broken = [] if change.op in KNOWN_OPERATIONS else ["known_op"]
    if topic == PAYMENTS and change.op != "d" and _amount(change) <= 0:
        broken.append("positive")
    return broken


def _broken_by_click(message: Message, click: Click) -> list[str]:
    broken = [] if message.at_ms - click.moment_ms <= LATE_MAX_MS else ["in_time"]
    return [*broken, "known_user"] if click.user == "-" else broken


def _reason(broken: Sequence[str]) -> str:
    return f"breaks the rule {', '.join(broken)}"


def _cells(topic: str, change: Change) -> Cells:
    return tuple(
        Decimal(str(change.row[name])) if name in DECIMALS else change.row.get(name)
        for name in COLUMNS[topic]
    )


def _newest(topic: str, changes: Iterable[Change]) -> list[Cells]:
    last: dict[object, Change] = {}
    for change in sorted(changes, key=lambda each: each.lsn):
        last[change.row["id"]] = change
    return [(*_cells(topic, each), each.lsn) for each in last.values() if each.op != "d"]


def _history(changes: Iterable[Change]) -> list[Cells]:
    versions: dict[object, list[Change]] = defaultdict(list)
    for change in sorted(changes, key=lambda each: each.lsn):
        versions[change.row["id"]].append(change)
    return [
        (*_cells(CUSTOMERS, each), each.lsn, None if following is None else following.lsn)
        for of_key in versions.values()
        for each, following in zip(of_key, [*of_key[1:], None], strict=True)
        if each.op != "d"
    ]


def _sessions(clicks: Iterable[Click]) -> list[Cells]:
    """The sessions that are over when the watermark has seen all clicks."""
    by_user: dict[str, list[Click]] = defaultdict(list)
    for click in clicks:
        by_user[click.user].append(click)
    newest_ms = max((each.moment_ms for of_user in by_user.values() for each in of_user), default=0)
    found: list[Cells] = []
    for user, of_user in by_user.items():
        of_user.sort(key=lambda each: (each.moment_ms, each.event))
        for session in _split(of_user):
            end_ms = session[-1].moment_ms + SESSION_GAP_MS
            if end_ms <= newest_ms - WITHIN_MS:
                events = " ".join(sorted(each.event for each in session))
                promotions = sum(each.promotion is not None for each in session)
                found.append((user, session[0].moment_ms, end_ms, events, promotions))
    return found


def _split(clicks: Sequence[Click]) -> list[list[Click]]:
    sessions: list[list[Click]] = []
    for click in clicks:
        if sessions and click.moment_ms - sessions[-1][-1].moment_ms < SESSION_GAP_MS:
            sessions[-1].append(click)
        else:
            sessions.append([click])
    return sessions


def _large(changes: Iterable[Change]) -> list[Cells]:
    return [
        (each.row["id"], each.row["customer_id"], str(_amount(each)))
        for each in changes
        if each.op == "c" and _amount(each) >= LARGE
    ]


def _troubled(changes: Iterable[Change]) -> list[Cells]:
    changes = list(changes)
    newest_ms = max((each.ts_ms for each in changes), default=0)
    failures: dict[tuple[object, int], int] = defaultdict(int)
    for each in changes:
        if each.op == "u" and each.row["state"] == "failed":
            hour_ms = each.ts_ms - each.ts_ms % ALERT_WINDOW_MS
            failures[each.row["customer_id"], hour_ms] += 1
    return [
        (customer, f"{datetime.fromtimestamp(hour_ms / 1000, UTC):%Y-%m-%d %H:%M}", count)
        for (customer, hour_ms), count in failures.items()
        if count >= FAILURES_MIN and hour_ms + ALERT_WINDOW_MS <= newest_ms - WITHIN_MS
    ]


def _amount(change: Change) -> Decimal:
    return Decimal(str(change.row["amount"]))


def rejected_rows(
    messages: Iterable[Message],
    rejected: Mapping[int, tuple[str, str]],
    places: Mapping[int, tuple[str, int, int]],
    topic: str,
) -> list[Cells]:
    """The dead letters of one topic: where each came from, with its reason, key and value."""
    return [
        (*places[each.number], rejected[each.number][1], each.key, each.value)
        for each in messages
        if rejected.get(each.number, ("",))[0] == topic
    ]


def archived_rows(
    messages: Iterable[Message], places: Mapping[int, tuple[str, int, int]]
) -> list[Cells]:
    """The rows of the archive."""
    return [(*places[each.number], each.key, each.value, each.at_ms) for each in messages]

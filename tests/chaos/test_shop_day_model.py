"""The day of the shop without Spark: what its generator promises, its model, and mistakes that the comparison finds."""

import importlib
import json
import random
from collections import Counter
from dataclasses import replace
from decimal import Decimal

import pytest
from chaos.shop_day.compare import Kind, Part, differences, report
from chaos.shop_day.facts import (
    CHANGE_TOPICS,
    CLICK_TOPICS,
    CUSTOMERS,
    DAY_BEGINS_MS,
    DAY_ENDS_MS,
    EDGE,
    HOUR_MS,
    MINUTE_MS,
    NOON_MS,
    NOON_TICK,
    ORDERS,
    PAYMENTS,
    SESSION_GAP_MS,
    TICKS,
    TOPICS,
    WEB,
    Broken,
    Change,
    Click,
    Fact,
    Message,
    Tombstone,
)
from chaos.shop_day.generator import closing, day
from chaos.shop_day.outcome import archived_rows, outcome_of, rejected_rows
from chaos.shop_day.schedule import EventKind, plan

ROWS = 4000


@pytest.fixture(scope="module")
def messages() -> list[Message]:
    return day(rows=ROWS, seed=1)


def message(
    fact: Fact, *, number: int = 0, topic: str = PAYMENTS, at_ms: int = DAY_BEGINS_MS
) -> Message:
    return Message(number=number, topic=topic, key=None, value=b"", at_ms=at_ms, fact=fact)


def payment(
    lsn: int, op: str, *, state: str = "authorized", amount: str = "5.00", number: int = 1
) -> Message:
    row = {
        "id": number, "order_id": 1, "customer_id": 7, "amount": Decimal(amount), "state": state
    }  # fmt: skip
    return message(Change(op=op, lsn=lsn, ts_ms=DAY_BEGINS_MS + lsn, row=row))


def click(
    event: str, minutes: float, *, user: str = "u1", late_ms: int = 0, promotion: str | None = None
) -> Message:
    moment_ms = DAY_BEGINS_MS + int(minutes * MINUTE_MS)
    fact = Click(event=event, user=user, moment_ms=moment_ms, promotion=promotion)
    return message(fact, topic=WEB, at_ms=moment_ms + late_ms)


# The generator


def test_a_day_is_made_of_its_seed_alone(messages: list[Message]) -> None:
    assert day(rows=ROWS, seed=1) == messages
    assert day(rows=ROWS, seed=2) != messages


def test_messages_are_numbered_in_the_order_in_which_they_arrive(messages: list[Message]) -> None:
    assert [each.number for each in messages] == list(range(len(messages)))
    assert all(DAY_BEGINS_MS <= each.at_ms < DAY_ENDS_MS for each in messages)
    moments = [each.at_ms for each in messages]
    assert moments == sorted(moments)
    assert 0.8 * ROWS < len(messages) < 1.3 * ROWS


@pytest.mark.parametrize("seed", range(1, 6))
def test_every_day_has_all_that_it_is_about(seed: int) -> None:
    messages = day(rows=ROWS, seed=seed)
    assert {each.topic for each in messages} == set(TOPICS)
    facts = [each.fact for each in messages]
    assert {type(each) for each in facts} == {Change, Click, Broken, Tombstone}
    operations = {each.op for each in facts if isinstance(each, Change)}
    assert operations == {"r", "c", "u", "d", "t"}
    broken_topics = {each.topic for each in messages if isinstance(each.fact, Broken)}
    assert len(broken_topics) > 4
    copies = Counter(each for each in facts if isinstance(each, Click))
    assert max(copies.values()) == 2
    lsns = [each.fact.lsn for each in messages if isinstance(each.fact, Change)]
    assert lsns != sorted(lsns), "no change is late"
    assert len(set(lsns)) < len(lsns), "no change is repeated"
    outcome = outcome_of([*messages, *closing(first=len(messages))])
    assert all(outcome.newest.values())
    assert outcome.large
    assert outcome.troubled
    assert len(outcome.sessions) > 20
    assert any(each[-1] for each in outcome.sessions), "no session has a promotion"
    assert len({topic for topic, _ in outcome.rejected.values()}) == 4


def test_what_is_new_at_noon_is_in_no_message_before(messages: list[Message]) -> None:
    before = [each.value or b"" for each in messages if each.at_ms < NOON_MS]
    after = [each.value or b"" for each in messages if each.at_ms >= NOON_MS]
    for words in (b'"tier"', b'"promotion"'):
        assert not any(words in each for each in before)
        assert any(words in each for each in after)


def test_clicks_are_never_near_the_gap_that_ends_a_session(messages: list[Message]) -> None:
    by_user: dict[str, set[int]] = {}
    for each in messages:
        if isinstance(each.fact, Click) and each.fact.user != "-":
            by_user.setdefault(each.fact.user, set()).add(each.fact.moment_ms)
    gaps = [
        later - earlier
        for moments in by_user.values()
        for earlier, later in zip(sorted(moments), sorted(moments)[1:], strict=False)
    ]
    # One that is refused leaves the others where they are: it is the last one of its visit.
    assert all(abs(gap - SESSION_GAP_MS) > MINUTE_MS for gap in gaps)


def test_every_message_that_is_not_broken_says_its_fact(messages: list[Message]) -> None:
    for each in messages:
        text = (each.value or b"").decode(errors="replace")
        match each.fact:
            case Change() as change:
                whole = json.loads(text)
                payload = whole["payload"] if each.topic == ORDERS else whole
                assert (payload["op"], payload["source"]["lsn"]) == (change.op, change.lsn)
                assert json.loads(each.key or b"{}").get("id") == change.row.get("id")
            case Click() as fact:
                assert fact.event in text
                assert fact.user in text
                assert each.topic in CLICK_TOPICS
            case Tombstone():
                assert each.value is None
                assert each.topic in CHANGE_TOPICS
            case Broken():
                pass


# The model


def test_the_newest_change_wins_whatever_came_first() -> None:
    late = [payment(3, "u", state="failed"), payment(1, "c"), payment(2, "u", state="captured")]
    outcome = outcome_of([*late, late[1]])
    assert outcome.newest[PAYMENTS] == [(1, 1, 7, Decimal("5.00"), "failed", 3)]
    assert outcome_of([*late, payment(4, "d")]).newest[PAYMENTS] == []
    assert outcome_of([payment(4, "d"), *late]).newest[PAYMENTS] == []


def test_a_history_has_every_version_until_the_next() -> None:
    def customer(lsn: int, op: str, **row: str) -> Message:
        change = Change(op=op, lsn=lsn, ts_ms=lsn, row={"id": 1, **row})
        return message(change, topic=CUSTOMERS)

    changes = [
        customer(9, "c", name="Ana", city="Bern", tier="gold"),
        customer(5, "u", name="Ana", city="Bern"),
        customer(7, "d"),
        customer(2, "c", name="Ana", city="Köln"),
    ]
    assert outcome_of(changes).history == [
        (1, "Ana", "Köln", None, 2, 5),
        (1, "Ana", "Bern", None, 5, 7),
        (1, "Ana", "Bern", "gold", 9, None),
    ]


def test_a_session_ends_after_half_an_hour_and_counts_each_click_once() -> None:
    clicks = [click("b", 20, promotion="x"), click("a", 0), click("a", 0), click("c", 51)]
    end = click("z", 24 * 60, user="u9")
    outcome = outcome_of([*clicks, end])
    assert outcome.sessions == [
        ("u1", DAY_BEGINS_MS, DAY_BEGINS_MS + 50 * MINUTE_MS, "a b", 1),
        ("u1", DAY_BEGINS_MS + 51 * MINUTE_MS, DAY_BEGINS_MS + 81 * MINUTE_MS, "c", 0),
    ]
    # Without a later click the watermark does not pass their ends.
    assert outcome_of(clicks).sessions == []


def test_what_is_broken_refused_or_dropped_is_in_no_result() -> None:
    late = replace(click("l", 0, late_ms=HOUR_MS + 1), number=1)
    anonymous = replace(click("-", 0, user="-"), number=2)
    both = replace(click("m", 0, user="-", late_ms=HOUR_MS + 1), number=3)
    free = replace(payment(1, "c", amount="0.00"), number=4)
    truncated = message(Change(op="t", lsn=2, ts_ms=2, row={}), number=5, topic=ORDERS)
    broken = message(Broken(reason="no log line"), number=6, topic=EDGE)
    everything = [late, anonymous, both, free, truncated, broken, click("z", 24 * 60)]
    outcome = outcome_of(everything)
    assert outcome.rejected == {
        1: ("shop.clicks.refused", "breaks the rule in_time"),
        3: ("shop.clicks.refused", "breaks the rule in_time, known_user"),
        4: ("shop.changes.refused", "breaks the rule positive"),
        5: ("shop.changes.refused", "breaks the rule known_op"),
        6: ("shop.clicks.dlq", "no log line"),
    }
    assert outcome.sessions == []
    assert outcome.newest == {CUSTOMERS: [], ORDERS: [], PAYMENTS: []}


def test_an_alert_is_about_a_change_once() -> None:
    failures = [payment(each, "u", state="failed", number=each) for each in (1, 2, 3)]
    end = message(
        Change(op="r", lsn=99, ts_ms=DAY_ENDS_MS, row={"id": 99, "customer_id": 1, "amount": "1"}),
    )
    large = payment(4, "c", amount="500.00", number=4)
    messages = [*failures, failures[0], large, large, end]
    rows = [
        each
        if each is end
        else replace(each, fact=replace(each.fact, row={**each.fact.row, "order_id": 1}))
        for each in messages
        if isinstance(each.fact, Change)
    ]
    end_row = {**end.fact.row, "order_id": 0, "state": "x"} if isinstance(end.fact, Change) else {}
    assert isinstance(end.fact, Change)
    rows[-1] = replace(end, fact=replace(end.fact, row=end_row))
    outcome = outcome_of(rows)
    assert outcome.troubled == [(7, "2026-06-12 00:00", 3)]
    assert outcome.large == [(4, 7, "500.00")]
    assert outcome_of(rows[1:]).troubled == [(7, "2026-06-12 00:00", 3)], "repeated, it counts once"
    assert outcome_of([rows[1], *rows[4:]]).troubled == []


# The schedule


@pytest.mark.parametrize("kills", [0, 1, 2, 20])
def test_half_of_the_kills_come_before_noon(kills: int) -> None:
    events = plan(kills=kills, draw=random.Random(1))
    assert plan(kills=kills, draw=random.Random(1)) == events
    counts = Counter(each.kind for each in events)
    kinds = (EventKind.DRIVER, EventKind.EXECUTOR, EventKind.BROKER)
    assert all(counts[kind] == kills for kind in kinds)
    assert counts[EventKind.NOON] == 1
    ticks = [each.tick for each in events]
    assert ticks == sorted(ticks)
    noon = events[3 * kills // 2]
    assert (noon.kind, noon.tick) == (EventKind.NOON, NOON_TICK)
    assert all(0 < tick < TICKS for tick in ticks)


@pytest.mark.parametrize(
    ("words", "reason"),
    [(["--rows", "5"], "--rows is at least 500"), (["--kills", "-1"], "--kills is 0 or more")],
)
def test_a_day_that_is_none_is_refused(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in ("pyspark", "pyarrow", "deltalake"):
        pytest.importorskip(package)
    program = importlib.import_module("chaos.shop_day.__main__")
    with pytest.raises(SystemExit) as ended:
        program.main(words)
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err


# The comparison


def part(messages: list[Message]) -> Part:
    """The payments as a table that holds exactly what it should."""
    rows = outcome_of(messages).newest[PAYMENTS]
    columns = ("id", "order_id", "customer_id", "amount", "state", "_sequence")
    return Part(name="payments", columns=columns, key=1, expected=rows, found=list(reversed(rows)))


def test_equal_rows_in_any_order_are_no_difference(messages: list[Message]) -> None:
    whole = part(messages)
    assert differences(whole) == []
    assert report([whole], []) == [
        f"payments             {len(whole.expected):>7,} rows: as expected"
    ]


def test_a_lost_row_is_found(messages: list[Message]) -> None:
    whole = part(messages)
    (found,) = differences(replace(whole, found=whole.found[1:]))
    assert (found.kind, found.key) == (Kind.MISSING, whole.found[0][:1])


def test_a_row_that_is_there_twice_is_found(messages: list[Message]) -> None:
    whole = part(messages)
    (found,) = differences(replace(whole, found=[*whole.found, whole.found[3]]))
    assert (found.kind, found.key) == (Kind.TWICE, whole.found[3][:1])
    assert found.words.startswith("2 times: id ")


def test_a_stale_merge_is_found_and_names_the_columns(messages: list[Message]) -> None:
    changes = [
        each for each in messages if isinstance(each.fact, Change) and each.topic == PAYMENTS
    ]
    last = max(
        (each.fact for each in changes if isinstance(each.fact, Change) and each.fact.op == "u"),
        key=lambda change: change.lsn,
    )
    stale = [each for each in messages if not (isinstance(each.fact, Change) and each.fact == last)]
    whole = replace(part(messages), found=outcome_of(stale).newest[PAYMENTS])
    (found,) = differences(whole)
    assert (found.kind, found.key) == (Kind.DIFFERENT, (last.row["id"],))
    assert "state is 'authorized', not " in found.words
    lines = report([whole], [found])
    assert lines[0].endswith("1 different")
    assert lines[1] == f"    different: {found.words}"


def test_a_doubled_alert_is_found(messages: list[Message]) -> None:
    rows = outcome_of(messages).large
    columns = ("payment", "customer", "amount")
    whole = Part(name="large alerts", columns=columns, key=1, expected=rows, found=[*rows, rows[0]])
    (found,) = differences(whole)
    assert (found.kind, found.key) == (Kind.TWICE, rows[0][:1])


def test_a_row_that_is_not_expected_is_found(messages: list[Message]) -> None:
    whole = part(messages)
    stray = (10**9, 1, 1, Decimal(1), "captured", 5)
    (found,) = differences(replace(whole, found=[*whole.found, stray, stray]))
    assert (found.kind, found.key) == (Kind.STRAY, (10**9,))
    assert found.words.startswith("2 times: ")


def test_two_sessions_that_were_one_are_found(messages: list[Message]) -> None:
    outcome = outcome_of([*messages, *closing(first=len(messages))])
    rows = outcome.sessions
    split = next(row for row in rows if " " in str(row[3]))
    first, _, rest = str(split[3]).partition(" ")
    parts = [(*split[:3], first, 0), (split[0], split[1], split[2], rest, split[4])]
    columns = ("user", "begun", "ended", "events", "promotions")
    found = [row for row in rows if row != split]
    found_differences = differences(
        Part(name="sessions", columns=columns, key=1, expected=rows, found=[*found, *parts])
    )
    kinds = sorted(each.kind for each in found_differences)
    assert kinds == [Kind.DIFFERENT, Kind.STRAY]


def test_dead_letters_and_the_archive_name_the_places_of_their_messages(
    messages: list[Message],
) -> None:
    places = {each.number: (each.topic, 0, each.number) for each in messages}
    rejected = outcome_of(messages).rejected
    topics = sorted({topic for topic, _ in rejected.values()})
    rows = [row for topic in topics for row in rejected_rows(messages, rejected, places, topic)]
    assert {row[2] for row in rows} == set(rejected)
    archived = archived_rows(messages, places)
    assert len(set(archived)) == len(messages)
    columns = ("topic", "partition", "offset", "key", "value", "timestamp")
    whole = Part(name="archive", columns=columns, key=3, expected=archived, found=archived[:-1])
    (found,) = differences(whole)
    assert (found.kind, found.key) == (Kind.MISSING, archived[-1][:3])


def test_a_long_list_of_differences_is_cut() -> None:
    rows = [(number,) for number in range(9)]
    whole = Part(name="p", columns=("id",), key=1, expected=rows, found=[])
    lines = report([whole], differences(whole))
    assert lines[0].endswith("9 missing")
    assert lines[-1] == "    missing: and 4 more"
    assert len(lines) == 7


def test_a_model_with_a_row_twice_is_no_model() -> None:
    whole = Part(name="p", columns=("id",), key=1, expected=[(1,), (1,)], found=[])
    with pytest.raises(ValueError, match=r"the model of p has \(1,\) more than once"):
        differences(whole)

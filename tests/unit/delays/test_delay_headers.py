"""When a message is due, by its headers, and the reasons why one is refused."""

import pytest

from zhumq.delays.headers import InvalidDelay, delivered_headers, due_time, due_times
from zhumq.model.delay_headers import DELAY_LEVELS_MS
from zhumq.model.errors import InvalidRecord
from zhumq.records.batch import Record, RecordHeader

NOW_MS = 1_700_000_000_000
DAY_MS = 24 * 3_600_000
MAX_MS = 40 * DAY_MS


def due(*headers: tuple[str, bytes | None]) -> int | None:
    return due_time([RecordHeader(*each) for each in headers], NOW_MS, MAX_MS)


@pytest.mark.parametrize(
    ("name", "value", "due_ms"),
    [
        ("zhumq-delay-ms", b"1", NOW_MS + 1),
        ("zhumq-delay-ms", b"0", None),
        ("zhumq-delay-ms", b"%d" % MAX_MS, NOW_MS + MAX_MS),
        ("zhumq-deliver-at", b"%d" % (NOW_MS + 5), NOW_MS + 5),
        ("zhumq-deliver-at", b"%d" % NOW_MS, None),
        ("zhumq-deliver-at", b"5", None),  # in the past: at once
        ("zhumq-delay-level", b"10m", NOW_MS + 600_000),
        ("zhumq-delay", b"10m", None),  # another header
    ],
)
def test_a_header_says_when_a_message_is_due(name: str, value: bytes, due_ms: int | None) -> None:
    assert due((name, value), ("other", b"1")) == due_ms


def test_the_levels_are_rocketmqs_18() -> None:
    assert list(DELAY_LEVELS_MS) == (
        [
            "1s",
            "5s",
            "10s",
            "30s",
            "1m",
            "2m",
            "3m",
            "4m",
            "5m",
            "6m",
            "7m",
            "8m",
            "9m",
            "10m",
            "20m",
            "30m",
            "1h",
            "2h",
        ]
    )
    assert list(DELAY_LEVELS_MS.values()) == sorted(DELAY_LEVELS_MS.values())
    assert (DELAY_LEVELS_MS["30s"], DELAY_LEVELS_MS["2h"]) == (30_000, 7_200_000)


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ([("zhumq-delay-ms", b"-1")], "zhumq-delay-ms is a delay in milliseconds, and not below"),
        ([("zhumq-delay-ms", b"")], "as decimal digits, not ''"),
        ([("zhumq-delay-ms", None)], "as decimal digits, not null"),
        ([("zhumq-delay-ms", b"1.5")], "as decimal digits, not '1.5'"),
        ([("zhumq-delay-ms", b"\xff\n")], "as decimal digits"),
        ([("zhumq-delay-ms", b"1" * 20)], "as decimal digits"),
        ([("zhumq-delay-ms", b"%d" % (MAX_MS + 1))], "at most 3456000000 ms"),
        ([("zhumq-deliver-at", b"%d" % (NOW_MS + MAX_MS + 1))], "delayed.message.delay.max.ms"),
        ([("zhumq-deliver-at", b"-1")], "milliseconds since 1970, and not below zero"),
        ([("zhumq-deliver-at", b"tomorrow")], "milliseconds since 1970 as decimal digits"),
        ([("zhumq-delay-level", b"3")], "is one of 1s 5s"),
        ([("zhumq-delay-level", None)], "not null"),
        ([("zhumq-delay-ms", b"1"), ("zhumq-delay-level", b"1s")], "one delay header"),
        ([("zhumq-delay-ms", b"1"), ("zhumq-delay-ms", b"1")], "one delay header"),
    ],
)
def test_a_wrong_header_is_refused_in_one_line(
    headers: list[tuple[str, bytes | None]], reason: str
) -> None:
    with pytest.raises(InvalidDelay, match=reason) as refused:
        due(*headers)
    assert "\n" not in str(refused.value)


def test_all_wrong_records_of_a_batch_are_named() -> None:
    wrong = (RecordHeader("zhumq-delay-ms", b"x"),)
    right = (RecordHeader("zhumq-delay-ms", b"7"),)
    records = [Record(headers=each) for each in (wrong, right, (), wrong)]
    with pytest.raises(InvalidRecord, match="decimal digits") as refused:
        due_times(records, NOW_MS, MAX_MS)
    assert refused.value.record_indexes == (0, 3)
    assert due_times(records[1:3], NOW_MS, MAX_MS) == [NOW_MS + 7, None]


def test_a_delivered_message_has_its_due_time_in_place_of_its_delay() -> None:
    headers = [
        RecordHeader("a", b"1"),
        RecordHeader("zhumq-delay-ms", b"7"),
        RecordHeader("b", None),
    ]
    delivered = delivered_headers(headers, NOW_MS)
    assert delivered == (
        ("a", b"1"),
        ("b", None),
        ("zhumq-deliver-at", b"%d" % NOW_MS),
    )
    assert due_time(delivered, NOW_MS, MAX_MS) is None

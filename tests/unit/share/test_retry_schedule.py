"""Retry schedules: what they mean, and what is refused."""

import pytest

from zhumq.share.redelivery import RedeliveryPolicy
from zhumq.share.retry_schedule import ScheduleInvalid, with_schedule

POLICY = RedeliveryPolicy(max_deliveries=9, backoff_ms=100, backoff_ms_max=250)


@pytest.mark.parametrize(
    ("text", "delays_ms"),
    [
        ("", [100, 200, 250, 250]),
        ("30s", [30_000, 30_000, 30_000, 30_000]),
        ("0ms", [0, 0, 0, 0]),
        ("10s, 1m,2h", [10_000, 60_000, 7_200_000, 7_200_000]),
        ("1s..3s", [1_000, 2_000, 3_000, 3_000]),
        (" 500ms..500ms ", [500, 500, 500, 500]),
    ],
)
def test_a_schedule_says_how_long_a_message_waits(text: str, delays_ms: list[int]) -> None:
    policy = with_schedule(POLICY, text)
    assert [policy.delay_ms(count) for count in range(1, 5)] == delays_ms
    assert policy.delay_ms(0) == delays_ms[0]
    assert policy.max_deliveries == 9


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("soon", "'soon' is no time"),
        ("10", "is no time"),
        ("-1s", "is no time"),
        ("10s,,1m", "'' is no time"),
        ("1s..", "is no time"),
        ("0ms..1s", "from a shorter to a longer"),
        ("2s..1s", "from a shorter to a longer"),
        ("25h", "longer than 24h"),
        (",".join(["1s"] * 33), "at most 32 times"),
    ],
)
def test_what_is_no_schedule_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ScheduleInvalid, match=reason):
        with_schedule(POLICY, text)

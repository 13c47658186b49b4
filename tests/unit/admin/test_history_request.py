"""The steps of a chart: few enough, in lengths that the brokers keep, and up to now."""

from hypothesis import given
from hypothesis import strategies as st

from zhumq.admin.history import COARSE_MS, DAY_MS, FINE_MS, HOUR_MS, POINTS_MAX, history_request

NOW_MS = 1_700_000_123_456


@given(
    from_ms=st.integers(0, 2 * NOW_MS) | st.integers(NOW_MS - 2 * DAY_MS, NOW_MS),
    length_ms=st.integers(1, 3 * DAY_MS),
    points=st.integers(1, POINTS_MAX),
)
def test_every_time_has_steps_that_a_broker_takes(
    from_ms: int, length_ms: int, points: int
) -> None:
    to_ms = from_ms + length_ms
    asked = history_request("cluster", "", from_ms, to_ms, points, NOW_MS)
    unit_ms = FINE_MS if asked.step_ms % COARSE_MS else COARSE_MS
    assert 0 < asked.step_ms <= DAY_MS
    assert asked.step_ms % unit_ms == 0
    assert asked.start_ms % asked.step_ms == 0
    assert 1 <= asked.count <= points
    end_ms = asked.start_ms + asked.step_ms * asked.count
    assert end_ms >= min(to_ms, NOW_MS), "the newest samples are never left out"
    if unit_ms == FINE_MS:
        oldest_ms = NOW_MS - HOUR_MS - COARSE_MS
        assert asked.start_ms > oldest_ms - asked.step_ms, "older ones are kept in minutes"


def test_the_last_hour_is_in_steps_of_ten_seconds_and_the_last_day_in_minutes() -> None:
    hour = history_request("topic", "t", NOW_MS - HOUR_MS, NOW_MS, 400, NOW_MS)
    assert (hour.step_ms, hour.count, hour.subject, hour.name) == (FINE_MS, 361, 1, "t")
    day = history_request("group", "g", NOW_MS - DAY_MS, NOW_MS, 1_000, NOW_MS)
    assert (day.step_ms, day.subject) == (2 * COARSE_MS, 2)
    assert 720 <= day.count <= 721

"""Schedules in simulated time: what is due, what was missed, and clocks that jump."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from zhumq.pipelines.schedule import DAY_MS, MINUTE_MS, Due, Occasions, Schedule, Wait

HOUR_MS = 60 * MINUTE_MS
NOON_MS = int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp() * 1000)
HOURLY = Schedule(every_ms=HOUR_MS)
TWICE = Schedule(at_ms=(4 * HOUR_MS, 16 * HOUR_MS))  # 04:00 and 16:00


def schedules() -> st.SearchStrategy[Schedule]:
    minutes = st.integers(0, 1439).map(lambda each: each * MINUTE_MS)
    at = st.sets(minutes, min_size=1, max_size=5).map(lambda each: tuple(sorted(each)))
    return st.one_of(
        st.integers(1, 3000).map(lambda each: Schedule(every_ms=each * MINUTE_MS)),
        at.map(lambda each: Schedule(at_ms=each)),
    )


def test_times_of_the_day_and_every_so_often() -> None:
    assert HOURLY.next(NOON_MS) == NOON_MS + HOUR_MS
    assert HOURLY.newest(NOON_MS + HOUR_MS - 1) == NOON_MS
    assert TWICE.newest(NOON_MS) == NOON_MS - 8 * HOUR_MS
    assert TWICE.next(NOON_MS) == NOON_MS + 4 * HOUR_MS
    assert TWICE.next(NOON_MS + 5 * HOUR_MS) == NOON_MS + 16 * HOUR_MS
    assert TWICE.newest(NOON_MS - 9 * HOUR_MS) == NOON_MS - 20 * HOUR_MS


@given(
    schedule=schedules(), now_ms=st.integers(0, 60 * DAY_MS), later_ms=st.integers(0, 9 * DAY_MS)
)
def test_times_are_those_of_a_list(schedule: Schedule, now_ms: int, later_ms: int) -> None:
    until_ms = now_ms + later_ms
    if schedule.every_ms is not None:
        times = list(range(0, until_ms + 2 * schedule.every_ms, schedule.every_ms))
    else:
        days = range(-DAY_MS, until_ms + 2 * DAY_MS, DAY_MS)
        times = [day + at for day in days for at in schedule.at_ms]
    assert schedule.newest(now_ms) == max(each for each in times if each <= now_ms)
    assert schedule.next(now_ms) == min(each for each in times if each > now_ms)
    among = [each for each in times if now_ms < each <= until_ms]
    assert schedule.count(now_ms, until_ms) == len(among)


def test_a_time_runs_once_and_then_waits_for_the_next() -> None:
    occasions = Occasions(schedule=HOURLY, done_ms=NOON_MS)
    assert occasions.decide(NOON_MS + 1) == Wait(until_ms=NOON_MS + HOUR_MS)
    due = occasions.decide(NOON_MS + HOUR_MS + 5)
    assert due == Due(at_ms=NOON_MS + HOUR_MS, missed=0)
    occasions.finish(due)
    assert occasions.decide(NOON_MS + HOUR_MS + 5) == Wait(until_ms=NOON_MS + 2 * HOUR_MS)


def test_missed_times_are_counted_and_run_once() -> None:
    occasions = Occasions(schedule=HOURLY, done_ms=NOON_MS)
    # The process was down, or one run took this long, or the clock was put forward.
    due = occasions.decide(NOON_MS + 5 * HOUR_MS + MINUTE_MS)
    assert due == Due(at_ms=NOON_MS + 5 * HOUR_MS, missed=4)
    occasions.finish(due)
    assert occasions.decide(NOON_MS + 5 * HOUR_MS + MINUTE_MS) == Wait(
        until_ms=NOON_MS + 6 * HOUR_MS
    )


def test_a_run_that_was_killed_is_due_again() -> None:
    occasions = Occasions(schedule=TWICE, done_ms=NOON_MS)
    due = occasions.decide(NOON_MS + 5 * HOUR_MS)
    assert due == Due(at_ms=NOON_MS + 4 * HOUR_MS, missed=0)
    again = Occasions(schedule=TWICE, done_ms=occasions.done_ms)
    assert again.decide(NOON_MS + 6 * HOUR_MS) == due


def test_a_clock_that_is_put_back_repeats_nothing_and_does_not_wait_for_days() -> None:
    occasions = Occasions(schedule=HOURLY, done_ms=NOON_MS)
    # A little: the time that was dealt with is not dealt with again.
    assert occasions.decide(NOON_MS - MINUTE_MS) == Wait(until_ms=NOON_MS + HOUR_MS)
    # By days: the schedule goes on with the clock as it is.
    before_ms = NOON_MS - 3 * DAY_MS + MINUTE_MS
    next_ms = NOON_MS - 3 * DAY_MS + HOUR_MS
    assert occasions.decide(before_ms) == Wait(until_ms=next_ms)
    assert occasions.decide(next_ms) == Due(at_ms=next_ms, missed=0)


@given(
    schedule=schedules(),
    jumps=st.lists(st.integers(-2 * DAY_MS, 4 * DAY_MS), min_size=1, max_size=20),
)
def test_whatever_the_clock_does_the_next_time_is_near_and_no_time_is_due_twice_in_a_row(
    schedule: Schedule, jumps: list[int]
) -> None:
    now_ms = 100 * DAY_MS
    occasions = Occasions(schedule=schedule, done_ms=schedule.newest(now_ms))
    for jump in jumps:
        now_ms += jump
        found = occasions.decide(now_ms)
        if isinstance(found, Due):
            assert found.at_ms == schedule.newest(now_ms)
            assert found.missed >= 0
            occasions.finish(found)
            found = occasions.decide(now_ms)
        assert isinstance(found, Wait)
        # At most one time is left out, however the clock has jumped.
        assert now_ms < found.until_ms <= schedule.next(schedule.next(now_ms))

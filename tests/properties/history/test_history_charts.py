"""Charts: every sample is in its step, a step without one is a gap, and figures combine as they should."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zhumq.history.chart import POINTS_MAX, Chart, Grid
from zhumq.history.fields import FIELDS, Sample, Subject, Values, combine
from zhumq.history.ring import COARSE, FINE
from zhumq.model.errors import InvalidRequest

FIGURES = st.floats(min_value=0, max_value=1e12)
BROKER = len(FIELDS[Subject.BROKER])
MEANS = [place for place, field in enumerate(FIELDS[Subject.BROKER]) if field.over_time == "mean"]
MESSAGES_IN = 0


def sample(time_ms: int, figure: float = 1.0, topics: dict[str, Values] | None = None) -> Sample:
    return Sample(time_ms, (figure,) * BROKER, topics or {}, {})


GRIDS = st.builds(
    lambda step, first, count: Grid(
        start_ms=first * step * FINE.step_ms, step_ms=step * FINE.step_ms, count=count
    ),
    st.integers(1, 30),
    st.integers(0, 1_000),
    st.integers(1, 50),
)


@given(GRIDS, st.lists(st.tuples(st.integers(0, 10**9), FIGURES), max_size=50))
def test_every_sample_is_in_its_step_and_other_steps_are_gaps(
    grid: Grid, found: list[tuple[int, float]]
) -> None:
    chart = Chart(grid, Subject.BROKER, "")
    chart.add(sample(time_ms, figure) for time_ms, figure in sorted(found))
    points = chart.points()
    assert len(points) == grid.count
    for place, point in enumerate(points):
        start_ms = grid.start_ms + place * grid.step_ms
        inside = [figure for time_ms, figure in found if 0 <= time_ms - start_ms < grid.step_ms]
        if not inside:
            assert point is None
            continue
        assert point is not None
        for mean in MEANS:
            assert min(inside) * 0.999 <= point[mean] <= max(inside) * 1.001


@given(GRIDS, st.integers(0, 2 * 10**9))
def test_the_slots_of_a_grid_are_those_of_its_times_up_to_now(grid: Grid, now_ms: int) -> None:
    ring = grid.ring
    times = range(grid.start_ms, grid.end_ms, ring.step_ms)
    # A slot counts if any time of its step is inside of what the ring keeps.
    expected = {
        ring.slot_of(time_ms)
        for time_ms in times
        if time_ms <= now_ms and time_ms + ring.step_ms - 1 > now_ms - ring.span_ms
    }
    slots = grid.slots(now_ms)
    assert set(slots) == expected
    assert len(slots) == len(set(slots))


@given(st.lists(FIGURES, min_size=1, max_size=6))
def test_a_minute_has_the_mean_of_rates_and_the_last_of_what_is_a_level(
    figures: list[float],
) -> None:
    combined = combine([sample(0, figure) for figure in figures], 60_000)
    assert combined.time_ms == 60_000
    for field, value in zip(FIELDS[Subject.BROKER], combined.broker, strict=True):
        expected = {
            "mean": sum(figures) / len(figures), "last": figures[-1], "max": max(figures),
        }[field.over_time]  # fmt: skip
        assert value == pytest.approx(expected)


def test_a_topic_that_was_not_among_the_busiest_counts_as_idle_in_a_mean() -> None:
    busy = {"busy": (60.0,) * 5}
    combined = combine([sample(0, topics=busy), sample(1), sample(2)], 0)
    assert combined.topics["busy"] == (20.0, 20.0, 20.0, 20.0, 60.0)


def test_the_busiest_topics_of_a_minute_come_first() -> None:
    first = {"short": (90.0,) * 5, "long": (60.0,) * 5}
    combined = combine([sample(0, topics=first), sample(1, topics={"long": (60.0,) * 5})], 0)
    assert list(combined.topics) == ["long", "short"]


def test_an_age_that_is_not_known_yet_is_not_a_lag_of_zero() -> None:
    def behind(seconds: float) -> Sample:
        return Sample(0, (0.0,) * BROKER, {}, {"g": (5.0, seconds)})

    assert combine([behind(math.nan), behind(7.0), behind(3.0)], 0).groups["g"] == (5.0, 7.0)
    assert math.isnan(combine([behind(math.nan)], 0).groups["g"][1])


@pytest.mark.parametrize(
    ("start_ms", "step_ms", "count"),
    [
        (0, 0, 1),
        (0, 15_000, 1),
        (5_000, 10_000, 1),
        (-10_000, 10_000, 1),
        (0, 10_000, 0),
        (0, 10_000, POINTS_MAX + 1),
        (0, COARSE.span_ms + COARSE.step_ms, 1),
    ],
)
def test_a_grid_that_no_ring_has_is_refused(start_ms: int, step_ms: int, count: int) -> None:
    with pytest.raises(InvalidRequest):
        Grid.checked(start_ms, step_ms, count)


def test_a_grid_of_whole_minutes_takes_the_ring_of_the_day() -> None:
    assert Grid.checked(0, 10_000, 1).ring is FINE
    assert Grid.checked(0, 30_000, 1).ring is FINE
    assert Grid.checked(0, 120_000, 1).ring is COARSE

"""Filters of a query that make a read smaller."""

from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from zhumq.model.ids import TopicPartition
from zhumq.spark.filters import PushedFilters


def pushed(*filters: Filter) -> PushedFilters:
    found = PushedFilters()
    assert found.push(filters) == list(filters)  # Spark still applies all of them.
    return found


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (GreaterThan(("offset",), 10), (11, 100)),
        (GreaterThanOrEqual(("offset",), 10), (10, 100)),
        (LessThan(("offset",), 10), (0, 10)),
        (LessThanOrEqual(("offset",), 10), (0, 11)),
        (EqualTo(("offset",), 10), (10, 11)),
        (In(("offset",), (10, 30, 20)), (10, 31)),
        (EqualTo(("offset",), None), (0, 100)),
        (Not(EqualTo(("offset",), 10)), (0, 100)),
        (GreaterThan(("value", "offset"), 10), (0, 100)),
        (IsNotNull(("offset",)), (0, 100)),
    ],
)
def test_offsets_become_a_smaller_range(given: Filter, expected: tuple[int, int]) -> None:
    assert pushed(given).narrow(0, 100) == expected


def test_bounds_that_exclude_each_other_leave_nothing() -> None:
    low, high = GreaterThan(("offset",), 50), LessThan(("offset",), 20)
    first, until = pushed(low, high).narrow(0, 100)
    assert first >= until


def test_topics_and_partitions_are_left_out() -> None:
    filters = pushed(EqualTo(("topic",), "a"), In(("partition",), (0, 2)))
    places = [TopicPartition(topic, partition) for topic in "ab" for partition in range(3)]
    assert [place for place in places if filters.picks(place)] == [
        TopicPartition("a", 0),
        TopicPartition("a", 2),
    ]


def test_what_cannot_be_compared_is_left_to_spark() -> None:
    filters = pushed(GreaterThan(("partition",), "x"), StringStartsWith(("topic",), "b"))
    assert filters.picks(TopicPartition("a", 0))


def test_a_timestamp_limits_the_start_and_never_the_end() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    after = pushed(GreaterThan(("timestamp",), moment), LessThan(("timestamp",), moment))
    assert after.timestamp_ms_min() == int(moment.timestamp() * 1000)
    assert pushed(LessThan(("timestamp",), moment)).timestamp_ms_min() is None

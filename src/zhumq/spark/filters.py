"""Spark's filters on topic, partition, offset and timestamp, turned into smaller offset ranges."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from zhumq.model.ids import TopicPartition
from zhumq.spark.columns import OFFSET, PARTITION, TIMESTAMP, TOPIC

COMPARISONS = (
    EqualTo,
    EqualNullSafe,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
    In,
)


@dataclass(slots=True)
class PushedFilters:
    """The filters that make a read smaller.

    Spark still applies them to the rows: a timestamp only limits where the read begins, since records
    need not be in the order of their timestamps.
    """

    filters: list[Filter] = field(default_factory=list)

    def push(self, filters: Iterable[Filter]) -> list[Filter]:
        """Keep the filters that make a read smaller, and return all of them for Spark to apply."""
        everything = list(filters)
        self.filters = [each for each in everything if _column(each) is not None]
        return everything

    def picks(self, place: TopicPartition) -> bool:
        """Whether rows of this partition can pass the filters."""
        facts = {TOPIC: place.topic, PARTITION: place.partition}
        return all(
            _passes(each, facts[column])
            for each in self.filters
            if (column := _column(each)) in facts
        )

    def narrow(self, first_offset: int, until_offset: int) -> tuple[int, int]:
        """The part of an offset range in which rows can pass the filters."""
        for each in self.filters:
            if _column(each) != OFFSET:
                continue
            match each:
                case EqualTo(value=int(value)) | EqualNullSafe(value=int(value)):
                    low, high = value, value + 1
                case GreaterThan(value=int(value)):
                    low, high = value + 1, until_offset
                case GreaterThanOrEqual(value=int(value)):
                    low, high = value, until_offset
                case LessThan(value=int(value)):
                    low, high = first_offset, value
                case LessThanOrEqual(value=int(value)):
                    low, high = first_offset, value + 1
                case In(value=(int(), *_) as values) if all(isinstance(v, int) for v in values):
                    low, high = min(values), max(values) + 1
                case _:
                    continue
            first_offset, until_offset = max(first_offset, low), min(until_offset, high)
        return first_offset, max(first_offset, until_offset)

    def timestamp_ms_min(self) -> int | None:
        """The earliest timestamp that can pass the filters; None if they do not limit it."""
        bounds = []
        for each in self.filters:
            if _column(each) == TIMESTAMP and isinstance(
                each, EqualTo | GreaterThan | GreaterThanOrEqual
            ):
                moment = _milliseconds(each.value)
                if moment is not None:
                    bounds.append(moment)
        return max(bounds, default=None)


def _column(each: Filter) -> str | None:
    if not isinstance(each, COMPARISONS) or len(each.attribute) != 1:
        return None
    name = each.attribute[0]
    return name if name in (TOPIC, PARTITION, OFFSET, TIMESTAMP) else None


def _passes(each: Filter, fact: Any) -> bool:
    """Whether a value passes. One that cannot be compared passes, and Spark filters its rows."""
    try:
        match each:
            case EqualTo(value=value) | EqualNullSafe(value=value):
                return bool(fact == value)
            case In(value=values):
                return fact in values
            case GreaterThan(value=value):
                return bool(fact > value)
            case GreaterThanOrEqual(value=value):
                return bool(fact >= value)
            case LessThan(value=value):
                return bool(fact < value)
            case LessThanOrEqual(value=value):
                return bool(fact <= value)
    except TypeError:
        return True
    return True


def _milliseconds(value: object) -> int | None:
    """Milliseconds since 1970. A time without a zone is UTC, as PySpark passes it."""
    if not isinstance(value, datetime):
        return None
    moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)

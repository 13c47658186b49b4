"""The SQL of a source in a database: which rows are behind those that were read, and how a range is split. Pure."""

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Final

from zhumq.model.errors import ZhumqError
from zhumq.pipelines.jdbc_statements import Database, quoted

_ALIAS: Final = "zhumq_rows"
_COLUMN_KEY: Final = "column"
_BOUND_KEY: Final = "upto"
_NUMBER: Final = re.compile(r"-?\d{1,38}(\.\d{1,38})?")
_TIME: Final = re.compile(r"\d{4,6}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,9})?")


class RangeUnfit(ZhumqError):
    """A value or an offset that is not one of the growing column."""


class Growth(StrEnum):
    """What the values of a growing column are."""

    NUMBER = "number"
    MOMENT = "moment"  # with a time zone
    LOCAL_TIME = "local_time"  # without one: UTC
    TIME_TEXT = "time_text"  # of SQLite, as its datetime() writes it


GROWTH_OF_TYPE: Final = {
    **dict.fromkeys(
        ("int2", "int4", "int8", "smallserial", "serial", "bigserial", "numeric"), Growth.NUMBER
    ),
    "timestamptz": Growth.MOMENT,
    "timestamp": Growth.LOCAL_TIME,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The rows of a table or a query, and the column that grows with them."""

    database: Database
    what: str  # a table, or a query
    is_query: bool
    column: str  # as the database has it
    growth: Growth

    @property
    def place(self) -> str:
        return place_of(self.what, is_query=self.is_query)

    def last(self) -> str:
        """The highest value of all rows."""
        return f"SELECT {self._text(f'MAX({self._name})')} FROM {self.place}"

    def last_settled(self, *, lag: int) -> str:
        """The highest value that is at least a lag behind the newest one, or behind the clock, in milliseconds."""
        name, newest = self._name, f"SELECT MAX({self._name}) FROM {self.place}"
        match self.growth:
            case Growth.NUMBER:
                limit = f"({newest}) - {lag}"
            case Growth.MOMENT:
                limit = f"clock_timestamp() - INTERVAL '{lag} milliseconds'"
            case Growth.LOCAL_TIME:
                limit = f"(clock_timestamp() AT TIME ZONE 'UTC') - INTERVAL '{lag} milliseconds'"
            case Growth.TIME_TEXT:
                limit = f"strftime('%Y-%m-%d %H:%M:%f', 'now', '-{lag / 1000:.3f} seconds')"
        return f"{self.last()} WHERE {name} <= {limit}"

    def nth_behind(self, start: str | None, end: str, *, count: int) -> str:
        """The value of the row that is the last but one of so many behind `start`; none if there are fewer."""
        return (
            f"SELECT {self._text(self._name)} FROM {self.place} WHERE {self.between(start, end)}"
            f" ORDER BY {self._name} LIMIT 1 OFFSET {count - 1}"
        )

    def has_none(self) -> str:
        """How many rows have no value, up to one."""
        return (
            f"SELECT COUNT(*) FROM (SELECT 1 FROM {self.place} WHERE {self._name} IS NULL LIMIT 1)"
            " zhumq_none"
        )

    def between(self, start: str | None, end: str) -> str:
        """The condition of the rows behind `start`, up to `end` and with it."""
        upper = f"{self._name} <= {self._literal(end)}"
        return upper if start is None else f"{self._name} > {self._literal(start)} AND {upper}"

    def extent(self, column: str, condition: str) -> str:
        """The lowest and the highest value of a column of whole numbers in some rows."""
        return (
            f"SELECT MIN({quoted(column)}), MAX({quoted(column)}) FROM {self.place}"
            f" WHERE {condition}"
        )

    def checked(self, value: str | None) -> str | None:
        """The value as the database gave it. Raises RangeUnfit."""
        pattern = _NUMBER if self.growth is Growth.NUMBER else _TIME
        if value is not None and pattern.fullmatch(value) is None:
            like = "a number" if self.growth is Growth.NUMBER else "a time as 2026-01-31 10:00:00"
            raise RangeUnfit(f"the column {self.column} holds {value!r}, which is not {like}")
        return value

    def is_behind(self, value: str, other: str) -> bool:
        """Whether a value is lower than another one."""
        if self.growth is Growth.NUMBER:
            return Decimal(value) < Decimal(other)
        return value < other

    @property
    def _name(self) -> str:
        return quoted(self.column)

    def _text(self, value: str) -> str:
        """A value as a text that loses nothing."""
        if self.growth is Growth.MOMENT:
            value = f"({value} AT TIME ZONE 'UTC')"
        return f"CAST({value} AS TEXT)"

    def _literal(self, value: str) -> str:
        self.checked(value)
        match self.growth:
            case Growth.NUMBER:
                return value
            case Growth.MOMENT:
                return f"TIMESTAMP WITH TIME ZONE '{value}+00'"
            case Growth.LOCAL_TIME:
                return f"TIMESTAMP '{value}'"
            case Growth.TIME_TEXT:
                return f"'{value}'"


def place_of(what: str, *, is_query: bool) -> str:
    """A table or a query as it stands behind FROM."""
    return f"({what}) {_ALIAS}" if is_query else what


def offset_of(column: str, bound: str) -> str:
    """What Spark's checkpoint holds of a source: up to which value its rows were read."""
    return json.dumps({_COLUMN_KEY: column, _BOUND_KEY: bound})


def bound_in(offset: str, column: str) -> str:
    """The value in an offset. Raises RangeUnfit for that of another column."""
    try:
        document = json.loads(offset)
        known, bound = document[_COLUMN_KEY], document[_BOUND_KEY]
    except (ValueError, KeyError, TypeError):
        raise RangeUnfit(
            f"the checkpoint has the offset {offset}, which is of another kind of source: undo the"
            " change of the file, or reset the pipeline"
        ) from None
    if known != column:
        raise RangeUnfit(
            f"the checkpoint says how far the column {known} was read, and the file has grows: {column}:"
            " undo the change, or reset the pipeline"
        )
    return str(bound)


def slices(column: str, low: int, high: int, count: int) -> Sequence[str]:
    """Conditions that split the rows by whole numbers; each row fulfils one, also without a number."""
    name = quoted(column)
    width = (high - low) // count + 1
    bounds = list(range(low + width, high + 1, width))
    if not bounds:
        return ["1 = 1"]
    return [
        f"({name} < {bounds[0]} OR {name} IS NULL)",
        *(f"{name} >= {a} AND {name} < {b}" for a, b in itertools.pairwise(bounds)),
        f"{name} >= {bounds[-1]}",
    ]

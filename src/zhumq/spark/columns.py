"""The columns of the source: their names, their types, and which of them a reader selects."""

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]

from zhumq.model.errors import ZhumqError

KEY: Final = "key"
VALUE: Final = "value"
TOPIC: Final = "topic"
PARTITION: Final = "partition"
OFFSET: Final = "offset"
TIMESTAMP: Final = "timestamp"
TIMESTAMP_TYPE: Final = "timestampType"
HEADERS: Final = "headers"

# In the order of Spark's Kafka connector, which every user's `SELECT *` relies on.
SQL_TYPES: Final = {
    KEY: "BINARY",
    VALUE: "BINARY",
    TOPIC: "STRING",
    PARTITION: "INT",
    OFFSET: "BIGINT",
    TIMESTAMP: "TIMESTAMP",
    TIMESTAMP_TYPE: "INT",
    HEADERS: "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
DEFAULT_COLUMNS: Final = tuple(name for name in SQL_TYPES if name != HEADERS)

HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
# The types that PySpark expects: timestamps in microseconds of UTC, list items named "element".
ARROW_TYPES: Final[dict[str, Any]] = {
    KEY: pa.binary(),
    VALUE: pa.binary(),
    TOPIC: pa.string(),
    PARTITION: pa.int32(),
    OFFSET: pa.int64(),
    TIMESTAMP: pa.timestamp("us", tz="UTC"),
    TIMESTAMP_TYPE: pa.int32(),
    HEADERS: pa.list_(pa.field("element", HEADER_TYPE)),
}
MICROSECONDS: Final = 1000  # in the millisecond of a record's timestamp


class UnknownColumn(ZhumqError):
    """A column that the source does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What a reader selects from one partition: some columns of the records in an offset range."""

    topic: str
    partition: int
    columns: tuple[str, ...]
    first_offset: int
    until_offset: int  # exclusive

    @property
    def schema(self) -> Any:
        return arrow_schema(self.columns)


def arrow_schema(columns: tuple[str, ...]) -> Any:
    """The Arrow schema of these columns, as PySpark checks it."""
    return pa.schema([pa.field(name, ARROW_TYPES[name]) for name in columns])


def sql_schema(columns: tuple[str, ...]) -> str:
    """The same schema as Spark SQL DDL."""
    return ", ".join(f"`{name}` {SQL_TYPES[name]}" for name in columns)


def parse_columns(text: str) -> tuple[str, ...]:
    """The columns of the option `columns`, e.g. "key, value, offset"."""
    known = {name.lower(): name for name in SQL_TYPES}
    columns: list[str] = []
    for word in text.split(","):
        name = known.get(word.strip().lower())
        if name is None:
            raise UnknownColumn(
                f"there is no column {word.strip()!r}: the source has {', '.join(SQL_TYPES)}"
            )
        if name in columns:
            raise UnknownColumn(f"the column {name!r} is named twice")
        columns.append(name)
    return tuple(columns)

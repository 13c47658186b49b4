"""The SQL of a sink in a database: the names of tables, and the statements that put a batch in once. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

# One row for each query and each table that it writes to: the last batch that is in there.
LEDGER: Final = "zhumq_batches"
STAGING_PREFIX: Final = "zhumq_staging_"
# A task that Spark runs twice leaves its rows twice in the staging table; these columns tell them apart.
TASK: Final = "zhumq_task"
ATTEMPT: Final = "zhumq_attempt"

_PART: Final = r'(?:"[^"]+"|[A-Za-z_][A-Za-z0-9_$]*)'
_TABLE: Final = re.compile(rf"{_PART}(?:\.{_PART}){{0,2}}")
_LAST: Final = re.compile(rf"{_PART}$")
# Types of PostgreSQL that take a text only when they are asked to, and that check it then.
_FROM_TEXT: Final = frozenset({"json", "jsonb", "uuid", "inet", "cidr", "macaddr", "xml"})


class Database(StrEnum):
    """The databases that a sink writes each batch to once."""

    POSTGRESQL = "postgresql"
    SQLITE = "sqlite"


DRIVERS: Final[Mapping[Database, str]] = MappingProxyType(
    {Database.POSTGRESQL: "org.postgresql.Driver", Database.SQLITE: "org.sqlite.JDBC"}
)
PACKAGES: Final[Mapping[Database, str]] = MappingProxyType(
    {
        Database.POSTGRESQL: "org.postgresql:postgresql:42.7.7",
        Database.SQLITE: "org.xerial:sqlite-jdbc:3.50.3.0",
    }
)


def database_of(url: str) -> Database | None:
    """The database of a JDBC URL, if it is a known one."""
    kind = url.removeprefix("jdbc:").partition(":")[0].lower()
    return Database(kind) if kind in tuple(Database) else None


def is_table_name(text: str) -> bool:
    """Whether a text is `table` or `schema.table`, each plain or in double quotes."""
    return _TABLE.fullmatch(text) is not None


def beside(table: str, name: str) -> str:
    """The table of this name in the same schema."""
    return _LAST.sub(name, table)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetColumn:
    """A column of the table that a sink writes to."""

    name: str
    type_name: str  # as the database has it


def create_ledger(table: str) -> str:
    return (
        f"CREATE TABLE IF NOT EXISTS {beside(table, LEDGER)}"
        " (writer VARCHAR(64) NOT NULL, target VARCHAR(255) NOT NULL, batch BIGINT NOT NULL,"
        " PRIMARY KEY (writer, target))"
    )


def last_batch(table: str) -> str:
    return f"SELECT batch FROM {beside(table, LEDGER)} WHERE writer = ? AND target = ?"


def raise_batch(table: str) -> str:
    """Locks the row of the writer, too: of two runs of one query the second waits, and finds the batch."""
    return f"UPDATE {beside(table, LEDGER)} SET batch = ? WHERE writer = ? AND target = ? AND batch < ?"


def first_batch(table: str) -> str:
    return f"INSERT INTO {beside(table, LEDGER)} (batch, writer, target) VALUES (?, ?, ?)"


def create_staging(staging: str, columns: Sequence[TargetColumn]) -> str:
    """For SQLite, whose columns of no type keep each value as it is; elsewhere Spark does it."""
    names = (*(each.name for each in columns), TASK, ATTEMPT)
    return f"CREATE TABLE {staging} ({', '.join(f'{quoted(name)} BLOB' for name in names)})"


def transfer(
    table: str,
    staging: str,
    columns: Sequence[TargetColumn],
    *,
    texts: frozenset[str],
    keys: Sequence[str] = (),
    sequence: str | None = None,
) -> str:
    """The statement that puts the rows of a staging table into the table, or over the older rows of their keys.

    `texts` names the columns that are texts in the staging table.
    """
    names = ", ".join(quoted(each.name) for each in columns)
    values = ", ".join(_value(each, is_text=each.name in texts) for each in columns)
    # One statement, so that it sees the rows of an attempt and of no other that commits meanwhile.
    statement = (
        f"INSERT INTO {table} AS old ({names}) SELECT {values} FROM {staging} AS staged"
        f" WHERE {_of_one_attempt(staging)}"
    )
    if not keys:
        return statement
    assert sequence is not None, "the reader of the file demands it"
    changed = [quoted(each.name) for each in columns if each.name not in keys]
    order = quoted(sequence)
    return (
        f"{statement} ON CONFLICT ({', '.join(quoted(each) for each in keys)}) DO UPDATE SET"
        f" {', '.join(f'{name} = excluded.{name}' for name in changed)}"
        f" WHERE old.{order} IS NULL OR excluded.{order} >= old.{order}"
    )


def count_staged(staging: str) -> str:
    return f"SELECT COUNT(*) FROM {staging} WHERE {_of_one_attempt(staging)}"


def _of_one_attempt(staging: str) -> str:
    return f"{ATTEMPT} IN (SELECT MIN({ATTEMPT}) FROM {staging} GROUP BY {TASK})"


def _value(column: TargetColumn, *, is_text: bool) -> str:
    name = f"staged.{quoted(column.name)}"
    kind = column.type_name.lower()
    return f"CAST({name} AS {kind})" if is_text and kind in _FROM_TEXT else name

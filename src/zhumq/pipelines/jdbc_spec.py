"""The part of a pipeline's spec that says how rows get into a database, and how it is reached."""

from collections.abc import Mapping
from dataclasses import dataclass

from zhumq.pipelines.document import Mark
from zhumq.pipelines.jdbc_statements import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcTarget:
    """A table in a database that gets each batch once: rows are added, or replace older ones of their keys."""

    database: Database
    table: str
    options: Mapping[str, str]  # of Spark's JDBC source; secrets by reference
    keys: tuple[str, ...]  # none: rows are added
    keys_mark: Mark
    sequence: (
        str | None
    )  # a column of rows and table: of two rows of a key, the higher one is newer
    sequence_mark: Mark

"""Runs `zhumq sql`: a Spark session that leaves nothing behind, the statements in turn, and the prompt."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from zhumq.cli.options import CommandFailed
from zhumq.cli.output import print_table
from zhumq.cli.sql import ResultFormat
from zhumq.cli.sql_output import describe, print_result, write_result
from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.runner import pipeline_session
from zhumq.pipelines.sql_text import split_statements
from zhumq.pipelines.status import LOG_FILE
from zhumq.pipelines.views import SESSION_SETTINGS
from zhumq.spark.security_options import PREFIX, security_options
from zhumq.sql.attached import TopicTables
from zhumq.sql.catalog import Archives
from zhumq.sql.statements import described_table, is_listing

STATEMENTS_MAX: Final = 1000
# PySpark writes a page of JSON to stderr for each mistake in a statement.
_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlOptions:
    """What holds for all statements."""

    bootstrap: str
    security: Mapping[str, str]
    master: str
    archive_paths: Mapping[str, str]
    archives_folder: str | None
    allows_gaps: bool
    format: ResultFormat
    output: Path | None
    limit: int


class SqlShell:
    """Runs statements, each with the tables as they are then."""

    def __init__(self, tables: TopicTables, options: SqlOptions) -> None:
        self.tables = tables
        self.options = options

    def use_format(self, name: str) -> None:
        """Print the next results so. Raises CommandFailed."""
        formats = [each for each in ResultFormat if each is not ResultFormat.PARQUET]
        if name not in formats:
            raise CommandFailed(f"there is no format {name!r}: choose {', '.join(formats)}")
        self.options = replace(self.options, format=ResultFormat(name))

    def execute(self, statement: str) -> None:
        """Run one statement and print its result. Raises ZhumqError."""
        described = described_table(statement)
        if is_listing(statement):
            self._list()
        elif described is not None:
            describe(self.tables.frame(described), self.options.format)
        else:
            self.tables.run(statement, self._show)

    def _show(self, rows: DataFrame) -> None:
        options = self.options
        if options.output is not None:
            write_result(rows, options.format, options.output)
        else:
            print_result(rows, options.format, limit=options.limit)

    def _list(self) -> None:
        rows = [
            {
                "table": each.topic,
                "partitions": each.partitions,
                "schema": each.schema_type,
                "archive": self.tables.archive_of(each.topic),
            }
            for each in self.tables.tables().values()
        ]
        columns = {"table": "TABLE", "partitions": "PARTITIONS", "schema": "SCHEMA", "archive": "ARCHIVE"}  # fmt: skip
        as_json = self.options.format is ResultFormat.JSON
        print_table(rows, columns, empty="there are no topics", as_json=as_json)


def run(text: str | None, options: SqlOptions) -> None:
    """Run the statements of a text; without one, those of the prompt. Raises ZhumqError for exit code 1."""
    statements = split_statements(text) if text is not None else None
    if statements is not None:
        if not statements:
            raise CommandFailed("there is no SQL in the query")
        if len(statements) > STATEMENTS_MAX:
            raise CommandFailed(f"there are more than {STATEMENTS_MAX} statements")
        if options.output is not None and len(statements) > 1:
            raise CommandFailed("--output takes one query: there are several")
    for name in _LOGGERS:
        PySparkLogger.getLogger(name).disabled = True
    with _session(options.master) as spark:
        shell = SqlShell(_tables(spark, options), options)
        if statements is None:
            # Imported here: prompt_toolkit is of the extra `sql`.
            from zhumq.cli.sql_prompt import prompt  # noqa: PLC0415

            prompt(shell)
            return
        for statement in statements:
            shell.execute(statement)


def _tables(spark: SparkSession, options: SqlOptions) -> TopicTables:
    settings = {f"{PREFIX}{name}": value for name, value in options.security.items()}
    return TopicTables(
        spark,
        Brokers(bootstrap=options.bootstrap, settings=security_options(settings)),
        _archives(options),
        allows_gaps=options.allows_gaps,
    )


def _archives(options: SqlOptions) -> Archives:
    return Archives(paths=options.archive_paths, folder=options.archives_folder)


@contextmanager
def _session(master: str) -> Iterator[SparkSession]:
    folder = Path(tempfile.mkdtemp(prefix="zhumq-sql-"))
    settings = {"spark.sql.warehouse.dir": str(folder / "warehouse"), **SESSION_SETTINGS}
    with pipeline_session("zhumq-sql", master=master, settings=settings, log=folder / LOG_FILE) as spark:  # fmt: skip
        try:
            yield spark
        finally:
            shutil.rmtree(folder, ignore_errors=True)

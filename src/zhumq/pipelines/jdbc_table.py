"""Tables in databases that get each batch once: through a staging table, in one transaction with the batch's number."""

import hashlib
import uuid
from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from zhumq.pipelines.causes import explain
from zhumq.pipelines.delta_table import column, run_tasks
from zhumq.pipelines.jdbc_connection import (
    Connection,
    JdbcFailed,
    Login,
    NoSuchTable,
    connected,
)
from zhumq.pipelines.jdbc_spec import JdbcTarget
from zhumq.pipelines.jdbc_statements import (
    ATTEMPT,
    STAGING_PREFIX,
    TASK,
    Database,
    TargetColumn,
    beside,
    count_staged,
    create_ledger,
    create_staging,
    first_batch,
    last_batch,
    raise_batch,
    transfer,
)
from zhumq.pipelines.spec_errors import need_column

_ROW: Final = "_row"


def jdbc_rows(target: JdbcTarget, name: str, rows: DataFrame) -> DataFrame:
    """The rows that a sink writes, of which one without a key or a sequence ends the run. Raises SpecInvalid."""
    for each in target.keys:
        need_column(rows, each, target.keys_mark)
    if target.sequence is not None:
        need_column(rows, target.sequence, target.sequence_mark)
        for each in (*target.keys, target.sequence):
            words = f"sink {name!r}: a row has no value for {each!r}: reject it in a step before"
            is_there = column(each).isNotNull()
            rows = rows.where(is_there | F.raise_error(F.lit(words)).cast("boolean"))
    return rows


class JdbcTable:
    """One table in a database, as one sink writes to it. Every method raises JdbcFailed."""

    def __init__(self, session: SparkSession, target: JdbcTarget) -> None:
        self._session = session
        self._target = target
        self._login = Login.of(target.options)

    def check(self, schema: StructType) -> None:
        """Do everything that a batch needs with no rows, and leave nothing but the tables that it needs."""
        nothing = self._session.createDataFrame([], schema)
        self._write(nothing, writer=uuid.uuid4().hex, batch=None, commits=False)

    def has(self, *, writer: str, batch: int) -> bool:
        """Whether the table has a batch of a writer."""
        with connected(self._session, self._login) as connection:
            return self._has(connection, writer, batch)

    def append(self, rows: DataFrame, *, writer: str, batch: int, stateful: bool = False) -> int:
        """Write the rows of a batch unless the table has them. Returns how many there were, one of each key."""
        if self.has(writer=writer, batch=batch):
            if stateful:
                run_tasks(rows)
            return 0
        return self._write(rows, writer=writer, batch=batch)

    def append_once(self, rows: DataFrame) -> int:
        """Write rows that are no batch of a query: all of them, or none."""
        return self._write(rows, writer=uuid.uuid4().hex, batch=None)

    def _has(self, connection: Connection, writer: str, batch: int) -> bool:
        connection.run(create_ledger(self._target.table))
        last = connection.number(last_batch(self._target.table), writer, self._target.table)
        return last is not None and last >= batch

    def _write(
        self, rows: DataFrame, *, writer: str, batch: int | None, commits: bool = True
    ) -> int:
        target = self._target
        with connected(self._session, self._login) as connection:
            own = f"{STAGING_PREFIX}{hashlib.sha256(writer.encode()).hexdigest()[:16]}_"
            for name in connection.tables_like(own):
                self._drop(connection, name)  # of a run that was killed
            columns = self._columns(connection, rows)
            staging = f"{own}{uuid.uuid4().hex[:16]}"
            if target.database is Database.SQLITE:
                # Spark does not understand how SQLite says that a table is not there.
                place = beside(target.table, staging)
                connection.run(create_staging(place, list(columns.values())))
        try:
            named = _in_the_tables_words(self._newest(rows), columns)
            self._stage(named, staging)
            with (
                connected(self._session, self._login) as connection,
                connection.transaction(commits=commits),
            ):
                if batch is not None and not self._note(connection, writer, batch):
                    return 0
                self._transfer(connection, staging, columns, named.schema)
                return connection.number(count_staged(beside(target.table, staging))) or 0
        finally:
            self._discard(staging)

    def _columns(self, connection: Connection, rows: DataFrame) -> dict[str, TargetColumn]:
        """The columns of the table by those of the rows."""
        target = self._target
        try:
            found = connection.columns(target.table)
        except NoSuchTable:
            if target.keys or target.database is Database.SQLITE:
                raise JdbcFailed(_no_table(target)) from None
            self._add(rows.limit(0), target.table)  # with the types of the rows
            found = connection.columns(target.table)
        matched: dict[str, TargetColumn] = {}
        for name in rows.columns:
            same = [each for each in found if each.name == name]
            like = same or [each for each in found if each.name.lower() == name.lower()]
            if len(like) != 1:
                there = ", ".join(each.name for each in found)
                raise JdbcFailed(
                    f"the table {target.table} has no column {name!r}; there are {there}"
                )
            matched[name] = like[0]
        return matched

    def _newest(self, rows: DataFrame) -> DataFrame:
        """One row of each key: of equal sequences that which is greater as JSON, so that it is always the same."""
        target = self._target
        if target.sequence is None:
            return rows
        whole = F.struct(*(column(name) for name in rows.columns))
        order = F.struct(column(target.sequence), F.to_json(whole))
        keys = [column(name) for name in target.keys]
        newest = rows.groupBy(*keys).agg(F.max_by(whole, order).alias(_ROW))
        return newest.select(*(F.col(_ROW).getField(name).alias(name) for name in rows.columns))

    def _stage(self, rows: DataFrame, staging: str) -> None:
        """Write rows to a new table. Each task writes all of its rows, in one transaction, or none."""
        if self._target.database is Database.SQLITE:
            rows = rows.coalesce(1)  # One connection at a time writes to its file.
        self._add(_with_attempts(rows), beside(self._target.table, staging))

    def _add(self, rows: DataFrame, table: str) -> None:
        """Add rows to a table, which Spark makes if there is none."""
        writer = rows.write.format("jdbc").options(**self._login.options).option("dbtable", table)
        try:
            writer.mode("append").save()
        except (PySparkException, Py4JError) as error:
            raise JdbcFailed(self._login.without_secrets(explain(error))) from None

    def _note(self, connection: Connection, writer: str, batch: int) -> bool:
        """Note in the transaction that the table has a batch; False if it has it by now."""
        table = self._target.table
        if connection.run(raise_batch(table), batch, writer, table, batch):
            return True
        if connection.number(last_batch(table), writer, table) is not None:
            return False
        connection.run(first_batch(table), batch, writer, table)
        return True

    def _transfer(
        self,
        connection: Connection,
        staging: str,
        columns: Mapping[str, TargetColumn],
        schema: StructType,
    ) -> None:
        target = self._target
        if target.database is Database.POSTGRESQL:
            # Else a moment becomes the local time of the driver in a column without a time zone.
            connection.run("SET LOCAL TIME ZONE 'UTC'")
        statement = transfer(
            target.table,
            beside(target.table, staging),
            list(columns.values()),
            texts=frozenset(
                each.name for each in schema.fields if isinstance(each.dataType, StringType)
            ),
            keys=[columns[name].name for name in target.keys],
            sequence=columns[target.sequence].name if target.sequence is not None else None,
        )
        try:
            connection.run(statement)
        except JdbcFailed as error:
            if "ON CONFLICT" not in str(error):
                raise
            keys = ", ".join(target.keys)
            raise JdbcFailed(
                f"the table {target.table} has no primary key and no unique index of exactly ({keys}):"
                f" CREATE UNIQUE INDEX NAME ON {target.table} ({keys})"
            ) from None

    def _discard(self, staging: str) -> None:
        """Remove a staging table. If the database is away, the next batch of the writer does it."""
        try:
            with connected(self._session, self._login) as connection:
                self._drop(connection, staging)
        except JdbcFailed:
            return

    def _drop(self, connection: Connection, name: str) -> None:
        connection.run(f"DROP TABLE IF EXISTS {beside(self._target.table, name)}")


def _no_table(target: JdbcTarget) -> str:
    with_keys = f", with PRIMARY KEY ({', '.join(target.keys)})" if target.keys else ""
    return f"there is no table {target.table}: create it{with_keys}"


def _in_the_tables_words(rows: DataFrame, columns: Mapping[str, TargetColumn]) -> DataFrame:
    return rows.select(*(column(name).alias(each.name) for name, each in columns.items()))


def _with_attempts(rows: DataFrame) -> DataFrame:
    """The rows with the task that writes them and its attempt: Spark may run a task twice."""
    schema = StructType(
        [*rows.schema.fields, StructField(TASK, IntegerType()), StructField(ATTEMPT, LongType())]
    )

    def add(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "tasks have one"
        task, attempt = context.partitionId(), context.taskAttemptId()
        for batch in batches:
            size = batch.num_rows
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, pa.array([task] * size, pa.int32()), pa.array([attempt] * size)],
                names=[*batch.schema.names, TASK, ATTEMPT],
            )

    return rows.mapInArrow(add, schema)

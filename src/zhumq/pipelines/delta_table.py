"""Delta tables that zhumq writes by itself: a batch is in once, by the table's own commits, without a jar."""

import re
import uuid
from collections.abc import Iterable
from functools import reduce
from typing import Final
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from zhumq.pipelines.delta_layout import STATE_FOLDER, DeltaFailed
from zhumq.pipelines.delta_log import (
    Action,
    DataFile,
    DeltaLog,
    Snapshot,
    TooManyFiles,
    creation,
    evolved,
    now_ms,
    table_schema,
    unsupported_column,
)
from zhumq.pipelines.folder import Folder

STAGING_FOLDER: Final = f"{STATE_FOLDER}/staging"
COMMIT_ATTEMPTS_MAX: Final = 10  # while other writers, such as an upkeep, commit as well
# The text of such a value in a folder's name is the one that Delta's log has.
PARTITION_TYPES: Final = (
    BooleanType, ByteType, DateType, IntegerType, LongType, ShortType, StringType,
)  # fmt: skip
NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED: Final = re.compile("%([0-9A-Fa-f]{2})")


class DeltaTable:
    """Parquet files and Delta's log beside them."""

    def __init__(
        self, spark: SparkSession, path: str, *, partition_by: tuple[str, ...] = ()
    ) -> None:
        self.folder = Folder(spark, path)
        self.log = DeltaLog(self.folder)
        self._partition_by = partition_by

    @property
    def path(self) -> str:
        return self.folder.path

    def has(self, *, query: str, batch: int) -> bool:
        """Whether the table has a batch of a query."""
        return self.log.snapshot().batches.get(query, -1) >= batch

    def append(self, rows: DataFrame, *, query: str, batch: int, stateful: bool = False) -> int:
        """Add the rows of a batch unless the table has them. Returns how many were added."""
        snapshot = self.log.snapshot()
        if snapshot.batches.get(query, -1) >= batch:
            if stateful:
                run_tasks(rows)
            return 0
        self.clear_staging(query)
        self.check_rows(snapshot, rows.schema)
        files = self.write_files(rows, query, room=self.log.room(snapshot))
        for _ in range(COMMIT_ATTEMPTS_MAX):
            at_ms = now_ms()
            actions = self.preparing(snapshot, rows.schema, at_ms)
            actions += [
                {"txn": {"appId": query, "version": batch, "lastUpdated": at_ms}},
                *(each.added(data_change=True) for each in files),
            ]
            if self.commit(snapshot, actions, files, operation="WRITE", at_ms=at_ms):
                self.clear_staging(query)
                return sum(each.rows or 0 for each in files)
            snapshot = self.log.snapshot()
            if snapshot.batches.get(query, -1) >= batch:
                # Another run of the same query, which is thought to be dead.
                self.discard(files)
                return 0
            self.check_rows(snapshot, rows.schema)
        self.discard(files)
        raise self.too_many_attempts()

    def read(
        self, session: SparkSession, snapshot: Snapshot, files: Iterable[DataFile] | None = None
    ) -> DataFrame:
        """The rows of some files of the table, or of all."""
        chosen = list(snapshot.files.values() if files is None else files)
        if not chosen:
            return session.createDataFrame([], snapshot.schema)
        return self.scan(session, snapshot, chosen)

    def scan(
        self, session: SparkSession, snapshot: Snapshot, files: Iterable[DataFile], *more: Column
    ) -> DataFrame:
        """The columns of these files, of which there is one at least, and more columns, such as _metadata."""
        schema = snapshot.schema
        # None: the folders' names are as Spark writes them. Other writers, of which delta-rs is one for texts that
        # are not ASCII, name them otherwise: what counts is the log.
        groups: dict[tuple[tuple[str, str | None], ...] | None, list[str]] = {}
        for each in files:
            values = dict(each.partition_values)
            key = None if _partition_values(each.path) == values else tuple(values.items())
            groups.setdefault(key, []).append(self.folder.inside(each.path))
        frames = []
        for key, paths in groups.items():
            known = dict(key or ())
            stored = StructType([each for each in schema.fields if each.name not in known])
            reader = session.read.schema(stored)
            if key is None:
                reader = reader.option("basePath", self.path)
            # Spark puts the columns of the partitions last.
            columns = [
                F.lit(known[each.name]).cast(each.dataType).alias(each.name)
                if each.name in known
                else column(each.name)
                for each in schema.fields
            ]
            frames.append(reader.parquet(*paths).select(*columns, *more))
        return reduce(DataFrame.union, frames)

    def write_files(self, rows: DataFrame, query: str, *, room: int) -> list[DataFile]:
        """Write rows to new files of the table, which no commit names yet; no more than there is room for."""
        session = rows.sparkSession
        staging = f"{STAGING_FOLDER}/{query}/{uuid.uuid4().hex}"
        writer = rows.write.mode("overwrite")
        if self._partition_by:
            writer = writer.partitionBy(*self._partition_by)
        writer.parquet(self.folder.inside(staging))
        names = (name.rpartition("/")[2] for name in self.folder.files(staging))
        if all(name.startswith(("_", ".")) for name in names):
            return []
        reader = session.read.schema(table_schema(rows.schema))
        facts = ("file_path", "file_size", "file_modification_time")
        counted = (
            reader.parquet(self.folder.inside(staging))
            .groupBy(*(F.col(f"_metadata.{name}").alias(name) for name in facts))
            .agg(F.count(F.lit(1)).alias("rows"))
            .withColumn("modified_ms", F.unix_millis("file_modification_time"))
            .collect()
        )
        if len(counted) > room:
            self.folder.remove(staging)
            raise self.log.too_many_files(len(counted) - room)
        found: list[DataFile] = []
        for row in counted:
            path = self.relative(row["file_path"]).removeprefix(f"{staging}/")
            self.folder.move(f"{staging}/{path}", path)
            found.append(
                DataFile(
                    path=path,
                    size=int(row["file_size"]),
                    modified_ms=int(row["modified_ms"]),
                    partition_values=_partition_values(path),
                    rows=int(row["rows"]),
                )
            )
        self.folder.remove(staging)
        return found

    def preparing(self, snapshot: Snapshot, schema: StructType, at_ms: int) -> list[Action]:
        """The actions that a commit of such rows begins with: a new table, or new columns."""
        if not snapshot.exists:
            return creation(schema, self._partition_by, at_ms)
        return evolved(snapshot, schema, self.path)

    def check_rows(self, snapshot: Snapshot, schema: StructType) -> None:
        """Raise DeltaFailed if the table cannot hold such rows."""
        words = refusal(schema, self._partition_by)
        if words is not None:
            raise DeltaFailed(f"{self.path}: {words}")
        if snapshot.exists:
            evolved(snapshot, schema, self.path)
            if snapshot.partition_by != self._partition_by:
                raise DeltaFailed(
                    f"{self.path} is partitioned by ({', '.join(snapshot.partition_by)}), and the sink by"
                    f" ({', '.join(self._partition_by)}): make them the same, or use another table"
                )

    def relative(self, address: str) -> str:
        """The path within the table of a file that Spark names by its address."""
        # Of local files Spark writes file:///, and Hadoop file:/.
        _, _, root = self.path.partition(":")
        _, _, whole = unquote(address).partition(":")
        path = whole.lstrip("/").removeprefix(f"{root.lstrip('/')}/")
        assert path != whole.lstrip("/"), f"{address} is not below {self.path}"
        return path

    def commit(
        self,
        snapshot: Snapshot,
        actions: list[Action],
        files: list[DataFile],
        *,
        operation: str,
        at_ms: int,
    ) -> bool:
        """Make a commit that adds these files; False if another writer was first."""
        try:
            return self.log.commit(snapshot, actions, operation=operation, now_ms=at_ms)
        except TooManyFiles:
            self.discard(files)
            raise

    def discard(self, files: Iterable[DataFile]) -> None:
        """Remove files that no commit names."""
        for each in files:
            self.folder.remove(each.path)

    def clear_staging(self, query: str) -> None:
        self.folder.remove(f"{STAGING_FOLDER}/{query}")

    def too_many_attempts(self) -> DeltaFailed:
        return DeltaFailed(
            f"{self.path}: other writers committed {COMMIT_ATTEMPTS_MAX} times before this batch could:"
            " run fewer of them at a time"
        )


def refusal(schema: StructType, partition_by: tuple[str, ...]) -> str | None:
    """Why no Delta table can hold such rows; None if one can."""
    wrong = unsupported_column(schema)
    if wrong is not None:
        kind = wrong.dataType.simpleString()
        return f"the column {wrong.name!r} is {kind}, which a Delta table cannot hold: CAST it"
    for name in partition_by:
        of = schema[name].dataType
        if not isinstance(of, PARTITION_TYPES):
            return (
                f"the column {name!r} is {of.simpleString()}, which cannot name a partition: use a text,"
                " a whole number, a date or a boolean"
            )
    return None


def run_tasks(rows: DataFrame) -> None:
    """Run the tasks of a batch that is in its table: Spark fails a batch whose state no task has saved."""
    rows.write.format("noop").mode("overwrite").save()


def read_delta(session: SparkSession, path: str) -> DataFrame:
    """A Delta table as it is now. Raises DeltaFailed if there is none."""
    table = DeltaTable(session, path)
    snapshot = table.log.snapshot()
    if not snapshot.exists:
        raise DeltaFailed(f"there is no Delta table at {table.path}")
    return table.read(session, snapshot)


def column(name: str) -> Column:
    """A column by its name, which may hold a dot."""
    return F.col("`" + name.replace("`", "``") + "`")


def _partition_values(path: str) -> dict[str, str | None]:
    """The values in the names of a file's folders, if they are names that Spark gives."""
    values: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        name, _, text = folder.partition("=")
        values[_unescaped(name)] = None if text == NULL_PARTITION else _unescaped(text)
    return values


def _unescaped(text: str) -> str:
    """Spark writes the characters that a file system refuses as %XX, of one UTF-16 unit each."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)

"""The tables that a stream is enriched from: copies that are made anew when they are too old for a micro-batch."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from zhumq.model.errors import ZhumqError
from zhumq.pipelines.causes import explain, one_line
from zhumq.pipelines.enrichment import keyed, unlike_words
from zhumq.pipelines.folder import Folder
from zhumq.pipelines.jdbc_rows import frame_of
from zhumq.pipelines.refreshing import Freshness, Versions
from zhumq.pipelines.spec import EnrichStep, Pipeline
from zhumq.pipelines.status import TableProgress, timestamp
from zhumq.pipelines.views import new_session, read_whole

# Beside the checkpoints, whose names have no dot.
FOLDER: Final = "enrich.tables"
# What Spark tells the thread of a micro-batch: the run of its query, which is another one after a failure, and its number.
_RUN: Final = "spark.jobGroup.id"
_BATCH: Final = "streaming.sql.batchId"
_FAILURES: Final = (ZhumqError, PySparkException, Py4JError)


class RefreshedTable:
    """The table of one step. Each version has a folder, which stays while a micro-batch reads it."""

    def __init__(
        self,
        *,
        step: EnrichStep,
        read: Callable[[], DataFrame],
        folder: Folder,
        progress: TableProgress,
        say: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self.step = step
        self._read = read
        self._folder = folder
        self._progress = progress
        self._say = say
        self._clock = clock
        self._lock = threading.Lock()  # of what follows: one thread at a time reads the table
        self._freshness = Freshness(refresh_seconds=step.refresh_ms / 1000)
        self._versions = Versions()
        self._schema: StructType | None = None

    def schema(self) -> StructType:
        """The columns of the copies. Reads the table for the first time, and raises what that raises."""
        with self._lock:
            if self._schema is None:
                self._refresh()
            assert self._schema is not None, "it was read"
            return self._schema

    def newest_path(self) -> str:
        """The folder of the last version, which may be removed soon."""
        with self._lock:
            assert self._versions.newest is not None, "it was read"
            return self._folder.inside(self._name(self._versions.newest))

    def path(self, run: str | None, batch: str | None) -> str:
        """The folder of the version that a micro-batch has; the first call for it reads the table if it is due."""
        with self._lock:
            version = None if batch is None else self._versions.of(run or "", batch)
            if version is None:
                self._refresh()
                version = self._versions.choose(run or "", batch or "")
                for each in self._versions.take_unused():
                    self._folder.remove(self._name(each))
            return self._folder.inside(self._name(version))

    def _refresh(self) -> None:
        now = self._clock()
        if not self._freshness.is_due(now):
            return
        try:
            self._copy()
        except _FAILURES as error:
            if self._versions.newest is None:
                raise
            wait = self._freshness.note_failure(self._clock())
            words = one_line(str(error)) if isinstance(error, ZhumqError) else explain(error)
            self._progress.failures += 1
            self._progress.error = words
            self._say(
                f"warning: step {self.step.name}: the table {self.step.table} cannot be read, and its rows of"
                f" {self._progress.read_at} go on ({self._progress.failures} times so far; not tried again for"
                f" {wait:.0f} s): {words}"
            )
        else:
            self._freshness.note_read(now)

    def _copy(self) -> None:
        read_at = timestamp()
        rows = keyed(self._read(), self.step)
        if self._schema is not None:
            words = unlike_words(rows.schema, self._schema, self.step)
            if words is not None:
                raise self.step.table_mark.wrong(words)
        place = self._folder.inside(self._name(self._versions.following))
        rows.write.mode("overwrite").parquet(place)
        count = rows.sparkSession.read.schema(rows.schema).parquet(place).count()
        self._versions.add()
        self._schema = rows.schema
        self._progress.rows, self._progress.read_at = count, read_at
        self._progress.reads += 1
        self._progress.error = None

    def _name(self, version: int) -> str:
        return f"{self.step.name}/{version}"


class RefreshedTables:
    """The tables of the enrich steps of one run."""

    def __init__(
        self,
        *,
        spark: SparkSession,
        pipeline: Pipeline,
        checkpoints: str,
        progress: Mapping[str, TableProgress],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spark = spark
        self._folder = Folder(spark, f"{checkpoints}/{FOLDER}")
        # One run at a time has these checkpoints; what is there is of one that was killed.
        self._folder.remove("")
        session = new_session(spark)
        sources = {each.name: each for each in pipeline.sources}
        self._tables: dict[str, RefreshedTable] = {}
        for step in pipeline.steps:
            if isinstance(step, EnrichStep):
                source = sources[step.table]
                self._tables[step.name] = RefreshedTable(
                    step=step,
                    read=lambda source=source: read_whole(session, source),  # type: ignore[misc]
                    folder=self._folder,
                    progress=progress[step.name],
                    say=say,
                    clock=clock,
                )

    def of(self, step: EnrichStep, session: SparkSession, *, streaming: bool) -> DataFrame:
        """The rows for a step: those of the micro-batch of this thread, or in a plan of a stream those of each."""
        table = self._tables[step.name]
        reader = session.read.schema(table.schema())
        if streaming:
            return _with_files(reader.parquet(table.newest_path()), _Files(self._spark, table))
        return reader.parquet(_path_now(self._spark, table))

    def close(self) -> None:
        """Remove the copies, when no query reads them."""
        self._folder.remove("")


class _Files:
    """The files of a table's version for the micro-batch that is being planned. Spark's driver calls it as a FileIndex.

    Spark lists the files of a table once, when its frame is made. A query that streams has one plan for all of its
    micro-batches, and asks an index again in each of them.
    """

    def __init__(self, spark: SparkSession, table: RefreshedTable) -> None:
        self._spark = spark
        self._table = table
        self._indexes: dict[str, Any] = {}  # the newest one, by its path
        ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]

    # The names of these methods are Spark's.

    def listFiles(self, partition_filters: Any, data_filters: Any) -> Any:  # noqa: N802
        return self._index().listFiles(partition_filters, data_filters)

    def sizeInBytes(self) -> Any:  # noqa: N802
        return self._index().sizeInBytes()

    def rootPaths(self) -> Any:  # noqa: N802
        return self._index().rootPaths()

    def inputFiles(self) -> Any:  # noqa: N802
        return self._index().inputFiles()

    def partitionSchema(self) -> Any:  # noqa: N802
        return self._index().partitionSchema()

    def metadataOpsTimeNs(self) -> Any:  # noqa: N802
        return self._index().metadataOpsTimeNs()

    def isTimeTravel(self) -> Any:  # noqa: N802
        return self._index().isTimeTravel()

    def refresh(self) -> None:
        """A version never changes."""

    def toString(self) -> str:  # noqa: N802
        return f"the table of {self._table.step.name}"

    def hashCode(self) -> int:  # noqa: N802
        return hash(self._table.step.name) & 0x7FFFFFFF

    def equals(self, other: object) -> bool:
        return other is self

    class Java:
        implements: ClassVar[list[str]] = ["org.apache.spark.sql.execution.datasources.FileIndex"]

    def _index(self) -> Any:
        path = _path_now(self._spark, self._table)
        if path not in self._indexes:
            rows = self._spark.read.schema(self._table.schema()).parquet(path)
            self._indexes = {path: _relation_of(rows).location()}
        return self._indexes[path]


def _path_now(spark: SparkSession, table: RefreshedTable) -> str:
    """The folder of the version for the micro-batch that this thread works for."""
    context = spark.sparkContext
    return table.path(context.getLocalProperty(_RUN), context.getLocalProperty(_BATCH))


def _with_files(rows: DataFrame, files: _Files) -> DataFrame:
    """The rows of a folder of files, with another index of the files."""
    plan: Any = rows._jdf.queryExecution().analyzed()
    relation = plan.relation()
    moved = relation.copy(
        files,
        relation.partitionSchema(),
        relation.dataSchema(),
        relation.bucketSpec(),
        relation.fileFormat(),
        relation.options(),
        relation.sparkSession(),
    )
    copied = plan.copy(moved, plan.output(), plan.catalogTable(), plan.isStreaming(), plan.stream())
    return frame_of(rows.sparkSession, copied)


def _relation_of(rows: DataFrame) -> Any:
    return rows._jdf.queryExecution().analyzed().relation()

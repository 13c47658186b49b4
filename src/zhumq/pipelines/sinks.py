"""Writes rows to their sinks: topics, tables and the terminal."""

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, assert_never

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.observation import Observation
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import BinaryType, StringType

from zhumq.model.errors import ZhumqError
from zhumq.pipelines.archive import ArchiveFailed, ArchiveTable
from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.causes import explain
from zhumq.pipelines.delta_table import DeltaTable, refusal
from zhumq.pipelines.document import Mark
from zhumq.pipelines.folder import Folder
from zhumq.pipelines.iceberg_spec import (
    PACKAGE,
    IcebergFailed,
    IcebergTarget,
    IcebergUnreachable,
)
from zhumq.pipelines.jdbc_connection import JdbcFailed, JdbcUnreachable, Login
from zhumq.pipelines.jdbc_table import JdbcTable, jdbc_rows
from zhumq.pipelines.merge_table import MergeTable
from zhumq.pipelines.merging import changes_of
from zhumq.pipelines.replay import throttled
from zhumq.pipelines.routing import MESSAGE
from zhumq.pipelines.spec import (
    DEAD_LETTERS,
    FILE_FORMATS,
    ConsoleSink,
    DeadLetters,
    EmptySink,
    MergeSink,
    Pipeline,
    Sink,
    TableSink,
    TopicSink,
    Trigger,
    TriggerKind,
)
from zhumq.pipelines.spec_errors import need_column
from zhumq.pipelines.views import as_batch_view, expression

if TYPE_CHECKING:
    from zhumq.pipelines.iceberg_table import IcebergTable

QUERY_PROPERTY: Final = "sql.streaming.queryId"
_UNNAMED: Final[Mapping[str, str]] = MappingProxyType({})

CountRows = Callable[[int], None]
ShowRows = Callable[[DataFrame, str, int], int]
Explain = Callable[[PySparkException | Py4JError], str]


class BatchFailed(ZhumqError):
    """A micro-batch that did not reach its sink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkContext:
    """What all sinks of a run share."""

    spark: SparkSession
    brokers: Brokers
    trigger: Trigger
    show: ShowRows = lambda _rows, _title, _count: 0  # what has no console shows nothing
    explain: Explain = explain


def prepare(sink: Sink, rows: DataFrame) -> DataFrame:
    """The rows in the form that the sink writes. Raises SpecInvalid with the line of an error."""
    rows = rows.drop(MESSAGE)  # Only dead letters need it.
    match sink:
        case TopicSink():
            return _messages(sink, rows)
        case TableSink():
            _check_table(sink, rows)
            # The rows of `batch_sql` are those of a batch, and are looked at there.
            if sink.jdbc is None or sink.batch_sql is not None:
                return rows
            return jdbc_rows(sink.jdbc, sink.name, rows)
        case MergeSink():
            return changes_of(sink, rows)
        case ConsoleSink() | EmptySink():
            return rows
        case _:
            assert_never(sink)


def triggered(
    rows: DataFrame, name: str, context: SinkContext, *, checkpoint: str
) -> DataStreamWriter:
    """The writer of a streaming query with its checkpoint and the trigger of the pipeline."""
    writer = rows.writeStream.queryName(name).option("checkpointLocation", checkpoint)
    if context.trigger.kind is TriggerKind.AVAILABLE_NOW:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=context.trigger.interval or "0 seconds")


def start(
    sink: Sink, rows: DataFrame, context: SinkContext, *, checkpoint: str, count: CountRows
) -> StreamingQuery:
    """Start the streaming query of a sink."""
    writer = triggered(rows, sink.name, context, checkpoint=checkpoint)
    match sink:
        case TopicSink():
            if sink.mode == "append":
                return writer.format("zhumq").options(**topic_options(sink, context)).start()

            # A Python data source only supports append mode. In the other modes a row that changes is
            # sent again, so readers expect duplicates, and a batch may run twice.
            def send(batch: DataFrame, _number: int) -> None:
                with cause_named(context):
                    count(_write_topic(sink, batch, context))

            return writer.outputMode(sink.mode).foreachBatch(send).start()
        case TableSink():
            # Only a query that continues from a checkpoint can run a batch that is in its table.
            stateful = Folder(context.spark, checkpoint).exists("state")

            def add(batch: DataFrame, number: int) -> None:
                with cause_named(context):
                    count(_add_batch(sink, batch, number, context, stateful=stateful))

            return writer.foreachBatch(add).start()
        case MergeSink():
            # As above: only a query that continues can run a batch again.
            stateful = Folder(context.spark, checkpoint).exists("state")
            table = _merge_table(sink, context)

            def merge(batch: DataFrame, number: int) -> None:
                with cause_named(context):
                    query = _query_of(batch)
                    count(table.merge(batch, query=query, batch=number, stateful=stateful))

            return writer.foreachBatch(merge).start()
        case ConsoleSink():

            def show(batch: DataFrame, _number: int) -> None:
                with cause_named(context):
                    count(context.show(batch, sink.name, sink.rows))

            return writer.outputMode(sink.mode).foreachBatch(show).start()
        case EmptySink():
            raise sink.mark.wrong("is for trigger: batch")
        case _:
            assert_never(sink)


@contextmanager
def cause_named(context: SinkContext) -> Iterator[None]:
    """Raise BatchFailed with the cause of a failure: Spark passes on only the text of an error."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise BatchFailed(context.explain(error)) from error


def dead_letter_sink(given: DeadLetters) -> TopicSink:
    """The sink for bad rows."""
    return TopicSink(
        name=DEAD_LETTERS, mark=given.mark, input="", topic=given.topic, key=None, value=None,
        keep=("headers",), mode="append", rate=None, options=given.options,
    )  # fmt: skip


def all_sinks(pipeline: Pipeline) -> list[Sink]:
    """The sinks of a pipeline, with that for its bad rows."""
    given = pipeline.dead_letters
    return [
        *pipeline.sinks,
        *([] if given is None else [dead_letter_sink(given)]),
    ]


def write_once(sink: Sink, rows: DataFrame, context: SinkContext, *, run: str) -> int:
    """Write the rows of a batch run, and return how many there were."""
    match sink:
        case TopicSink():
            return _write_topic(sink, rows, context)
        case TableSink():
            if sink.format in FILE_FORMATS:
                return archive_table(sink, context.spark).add(rows, query=run, batch=0)
            if sink.format == "delta":
                return _delta(sink, context).append(rows, query=run, batch=0)
            if sink.format == "iceberg":
                table = _iceberg(sink, context)
                return table.append(rows_of_batch(sink, rows), query=run, batch=0, repeats=False)
            if sink.jdbc is not None:
                return JdbcTable(context.spark, sink.jdbc).append_once(rows_of_batch(sink, rows))
            return _append(sink, rows)
        case MergeSink():
            return _merge_table(sink, context).merge(rows, query=run, batch=0)
        case ConsoleSink():
            return context.show(rows, sink.name, sink.rows)
        case EmptySink():
            raise AssertionError("the runner checks an empty sink")
        case _:
            assert_never(sink)


def write_batch(
    sink: Sink, rows: DataFrame, context: SinkContext, *, writer: str, batch: int
) -> int | None:
    """Write a micro-batch, once however often it is called with its writer and its number.

    Returns how many rows there were, or None if the sink has had the batch. The numbers of a writer grow.
    `sharing.not_repeatable` names the sinks that this is not for.
    """
    match sink:
        case TopicSink():
            named = {"txnAppId": writer, "txnVersion": str(batch)}
            return _write_topic(sink, rows, context, named)
        case TableSink():
            rows = rows_of_batch(sink, rows)
            if sink.jdbc is not None:
                database = JdbcTable(context.spark, sink.jdbc)
                if database.has(writer=writer, batch=batch):
                    return None
                return database.append(rows, writer=writer, batch=batch)
            if sink.format in FILE_FORMATS:
                table = archive_table(sink, context.spark)
                if table.has(query=writer, batch=batch):
                    return None
                return table.add(rows, query=writer, batch=batch)
            assert sink.format in ("delta", "iceberg"), "the others cannot repeat a batch"
            once = _delta(sink, context) if sink.format == "delta" else _iceberg(sink, context)
            if once.has(query=writer, batch=batch):
                return None
            return once.append(rows, query=writer, batch=batch)
        case MergeSink():
            merged = _merge_table(sink, context)
            if merged.table.has(query=writer, batch=batch):
                return None
            return merged.merge(rows, query=writer, batch=batch)
        case ConsoleSink() | EmptySink():
            raise AssertionError("it cannot repeat a batch")
        case _:
            assert_never(sink)


def _messages(sink: TopicSink, rows: DataFrame) -> DataFrame:
    """Key and value from their expressions, else from the columns of these names, else all as JSON."""
    names = rows.columns
    if sink.value is not None:
        rows = _message_column(rows, *sink.value, "_value")
    elif "value" in names:
        rows = rows.withColumn("_value", F.col("value"))
    else:
        rows = rows.withColumn("_value", F.to_json(F.struct(*(F.col(f"`{x}`") for x in names))))
    chosen = [F.col("_value").alias("value")]
    if sink.key is not None:
        rows = _message_column(rows, *sink.key, "_key")
        chosen.append(F.col("_key").alias("key"))
    elif "key" in names:
        chosen.append(F.col("key"))
    # The topic and partition columns of the rows name their origin, not always their target.
    return rows.select(*chosen, *(F.col(name) for name in sink.keep if name in names))


def _message_column(rows: DataFrame, text: str, mark: Mark, name: str) -> DataFrame:
    rows = expression(rows, text, mark, name)
    kind = rows.schema[name].dataType
    if not isinstance(kind, BinaryType | StringType):
        raise mark.wrong(f"is {kind.simpleString()}; a message is a text or binary")
    return rows


def _check_table(sink: TableSink, rows: DataFrame) -> None:
    shaped = rows
    if sink.batch_sql is not None:
        # Analysed without rows, so that a wrong column fails before the query runs.
        sample = rows.sparkSession.createDataFrame([], rows.schema)
        shaped = as_batch_view(rows.sparkSession, sample, *sink.batch_sql)
    for column in sink.partition_by:
        need_column(shaped, column, sink.partition_mark)
    if sink.format == "delta":
        words = refusal(shaped.schema, sink.partition_by)
        if words is not None:
            raise sink.mark.wrong(words)
    if sink.format == "iceberg":
        if importlib.util.find_spec(PACKAGE) is None:
            raise sink.mark.wrong(f"format: iceberg needs {PACKAGE}: pip install 'zhumq[iceberg]'")
        schemas = importlib.import_module("zhumq.pipelines.iceberg_schema")
        words = schemas.refusal(shaped.schema, sink.partition_by)
        if words is not None:
            raise sink.mark.wrong(words)


def _add_batch(
    sink: TableSink, batch: DataFrame, number: int, context: SinkContext, *, stateful: bool
) -> int:
    query = _query_of(batch)
    rows = rows_of_batch(sink, batch)
    if sink.jdbc is not None:
        table = JdbcTable(context.spark, sink.jdbc)
        return table.append(rows, writer=query, batch=number, stateful=stateful)
    if sink.format in FILE_FORMATS:
        return archive_table(sink, context.spark).add(
            rows, query=query, batch=number, stateful=stateful
        )
    if sink.format == "delta":
        return _delta(sink, context).append(rows, query=query, batch=number, stateful=stateful)
    if sink.format == "iceberg":
        iceberg = _iceberg(sink, context)
        return iceberg.append(rows, query=query, batch=number, stateful=stateful)
    return _append(sink, rows)


def rows_of_batch(sink: TableSink, batch: DataFrame) -> DataFrame:
    """The rows that a table gets for a micro-batch."""
    if sink.batch_sql is None:
        return batch
    rows = as_batch_view(batch.sparkSession, batch, *sink.batch_sql)
    return rows if sink.jdbc is None else jdbc_rows(sink.jdbc, sink.name, rows)


def has_target_to_check(sink: Sink) -> bool:
    """Whether a table is asked before the run whether the rows fit: one in a database or a catalog."""
    return isinstance(sink, TableSink) and (sink.jdbc is not None or sink.format == "iceberg")


def check_target(sink: Sink, rows: DataFrame, context: SinkContext) -> None:
    """Find before the run what a table would refuse of the rows.

    Raises SpecInvalid, JdbcUnreachable, IcebergUnreachable.
    """
    if not isinstance(sink, TableSink) or not has_target_to_check(sink):
        return
    sample = context.spark.createDataFrame([], rows.schema)
    schema = rows_of_batch(sink, sample).schema
    try:
        if sink.jdbc is not None:
            JdbcTable(context.spark, sink.jdbc).check(schema)
        else:
            _iceberg(sink, context).check(schema)
    except (JdbcUnreachable, IcebergUnreachable):
        raise
    except (JdbcFailed, IcebergFailed) as error:
        raise sink.mark.wrong(str(error)) from None


def check_files(sink: Sink, rows: DataFrame, spark: SparkSession) -> None:
    """Find before the run that the rows do not go with the files of a table. Raises SpecInvalid."""
    if not isinstance(sink, TableSink) or sink.format not in FILE_FORMATS:
        return
    sample = spark.createDataFrame([], rows.schema)
    try:
        archive_table(sink, spark).check(rows_of_batch(sink, sample).schema)
    except ArchiveFailed as error:
        raise sink.mark.wrong(str(error)) from None


def _query_of(batch: DataFrame) -> str:
    query = batch.sparkSession.sparkContext.getLocalProperty(QUERY_PROPERTY)
    assert query is not None, "Spark sets the query id of a batch"
    return query


def _merge_table(sink: MergeSink, context: SinkContext) -> MergeTable:
    return MergeTable(
        context.spark,
        sink.path,
        keys=sink.keys,
        scd_type=sink.scd_type,
        partition_by=sink.partition_by,
    )


def archive_table(sink: TableSink, spark: SparkSession) -> ArchiveTable:
    """The folder of files that a sink writes to."""
    return ArchiveTable(
        spark,
        sink.path,
        file_format=sink.format,
        partition_by=sink.partition_by,
        options=sink.options,
    )


def _delta(sink: TableSink, context: SinkContext) -> DeltaTable:
    return DeltaTable(context.spark, sink.path, partition_by=sink.partition_by)


def _iceberg(sink: TableSink, context: SinkContext) -> "IcebergTable":
    # Loaded here: only files that ask for it need the package.
    module = importlib.import_module("zhumq.pipelines.iceberg_table")
    table: IcebergTable = module.IcebergTable(
        context.spark, IcebergTarget.of(sink), partition_by=sink.partition_by
    )
    return table


def _append(sink: TableSink, rows: DataFrame) -> int:
    observed = Observation("written")
    rows = rows.observe(observed, F.count(F.lit(1)).alias("rows"))
    options = Login.of(sink.options).options if sink.format == "jdbc" else sink.options
    writer = rows.write.format(sink.format).options(**options).mode("append")
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    if sink.format == "jdbc":
        writer.option("dbtable", sink.path).save()
    else:
        writer.save(sink.path)
    return int(observed.get["rows"])


def _write_topic(
    sink: TopicSink, rows: DataFrame, context: SinkContext, named: Mapping[str, str] = _UNNAMED
) -> int:
    observed = Observation("written")
    if sink.rate is not None:
        rows = throttled(rows, sink.rate)
    rows = rows.observe(observed, F.count(F.lit(1)).alias("rows"))
    options = {**topic_options(sink, context), **named}
    rows.write.format("zhumq").options(**options).mode("append").save()
    return int(observed.get["rows"])


def topic_options(sink: TopicSink, context: SinkContext) -> dict[str, str]:
    """The options of `format("zhumq")` for a sink."""
    options = {**context.brokers.options(), **sink.options, "topic": sink.topic}
    return {**options, "includeTimestamp": "true"} if "timestamp" in sink.keep else options

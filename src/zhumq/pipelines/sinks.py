"""Writes rows to their sinks: topics, tables and the terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, assert_never

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.observation import Observation
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import BinaryType, StringType

from zhumq.model.errors import ZhumqError
from zhumq.pipelines.archive import ArchiveTable
from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.causes import explain
from zhumq.pipelines.document import Mark
from zhumq.pipelines.folder import Folder
from zhumq.pipelines.replay import throttled
from zhumq.pipelines.spec import (
    FILE_FORMATS,
    ConsoleSink,
    EmptySink,
    Sink,
    TableSink,
    TopicSink,
    Trigger,
    TriggerKind,
)
from zhumq.pipelines.views import (
    MESSAGE,
    as_batch_view,
    expression,
    need_column,
)

QUERY_PROPERTY: Final = "sql.streaming.queryId"

CountRows = Callable[[int], None]
ShowRows = Callable[[DataFrame, str, int], int]


class BatchFailed(ZhumqError):
    """A micro-batch that did not reach its sink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkContext:
    """What all sinks of a run share."""

    spark: SparkSession
    brokers: Brokers
    trigger: Trigger
    show: ShowRows


def prepare(sink: Sink, rows: DataFrame) -> DataFrame:
    """The rows in the form that the sink writes. Raises SpecInvalid with the line of an error."""
    rows = rows.drop(MESSAGE)  # Only dead letters need it.
    match sink:
        case TopicSink():
            return _messages(sink, rows)
        case TableSink():
            _check_table(sink, rows)
            return rows
        case ConsoleSink() | EmptySink():
            return rows
        case _:
            assert_never(sink)


def start(
    sink: Sink, rows: DataFrame, context: SinkContext, *, checkpoint: str, count: CountRows
) -> StreamingQuery:
    """Start the streaming query of a sink."""
    writer = rows.writeStream.queryName(sink.name).option("checkpointLocation", checkpoint)
    if context.trigger.kind is TriggerKind.AVAILABLE_NOW:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=context.trigger.interval or "0 seconds")
    match sink:
        case TopicSink():
            if sink.mode == "append":
                return writer.format("zhumq").options(**_topic_options(sink, context)).start()

            # A Python data source only supports append mode. In the other modes a row that changes is
            # sent again, so readers expect duplicates, and a batch may run twice.
            def send(batch: DataFrame, _number: int) -> None:
                with _cause_named():
                    count(_write_topic(sink, batch, context))

            return writer.outputMode(sink.mode).foreachBatch(send).start()
        case TableSink():
            # Only a query that continues from a checkpoint can run a batch that is in its table.
            stateful = Folder(context.spark, checkpoint).exists("state")

            def add(batch: DataFrame, number: int) -> None:
                with _cause_named():
                    count(_add_batch(sink, batch, number, context, stateful=stateful))

            return writer.foreachBatch(add).start()
        case ConsoleSink():

            def show(batch: DataFrame, _number: int) -> None:
                with _cause_named():
                    count(context.show(batch, sink.name, sink.rows))

            return writer.outputMode(sink.mode).foreachBatch(show).start()
        case EmptySink():
            raise sink.mark.wrong("is for trigger: batch")
        case _:
            assert_never(sink)


@contextmanager
def _cause_named() -> Iterator[None]:
    """Raise BatchFailed with the cause of a failure: Spark passes on only the text of an error."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise BatchFailed(explain(error)) from error


def dead_letter_sink(topic: str, mark: Mark) -> TopicSink:
    """The sink for bad rows."""
    return TopicSink(
        name="dead_letters", mark=mark, input="", topic=topic, key=None, value=None,
        keep=("headers",), mode="append", rate=None, options={},
    )  # fmt: skip


def write_once(sink: Sink, rows: DataFrame, context: SinkContext, *, run: str) -> int:
    """Write the rows of a batch run, and return how many there were."""
    match sink:
        case TopicSink():
            return _write_topic(sink, rows, context)
        case TableSink():
            if sink.format in FILE_FORMATS:
                return _archive(sink, context).add(rows, query=run, batch=0)
            return _append(sink, rows, {})
        case ConsoleSink():
            return context.show(rows, sink.name, sink.rows)
        case EmptySink():
            raise AssertionError("the runner checks an empty sink")
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


def _add_batch(
    sink: TableSink, batch: DataFrame, number: int, context: SinkContext, *, stateful: bool
) -> int:
    session = batch.sparkSession
    query = session.sparkContext.getLocalProperty(QUERY_PROPERTY)
    assert query is not None, "Spark sets the query id of a batch"
    rows = batch
    if sink.batch_sql is not None:
        rows = as_batch_view(session, batch, *sink.batch_sql)
    if sink.format in FILE_FORMATS:
        return _archive(sink, context).add(rows, query=query, batch=number, stateful=stateful)
    transaction = {"txnAppId": query, "txnVersion": str(number)} if sink.format == "delta" else {}
    return _append(sink, rows, transaction)


def _archive(sink: TableSink, context: SinkContext) -> ArchiveTable:
    return ArchiveTable(
        context.spark,
        sink.path,
        file_format=sink.format,
        partition_by=sink.partition_by,
        options=sink.options,
    )


def _append(sink: TableSink, rows: DataFrame, more: dict[str, str]) -> int:
    observed = Observation("written")
    rows = rows.observe(observed, F.count(F.lit(1)).alias("rows"))
    writer = rows.write.format(sink.format).options(**sink.options, **more).mode("append")
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    if sink.format == "iceberg":
        writer.saveAsTable(sink.path)
    elif sink.format == "jdbc":
        writer.option("dbtable", sink.path).save()
    else:
        writer.save(sink.path)
    return int(observed.get["rows"])


def _write_topic(sink: TopicSink, rows: DataFrame, context: SinkContext) -> int:
    observed = Observation("written")
    if sink.rate is not None:
        rows = throttled(rows, sink.rate)
    rows = rows.observe(observed, F.count(F.lit(1)).alias("rows"))
    rows.write.format("zhumq").options(**_topic_options(sink, context)).mode("append").save()
    return int(observed.get["rows"])


def _topic_options(sink: TopicSink, context: SinkContext) -> dict[str, str]:
    options = {**context.brokers.options(), **sink.options, "topic": sink.topic}
    return {**options, "includeTimestamp": "true"} if "timestamp" in sink.keep else options

"""What a sink gets twice when messages are read again with a new checkpoint, and what its last query has left open."""

from typing import assert_never

from pyspark.sql import DataFrame

from zhumq.model.errors import ZhumqError
from zhumq.pipelines.archive import RECORD_COLUMNS
from zhumq.pipelines.sinks import SinkContext, archive_table, topic_options
from zhumq.pipelines.spec import (
    FILE_FORMATS,
    ConsoleSink,
    EmptySink,
    MergeSink,
    Sink,
    TableSink,
    TopicSink,
)
from zhumq.pipelines.views import as_batch_view
from zhumq.spark.options import write_options
from zhumq.spark.settlement import end_open


class CannotRepeat(ZhumqError):
    """A sink that refuses the rows of a new checkpoint."""


def repeats_of(sink: Sink, rows: DataFrame, context: SinkContext) -> str:
    """What becomes of rows that the sink has. Raises CannotRepeat if the next run would fail."""
    match sink:
        case TopicSink():
            also = ", exactlyOnce or not" if sink.mode == "append" else ""
            return (
                f"sends each of these rows to {sink.topic} again{also}:"
                " what was sent is known by the old checkpoint alone"
            )
        case TableSink():
            if sink.format in FILE_FORMATS:
                return _files(sink, rows, context)
            if sink.jdbc is not None and sink.jdbc.keys:
                return f"writes them to {sink.path} by their keys again, which leaves the same rows"
            return f"appends each of these rows to {sink.path} again ({sink.format})"
        case MergeSink():
            return (
                "merges the same changes again, which leaves the same rows; until the last is merged, a key"
                " may be there whose delete `upkeep` has forgotten"
            )
        case ConsoleSink():
            return "shows these rows again"
        case EmptySink():
            raise AssertionError("it is for trigger: batch, which has no checkpoint")
        case _:
            assert_never(sink)


def end_query(sink: Sink, writer: str, context: SinkContext) -> None:
    """End what the query of a sink has left open, as its next run would: it does not run again.

    Open transactions would hide from readers all that is sent to their topics later. Files of a batch that
    was half moved into a table would stay beside the same rows of the next query.
    """
    match sink:
        case TopicSink():
            options = write_options(topic_options(sink, context))
            if options.exactly_once:
                end_open(options, writer)
        case TableSink():
            if sink.format in FILE_FORMATS:
                archive_table(sink, context.spark).forget_unfinished(writer)
        case MergeSink() | ConsoleSink() | EmptySink():
            pass
        case _:
            assert_never(sink)


def _files(sink: TableSink, rows: DataFrame, context: SinkContext) -> str:
    if not archive_table(sink, context.spark).states():
        return f"gets nothing twice: {sink.path} is empty"
    if sink.batch_sql is not None:
        sample = rows.sparkSession.createDataFrame([], rows.schema)
        rows = as_batch_view(rows.sparkSession, sample, *sink.batch_sql)
    lacking = [name for name in RECORD_COLUMNS if name not in rows.columns]
    if lacking:
        raise CannotRepeat(
            f"the sink {sink.name} cannot begin again: the rows of {sink.path} have no"
            f" {' and no '.join(lacking)} to tell which are in the table, so the next run would be refused."
            f" Move the folder away first, or name another table in {sink.mark.file}:{sink.mark.line}"
        )
    return (
        f"gets nothing twice: {sink.path} knows the offsets of its rows, and leaves out what is before the last"
        " of each partition, also where it has gaps"
    )

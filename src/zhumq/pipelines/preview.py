"""Shows what a pipeline would do with some records: rows and columns after each step, and Spark's plans. Writes nothing."""

import contextlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.case_runner import rows_of
from zhumq.pipelines.causes import explain
from zhumq.pipelines.enrichment import keyed
from zhumq.pipelines.file_source import read_files
from zhumq.pipelines.functions import make_importable
from zhumq.pipelines.jdbc_source import read_database
from zhumq.pipelines.join_plan import check_joins
from zhumq.pipelines.sharing import reads_of
from zhumq.pipelines.sinks import prepare
from zhumq.pipelines.spec import (
    DEAD_LETTERS,
    EnrichStep,
    FilesSource,
    JdbcSource,
    Pipeline,
    Source,
    TableSource,
)
from zhumq.pipelines.spec_errors import spec_errors
from zhumq.pipelines.state_in_plan import state_in
from zhumq.pipelines.topics import check_broker, reads_topics
from zhumq.pipelines.views import (
    Views,
    build_steps,
    build_views,
    new_session,
    read_table,
    read_whole,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """A source, a step or a sink: its columns, its first rows, and for a sink Spark's plan."""

    kind: str  # source, step or sink
    name: str
    columns: Mapping[str, str]  # and their types
    rows: tuple[Mapping[str, Any], ...]
    plan: str | None
    error: str | None  # why there are no rows
    read: str | None = None  # of a sink of a stream: whether it shares a read, or why not


def preview(
    spark: SparkSession, pipeline: Pipeline, brokers: Brokers, *, rows: int, records: int
) -> Iterator[Preview]:
    """What each part would do. Raises SpecInvalid, and ClusterFailed if no broker answers."""
    make_importable(spark, pipeline)
    if reads_topics(pipeline):
        check_broker(brokers)
    reads = reads_of(pipeline)
    if pipeline.is_stream:
        # Spark checks a stream's own rules, such as those of watermarks; nothing is started.
        streaming = build_views(spark, pipeline, brokers, group=None)
        check_joins(pipeline, streaming.frames, pipeline.sinks)
        streams = dict(_sinks(pipeline, streaming))
        together = {name for names in reads.shared.values() for name in names}
        states = {name: state_in(rows) for name, rows in streams.items() if name in together}
        reads = reads.without({name: state for name, state in states.items() if state is not None})
    session = new_session(spark)
    sources = {
        source.name: _sample(session, source, brokers, records).cache()
        for source in pipeline.sources
    }
    try:
        views = build_steps(session, pipeline, sources, brokers, _WholeTables(pipeline))
        names = {source.name for source in pipeline.sources}
        for name in (*sources, *(step.name for step in pipeline.steps)):
            kind = "source" if name in names else "step"
            yield _shown(kind, name, views.frames[name], rows)
        for name, frame in _sinks(pipeline, views):
            yield replace(_shown("sink", name, frame, rows), read=reads.of(name))
    finally:
        for frame in sources.values():
            frame.unpersist()


class _WholeTables:
    """Tables to enrich from: a sample of them would not have the keys of the records."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._sources = {each.name: each for each in pipeline.sources}

    def of(self, step: EnrichStep, session: SparkSession, *, streaming: bool) -> DataFrame:
        del streaming
        return keyed(read_whole(session, self._sources[step.table]), step)


def _sinks(pipeline: Pipeline, views: Views) -> Iterator[tuple[str, DataFrame]]:
    for sink in pipeline.sinks:
        yield sink.name, prepare(sink, views.frames[sink.input])
    if views.bad_rows is not None:
        yield DEAD_LETTERS, views.bad_rows


def _sample(session: SparkSession, source: Source, brokers: Brokers, records: int) -> DataFrame:
    """The first records of a source."""
    with spec_errors(source.mark):
        if isinstance(source, FilesSource):
            return read_files(session, source, streaming=False).limit(records)
        if isinstance(source, JdbcSource):
            return read_database(session, source, streaming=False).limit(records)
        if isinstance(source, TableSource):
            return read_table(session, source).limit(records)
        options = source.batch_options
        return (
            session.read.format("zhumq")
            .options(**{**brokers.options(), **options})
            .load()
            .limit(records)
        )


def _shown(kind: str, name: str, frame: DataFrame, rows: int) -> Preview:
    columns = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    found: tuple[Mapping[str, Any], ...] = ()
    error: str | None = None
    try:
        found = tuple(rows_of(frame.limit(rows)))
    except (PySparkException, Py4JError) as failure:
        error = explain(failure)
    return Preview(
        kind=kind,
        name=name,
        columns=columns,
        rows=found,
        plan=_plan(frame) if kind == "sink" else None,
        error=error,
    )


def _plan(frame: DataFrame) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        frame.explain()
    return output.getvalue().strip()

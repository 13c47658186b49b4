"""Builds DataFrames from sources and steps, with errors that name the line of the file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, assert_never

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.types import TimestampType

from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.counters import Counters
from zhumq.pipelines.deduplication import deduplicate
from zhumq.pipelines.delta_layout import DeltaFailed
from zhumq.pipelines.delta_table import read_delta
from zhumq.pipelines.document import Mark
from zhumq.pipelines.enrichment import MISSING, enrich, keyed
from zhumq.pipelines.file_source import read_files
from zhumq.pipelines.functions import load_function
from zhumq.pipelines.jdbc_source import read_database
from zhumq.pipelines.message_schemas import MessageSchema, message_schema
from zhumq.pipelines.parsing import CHANGE, parse
from zhumq.pipelines.routing import MESSAGE, REASON, dead_letters, without_failing
from zhumq.pipelines.rules import BROKEN, STEP, expect, with_reason
from zhumq.pipelines.spec import (
    DEAD_LETTERS,
    QUARANTINE,
    CheckStep,
    DeduplicateStep,
    EnrichStep,
    ExpectStep,
    FilesSource,
    JdbcSource,
    Missing,
    OnChange,
    OnError,
    ParseStep,
    Pipeline,
    PythonStep,
    Sink,
    Source,
    SqlStep,
    Step,
    TableSource,
    TopicSink,
    TopicSource,
    Watermark,
)
from zhumq.pipelines.spec_errors import function_errors, need_column, spec_errors

# With Spark's default type of timestamps, other readers take them for local time.
SESSION_SETTINGS: Final = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Views:
    """The DataFrames of a pipeline, by name, and its bad rows as dead letters."""

    session: SparkSession
    frames: Mapping[str, DataFrame]
    bad_rows: DataFrame | None
    counters: Counters

    def close(self) -> None:
        """End the session, with its queries. To be called for one of Spark Connect, which has a connection; others
        share all that they have."""
        if type(self.session).__module__.startswith("pyspark.sql.connect."):
            self.session.stop()

    def rows_of(self, sink: Sink) -> DataFrame:
        if sink.name == DEAD_LETTERS:
            assert self.bad_rows is not None
            return self.bad_rows
        return self.frames[sink.input]


class Tables(Protocol):
    """Where enrich steps get their tables from, as `enrichment.keyed` makes them."""

    def of(self, step: EnrichStep, session: SparkSession, *, streaming: bool) -> DataFrame: ...


@dataclass(slots=True, kw_only=True)
class _Build:
    """What the steps so far have made."""

    session: SparkSession
    pipeline: Pipeline
    brokers: Brokers | None
    counters: Counters
    tables: Tables | None  # None: the views of the sources
    schemas: dict[str, MessageSchema]  # of the steps that have been built before
    frames: dict[str, DataFrame] = field(default_factory=dict)
    bad: list[DataFrame] = field(default_factory=list)
    quarantined: dict[str, list[DataFrame]] = field(default_factory=dict)


def build_views(
    spark: SparkSession,
    pipeline: Pipeline,
    brokers: Brokers,
    *,
    group: str | None,
    tables: Tables | None = None,
) -> Views:
    """Every view of the pipeline, in a new session, so that their names do not collide with others."""
    session = new_session(spark)
    sources: dict[str, DataFrame] = {}
    for source in pipeline.sources:
        match source:
            case TopicSource():
                frame = read_topics(session, source, pipeline, brokers, group)
            case TableSource():
                frame = read_table(session, source)
            case FilesSource():
                frame = read_files(session, source, streaming=pipeline.is_stream)
                frame = _with_watermark(frame, source.watermark if pipeline.is_stream else None)
            case JdbcSource():
                frame = read_database(session, source, streaming=pipeline.is_stream)
                frame = _with_watermark(frame, source.watermark if frame.isStreaming else None)
            case _:
                assert_never(source)
        sources[source.name] = frame
    return build_steps(session, pipeline, sources, brokers, tables)


def new_session(spark: SparkSession) -> SparkSession:
    """A session with its own views and settings."""
    session = spark.newSession()
    for name, value in SESSION_SETTINGS.items():
        session.conf.set(name, value)
    # In a thread without an active session, Spark finds no Python data source for a write.
    # This public call sets the active session.
    session.createDataFrame([], "none INT")
    return session


def build_steps(
    session: SparkSession,
    pipeline: Pipeline,
    sources: Mapping[str, DataFrame],
    brokers: Brokers | None,
    tables: Tables | None = None,
    schemas: dict[str, MessageSchema] | None = None,
) -> Views:
    """The views of the sources, which are given, and of the steps.

    With `schemas`, which keeps them, the registry is asked once for each step.
    """
    counters = Counters(streaming=any(frame.isStreaming for frame in sources.values()))
    build = _Build(
        session=session,
        pipeline=pipeline,
        brokers=brokers,
        counters=counters,
        tables=tables,
        schemas={} if schemas is None else schemas,
    )
    for name, frame in sources.items():
        build.frames[name] = frame
        frame.createOrReplaceTempView(name)
    for step in pipeline.steps:
        build.frames[step.name] = frame = _apply(build, step)
        frame.createOrReplaceTempView(step.name)
    for sink, parts in build.quarantined.items():
        build.frames[QUARANTINE + sink] = _union(parts)
    return Views(
        session=session,
        frames=build.frames,
        bad_rows=_union(build.bad) if build.bad else None,
        counters=counters,
    )


def expression(frame: DataFrame, text: str, mark: Mark, name: str) -> DataFrame:
    """The frame with one more column, the value of an expression of the file."""
    with spec_errors(mark, text):
        return frame.withColumn(name, F.expr(text))


def as_batch_view(session: SparkSession, frame: DataFrame, sql: str, mark: Mark) -> DataFrame:
    """The result of a query over one frame, whose view is named `batch`."""
    frame.createOrReplaceTempView("batch")
    with spec_errors(mark, sql):
        return session.sql(sql)


def read_whole(session: SparkSession, source: Source) -> DataFrame:
    """All rows of a source that `is_read_whole`."""
    if isinstance(source, JdbcSource):
        return read_database(session, source, streaming=False)
    assert isinstance(source, TableSource), "others are read bit by bit"
    return read_table(session, source)


def read_table(session: SparkSession, source: TableSource) -> DataFrame:
    with spec_errors(source.mark):
        if source.format == "delta":
            try:
                return read_delta(session, source.path)
            except DeltaFailed as error:
                raise source.mark.wrong(str(error)) from None
        reader = session.read.format(source.format).options(**source.options)
        return reader.load(source.path)


def read_topics(
    session: SparkSession,
    source: TopicSource,
    pipeline: Pipeline,
    brokers: Brokers,
    group: str | None,
) -> DataFrame:
    options = {**brokers.options(), **source.options}
    if group is not None:
        options.setdefault("groupId", group)
    with spec_errors(source.mark):
        if not pipeline.is_stream:
            return session.read.format("zhumq").options(**options).load()
        frame = session.readStream.format("zhumq").options(**options).load()
    return _with_watermark(frame, source.watermark)


def _apply(build: _Build, step: Step) -> DataFrame:
    frames = build.frames
    match step:
        case SqlStep():
            with spec_errors(step.mark, step.sql):
                frame = build.session.sql(step.sql)
            return _with_watermark(frame, step.watermark)
        case PythonStep():
            function = load_function(step.function, step.mark)
            with spec_errors(step.mark), function_errors(step.mark):
                frame = function(*(frames[name] for name in step.inputs), **step.arguments)
            if not isinstance(frame, DataFrame):
                raise step.mark.wrong(f"returned a {type(frame).__name__}, not a DataFrame")
            return _with_watermark(frame, step.watermark)
        case ParseStep():
            return _parse(build, step)
        case CheckStep():
            rows = with_reason(frames[step.input], step)
            rows = build.counters.count(rows, step.name, {"broken": F.col(REASON).isNotNull()})
            return _without_bad(build, rows, step.name)
        case ExpectStep():
            return _expect(build, step)
        case DeduplicateStep():
            return deduplicate(frames[step.input], step)
        case EnrichStep():
            return _enrich(build, step)
        case _:
            assert_never(step)


def _parse(build: _Build, step: ParseStep) -> DataFrame:
    rows = parse(build.frames[step.input], step, _schema_of(build, step))
    broken = {"broken": F.col(REASON).isNotNull()}
    if CHANGE not in rows.columns:
        rows = build.counters.count(rows, step.name, broken)
        change = F.lit(None).cast("string")
    else:
        change = F.col(CHANGE)
        counted = {**broken, "changed": change.isNotNull()}
        rows = build.counters.count(rows, step.name, counted, note=change)
    nothing = F.lit(None).cast("string")
    failing = F.coalesce(
        F.col(REASON) if step.on_error is OnError.FAIL else nothing,
        change if step.on_change is OnChange.FAIL else nothing,
    )
    if OnError.FAIL is step.on_error or OnChange.FAIL is step.on_change:
        rows = without_failing(rows, step.name, failing)
    if step.on_change is OnChange.DEAD_LETTERS:
        if step.on_error is OnError.DROP:
            # What is broken and not changed is left out here; what is changed becomes a dead letter.
            rows = rows.where(F.col(REASON).isNull() | change.isNotNull())
        rows = rows.withColumn(REASON, F.coalesce(REASON, change))
    rows = rows.drop(CHANGE)
    if step.on_error is OnError.DEAD_LETTERS or step.on_change is OnChange.DEAD_LETTERS:
        return _without_bad(build, rows, step.name)
    return rows.where(F.col(REASON).isNull()).drop(REASON)


def _schema_of(build: _Build, step: ParseStep) -> MessageSchema:
    if step.source is None:
        return MessageSchema()
    if step.name not in build.schemas:
        build.schemas[step.name] = message_schema(step.source, build.brokers)
    return build.schemas[step.name]


def _expect(build: _Build, step: ExpectStep) -> DataFrame:
    found = expect(build.frames[step.input], step, build.counters)
    sinks = {sink.name: sink for sink in build.pipeline.sinks}
    for name, rows in found.quarantined.items():
        sink = sinks[name]
        if isinstance(sink, TopicSink) and sink.value is None:
            # The message as it came, with the rules in its headers, as every dead letter.
            reason = F.concat(F.lit("breaks the rule "), F.array_join(BROKEN, ", "))
            named = rows.withColumn(REASON, reason).drop(BROKEN, STEP)
            rows = dead_letters(named, build.pipeline.name, step.name)
        build.quarantined.setdefault(name, []).append(rows.drop(MESSAGE))
    return found.rows


def _enrich(build: _Build, step: EnrichStep) -> DataFrame:
    rows = build.frames[step.input]
    if build.tables is None:
        table = keyed(build.frames[step.table], step)
    else:
        table = build.tables.of(step, build.session, streaming=rows.isStreaming)
    rows = enrich(rows, table, step)
    rows = build.counters.count(rows, step.name, {MISSING: F.col(REASON).isNotNull()})
    match step.missing:
        case Missing.KEEP:
            return rows.drop(REASON)
        case Missing.DROP:
            return rows.where(F.col(REASON).isNull()).drop(REASON)
        case Missing.DEAD_LETTERS:
            return _without_bad(build, rows, step.name)
        case _:
            assert_never(step.missing)


def _without_bad(build: _Build, rows: DataFrame, step: str) -> DataFrame:
    """The rows without a reason; the others become dead letters."""
    bad = rows.where(F.col(REASON).isNotNull())
    build.bad.append(dead_letters(bad, build.pipeline.name, step))
    return rows.where(F.col(REASON).isNull()).drop(REASON)


def _union(parts: list[DataFrame]) -> DataFrame:
    """All rows, whose steps may have different columns."""
    union = parts[0]
    for each in parts[1:]:
        union = union.unionByName(each, allowMissingColumns=True)
    return union


def _with_watermark(frame: DataFrame, watermark: Watermark | None) -> DataFrame:
    if watermark is None:
        return frame
    need_column(frame, watermark.column, watermark.mark)
    if not isinstance(frame.schema[watermark.column].dataType, TimestampType):
        raise watermark.mark.wrong(f"the column {watermark.column!r} is not a timestamp")
    with spec_errors(watermark.mark):
        return frame.withWatermark(watermark.column, watermark.delay)

"""Builds DataFrames from sources and steps, with errors that name the line of the file."""

import importlib
import logging
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, assert_never

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.types import BinaryType, StringType, StructType, TimestampType

from zhumq.model.errors import ZhumqError
from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.document import Mark
from zhumq.pipelines.spec import (
    CheckStep,
    JsonStep,
    Pipeline,
    PythonStep,
    SqlStep,
    Step,
    TableSource,
    TopicSource,
    Watermark,
)

REASON: Final = "_reason"
CORRUPT: Final = "_corrupt"
PARSED: Final = "_json"
# The message of a row whose columns were replaced by JSON fields of the same names.
MESSAGE: Final = "_message"
MESSAGE_COLUMNS: Final = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")
MALFORMED_JSON: Final = "not JSON of the given schema"
# The headers of every dead letter have this prefix, so `zhumq dlq` shows those of pipelines too.
HEADER_PREFIX: Final = "zhumq."
# With Spark's default type of timestamps, other readers take them for local time.
SESSION_SETTINGS: Final = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"

logger = logging.getLogger(__name__)

_LINE: Final = re.compile(r"\(line (\d+), pos \d+\)")
_CONDITION: Final = re.compile(r"^\[[\w.]+\]\s*")
_SQLSTATE: Final = re.compile(r"\s*SQLSTATE: \w+.*", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Views:
    """The DataFrames of a pipeline, by name, and its bad rows as dead letters."""

    session: SparkSession
    frames: Mapping[str, DataFrame]
    bad_rows: DataFrame | None


def build_views(
    spark: SparkSession, pipeline: Pipeline, brokers: Brokers, *, group: str | None
) -> Views:
    """Every view of the pipeline, in a new session, so that their names do not collide with others."""
    session = spark.newSession()
    for name, value in SESSION_SETTINGS.items():
        session.conf.set(name, value)
    # In a thread without an active session, Spark finds no Python data source for a write.
    # This public call sets the active session.
    session.createDataFrame([], "none INT")
    frames: dict[str, DataFrame] = {}
    bad: list[DataFrame] = []
    for source in pipeline.sources:
        match source:
            case TopicSource():
                frame = _read_topics(session, source, pipeline, brokers, group)
            case TableSource():
                with spec_errors(source.mark):
                    reader = session.read.format(source.format).options(**source.options)
                    frame = reader.load(source.path)
            case _:
                assert_never(source)
        frames[source.name] = frame
        frame.createOrReplaceTempView(source.name)
    for step in pipeline.steps:
        frame = _apply(session, step, frames, bad, pipeline.name)
        frames[step.name] = frame
        frame.createOrReplaceTempView(step.name)
    union: DataFrame | None = None
    for each in bad:
        union = each if union is None else union.unionByName(each)
    return Views(session=session, frames=frames, bad_rows=union)


def expression(frame: DataFrame, text: str, mark: Mark, name: str) -> DataFrame:
    """The frame with one more column, the value of an expression of the file."""
    with spec_errors(mark, text):
        return frame.withColumn(name, F.expr(text))


def need_column(frame: DataFrame, column: str, mark: Mark) -> None:
    """Fail with the line of the file if there is no such column."""
    if column not in frame.columns:
        raise mark.wrong(f"there is no column {column!r}; there are {', '.join(frame.columns)}")


@contextmanager
def spec_errors(mark: Mark, text: str | None = None) -> Iterator[None]:
    """Raise an error of Spark's for a part of the file as one line that names its place."""
    try:
        yield
    except AnalysisException as error:
        raise mark.wrong(_words(error), text_line=_line_in(error, text)) from None
    except PySparkException as error:
        raise mark.wrong(_words(error)) from None


@contextmanager
def function_errors(mark: Mark) -> Iterator[None]:
    """Raise an exception of a user's function as an error of the line that names the function."""
    try:
        yield
    except (PySparkException, ZhumqError):
        raise
    except Exception as error:
        logger.exception("%s failed", mark.field)
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f" ({Path(where.filename).name}:{where.lineno})"
        raise mark.wrong(f"{type(error).__name__}: {error}{place}") from error


def as_batch_view(session: SparkSession, frame: DataFrame, sql: str, mark: Mark) -> DataFrame:
    """The result of a query over one frame, whose view is named `batch`."""
    frame.createOrReplaceTempView("batch")
    with spec_errors(mark, sql):
        return session.sql(sql)


def _read_topics(
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


def _apply(
    session: SparkSession,
    step: Step,
    frames: Mapping[str, DataFrame],
    bad: list[DataFrame],
    pipeline: str,
) -> DataFrame:
    match step:
        case SqlStep():
            with spec_errors(step.mark, step.sql):
                frame = session.sql(step.sql)
            return _with_watermark(frame, step.watermark)
        case PythonStep():
            function = load_function(step.function, step.mark)
            with spec_errors(step.mark), function_errors(step.mark):
                frame = function(*(frames[name] for name in step.inputs), **step.arguments)
            if not isinstance(frame, DataFrame):
                raise step.mark.wrong(f"returned a {type(frame).__name__}, not a DataFrame")
            return _with_watermark(frame, step.watermark)
        case JsonStep():
            rows = _with_json(frames[step.input], step)
        case CheckStep():
            rows = _with_reason(frames[step.input], step)
        case _:
            assert_never(step)
    bad.append(_dead_letters(rows.where(F.col(REASON).isNotNull()), pipeline, step.name))
    return rows.where(F.col(REASON).isNull()).drop(REASON)


def load_function(name: str, mark: Mark) -> Callable[..., Any]:
    """The function `module:name`."""
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise mark.wrong(f"cannot import {module_name!r}: {error}") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise mark.wrong(f"the module {module_name!r} has no function {function_name!r}")
    checked: Callable[..., Any] = function
    return checked


def _with_watermark(frame: DataFrame, watermark: Watermark | None) -> DataFrame:
    if watermark is None:
        return frame
    need_column(frame, watermark.column, watermark.mark)
    if not isinstance(frame.schema[watermark.column].dataType, TimestampType):
        raise watermark.mark.wrong(f"the column {watermark.column!r} is not a timestamp")
    with spec_errors(watermark.mark):
        return frame.withWatermark(watermark.column, watermark.delay)


def _with_json(frame: DataFrame, step: JsonStep) -> DataFrame:
    need_column(frame, step.column, step.column_mark)
    kind = frame.schema[step.column].dataType
    if not isinstance(kind, BinaryType | StringType):
        raise step.column_mark.wrong(f"the column {step.column!r} is {kind.simpleString()}")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    with spec_errors(step.schema_mark, step.schema):
        text = F.col(step.column).cast("string")
        parsed = F.from_json(text, f"{step.schema}, {CORRUPT} STRING", options)
        rows = frame.withColumn(PARSED, parsed)
        fields = [name for name in rows.select(f"{PARSED}.*").columns if name != CORRUPT]
    # Spark's column names are case-insensitive.
    taken = {name.lower() for name in fields}
    for name in (MESSAGE, PARSED, REASON):
        if name in taken:
            raise step.schema_mark.wrong(f"a field cannot be named {name!r}: pipelines use it")
    others = [name for name in frame.columns if name.lower() not in taken]
    reason = F.when(
        F.col(PARSED).isNull() | F.col(f"{PARSED}.{CORRUPT}").isNotNull(), F.lit(MALFORMED_JSON)
    )
    chosen = [F.col(f"{PARSED}.`{name}`") for name in fields]
    chosen += [F.col(f"`{name}`") for name in others]
    # The dead letter needs the message itself beside its fields.
    covered = [name for name in MESSAGE_COLUMNS if name in frame.columns]
    if MESSAGE not in others and not set(covered) <= set(others):
        chosen.append(F.struct(*covered).alias(MESSAGE))
    return rows.select(*chosen, reason.alias(REASON))


def _with_reason(frame: DataFrame, step: CheckStep) -> DataFrame:
    reason = F.lit(None).cast("string")
    for rule in reversed(step.rules):
        with spec_errors(rule.mark, rule.expression):
            kept = F.coalesce(F.expr(rule.expression), F.lit(False))
            frame.select(kept)
            reason = F.when(~kept, F.lit(rule.reason)).otherwise(reason)
    return frame.withColumn(REASON, reason)


def _dead_letters(bad: DataFrame, pipeline: str, step: str) -> DataFrame:
    """Bad rows as messages: their own key and value, with the reason and the origin in headers."""
    row = [field.name for field in bad.schema.fields if field.name not in (REASON, MESSAGE)]
    prefix, fields = "", bad.schema.fields
    if MESSAGE in bad.columns:
        kind = bad.schema[MESSAGE].dataType
        assert isinstance(kind, StructType)
        prefix, fields = f"{MESSAGE}.", kind.fields
    types = {field.name: field.dataType for field in fields}
    facts: dict[str, Any] = {
        "group": F.lit(pipeline),
        "reason": F.col(REASON),
        "deliveries": F.lit("1"),
        "step": F.lit(step),
        "time": F.unix_millis(F.current_timestamp()).cast("string"),
    }
    facts |= {
        name: F.col(prefix + name).cast("string")
        for name in ("topic", "partition", "offset")
        if name in types
    }
    if isinstance(types.get("timestamp"), TimestampType):
        facts["timestamp"] = F.unix_millis(prefix + "timestamp").cast("string")
    headers = F.array(
        *(
            F.struct(F.lit(HEADER_PREFIX + name).alias("key"), value.cast("binary").alias("value"))
            for name, value in facts.items()
        )
    ).cast(HEADERS_TYPE)
    if "headers" in types and types["headers"].simpleString() == HEADERS_TYPE:
        own = F.coalesce(F.col(prefix + "headers"), F.array().cast(HEADERS_TYPE))
        headers = F.concat(own, headers)
    messages = (BinaryType, StringType)
    value = (
        F.col(prefix + "value").cast("binary")
        if isinstance(types.get("value"), messages)
        else F.to_json(F.struct(*(F.col(f"`{name}`") for name in row))).cast("binary")
    )
    key = F.col(prefix + "key") if isinstance(types.get("key"), messages) else F.lit(None)
    return bad.select(
        key.cast("binary").alias("key"), value.alias("value"), headers.alias("headers")
    )


def _line_in(error: AnalysisException, text: str | None) -> int | None:
    """The line within the text that an error refers to, counted from 1."""
    if text is None:
        return None
    match = _LINE.search(str(error))
    if match is not None:
        return int(match[1])
    for context in error.getQueryContext() or ():
        try:
            start = context.startIndex()
        except Exception:  # noqa: S112 - contexts without a place raise various exceptions
            continue
        if 0 <= start <= len(text):
            return text.count("\n", 0, start) + 1
    return None


def _words(error: PySparkException) -> str:
    """Spark's message without its error class, its SQLSTATE and its query context."""
    parameters = error.getMessageParameters() or {}
    condition = error.getCondition() or ""
    if condition.startswith("UNRESOLVED_COLUMN"):
        near = parameters.get("proposal")
        more = f"; there are {near}" if near else ""
        return f"there is no column {parameters.get('objectName')}{more}"
    if condition.startswith("TABLE_OR_VIEW_NOT_FOUND"):
        return f"there is no source or step {parameters.get('relationName')}"
    lines = _SQLSTATE.sub("", str(error)).strip().splitlines() or [type(error).__name__]
    return _CONDITION.sub("", lines[0]).strip()

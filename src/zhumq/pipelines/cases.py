"""Reads the tests of a pipeline: rows for its sources, and the rows that its steps and sinks must make of them."""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from zhumq.pipelines.ddl import SchemaWrong, parse_ddl
from zhumq.pipelines.document import Field, Mark, SpecInvalid, read_document
from zhumq.pipelines.row_differences import as_moment
from zhumq.pipelines.spec import DEAD_LETTERS, FilesSource, Pipeline, TopicSource
from zhumq.spark.columns import HEADERS, SQL_TYPES
from zhumq.spark.options import read_options

TESTS: Final = "tests"
SINKS: Final = "sinks."  # before the name of a sink, since a step may have the same name
ROWS_MAX: Final = 10_000  # of one source
FIRST_TIMESTAMP: Final = datetime(2026, 1, 1, tzinfo=UTC)
_BASE64: Final = ("key_base64", "value_base64")


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenRows:
    """The rows of one source."""

    schema: str | None  # in Spark's DDL; None for Spark to find out
    rows: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRows:
    """The rows that a view must have, in any order; columns that none of them names do not matter."""

    name: str
    mark: Mark
    rows: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A test of a pipeline."""

    name: str
    mark: Mark
    given: Mapping[str, GivenRows]
    expected: tuple[ExpectedRows, ...]
    counts: Mapping[str, int]  # of rules, as `step.rule`
    fails: str | None  # words of the error with which the run must fail


def read_cases(pipeline: Pipeline, whole: Field, other: Path | None) -> tuple[Case, ...]:
    """The tests of a pipeline, as `find_cases`. Raises SpecInvalid, also if there are none."""
    found = find_cases(pipeline, whole, other)
    if not found:
        raise SpecInvalid(
            f"{pipeline.file}: has no tests: add the field `{TESTS}`, or the file {_beside(pipeline)}"
        )
    return found


def find_cases(pipeline: Pipeline, whole: Field, other: Path | None) -> tuple[Case, ...]:
    """The tests in the pipeline's file, and in another file. Raises SpecInvalid.

    `whole` is the document of the pipeline with its parameters. Without another file, one with the name
    `NAME.tests.yml` beside the pipeline's is read if it exists.
    """
    found: list[Case] = []
    own = whole.fields().get(TESTS)
    if own is not None:
        found += _cases(own, pipeline)
    beside = _beside(pipeline)
    path = other or (beside if beside.exists() else None)
    if path is not None:
        try:
            top = read_document(path)
        except OSError as error:
            raise SpecInvalid(f"{path}: cannot be read: {error.strerror}") from None
        fields = top.with_parameters(whole.parameters).fields()
        fields.only(TESTS)
        found += _cases(fields.need(TESTS), pipeline)
    for index, case in enumerate(found):
        if any(case.name == each.name for each in found[:index]):
            raise case.mark.wrong(f"there are two tests named {case.name!r}")
    return tuple(found)


def _beside(pipeline: Pipeline) -> Path:
    return Path(pipeline.file).with_suffix(".tests.yml")


def _cases(field: Field, pipeline: Pipeline) -> list[Case]:
    return [_case(item, pipeline) for item in field.items()]


def _case(field: Field, pipeline: Pipeline) -> Case:
    fields = field.fields()
    fields.only("name", "given", "expect", "counts", "fails")
    sources = {source.name: source for source in pipeline.sources}
    given: dict[str, GivenRows] = {}
    for name, rows in fields.need("given").fields():
        if name not in sources:
            rows.fail(f"there is no source {name!r}; there are: {', '.join(sources)}")
        source = sources[name]
        given[name] = _messages(rows, source) if isinstance(source, TopicSource) else _table(rows)
    for name, source in sources.items():
        if name not in given and not isinstance(source, TopicSource):
            what = "files" if isinstance(source, FilesSource) else "table"
            fields.need("given").fail(f"has no rows for the {what} {name!r}")
        if name not in given and isinstance(source, TopicSource):
            given[name] = GivenRows(schema=_schema_of(source), rows=())
    expect, counts, fails = (fields.get(name) for name in ("expect", "counts", "fails"))
    if expect is None and counts is None and fails is None:
        field.fail("expects nothing: give one of expect, counts, fails")
    if fails is not None and (expect is not None or counts is not None):
        fails.fail("excludes expect and counts: a run that fails has no rows")
    return Case(
        name=fields.need("name").text(),
        mark=field.mark,
        given=given,
        expected=tuple(_expected(name, each, pipeline) for name, each in expect.fields())
        if expect is not None
        else (),
        counts={name: each.number(minimum=0) for name, each in counts.fields()} if counts else {},
        fails=fails.text() if fails else None,
    )


def _rows(field: Field) -> list[tuple[Field, dict[str, Any]]]:
    if field.is_empty:
        return []
    items = field.items()
    if len(items) > ROWS_MAX:
        field.fail(f"has more than {ROWS_MAX:,} rows")
    found = []
    for item in items:
        value = item.value()
        if not isinstance(value, dict):
            item.fail("a row has names and values, as in {id: 1, amount: 5}")
        found.append((item, value))
    return found


def _expected(name: str, field: Field, pipeline: Pipeline) -> ExpectedRows:
    views = [each.name for each in (*pipeline.sources, *pipeline.steps)]
    known = [*views, *(SINKS + sink.name for sink in pipeline.sinks)]
    known += [DEAD_LETTERS] if pipeline.dead_letters is not None else []
    if name not in known:
        field.fail(f"there is no source, step or sink {name!r}; there are: {', '.join(known)}")
    rows = tuple(row for _, row in _rows(field))
    return ExpectedRows(name=name, mark=field.mark, rows=rows)


def _table(field: Field) -> GivenRows:
    """Rows, or a schema and rows."""
    value = field.value()
    schema: str | None = None
    rows = field
    if isinstance(value, dict):
        fields = field.fields()
        fields.only("schema", "rows")
        text, rows = fields.need("schema"), fields.need("rows")
        schema = text.text()
        try:
            parse_ddl(schema)
        except SchemaWrong as error:
            raise text.mark.wrong(str(error), text_line=error.line) from None
    found = tuple(row for _, row in _rows(rows))
    if schema is None and not found:
        field.fail("has no row, so it needs a schema: {schema: id BIGINT, rows: []}")
    return GivenRows(schema=schema, rows=found)


def _schema_of(source: TopicSource) -> str:
    columns = _columns_of(source)
    return ", ".join(f"{name} {SQL_TYPES[name]}" for name in columns)


def _columns_of(source: TopicSource) -> tuple[str, ...]:
    return read_options(source.batch_options, streaming=False).columns


def _messages(field: Field, source: TopicSource) -> GivenRows:
    columns = _columns_of(source)
    topic = source.options.get("subscribe", "topic").partition(",")[0]
    found = [
        _message(item, row, index, columns, topic) for index, (item, row) in enumerate(_rows(field))
    ]
    return GivenRows(schema=_schema_of(source), rows=tuple(found))


def _message(
    field: Field, row: Mapping[str, Any], index: int, columns: tuple[str, ...], topic: str
) -> dict[str, Any]:
    """A record of a topic: what is not given has a value that differs from record to record."""
    defaults = {
        "key": None, "value": None, "topic": topic, "partition": 0, "offset": index,
        "timestamp": FIRST_TIMESTAMP + timedelta(seconds=index), "timestampType": 0, HEADERS: None,
    }  # fmt: skip
    for name in row:
        if name not in (*columns, *_BASE64):
            field.fail(f"the source has no column {name!r}; it has {', '.join(columns)}")
    made = {**defaults, **{name: value for name, value in row.items() if name in SQL_TYPES}}
    for name in ("key", "value"):
        made[name] = _bytes(made[name])
        if f"{name}_base64" in row:
            try:
                made[name] = base64.b64decode(str(row[f"{name}_base64"]), validate=True)
            except (ValueError, binascii.Error):
                field.fail(f"{name}_base64 is not base64")
    for name in ("partition", "offset", "timestampType"):
        if not isinstance(made[name], int) or isinstance(made[name], bool):
            field.fail(f"{name} is a number, not {made[name]!r}")
    if isinstance(made["timestamp"], str):
        moment = as_moment(made["timestamp"])
        if moment is None:
            field.fail(
                f"timestamp is a time such as 2026-01-01T12:00:00Z, not {made['timestamp']!r}"
            )
        made["timestamp"] = moment
    elif not isinstance(made["timestamp"], datetime):
        field.fail(f"timestamp is a time such as 2026-01-01T12:00:00Z, not {made['timestamp']!r}")
    if made[HEADERS] is not None:
        if not isinstance(made[HEADERS], dict):
            field.fail("headers have names and values, as in {origin: shop}")
        made[HEADERS] = [(name, _bytes(value)) for name, value in made[HEADERS].items()]
    return {name: made[name] for name in columns}


def _bytes(value: Any) -> bytes | None:
    """A text as it is, everything else as JSON."""
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value)).encode()

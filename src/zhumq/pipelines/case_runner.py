"""Runs the tests of a pipeline on Spark, without a broker: given rows through its steps, compared with expected ones."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from zhumq.pipelines.cases import ROWS_MAX, SINKS, Case, ExpectedRows, GivenRows
from zhumq.pipelines.causes import explain
from zhumq.pipelines.functions import make_importable
from zhumq.pipelines.routing import HEADER_PREFIX
from zhumq.pipelines.row_differences import differences
from zhumq.pipelines.sinks import prepare
from zhumq.pipelines.spec import DEAD_LETTERS, Pipeline
from zhumq.pipelines.spec_errors import spec_errors
from zhumq.pipelines.views import Views, build_steps, new_session


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """A test that has run; without problems it has passed."""

    name: str
    place: str  # FILE:LINE
    problems: tuple[str, ...]


def run_cases(
    spark: SparkSession, pipeline: Pipeline, cases: tuple[Case, ...]
) -> Iterator[CaseResult]:
    """Run the tests one after the other, each in a session of its own. Raises SpecInvalid."""
    make_importable(spark, pipeline)
    for case in cases:
        views = _views(spark, pipeline, case)
        try:
            problems = _problems(pipeline, case, views)
        except (PySparkException, Py4JError) as error:
            words = explain(error)
            if case.fails is None:
                problems = [f"the run fails: {words}"]
            elif case.fails not in words:
                problems = [f"the run fails with {words!r}, expected {case.fails!r}"]
            else:
                problems = []
        else:
            if case.fails is not None:
                problems = [f"the run does not fail; expected {case.fails!r}"]
        place = f"{case.mark.file}:{case.mark.line}"
        yield CaseResult(name=case.name, place=place, problems=tuple(problems))


def _views(spark: SparkSession, pipeline: Pipeline, case: Case) -> Views:
    session = new_session(spark)
    sources: dict[str, DataFrame] = {}
    for name, given in case.given.items():
        with spec_errors(case.mark):
            sources[name] = _frame(session, given)
    return build_steps(session, pipeline, sources, None)


def _frame(session: SparkSession, given: GivenRows) -> DataFrame:
    rows: Any = [dict(row) for row in given.rows]
    if given.schema is None:
        return session.createDataFrame(rows)
    # By name: a row may leave columns out.
    schema = session.createDataFrame([], given.schema).schema
    ordered = [tuple(row.get(name) for name in schema.names) for row in rows]
    return session.createDataFrame(ordered, schema)


def _problems(pipeline: Pipeline, case: Case, views: Views) -> list[str]:
    problems: list[str] = []
    counts: dict[str, int] = {}
    for each in case.expected:
        frame = _expected_frame(pipeline, each, views)
        found = rows_of(frame.limit(ROWS_MAX))
        lines = differences(each.rows, found, frame.columns)
        if lines:
            problems.append(
                f"{each.name}: {_rows(len(found))}, expected {_rows(len(each.rows))}"
                f" ({each.mark.file}:{each.mark.line})"
            )
            problems += [f"  {line}" for line in lines]
    if case.counts or case.fails is not None:
        # Every sink, so that all rules see all rows.
        frames = [views.frames[sink.input] for sink in pipeline.sinks]
        for frame in [*frames, *([views.bad_rows] if views.bad_rows is not None else [])]:
            frame.collect()
            counts |= views.counters.take(frame)
    for name, count in case.counts.items():
        if name not in counts:
            known = ", ".join(sorted(counts)) or "none"
            problems.append(f"counts: there is no rule {name!r} that counts; there are: {known}")
        elif counts[name] != count:
            problems.append(f"counts: {name} is {counts[name]}, expected {count}")
    return problems


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows with times that know their zone, which those of `collect` do not."""
    rows: list[dict[str, Any]] = frame.toArrow().to_pylist(maps_as_pydicts="lossy")
    return rows


def _expected_frame(pipeline: Pipeline, expected: ExpectedRows, views: Views) -> DataFrame:
    if expected.name == DEAD_LETTERS:
        return _dead_letters(views)
    if expected.name.startswith(SINKS):
        name = expected.name.removeprefix(SINKS)
        sink = next(each for each in pipeline.sinks if each.name == name)
        return prepare(sink, views.frames[sink.input])
    return views.frames[expected.name]


def _dead_letters(views: Views) -> DataFrame:
    """Bad rows with the headers that matter in a test as columns."""
    if views.bad_rows is None:
        return views.session.createDataFrame([], "key STRING, value STRING, reason STRING")
    headers = F.map_from_entries("own")
    own = F.filter("headers", lambda header: header["key"].startswith(HEADER_PREFIX))
    return views.bad_rows.withColumn("own", own).select(
        "key",
        "value",
        *(
            headers[f"{HEADER_PREFIX}{name}"].cast("string").alias(name)
            for name in ("reason", "step", "offset")
        ),
    )


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"

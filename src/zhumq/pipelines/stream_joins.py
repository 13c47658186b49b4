"""Finds joins of streams whose state would grow for ever, as far as the file shows it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from zhumq.pipelines.ddl import parse_ddl
from zhumq.pipelines.document import SpecInvalid
from zhumq.pipelines.sharing import inputs_of
from zhumq.pipelines.spec import (
    DeduplicateStep,
    ParseStep,
    Pipeline,
    PythonStep,
    SqlStep,
    Step,
    TableSource,
    is_read_whole,
)
from zhumq.pipelines.sql_text import joined_tables

EXAMPLE: Final = "{column: timestamp, delay: 10 minutes}"
BOUND: Final = "{right}.timestamp BETWEEN {left}.timestamp AND {left}.timestamp + INTERVAL 1 HOUR"


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """What the file says of the rows of a source or a step."""

    is_stream: bool | None  # None: it is not known
    may_have_watermark: bool
    watermarks: frozenset[str] | None  # its columns; None: they may have any name
    sources: frozenset[str]  # the streams that its rows come from


def check_stream_joins(pipeline: Pipeline) -> None:
    """Fail for a join of streams that surely lacks what bounds its state. Raises SpecInvalid.

    What the file alone does not show is found in Spark's plan, before a sink starts: `join_plan`.
    """
    if not pipeline.is_stream:
        return
    views: dict[str, _View] = {}
    for source in pipeline.sources:
        is_stream = not is_read_whole(source)
        watermark = None if isinstance(source, TableSource) else source.watermark
        views[source.name] = _View(
            is_stream=is_stream,
            may_have_watermark=watermark is not None,
            watermarks=frozenset([watermark.column]) if watermark else frozenset(),
            sources=frozenset([source.name] if is_stream else []),
        )
    for step in pipeline.steps:
        inputs = [views[name] for name in inputs_of(step, list(views))]
        if isinstance(step, SqlStep):
            error = _mistake(step, views, pipeline)
            if error is not None:
                raise error
        views[step.name] = _after(step, inputs)


def no_watermark(name: str, sources: str) -> str:
    """The error for a side of a join without a watermark."""
    return (
        f"joins the stream {name}, which has no watermark, so Spark would keep its rows for ever:"
        f" give {sources} watermark: {EXAMPLE}, with the column of its time, and pass that column on"
    )


def no_bound(left: str, right: str, growing: str) -> str:
    """The error for a join whose condition does not say how far apart rows may be."""
    example = BOUND.format(left=left, right=right)
    return (
        f"joins the streams {left} and {right} without a bound of their times, so Spark would keep the rows"
        f" of {growing} for ever: compare the columns of both watermarks, as in ON ... AND {example}"
    )


def _after(step: Step, inputs: list[_View]) -> _View:
    sources = frozenset[str]().union(*(each.sources for each in inputs))
    may_have = any(each.may_have_watermark for each in inputs)
    match step:
        case PythonStep():
            return _View(is_stream=None, may_have_watermark=True, watermarks=None, sources=sources)
        case SqlStep():
            is_stream = _any_stream(inputs)
            may_have |= step.watermark is not None or is_stream is None
            return _View(
                is_stream=is_stream,
                # A query may set one itself.
                may_have_watermark=may_have or "watermark" in step.sql.lower(),
                watermarks=None,
                sources=sources,
            )
        case DeduplicateStep():
            before = inputs[0].watermarks
            return _View(
                is_stream=inputs[0].is_stream,
                may_have_watermark=True,
                watermarks=None if before is None else before | {step.time},
                sources=sources,
            )
        case _:
            before = inputs[0].watermarks
            return _View(
                is_stream=inputs[0].is_stream,
                may_have_watermark=inputs[0].may_have_watermark,
                watermarks=_after_parse(step, before) if isinstance(step, ParseStep) else before,
                sources=sources,
            )


def _after_parse(step: ParseStep, before: frozenset[str] | None) -> frozenset[str] | None:
    if before is None or not step.schema:
        return None
    # A field takes the place of a column of its name, and has no watermark.
    fields = {each.name.lower() for each in parse_ddl(step.schema)}
    return None if any(each.lower() in fields for each in before) else before


def _any_stream(inputs: list[_View]) -> bool | None:
    if any(each.is_stream for each in inputs):
        return True
    return None if any(each.is_stream is None for each in inputs) else False


def _mistake(step: SqlStep, views: Mapping[str, _View], pipeline: Pipeline) -> SpecInvalid | None:
    join = joined_tables(step.sql)
    if join is None:
        return None
    sides = [
        (name, line, views[name])
        for name, line in zip(join.tables, join.lines, strict=True)
        if name in views and views[name].is_stream
    ]
    if len(sides) < 2:
        return None
    for name, line, view in sides:
        if not view.may_have_watermark:
            words = no_watermark(name, named_sources(sorted(view.sources)))
            return step.mark.wrong(words, text_line=line)
    times = [view.watermarks for _, _, view in sides]
    known = frozenset[str]().union(*(each for each in times if each is not None))
    is_open = not join.has_bounds and not known.intersection(join.compared)
    if None in times or not is_open or _is_read_by_code(step, pipeline):
        return None
    (left, _, _), (right, line, _) = sides[0], sides[1]
    return step.mark.wrong(no_bound(left, right, "both"), text_line=line)


def named_sources(names: list[str]) -> str:
    """The sources that a watermark is missing in, for people."""
    if len(names) == 1:
        return f"the source {names[0]}"
    return f"the sources {' and '.join(names)}"


def _is_read_by_code(step: SqlStep, pipeline: Pipeline) -> bool:
    """Whether a step below may hold the condition: Spark takes filters into the join."""
    views = [each.name for each in pipeline.sources]
    below = {step.name}
    for each in pipeline.steps:
        if below.intersection(inputs_of(each, views)):
            if isinstance(each, SqlStep | PythonStep):
                return True
            below.add(each.name)
        views.append(each.name)
    return False

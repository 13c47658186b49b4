"""Finds in Spark's plan of a stream the joins of streams whose state would grow for ever."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame

from zhumq.pipelines.sharing import steps_for
from zhumq.pipelines.spec import Pipeline, Sink
from zhumq.pipelines.state_in_plan import JOIN
from zhumq.pipelines.stream_joins import no_bound, no_watermark

_WATERMARK: Final = "EventTimeWatermark"
# Any moment: what counts is whether Spark finds a bound. Py4J makes a Long only of a number this large.
_MOMENT_MS: Final = 1_000_000_000_000
_UNNAMED: Final = "one side"


def check_joins(pipeline: Pipeline, frames: Mapping[str, DataFrame], sinks: Iterable[Sink]) -> None:
    """Fail for a join of streams that a sink needs and whose state would grow. Raises SpecInvalid.

    The plan of the whole is looked at, since a filter behind a join may bound it.
    """
    for sink in sinks:
        rows = frames[sink.input]
        if not rows.isStreaming or growing_join(rows) is None:
            continue
        # The join is in the first step that fails on its own.
        for step in steps_for(pipeline, {sink.name}):
            words = growing_join(frames[step.name])
            if words is not None:
                raise step.mark.wrong(words)


def growing_join(rows: DataFrame) -> str | None:
    """What the first such join lacks; None if there is none."""
    execution: Any = rows._jdf.queryExecution()
    analyzed = execution.analyzed()
    if next(_joins(analyzed), None) is None:
        return None
    session: Any = rows.sparkSession._jsparkSession
    try:
        # Spark takes conditions of filters into joins, as it does when the query runs.
        plan = session.sessionState().optimizer().execute(analyzed)
    except Py4JError:
        return None  # The query will say what is wrong.
    jvm: Any = rows.sparkSession._jvm
    helper = getattr(jvm.org.apache.spark.sql.catalyst.analysis, "StreamingJoinHelper$")
    for join in _joins(plan):
        words = _words_of(join, analyzed, jvm, getattr(helper, "MODULE$"))
        if words is not None:
            return words
    return None


def _words_of(join: Any, analyzed: Any, jvm: Any, helper: Any) -> str | None:
    """What a join of streams lacks.

    Spark drops rows of a side from its state by a key with a watermark; else by a bound of their time that the
    watermark of the other side moves.
    """
    if helper.isWatermarkInJoinKeys(join):
        return None
    left, right = join.left(), join.right()
    names = _named(left, right, analyzed), _named(right, left, analyzed)
    for side, name in zip((left, right), names, strict=True):
        # Of its columns, Spark has left out by now what nothing above the join reads.
        if not any(str(node.nodeName()) == _WATERMARK for node in _nodes(side)):
            return no_watermark(name, "its source a")
    moment = jvm.scala.Some(_MOMENT_MS)
    growing = [
        name
        for name, (one, other) in zip(names, ((left, right), (right, left)), strict=True)
        if helper.getStateValueWatermark(
            one.outputSet(), other.outputSet(), join.condition(), moment
        ).isEmpty()
    ]
    if not growing:
        return None
    return no_bound(*names, growing[0] if len(growing) == 1 else "both")


def _named(side: Any, other: Any, analyzed: Any) -> str:
    """The views that the columns of one side come from and those of the other do not."""
    found: list[str] = []
    pending = [analyzed]
    while pending:
        node = pending.pop()
        if str(node.nodeName()) == "SubqueryAlias":
            columns = node.outputSet()
            if _have_common(columns, side) and not _have_common(columns, other):
                found.append(str(node.identifier().name()))
                continue
        pending += list(_each(node.children()))[::-1]
    return " and ".join(dict.fromkeys(found)) or _UNNAMED


def _have_common(columns: Any, side: Any) -> bool:
    return not columns.intersect(side.outputSet()).isEmpty()


def _joins(plan: Any) -> Iterator[Any]:
    """The joins of two streams, from the end on."""
    for node in _nodes(plan):
        if str(node.nodeName()) == JOIN and all(
            bool(each.isStreaming()) for each in _each(node.children())
        ):
            yield node


def _nodes(plan: Any) -> Iterator[Any]:
    """The parts of a plan that stream."""
    pending = [plan]
    while pending:
        node = pending.pop()
        if node.isStreaming():
            yield node
            pending += _each(node.children())


def _each(parts: Any) -> Iterator[Any]:
    """The elements of a sequence of Scala."""
    return (parts.apply(index) for index in range(parts.size()))

"""Finds in Spark's plan of a stream what needs more rows than those of one micro-batch."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

from pyspark.sql import DataFrame

# Everything else may keep state, or is not known here.
STATELESS: Final = frozenset(
    {
        "ArrowEvalPython", "BatchEvalPython", "CollectMetrics", "EventTimeWatermark", "Filter", "Generate",
        "MapInArrow", "MapInPandas", "Project", "Repartition", "RepartitionByExpression", "ResolvedHint",
        "StreamingRelation", "StreamingRelationV2", "SubqueryAlias", "Union", "View",
    }
)  # fmt: skip
# Of a stream and a table: each row of the stream is joined on its own.
JOIN: Final = "Join"
# What Spark keeps from one micro-batch to the next is of these. Others of the plan may change.
_AGGREGATE: Final = "Aggregate"
_DEDUPLICATE: Final = ("Deduplicate", "DeduplicateWithinWatermark")
_DISTINCT: Final = "Distinct"
# Steps in Python with a state: the keys that it is for, and for one of them the columns of the state.
_PYTHON: Final = {
    "TransformWithStateInPySpark": "leftAttributes",
    "FlatMapGroupsInPandasWithState": "groupingAttributes",
}
_LIMIT: Final = "GlobalLimit"  # it keeps how many rows there were
FIELDS_MAX: Final = 10_000  # of a part of a plan, in its text
_ID: Final = re.compile(r"#\d+L?(?:-T\d+ms)?")  # of a column; another one in each session
# Spark makes a column of each window before it groups by it.
_WINDOW: Final = "precisetimestampconversion"
_LENGTH: Final = re.compile(r"\b[1-9]\d{3,}\b|\b[^()]* as interval\b")  # microseconds, or in words


def state_in(rows: DataFrame) -> str | None:
    """The reason why the rows of a stream cannot be made of one micro-batch; None if they can."""
    for node, is_stateful in _nodes(rows):
        if is_stateful:
            name = str(node.nodeName())
            return "it joins streams" if name == JOIN else f"its plan may keep state ({name})"
    return None


def parts_with_state(rows: DataFrame) -> Counter[str]:
    """The parts of the plan of a stream that may keep a state, by Spark's names."""
    return Counter(str(node.nodeName()) for node, is_stateful in _nodes(rows) if is_stateful)


def shuffles(rows: DataFrame) -> bool:
    """Whether tasks of a batch exchange rows, so that another run of it may divide them otherwise."""
    plan = str(rows._jdf.queryExecution().executedPlan().toString())
    return any("Exchange" in line and "BroadcastExchange" not in line for line in plan.splitlines())


def check_supported(rows: DataFrame) -> None:
    """Raise AnalysisException for what Spark has in a stream alone: it looks for it when a batch begins."""
    rows._jdf.queryExecution().assertSupported()


def kept_state(rows: DataFrame) -> tuple[str, ...]:
    """What the state of a stream is made of: equal texts stand for a state that can go on."""
    found, windows = [], set[str]()
    for node, is_stateful in _nodes(rows):
        if is_stateful and (part := _part_of_state(node)):
            found.append(part)
        text = str(node.simpleString(FIELDS_MAX))
        if _WINDOW in text:
            windows.update(_LENGTH.findall(_ID.sub("", text)))
    if found and windows:
        found.append(f"windows of {', '.join(sorted(windows))}")
    return tuple(found)


def _part_of_state(node: Any) -> str | None:
    """What one part of a plan keeps; None: nothing, or what is not known here."""
    name = str(node.nodeName())
    if name == _AGGREGATE:
        results = [
            each for result in _each(node.aggregateExpressions()) for each in _aggregates(result)
        ]
        return f"{name} {_texts(_each(node.groupingExpressions()))}, {_texts(results)}"
    if name in _DEDUPLICATE:
        return f"{name} {_texts(_each(node.keys()))}"
    if name == JOIN:
        text = _ID.sub("", str(node.simpleString(FIELDS_MAX)))
        return f"{text} {_texts(_each(node.output()))}"
    if name in _PYTHON:
        keys = _texts(_each(getattr(node, _PYTHON[name])()))
        if name == "FlatMapGroupsInPandasWithState":
            return f"{name} by {keys} of {node.stateType().simpleString()}"
        return f"{name} by {keys}"  # What it keeps is known to its code.
    if name == _DISTINCT:
        return f"{name} {_texts(_each(node.output()))}"
    return name if name == _LIMIT else None


def _aggregates(expression: Any) -> list[Any]:
    """The aggregates of a result, without what is made of them: Spark keeps them alone."""
    if expression.getClass().getSimpleName() == "AggregateExpression":
        return [expression]
    return [found for each in _each(expression.children()) for found in _aggregates(each)]


def _texts(expressions: Iterable[Any]) -> str:
    """Expressions with their types; the same one counts once, as in Spark."""
    texts = [
        f"{_ID.sub('', str(each.toString()))} {each.dataType().simpleString()}"
        for each in expressions
    ]
    return f"[{', '.join(dict.fromkeys(texts))}]"


def _each(parts: Any) -> Iterator[Any]:
    """The elements of a sequence of Scala."""
    return (parts.apply(index) for index in range(parts.size()))


def _nodes(rows: DataFrame) -> Iterator[tuple[Any, bool]]:
    """The parts of the plan that stream, from the end on, and whether each may keep state."""
    plan: Any = rows._jdf.queryExecution().analyzed()
    pending = [plan]
    while pending:
        node = pending.pop()
        if not node.isStreaming():
            continue
        below = list(_each(node.children()))
        name = str(node.nodeName())
        if name == JOIN:
            yield node, sum(bool(each.isStreaming()) for each in below) > 1
        else:
            yield node, name not in STATELESS
        pending += below

"""Finds in Spark's plan of a stream what needs more rows than those of one micro-batch."""

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


def state_in(rows: DataFrame) -> str | None:
    """The reason why the rows of a stream cannot be made of one micro-batch; None if they can."""
    plan: Any = rows._jdf.queryExecution().analyzed()
    pending = [plan]
    while pending:
        node = pending.pop()
        if not node.isStreaming():
            continue
        children = node.children()
        below = [children.apply(index) for index in range(children.size())]
        name = str(node.nodeName())
        if name == JOIN and sum(bool(each.isStreaming()) for each in below) > 1:
            return "it joins streams"
        if name not in STATELESS and name != JOIN:
            return f"its plan may keep state ({name})"
        pending += below
    return None

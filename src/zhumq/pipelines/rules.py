"""The rules of check and expect steps as Spark expressions: rows that break one are counted and sent where it says."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.types import BooleanType

from zhumq.pipelines.counters import Counters
from zhumq.pipelines.document import Mark
from zhumq.pipelines.routing import REASON, without_failing
from zhumq.pipelines.spec import Action, CheckStep, ExpectStep
from zhumq.pipelines.spec_errors import spec_errors

BROKEN: Final = "_broken_rules"
STEP: Final = "_step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The rows that stay, and those for each sink, which have the names of the rules they break."""

    rows: DataFrame
    quarantined: dict[str, DataFrame]


def with_reason(frame: DataFrame, step: CheckStep) -> DataFrame:
    """The rows with the reason of the first rule that they break, or null."""
    reason = F.lit(None).cast("string")
    for rule in reversed(step.rules):
        broken = _is_broken(frame, rule.expression, rule.mark)
        reason = F.when(broken, F.lit(rule.reason)).otherwise(reason)
    return frame.withColumn(REASON, reason)


def expect(frame: DataFrame, step: ExpectStep, counters: Counters) -> Expected:
    """Apply the rules. Raises SpecInvalid for an expression that is none, or is not true or false."""
    broken = [
        F.when(_is_broken(frame, rule.expression, rule.mark), F.lit(rule.name))
        for rule in step.rules
    ]
    rows = frame.withColumn(BROKEN, F.array_compact(F.array(*broken)))
    rows = counters.count(
        rows, step.name, {rule.name: F.array_contains(BROKEN, rule.name) for rule in step.rules}
    )
    by_action: dict[Action, list[str]] = {action: [] for action in Action}
    sinks: dict[str, list[str]] = {}
    for rule in step.rules:
        by_action[rule.action].append(rule.name)
        if rule.sink is not None:
            sinks.setdefault(rule.sink, []).append(rule.name)
    if by_action[Action.FAIL]:
        failing = F.array_intersect(BROKEN, _names(by_action[Action.FAIL]))
        words = F.concat(F.lit("a row breaks the rule "), F.array_join(failing, ", "))
        rows = without_failing(rows, step.name, F.when(F.size(failing) > 0, words))
    quarantined = {
        sink: rows.where(F.arrays_overlap(BROKEN, _names(names)))
        .withColumn(STEP, F.lit(step.name))
        for sink, names in sinks.items()
    }  # fmt: skip
    leaving = by_action[Action.DROP] + by_action[Action.QUARANTINE]
    kept = rows.where(~F.arrays_overlap(BROKEN, _names(leaving))) if leaving else rows
    return Expected(rows=kept.drop(BROKEN), quarantined=quarantined)


def _names(names: Iterable[str]) -> Column:
    return F.array(*(F.lit(name) for name in names))


def _is_broken(frame: DataFrame, expression: str, mark: Mark) -> Column:
    """Whether a row breaks a rule. One that is neither true nor false, for a null, is broken."""
    with spec_errors(mark, expression):
        kind = frame.withColumn(BROKEN, F.expr(expression)).schema[BROKEN].dataType
    if not isinstance(kind, BooleanType):
        raise mark.wrong(f"is {kind.simpleString()}; a rule is true or false")
    return ~F.coalesce(F.expr(expression), F.lit(False))

"""Counts of the rows that steps reject, which Spark reports with the progress of a query."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.observation import Observation

from zhumq.pipelines.progress import METRICS_PREFIX, NOTE

# Spark reports the counts of a finished batch a moment later; not at all if it needed no rows of the step.
WAIT_SECONDS_MAX: Final = 10.0
_POLL_SECONDS: Final = 0.05


class Counters:
    """The counts of the steps of one set of views."""

    def __init__(self, *, streaming: bool) -> None:
        self._streaming = streaming
        self._observations: dict[str, Observation] = {}
        self.changes: dict[str, str] = {}  # what a batch run has found, by steps

    def count(
        self,
        rows: DataFrame,
        step: str,
        conditions: Mapping[str, Column],
        note: Column | None = None,
    ) -> DataFrame:
        """The same rows, of which those are counted that fulfil each condition; and one text of them."""
        counts = [F.count_if(condition).alias(name) for name, condition in conditions.items()]
        if note is not None:
            counts.append(F.max(note).alias(NOTE))
        if self._streaming:
            # Spark reports it with each batch of each query that contains the step.
            return rows.observe(METRICS_PREFIX + step, *counts)
        observation = Observation(METRICS_PREFIX + step)
        self._observations[step] = observation
        return rows.observe(observation, *counts)

    def take(self, rows: DataFrame) -> dict[str, int]:
        """The counts of the steps of a batch run that these rows, which were just written, come from."""
        plan = str(rows._jdf.queryExecution().analyzed().toString())
        found: dict[str, int] = {}
        for step, observation in list(self._observations.items()):
            if f"CollectMetrics {METRICS_PREFIX}{step}," in plan:
                del self._observations[step]
                if _finished(observation):
                    values = dict(observation.get)
                    words = values.pop(NOTE, None)
                    if words:
                        self.changes[step] = words
                    found |= {f"{step}.{name}": int(n) for name, n in values.items()}
        return found


def _finished(observation: Observation) -> bool:
    jvm_side: Any = observation._jo
    is_done: Callable[[], bool] = jvm_side.future().isCompleted
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not is_done():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True

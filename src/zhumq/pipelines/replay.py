"""Orders archived records for a replay into a topic, and limits its rate."""

import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

STEPS_PER_SECOND: Final = 10  # a rate is kept in steps of a tenth of a second
ARROW_ROWS_SETTING: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"


def in_order(rows: DataFrame, rate: str = "0") -> DataFrame:
    """Each partition in the order of its offsets. With a rate, all in one task, merged by time."""
    if int(rate) == 0:
        return rows.repartition("topic", "partition").sortWithinPartitions(
            "topic", "partition", "offset"
        )
    # Timestamps of producers may go back; the order of a partition must not change.
    so_far = Window.partitionBy("topic", "partition").orderBy("offset")
    moment = F.max("timestamp").over(so_far.rowsBetween(Window.unboundedPreceding, 0))
    return (
        rows.withColumn("_moment", moment)
        .repartition(1)
        .sortWithinPartitions("_moment", "topic", "partition", "offset")
        .drop("_moment")
    )


def throttled(rows: DataFrame, rate: int) -> DataFrame:
    """The same rows in one task, at most `rate` of them a second."""
    step = max(1, rate // STEPS_PER_SECOND)
    # Without it, Spark collects thousands of rows before it passes any on.
    rows.sparkSession.conf.set(ARROW_ROWS_SETTING, str(step))
    return rows.coalesce(1).mapInArrow(_throttle(rate, step), rows.schema)


def keep_rate(batches: Iterator[Any], *, rate: int, step: int, clock: "Clock") -> Iterator[Any]:
    """The same rows in parts of at most `step`, each delayed to keep the rate."""
    began, sent = clock.monotonic(), 0
    for batch in batches:
        for start in range(0, batch.num_rows, step):
            part = batch.slice(start, step)
            wait = began + sent / rate - clock.monotonic()
            if wait > 0:
                clock.sleep(wait)
            yield part
            sent += part.num_rows


class Clock(Protocol):
    """The part of the module `time` that is needed here."""

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float, /) -> None: ...


def _throttle(rate: int, step: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
        return keep_rate(batches, rate=rate, step=step, clock=time)

    return pass_on

"""Removes rows with a key that came before, within a time: by state in a stream, by groups in a batch."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.types import TimestampType

from zhumq.pipelines.spec import DeduplicateStep
from zhumq.pipelines.spec_errors import need_column, spec_errors

_WATERMARK_KEY: Final = "spark.watermarkDelayMs"  # Spark's, in the metadata of a column
_ROW: Final = "_row"
_ORDER: Final = "_order"
_MOMENT: Final = "_moment"
_ALL: Final = "_all"


def deduplicate(frame: DataFrame, step: DeduplicateStep) -> DataFrame:
    """The first row of each key; a later one stays if it is further away than the time. Raises SpecInvalid."""
    for column in step.by:
        need_column(frame, column, step.by_mark)
    need_column(frame, step.time, step.time_mark)
    if not isinstance(frame.schema[step.time].dataType, TimestampType):
        raise step.time_mark.wrong(f"the column {step.time!r} is not a timestamp")
    if not frame.isStreaming:
        with spec_errors(step.by_mark):
            return _first_of_each(frame, step)
    return _in_stream(frame, step)


def _in_stream(frame: DataFrame, step: DeduplicateStep) -> DataFrame:
    """Spark keeps a key for as long as the delay of the watermark of the time's column."""
    for field in frame.schema.fields:
        delay_ms = (field.metadata or {}).get(_WATERMARK_KEY)
        if delay_ms is None:
            continue
        if field.name != step.time:
            raise step.time_mark.wrong(
                f"the watermark is on the column {field.name!r}: deduplicate by that time"
                f" (time: {field.name}), or remove it above"
            )
        if delay_ms != step.within_ms:
            raise step.time_mark.wrong(
                f"the watermark above has a delay of {delay_ms} ms, and this step's time is"
                f" {step.within_ms} ms: give both the same"
            )
    with spec_errors(step.by_mark):
        timed = frame.withWatermark(step.time, f"{step.within_ms} milliseconds")
        return timed.dropDuplicatesWithinWatermark(list(step.by))


def _first_of_each(frame: DataFrame, step: DeduplicateStep) -> DataFrame:
    names = [f"`{name}`" for name in frame.columns]
    moment = F.coalesce(F.unix_micros(f"`{step.time}`"), F.lit(0))
    rows = frame.select(
        *(F.col(f"`{name}`").alias(f"_by{index}") for index, name in enumerate(step.by)),
        F.struct(
            moment.alias(_MOMENT),
            F.monotonically_increasing_id().alias(_ORDER),
            F.struct(*names).alias(_ROW),
        ).alias(_ALL),
    )
    grouped = rows.groupBy(*(f"_by{index}" for index in range(len(step.by)))).agg(
        # With a comparison of its own: a row with a map in it has no order.
        F.array_sort(F.collect_list(_ALL), _compare).alias(_ALL)
    )
    kept = F.aggregate(_ALL, _nothing_kept(), lambda done, row: _keep(done, row, step.within_ms))
    chosen = F.filter(_ALL, lambda row: F.array_contains(kept["kept"], row[_ORDER]))
    return grouped.select(F.inline(F.transform(chosen, lambda row: row[_ROW])))


def _compare(left: Column, right: Column) -> Column:
    return (
        F.when(left[_MOMENT] < right[_MOMENT], -1)
        .when(left[_MOMENT] > right[_MOMENT], 1)
        .when(left[_ORDER] < right[_ORDER], -1)
        .otherwise(1)
    )


def _nothing_kept() -> Column:
    kept = F.array().cast("array<bigint>").alias("kept")
    return F.struct(kept, F.lit(None).cast("bigint").alias("last"))


def _keep(done: Column, row: Column, within_ms: int) -> Column:
    """Keep a row that is further from the last kept one than the time."""
    near = F.coalesce(row[_MOMENT] <= done["last"] + within_ms * 1000, F.lit(False))
    kept = F.struct(
        F.concat(done["kept"], F.array(row[_ORDER])).alias("kept"), row[_MOMENT].alias("last")
    )
    return F.when(near, done).otherwise(kept)

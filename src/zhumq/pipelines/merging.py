"""Which rows a merged table has after its changes, in whatever order they came: SCD type 1 and 2."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.types import MapType, StructType

from zhumq.pipelines.delta_table import column, refusal
from zhumq.pipelines.routing import MESSAGE
from zhumq.pipelines.spec import ChangeFormat, MergeSink
from zhumq.pipelines.spec_errors import need_column, spec_errors
from zhumq.pipelines.views import expression

SEQUENCE: Final = "_sequence"
DELETED: Final = "_deleted"
VALID_FROM: Final = "_valid_from"
VALID_TO: Final = "_valid_to"
OWN_COLUMNS: Final = (SEQUENCE, DELETED, VALID_FROM, VALID_TO)
_ASSUMED: Final = "_assumed"
_EVENT: Final = "_event"
_DEBEZIUM_UPSERTS: Final = ("c", "r", "u")


def changes_of(sink: MergeSink, rows: DataFrame) -> DataFrame:
    """The rows as changes: the columns of the table, SEQUENCE and DELETED. Raises SpecInvalid."""
    rows = rows.drop(MESSAGE)
    if sink.changes is ChangeFormat.DEBEZIUM:
        rows = _out_of_envelopes(sink, rows)
    else:
        rows = expression(rows, *sink.sequence, SEQUENCE)
        if sink.deletes is None:
            rows = rows.withColumn(DELETED, F.lit(False))
        else:
            rows = expression(rows, *sink.deletes, DELETED)
            if rows.schema[DELETED].dataType.simpleString() != "boolean":
                kind = rows.schema[DELETED].dataType.simpleString()
                raise sink.deletes[1].wrong(f"is {kind}, not true or false")
            rows = rows.withColumn(DELETED, F.coalesce(F.col(DELETED), F.lit(False)))
    for name in sink.keys:
        need_column(rows, name, sink.keys_mark)
        if isinstance(rows.schema[name].dataType, MapType):
            raise sink.keys_mark.wrong(f"the column {name!r} is a map, which cannot be a key")
    for name in sink.except_columns:
        need_column(rows, name, sink.except_mark)
    for name in sink.partition_by:
        need_column(rows, name, sink.partition_mark)
    with spec_errors(sink.sequence[1]):
        # Spark refuses here what has no order.
        _ = rows.select(F.max(SEQUENCE)).schema
    rows = rows.drop(*sink.except_columns)
    words = refusal(rows.schema, sink.partition_by)
    if words is not None:
        raise sink.mark.wrong(words)
    return _without_nulls(sink, rows)


def _out_of_envelopes(sink: MergeSink, rows: DataFrame) -> DataFrame:
    for name in ("before", "after", "op"):
        need_column(rows, name, sink.mark)
    kind = rows.schema["after"].dataType
    if not isinstance(kind, StructType):
        raise sink.mark.wrong(f"the column 'after' is {kind.simpleString()}, not a struct")
    for name in kind.names:
        if name in OWN_COLUMNS:
            raise sink.mark.wrong(f"the change topic has a column {name!r}, which a merge needs")
    rows = expression(rows, *sink.sequence, SEQUENCE)
    before, after, op = F.col("before"), F.col("after"), F.col("op")
    # Debezium sends a message without a value behind a delete, for compacted topics.
    rows = rows.where(op.isNotNull() | before.isNotNull() | after.isNotNull())
    known = F.coalesce(op, F.lit("null")).isin(*_DEBEZIUM_UPSERTS, "d")
    words = F.concat(
        F.lit(f"sink {sink.name!r}: a change has the operation "),
        F.coalesce(op, F.lit("null")),
        F.lit(": filter such rows in a step; a merge knows c, r, u and d"),
    )
    rows = rows.where(known | F.raise_error(words).cast("boolean"))
    with spec_errors(sink.mark):
        data = F.when(op == "d", before.cast(kind)).otherwise(after)
        rows = rows.withColumn(DELETED, op == "d").withColumn("_data", data)
        return rows.select("_data.*", SEQUENCE, DELETED)


def _without_nulls(sink: MergeSink, rows: DataFrame) -> DataFrame:
    """The same rows, of which one without a key or a sequence ends the run."""
    for name, what in [
        *((key, f"the key {key!r}") for key in sink.keys),
        (SEQUENCE, "sequence_by"),
    ]:
        words = f"sink {sink.name!r}: a change has no value for {what}: reject it in a step before"
        rows = rows.where(column(name).isNotNull() | F.raise_error(F.lit(words)).cast("boolean"))
    return rows


def newest(changes: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """One change of each key: that of the highest sequence.

    Changes of one sequence have an order too, a delete last, so that the result does not depend on
    the order in which they came.
    """
    rest = [name for name in changes.columns if name not in keys]
    found = changes.groupBy(*(column(name) for name in keys)).agg(
        F.max_by(F.struct(*(column(name) for name in rest)), _order(changes)).alias(_EVENT)
    )
    return found.select(
        *(column(name) for name in keys),
        *(F.col(_EVENT).getField(name).alias(name) for name in rest),
    ).select(*(column(name) for name in changes.columns))


def merged_type_1(table: DataFrame, changes: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """The newest row of each key, unless it is deleted."""
    events = table.withColumn(DELETED, F.lit(False)).unionByName(changes, allowMissingColumns=True)
    return newest(events, keys).where(~F.col(DELETED)).drop(DELETED)


def merged_type_2(table: DataFrame, changes: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """Every version of each key, from its sequence to that of the next one or of the delete."""
    begun = table.withColumnRenamed(VALID_FROM, SEQUENCE).drop(VALID_TO)
    begun = begun.withColumn(DELETED, F.lit(False)).withColumn(_ASSUMED, F.lit(False))
    # Where a version ends and no other begins, there was a delete.
    ended = table.where(F.col(VALID_TO).isNotNull()).select(
        *(column(name) for name in keys),
        F.col(VALID_TO).alias(SEQUENCE),
        F.lit(True).alias(DELETED),
        F.lit(True).alias(_ASSUMED),
    )
    events = begun.unionByName(ended, allowMissingColumns=True).unionByName(
        changes.withColumn(_ASSUMED, F.lit(False)), allowMissingColumns=True
    )
    versions = newest(events, (*keys, SEQUENCE)).drop(_ASSUMED)
    following = Window.partitionBy(*(column(name) for name in keys)).orderBy(SEQUENCE)
    versions = versions.withColumn(VALID_TO, F.lead(SEQUENCE).over(following))
    return versions.where(~F.col(DELETED)).drop(DELETED).withColumnRenamed(SEQUENCE, VALID_FROM)


def _order(changes: DataFrame) -> Column:
    # As JSON, since Spark cannot compare every type; without the names of what is null.
    data = sorted(set(changes.columns) - {SEQUENCE, DELETED, _ASSUMED})
    whole = F.to_json(F.struct(*(column(name) for name in data)))
    real = [~F.col(_ASSUMED)] if _ASSUMED in changes.columns else []
    return F.struct(F.col(SEQUENCE), *real, F.col(DELETED), whole)

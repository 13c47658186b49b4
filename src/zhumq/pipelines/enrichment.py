"""Puts columns of a table beside the rows with its key; a key that is in the table twice is an error."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.types import (
    BooleanType,
    DataType,
    MapType,
    NumericType,
    StructType,
    VariantType,
)

from zhumq.pipelines.delta_table import column
from zhumq.pipelines.routing import REASON
from zhumq.pipelines.rules import BROKEN
from zhumq.pipelines.spec import EnrichStep
from zhumq.pipelines.spec_errors import need_column, spec_errors

MISSING: Final = "missing"  # the count of rows whose key is not in the table
# The columns of a table that is prepared for a step, by their places.
_KEY: Final = "_enrich_key"
_VALUE: Final = "_enrich_value"
_NEWEST: Final = "_enrich_newest"
_COUNT: Final = "_enrich_count"


def keyed(table: DataFrame, step: EnrichStep) -> DataFrame:
    """The table with the columns that the step needs, and one row for each key. Raises SpecInvalid.

    Two rows of a key fail when the result is read, with the key.
    """
    for _, name in step.by:
        need_column(table, name, step.by_mark)
        if isinstance(table.schema[name].dataType, MapType | VariantType):
            kind = table.schema[name].dataType.simpleString()
            raise step.by_mark.wrong(f"the column {name!r} is {kind}, which cannot be a key")
    for _, name in step.columns:
        need_column(table, name, step.columns_mark)
    rows = table
    if step.where is not None:
        text, mark = step.where
        with spec_errors(mark, text):
            of_condition = table.withColumn(BROKEN, F.expr(text)).schema[BROKEN].dataType
            if not isinstance(of_condition, BooleanType):
                raise mark.wrong(f"is {of_condition.simpleString()}, not true or false")
            rows = table.where(F.expr(text))
    keys = [_key(place) for place in range(len(step.by))]
    values = [_value(place) for place in range(len(step.columns))]
    order = None
    if step.sequence is not None:
        need_column(table, step.sequence, step.sequence_mark)
        with spec_errors(step.sequence_mark):
            # Spark refuses here what has no order.
            _ = rows.select(F.max(column(step.sequence))).schema
        order = column(step.sequence).alias(_NEWEST)
    rows = rows.select(
        *(column(name).alias(key) for key, (_, name) in zip(keys, step.by, strict=True)),
        *(column(name).alias(value) for value, (_, name) in zip(values, step.columns, strict=True)),
        *([] if order is None else [order]),
    )
    # Null is equal to nothing, so such a row would be found by none.
    rows = rows.where(~_any_null(keys))
    chosen = F.struct(*(F.col(name) for name in values))
    if order is None:
        found = rows.groupBy(*keys).agg(F.first(chosen).alias(_VALUE), F.count("*").alias(_COUNT))
    else:
        found = _newest(rows, keys, chosen)
    words = F.concat(
        F.lit(f"step {step.name!r}: the table {step.table} has "),
        F.col(_COUNT).cast("string"),
        F.lit(" rows with "),
        _shown(keys, [name for _, name in step.by]),
        F.lit(_advice(step)),
    )
    # The condition of a filter, so that Spark cannot leave it out as a column that is not used.
    is_single = F.when(F.col(_COUNT) > 1, F.raise_error(words).cast("boolean"))
    return found.where(F.coalesce(is_single, F.lit(True))).select(
        *keys, *(F.col(_VALUE).getField(name).alias(name) for name in values)
    )


def enrich(rows: DataFrame, table: DataFrame, step: EnrichStep) -> DataFrame:
    """The rows with the columns of a table that is `keyed`, and REASON where it lacks the key. Raises SpecInvalid."""
    for place, (name, other) in enumerate(step.by):
        need_column(rows, name, step.by_mark)
        kind, of_table = rows.schema[name].dataType, table.schema[_key(place)].dataType
        if not _are_alike(kind, of_table):
            raise step.by_mark.wrong(
                f"the column {name!r} is {kind.simpleString()}, and {other!r} of the table {step.table}"
                f" is {of_table.simpleString()}: CAST it in a step above"
            )
    for name, _ in step.columns:
        if name.lower() in (each.lower() for each in rows.columns):
            raise step.columns_mark.wrong(
                f"the rows have a column {name!r}: give that of the table another name,"
                f" as {{{step.table}_{name}: {name}}}"
            )
    keys = [_key(place) for place in range(len(step.by))]
    compared = [F.col(key) == column(name) for key, (name, _) in zip(keys, step.by, strict=True)]
    condition = compared[0]
    for each in compared[1:]:
        condition &= each
    words = F.concat(
        F.lit(f"no row of {step.table} has "),
        _shown([name for name, _ in step.by], [name for _, name in step.by]),
    )
    with spec_errors(step.mark):
        return rows.join(table, condition, "left").select(
            *(column(name) for name in rows.columns),
            *(
                F.col(_value(place)).alias(name)
                for place, (name, _) in enumerate(step.columns)
            ),
            F.when(F.col(keys[0]).isNull(), words).alias(REASON),
        )  # fmt: skip


def unlike_words(now: StructType, before: StructType, step: EnrichStep) -> str | None:
    """How the columns of a `keyed` table have changed, of which a stream knows the types; None if they have not."""
    names = [name for _, name in (*step.by, *step.columns)]
    for name, new, old in zip(names, now.fields, before.fields, strict=True):
        if new.dataType != old.dataType:
            return (
                f"the column {name!r} is {new.dataType.simpleString()} now, and was"
                f" {old.dataType.simpleString()} when the run began"
            )
    return None


def _newest(rows: DataFrame, keys: list[str], chosen: Column) -> DataFrame:
    """The row of the highest sequence of each key; _COUNT is that of the rows which have it."""
    newest = rows.groupBy(*keys, _NEWEST).agg(
        F.first(chosen).alias(_VALUE), F.count("*").alias(_COUNT)
    )
    found = newest.groupBy(*keys).agg(
        F.max_by(F.struct(_VALUE, _COUNT), _NEWEST).alias(_NEWEST),
        F.first(F.struct(_VALUE, _COUNT)).alias(_VALUE),
    )
    # Where no row of a key has a sequence, one of them counts if it is alone.
    row = F.coalesce(F.col(_NEWEST), F.col(_VALUE))
    return found.select(
        *keys, row.getField(_VALUE).alias(_VALUE), row.getField(_COUNT).alias(_COUNT)
    )


def _advice(step: EnrichStep) -> str:
    if step.sequence is None:
        return "; a key is there once: leave rows out with `where`, or name the column that says which is the newest with `sequence_by`"
    return f" and the same {step.sequence}: `sequence_by` must tell which of them is newer"


def _shown(columns: list[str], names: list[str]) -> Column:
    """The values of a key, for people: `id = 5 and country = AT`."""
    parts: list[Column] = []
    for place, (each, name) in enumerate(zip(columns, names, strict=True)):
        value = F.coalesce(column(each).cast("string"), F.lit("null"))
        parts += [F.lit(f"{' and ' if place else ''}{name} = "), value]
    return F.concat(*parts)


def _any_null(keys: list[str]) -> Column:
    found = F.col(keys[0]).isNull()
    for each in keys[1:]:
        found |= F.col(each).isNull()
    return found


def _are_alike(one: DataType, other: DataType) -> bool:
    """Whether two types can be compared without reading a text as a number or a time."""
    if isinstance(one, NumericType) and isinstance(other, NumericType):
        return True
    return one.simpleString() == other.simpleString()


def _key(place: int) -> str:
    return f"{_KEY}_{place}"


def _value(place: int) -> str:
    return f"{_VALUE}_{place}"

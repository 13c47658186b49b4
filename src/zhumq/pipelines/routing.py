"""What becomes of the rows that a step rejects: they end the run, become dead letters, or are left out."""

from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.types import BinaryType, StringType, StructType, TimestampType

# The message of a row whose columns were replaced by fields of the same names.
MESSAGE: Final = "_message"
FILE: Final = "_file"  # where the row of a file comes from
MESSAGE_COLUMNS: Final = (
    "key", "value", "headers", "topic", "partition", "offset", "timestamp", FILE,
)  # fmt: skip
REASON: Final = "_reason"
# The headers of every dead letter have this prefix, so `zhumq dlq` shows those of pipelines too.
HEADER_PREFIX: Final = "zhumq."
HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"
_PLACE: Final = ("topic", "partition", "offset")


def without_failing(rows: DataFrame, step: str, reason: Column) -> DataFrame:
    """The same rows, of which one with a reason ends the run; the error names its step and its offset."""
    fields = _message_fields(rows)
    words = [F.lit(f"step {step!r}: "), reason]
    if all(name in fields for name in _PLACE):
        topic, partition, offset = (
            F.coalesce(F.col(fields[name]).cast("string"), F.lit("?")) for name in _PLACE
        )
        words += [F.lit(", in "), topic, F.lit("-"), partition, F.lit(" at offset "), offset]
    elif FILE in fields:
        words += [F.lit(", in "), F.coalesce(F.col(fields[FILE]), F.lit("?"))]
    # The condition of a filter, so that Spark cannot leave it out as a column that is not used.
    raised = F.when(reason.isNotNull(), F.raise_error(F.concat(*words)).cast("boolean"))
    return rows.where(F.coalesce(raised, F.lit(True)))


def dead_letters(bad: DataFrame, pipeline: str, step: str) -> DataFrame:
    """Rows with a reason as messages: their own key and value, with the reason and the origin in headers."""
    row = [field.name for field in bad.schema.fields if field.name not in (REASON, MESSAGE)]
    prefix, fields = "", bad.schema.fields
    if MESSAGE in bad.columns:
        kind = bad.schema[MESSAGE].dataType
        assert isinstance(kind, StructType)
        prefix, fields = f"{MESSAGE}.", kind.fields
    types = {field.name: field.dataType for field in fields}
    facts: dict[str, Any] = {
        "group": F.lit(pipeline),
        "reason": F.col(REASON),
        "deliveries": F.lit("1"),
        "step": F.lit(step),
        "time": F.unix_millis(F.current_timestamp()).cast("string"),
    }
    facts |= {name: F.col(prefix + name).cast("string") for name in _PLACE if name in types}
    if FILE in types:
        facts["file"] = F.col(prefix + FILE)
    if isinstance(types.get("timestamp"), TimestampType):
        facts["timestamp"] = F.unix_millis(prefix + "timestamp").cast("string")
    headers = F.array(
        *(
            F.struct(F.lit(HEADER_PREFIX + name).alias("key"), value.cast("binary").alias("value"))
            for name, value in facts.items()
        )
    ).cast(HEADERS_TYPE)
    if "headers" in types and types["headers"].simpleString() == HEADERS_TYPE:
        own = F.coalesce(F.col(prefix + "headers"), F.array().cast(HEADERS_TYPE))
        headers = F.concat(own, headers)
    messages = (BinaryType, StringType)
    value = (
        F.col(prefix + "value").cast("binary")
        if isinstance(types.get("value"), messages)
        else F.to_json(F.struct(*(F.col(f"`{name}`") for name in row))).cast("binary")
    )
    key = F.col(prefix + "key") if isinstance(types.get("key"), messages) else F.lit(None)
    return bad.select(
        key.cast("binary").alias("key"), value.alias("value"), headers.alias("headers")
    )


def _message_fields(rows: DataFrame) -> dict[str, str]:
    """The columns of the message that a row came from, by name."""
    if MESSAGE in rows.columns:
        kind = rows.schema[MESSAGE].dataType
        assert isinstance(kind, StructType)
        return {name: f"{MESSAGE}.{name}" for name in kind.names}
    return {name: f"`{name}`" for name in rows.columns}

"""The rows that a task writes: the check of their schema, and their cells."""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from zhumq.model.errors import ZhumqError
from zhumq.spark.columns import HEADERS, KEY, PARTITION, TIMESTAMP, TOPIC, VALUE
from zhumq.spark.options import OptionInvalid, WriteOptions

_ACCEPTED: Final[dict[str, tuple[type[DataType], ...]]] = {
    KEY: (BinaryType, StringType),
    VALUE: (BinaryType, StringType),
    TOPIC: (StringType,),
    PARTITION: (IntegerType,),
    HEADERS: (ArrayType,),
    TIMESTAMP: (TimestampType,),
}


class WriteFailed(ZhumqError):
    """Rows that did not reach the topic."""


def check_schema(schema: StructType, options: WriteOptions, *, overwrite: bool) -> tuple[str, ...]:
    """The columns that are written, of those that the rows have. Raises OptionInvalid."""
    if overwrite:
        raise OptionInvalid('a topic is only appended to: use mode("append")')
    types = {item.name: item.dataType for item in schema.fields}
    if VALUE not in types:
        raise OptionInvalid(f"the rows need a column {VALUE!r}; they have {', '.join(types)}")
    if options.topic is None and TOPIC not in types:
        raise OptionInvalid("no topic is given: set the option topic, or add a column topic")
    used: list[str] = [name for name in (KEY, VALUE, PARTITION, HEADERS) if name in types]
    if options.topic is None:
        used.append(TOPIC)
    if options.includes_timestamp:
        if TIMESTAMP not in types:
            raise OptionInvalid("includeTimestamp is true, but the rows have no column timestamp")
        used.append(TIMESTAMP)
    for name in used:
        if not isinstance(types[name], _ACCEPTED[name]):
            words = " or ".join(each.typeName() for each in _ACCEPTED[name])
            raise OptionInvalid(
                f"the column {name!r} is {types[name].simpleString()}; it must be {words}"
            )
    headers = types.get(HEADERS)
    if headers is not None and headers.simpleString() != "array<struct<key:string,value:binary>>":
        raise OptionInvalid(
            f"the column 'headers' is {headers.simpleString()}; it must be"
            " array<struct<key:string,value:binary>>"
        )
    return tuple(used)


def _check_headers(headers: Any) -> None:
    pairs = headers.flatten()
    if pairs.null_count or pairs.field(KEY).null_count:
        raise WriteFailed("a header of a row has no key: Kafka does not accept null header keys")


def cells_of(batch: Any, options: WriteOptions, columns: tuple[str, ...]) -> Iterator[Any]:
    """Topic, value, key, partition, timestamp and headers of each row."""
    cells = {name: batch.column(batch.schema.get_field_index(name)) for name in columns}
    count = batch.num_rows
    nothing: list[Any] = [None] * count
    names: list[Any] = cells[TOPIC].to_pylist() if TOPIC in cells else [options.topic] * count
    if None in names:
        raise WriteFailed("a row has no topic: its column topic is null")
    if HEADERS in cells:
        _check_headers(cells[HEADERS])
    return zip(
        names,
        cells[VALUE].to_pylist(),
        cells[KEY].to_pylist() if KEY in cells else nothing,
        cells[PARTITION].to_pylist() if PARTITION in cells else nothing,
        milliseconds(cells[TIMESTAMP]).to_pylist() if TIMESTAMP in cells else nothing,
        cells[HEADERS].to_pylist() if HEADERS in cells else nothing,
        strict=True,
    )


def milliseconds(timestamps: Any) -> Any:
    """Since 1970, as Kafka has them. Raises WriteFailed for those before."""
    stamps = timestamps.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
    least = pc.min(stamps).as_py()
    if least is not None and least < 0:
        raise WriteFailed(f"a row's timestamp is {least} ms since 1970: Kafka accepts 0 or more")
    return stamps


def as_bytes(cell: str | bytes | None) -> bytes | None:
    return cell.encode() if isinstance(cell, str) else cell

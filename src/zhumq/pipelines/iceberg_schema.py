"""Columns of Spark and columns of an Iceberg table: which fit, which are new, and the field ids of a file. Pure."""

from collections.abc import Iterable
from typing import Final

from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from zhumq.pipelines.iceberg_spec import IcebergFailed

FIELD_ID: Final = "parquet.field.id"  # the key of a column's metadata that Spark's writer looks at
PARTITION_TYPES: Final = (
    ice.BooleanType, ice.DateType, ice.IntegerType, ice.LongType, ice.StringType,
)  # fmt: skip
_SIMPLE: Final[dict[type[DataType], ice.PrimitiveType]] = {
    BinaryType: ice.BinaryType(),
    BooleanType: ice.BooleanType(),
    ByteType: ice.IntegerType(),
    DateType: ice.DateType(),
    DoubleType: ice.DoubleType(),
    FloatType: ice.FloatType(),
    IntegerType: ice.IntegerType(),
    LongType: ice.LongType(),
    ShortType: ice.IntegerType(),
    StringType: ice.StringType(),
    TimestampNTZType: ice.TimestampType(),
    TimestampType: ice.TimestamptzType(),
}
# Of two types of Spark with one of Iceberg's, the wider one.
_SPARKS: Final[dict[type[ice.IcebergType], DataType]] = {
    ice.BinaryType: BinaryType(),
    ice.BooleanType: BooleanType(),
    ice.DateType: DateType(),
    ice.DoubleType: DoubleType(),
    ice.FloatType: FloatType(),
    ice.IntegerType: IntegerType(),
    ice.LongType: LongType(),
    ice.StringType: StringType(),
    ice.TimestampType: TimestampNTZType(),
    ice.TimestamptzType: TimestampType(),
}


def refusal(schema: StructType, partition_by: tuple[str, ...]) -> str | None:
    """Why no Iceberg table can hold such rows; None if one can."""
    for each in schema.fields:
        if _iceberg_type(each.dataType, _Numbers()) is None:
            kind = each.dataType.simpleString()
            return (
                f"the column {each.name!r} is {kind}, which an Iceberg table cannot hold: CAST it"
            )
    for name in partition_by:
        of = schema[name].dataType
        if not isinstance(_iceberg_type(of, _Numbers()), PARTITION_TYPES):
            return (
                f"the column {name!r} is {of.simpleString()}, which cannot name a partition: use a text,"
                " a whole number, a date or a boolean"
            )
    return None


def creation(schema: StructType, partition_by: tuple[str, ...]) -> tuple[Schema, PartitionSpec]:
    """What a new table for such rows is made with."""
    numbers = _Numbers()
    made = Schema(*_fields(schema.fields, numbers))
    parts = [
        PartitionField(
            source_id=made.find_field(name).field_id,
            field_id=1000 + index,  # as the specification wants them
            transform=IdentityTransform(),
            name=name,
        )
        for index, name in enumerate(partition_by)
    ]
    return made, PartitionSpec(*parts)


def new_columns(table: Schema, schema: StructType, name: str) -> list[tuple[str, ice.IcebergType]]:
    """The columns of these rows that the table does not have. Raises IcebergFailed if one does not fit."""
    known = _by_name(table, name)
    added: list[tuple[str, ice.IcebergType]] = []
    for each in schema.fields:
        there = known.get(each.name.lower())
        if there is None:
            kind = _iceberg_type(each.dataType, _Numbers())
            assert kind is not None, "refused before"
            added.append((each.name, kind))
        elif _spark_type(there.field_type) != _plain(each.dataType):
            there_is = _spark_type(there.field_type)
            words = str(there.field_type) if there_is is None else there_is.simpleString()
            raise IcebergFailed(
                f"the column {each.name!r} of {name} is {words}, and the rows have"
                f" {each.dataType.simpleString()}: CAST it, or use another table"
            )
        elif there.required and each.nullable:
            raise IcebergFailed(
                f"the column {each.name!r} of {name} is required, and rows may have no value for it:"
                " make it optional, or use another table"
            )
    given = {each.name.lower() for each in schema.fields}
    for field in table.fields:
        if field.required and field.name.lower() not in given:
            raise IcebergFailed(
                f"the column {field.name!r} of {name} is required, and the rows do not have it: make"
                " it optional, or add it in a step"
            )
    return added


def check_partitions(
    table: Schema, spec: PartitionSpec, partition_by: tuple[str, ...], name: str
) -> None:
    """Raise IcebergFailed if a table is partitioned otherwise than its sink says."""
    parts = []
    is_plain = True
    for each in spec.fields:
        source = table.find_column_name(each.source_id) or "?"
        if isinstance(each.transform, IdentityTransform):
            parts.append(source)
        else:
            parts.append(f"{each.transform}({source})")
            is_plain = False
    if tuple(parts) == partition_by:
        return
    todo = (
        "make them the same, or use another table"
        if is_plain
        else "only columns as they are can be partitions here: use another table"
    )
    raise IcebergFailed(
        f"{name} is partitioned by ({', '.join(parts)}), and the sink by"
        f" ({', '.join(partition_by)}): {todo}"
    )


def has_field_ids(table: Schema) -> bool:
    """Whether Spark can give the columns of files their field ids: it has none for elements of arrays and maps."""
    return all(_is_flat(each.field_type) for each in table.fields)


def columns_of_file(table: Schema, schema: StructType) -> list[StructField]:
    """The columns of these rows as a file of the table has them, in the order of the table."""
    given = {each.name.lower() for each in schema.fields}
    with_ids = has_field_ids(table)
    found = []
    for each in table.fields:
        if each.name.lower() in given:
            kind = _spark_type(each.field_type, with_ids=with_ids)
            assert kind is not None, "checked before"
            found.append(_spark_field(each, kind, with_ids=with_ids))
    return found


def check_ids(table: Schema, file: Schema, name: str) -> None:
    """Raise IcebergFailed unless the columns of a file are those of the table, by their ids."""
    for each in file.fields:
        there = table.find_field(each.field_id) if each.field_id in table.field_ids else None
        if there is None or there.name != each.name or there.field_type != each.field_type:
            raise IcebergFailed(
                f"the column {each.name!r} of {name} was changed while this batch was written, or its name"
                " mapping lacks it: run again"
            )


class _Numbers:
    """Ids for fields that have none; a catalog gives others to those of its tables."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        self._last += 1
        return self._last


def _fields(given: Iterable[StructField], numbers: _Numbers) -> list[ice.NestedField]:
    found = []
    for each in given:
        number = numbers.next()
        kind = _iceberg_type(each.dataType, numbers)
        assert kind is not None, "refused before"
        found.append(ice.NestedField(number, each.name, kind, required=False))
    return found


def _iceberg_type(kind: DataType, numbers: _Numbers) -> ice.IcebergType | None:
    """Iceberg's type for one of Spark's, all of it optional; None if it has none."""
    match kind:
        case StructType():
            if any(_iceberg_type(each.dataType, _Numbers()) is None for each in kind.fields):
                return None
            return ice.StructType(*_fields(kind.fields, numbers))
        case ArrayType():
            number = numbers.next()
            element = _iceberg_type(kind.elementType, numbers)
            if element is None:
                return None
            return ice.ListType(number, element, element_required=False)
        case MapType():
            of_key, of_value = numbers.next(), numbers.next()
            key = _iceberg_type(kind.keyType, numbers)
            value = _iceberg_type(kind.valueType, numbers)
            if key is None or value is None:
                return None
            return ice.MapType(of_key, key, of_value, value, value_required=False)
        case DecimalType():
            return ice.DecimalType(kind.precision, kind.scale)
        case _:
            return _SIMPLE.get(type(kind))


def _spark_type(kind: ice.IcebergType, *, with_ids: bool = False) -> DataType | None:
    """Spark's type for one of Iceberg's; None if Spark has none, or if a part of it is required."""
    match kind:
        case ice.StructType():
            fields = []
            for each in kind.fields:
                of = _spark_type(each.field_type, with_ids=with_ids)
                if of is None or each.required:
                    return None
                fields.append(_spark_field(each, of, with_ids=with_ids))
            return StructType(fields)
        case ice.ListType():
            element = _spark_type(kind.element_type, with_ids=with_ids)
            if element is None or kind.element_required:
                return None
            return ArrayType(element)
        case ice.MapType():
            key = _spark_type(kind.key_type, with_ids=with_ids)
            value = _spark_type(kind.value_type, with_ids=with_ids)
            if key is None or value is None or kind.value_required:
                return None
            return MapType(key, value)
        case ice.DecimalType():
            return DecimalType(kind.precision, kind.scale)
        case _:
            return _SPARKS.get(type(kind))


def _spark_field(field: ice.NestedField, kind: DataType, *, with_ids: bool) -> StructField:
    return StructField(field.name, kind, True, {FIELD_ID: field.field_id} if with_ids else None)


def _plain(kind: DataType) -> DataType:
    """A type of rows as a table gives it back: all of it nullable, and no number smaller than an int."""
    made = _iceberg_type(kind, _Numbers())
    plain = None if made is None else _spark_type(made)
    return kind if plain is None else plain


def _is_flat(kind: ice.IcebergType) -> bool:
    match kind:
        case ice.StructType():
            return all(_is_flat(each.field_type) for each in kind.fields)
        case ice.ListType() | ice.MapType():
            return False
        case _:
            return True


def _by_name(table: Schema, name: str) -> dict[str, ice.NestedField]:
    found: dict[str, ice.NestedField] = {}
    for each in table.fields:
        other = found.get(each.name.lower())
        if other is not None:
            raise IcebergFailed(
                f"the columns {other.name!r} and {each.name!r} of {name} differ in their case alone, which"
                " Spark does not tell apart: use another table"
            )
        found[each.name.lower()] = each
    return found

"""The columns of a Protobuf message in Spark: their types, and how their values are read."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from zhumq.pipelines.decoded import NESTING_MAX
from zhumq.schemas.errors import InvalidSchema
from zhumq.schemas.protobuf_decoding import JsonWriter, as_text, enum_name, is_map
from zhumq.schemas.protobuf_types import MemoryBudget, MessageTypes

FIELDS_MAX: Final = 10_000  # with those of nested messages
JSON_CHARACTERS_MAX: Final = 16_000_000  # of a value that is JSON as text

_KINDS: Final = {
    FieldDescriptor.CPPTYPE_INT32: "INT",
    FieldDescriptor.CPPTYPE_INT64: "BIGINT",
    FieldDescriptor.CPPTYPE_UINT32: "BIGINT",  # Spark's numbers have a sign
    FieldDescriptor.CPPTYPE_UINT64: "DECIMAL(20, 0)",
    FieldDescriptor.CPPTYPE_FLOAT: "FLOAT",
    FieldDescriptor.CPPTYPE_DOUBLE: "DOUBLE",
    FieldDescriptor.CPPTYPE_BOOL: "BOOLEAN",
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NANOSECONDS: Final = 1000  # of a microsecond

Read = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtobufColumn:
    """A field: its type in Spark's DDL, and its value in a message. One that is not set is null, if that can be seen."""

    name: str
    kind: str
    read: Read


def columns_of(types: MessageTypes, type_: Descriptor) -> tuple[ProtobufColumn, ...]:
    """The fields of a type. Raises InvalidSchema."""
    if not type_.fields:
        raise InvalidSchema(f"the message {type_.full_name} has no fields, so it has no columns")
    return tuple(_TypeWalk(types).columns(type_, frozenset()))


class _TypeWalk:
    """Names the Spark types of a message, whose types may contain themselves."""

    def __init__(self, types: MessageTypes) -> None:
        self._types = types
        self._left = FIELDS_MAX

    def columns(self, type_: Descriptor, path: frozenset[str]) -> list[ProtobufColumn]:
        """`path` has the types on the way: what contains itself is JSON."""
        names: set[str] = set()
        found = []
        for field in type_.fields:
            self._left -= 1
            if self._left < 0:
                raise InvalidSchema(f"the message has more than {FIELDS_MAX} fields")
            if field.name.lower() in names:
                raise InvalidSchema(f"two fields differ only in their case: {field.name!r}")
            names.add(field.name.lower())
            found.append(self._column(field, path | {type_.full_name}))
        return found

    def _column(self, field: FieldDescriptor, path: frozenset[str]) -> ProtobufColumn:
        name = field.name
        if is_map(field):
            kind, read = self._map(field, path)
        elif field.is_repeated:
            item, read_item = self._single(field, path)
            kind, read = f"ARRAY<{item}>", lambda values: [read_item(each) for each in values]
        else:
            kind, read = self._single(field, path)
        if field.has_presence:
            return ProtobufColumn(
                name=name,
                kind=kind,
                read=lambda message: (
                    read(getattr(message, name)) if message.HasField(name) else None
                ),
            )
        return ProtobufColumn(
            name=name, kind=kind, read=lambda message: read(getattr(message, name))
        )

    def _map(self, field: FieldDescriptor, path: frozenset[str]) -> tuple[str, Read]:
        assert field.message_type is not None
        key, value = field.message_type.fields
        key_kind, read_key = self._single(key, path)
        value_kind, read_value = self._single(value, path)
        return f"MAP<{key_kind}, {value_kind}>", lambda entries: {
            read_key(each): read_value(entries[each]) for each in entries
        }

    def _single(self, field: FieldDescriptor, path: frozenset[str]) -> tuple[str, Read]:
        if field.message_type is not None:
            return self._message(field.message_type, path)
        if field.enum_type is not None:
            return "STRING", lambda number: enum_name(field, number) or str(number)
        match field.type:
            case FieldDescriptor.TYPE_STRING:
                return "STRING", _same
            case FieldDescriptor.TYPE_BYTES:
                return "BINARY", _same
        is_large = field.cpp_type == FieldDescriptor.CPPTYPE_UINT64
        return _KINDS[field.cpp_type], Decimal if is_large else _same

    def _message(self, type_: Descriptor, path: frozenset[str]) -> tuple[str, Read]:
        match self._types.well_known(type_):
            case "Timestamp":
                return "TIMESTAMP", lambda value: _EPOCH + _duration(value)
            case "Duration":
                return "INTERVAL DAY TO SECOND", _duration
            case "Wrapper":
                kind, read = self._single(type_.fields_by_name["value"], path)
                return kind, lambda wrapper: read(wrapper.value)
            case None if type_.fields and type_.full_name not in path and len(path) < NESTING_MAX:
                columns = self.columns(type_, path)
                members = ", ".join(f"`{each.name}`: {each.kind}" for each in columns)
                return f"STRUCT<{members}>", lambda message: {
                    each.name: each.read(message) for each in columns
                }
            case _:
                return "STRING", self._as_json

    def _as_json(self, message: Any) -> str:
        writer = JsonWriter(self._types, JSON_CHARACTERS_MAX, MemoryBudget())
        found = writer.value(message)
        return found if isinstance(found, str) else as_text(found)


def _same(value: Any) -> Any:
    return value


def _duration(value: Any) -> timedelta:
    """Spark has microseconds."""
    return timedelta(seconds=value.seconds, microseconds=int(value.nanos / _NANOSECONDS))

"""Reads Protobuf messages as JSON, as Protobuf's specification has it. What it writes is bounded, whatever the data says."""

import base64
import json
import math
import struct
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from zhumq.schemas.errors import NotDecoded
from zhumq.schemas.protobuf_types import MemoryBudget, MessageTypes, without_indexes

DEPTH_MAX: Final = 100  # of messages in each other, also of those in an Any
_VALUE_CHARACTERS: Final = 4  # what the least value takes in JSON, with its comma
_LONGS: Final = frozenset(
    (
        FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_SINT64,
        FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64,
    )
)  # fmt: skip
_FLOAT: Final = struct.Struct("<f")
_DIGITS: Final = range(6, 9)  # of a float: nine are always enough


def protobuf_as_json(types: MessageTypes, data: bytes, characters_max: int) -> str:
    """JSON of a message, before whose data are its indexes. Fields have the names of the schema; those not set are left out.

    Raises NotDecoded if the data is not of this schema, or if the JSON would have more than `characters_max`.
    """
    indexes, content = without_indexes(data)
    type_ = types.at(indexes)
    if len(content) > characters_max:
        raise _too_large()
    budget = MemoryBudget()
    message = types.read(type_, content, budget)
    return JsonWriter(types, characters_max, budget).text(message)


class JsonWriter:
    """Writes messages as JSON, up to a number of characters."""

    def __init__(self, types: MessageTypes, characters_max: int, budget: MemoryBudget) -> None:
        self._types = types
        self._characters_left = characters_max
        self._budget = budget

    def text(self, message: Message) -> str:
        """Raises NotDecoded."""
        return as_text(self.value(message))

    def value(self, message: Message, depth: int = 0) -> Any:
        """The value that JSON has for a message. Raises NotDecoded."""
        if depth > DEPTH_MAX:
            raise NotDecoded(f"the message is nested more than {DEPTH_MAX} levels deep")
        self._spend(_VALUE_CHARACTERS)
        type_: Any = message.DESCRIPTOR
        match self._types.well_known(type_):
            case "Timestamp" | "Duration" | "FieldMask":
                return self._special(message, depth)
            case "Any":
                return self._any(message, depth)
            case "Struct":
                return self._map(type_.fields_by_name["fields"], _of(message, "fields"), depth)  # fmt: skip
            case "ListValue":
                return [self.value(each, depth + 1) for each in _of(message, "values")]
            case "Value":
                kind = message.WhichOneof("kind")
                if kind is None or kind == "null_value":
                    return None
                return self._single(type_.fields_by_name[kind], _of(message, kind), depth)  # fmt: skip
            case "Wrapper":
                return self._single(type_.fields_by_name["value"], _of(message, "value"), depth)  # fmt: skip
            case _:
                return self._fields(message, depth)

    def field(self, field: FieldDescriptor, value: Any, depth: int = 0) -> Any:
        """The value that JSON has for a field. Raises NotDecoded."""
        if is_map(field):
            return self._map(field, value, depth)
        if field.is_repeated:
            return [self._single(field, each, depth) for each in value]
        return self._single(field, value, depth)

    def _fields(self, message: Message, depth: int) -> dict[str, Any]:
        found = {}
        for field, value in message.ListFields():
            name = f"[{field.full_name}]" if field.is_extension else field.name
            self._spend(len(name) + _VALUE_CHARACTERS)
            found[name] = self.field(field, value, depth)
        return found

    def _map(self, field: FieldDescriptor, entries: Any, depth: int) -> dict[str, Any]:
        of_value = _entry(field).fields_by_name["value"]
        found = {}
        for key in entries:
            name = json.dumps(key) if isinstance(key, bool) else str(key)
            self._spend(len(name) + _VALUE_CHARACTERS)
            found[name] = self._single(of_value, entries[key], depth)
        return found

    def _single(self, field: FieldDescriptor, value: Any, depth: int) -> Any:
        if isinstance(value, Message):
            return self.value(value, depth + 1)
        self._spend(_VALUE_CHARACTERS)
        if isinstance(value, bytes):
            self._spend(len(value) * 4 // 3)
            return base64.b64encode(value).decode("ascii")
        if isinstance(value, str):
            self._spend(len(value))
            return value
        if isinstance(value, float):
            return _number(value, is_single=field.type == FieldDescriptor.TYPE_FLOAT)
        if field.enum_type is not None:
            return self._symbol(field, value)
        return str(value) if field.type in _LONGS else value

    def _symbol(self, field: FieldDescriptor, number: int) -> str | int | None:
        assert field.enum_type is not None
        if field.enum_type.full_name == "google.protobuf.NullValue":
            return None
        name = enum_name(field, number)
        self._spend(len(name or ""))
        # A newer schema has this one.
        return number if name is None else name

    def _special(self, message: Any, depth: int) -> Any:
        """A text of its own; the fields, if they are no time or no path."""
        try:
            found: str = message.ToJsonString()
        except ValueError:
            return self._fields(message, depth)
        self._spend(len(found))
        return found

    def _any(self, message: Any, depth: int) -> dict[str, Any]:
        """The message of an Any, if its type is one of the schema; else its bytes."""
        if not message.type_url and not message.value:
            return {}
        self._spend(len(message.type_url))
        found: dict[str, Any] = {"@type": message.type_url}
        type_ = self._types.named(message.type_url.rpartition("/")[2])
        if type_ is None:
            self._spend(len(message.value) * 4 // 3)
            return found | {"value": base64.b64encode(message.value).decode("ascii")}
        inner = self._types.read(type_, message.value, self._budget)
        value = self.value(inner, depth + 1)
        return found | ({"value": value} if self._types.well_known(type_) else value)

    def _spend(self, characters: int) -> None:
        self._characters_left -= characters
        if self._characters_left < 0:
            raise _too_large()


def as_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def is_map(field: FieldDescriptor) -> bool:
    type_ = field.message_type
    return field.is_repeated and type_ is not None and type_.GetOptions().map_entry


def enum_name(field: FieldDescriptor, number: int) -> str | None:
    """The name of a value of an enum; None if the schema has no such value."""
    assert field.enum_type is not None
    found = field.enum_type.values_by_number.get(number)
    return None if found is None else found.name


def _entry(field: FieldDescriptor) -> Descriptor:
    assert field.message_type is not None
    return field.message_type


def _of(message: Message, field: str) -> Any:
    return getattr(message, field)


def _number(value: float, *, is_single: bool) -> float | str:
    """JSON has no NaN and no infinity. A float has as few digits as it needs."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if is_single:
        for digits in _DIGITS:
            short = float(f"{value:.{digits}g}")
            if _FLOAT.unpack(_FLOAT.pack(short))[0] == value:
                return short
        return float(f"{value:.9g}")
    return value


def _too_large() -> NotDecoded:
    return NotDecoded("it is too large to be shown decoded")

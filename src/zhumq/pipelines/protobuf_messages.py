"""Protobuf messages without Spark: the columns of a type, and the values of a message."""

import base64
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.unknown_fields import UnknownFieldSet

from zhumq.pipelines.decoded import Decoded, of_unknown_schema, without_id
from zhumq.pipelines.protobuf_columns import JSON_CHARACTERS_MAX, ProtobufColumn, columns_of
from zhumq.schemas import framing
from zhumq.schemas.errors import InvalidSchema, NotDecoded
from zhumq.schemas.protobuf_decoding import JsonWriter, as_text
from zhumq.schemas.protobuf_types import MemoryBudget, MessageTypes, without_indexes

# The serialized FileDescriptorProto of a file and of those it imports, its own the last: Spark's workers have no compiler.
ProtobufFiles = tuple[bytes, ...]

MALFORMED: Final = "not Protobuf of the given schema"


class ProtobufDecoder:
    """Decodes messages of one type into the columns that it has for their reader."""

    def __init__(
        self, *, reader: ProtobufFiles, message: str, writers: Mapping[int, ProtobufFiles] | None
    ) -> None:
        """With `writers`, by id, every message has the frame of a registry; without, none has. Raises InvalidSchema."""
        self._reader = reader
        self._message = message
        self._writers = writers
        self._columns_of_reader()

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        return tuple((each.name, each.kind) for each in self._columns_of_reader())

    def decode(self, raw: bytes | None) -> Decoded:
        if raw is None:
            return Decoded(fields={}, reason=MALFORMED)
        try:
            if self._writers is None:
                return self._fields(raw, self._reader)
            schema_id = framing.schema_id(raw)
            if schema_id is None:
                return without_id()
            if schema_id not in self._writers:
                return of_unknown_schema(schema_id)
            writer = self._writers[schema_id]
            indexes, data = without_indexes(framing.unframed(raw))
            name = _types(writer).at(indexes).full_name
            if name != self._message:
                return Decoded(fields={}, reason=f"it is a {name}, not a {self._message}")
            return self._fields(data, writer)
        except (NotDecoded, InvalidSchema) as error:
            return Decoded(fields={}, reason=f"{MALFORMED}: {error}")
        except (OverflowError, ValueError):
            # A time that Spark does not have, or a text that is not UTF-8.
            return Decoded(fields={}, reason=MALFORMED)

    def _fields(self, data: bytes, writer: ProtobufFiles) -> Decoded:
        types = _types(self._reader)
        type_ = _named(types, self._message)
        message = types.read(type_, data, MemoryBudget())
        fields = {each.name: each.read(message) for each in self._columns_of_reader()}
        unknown = UnknownFieldSet(message)
        fields_left = [unknown[index] for index in range(len(unknown))]
        # The unknown values of an enum have the number of a field that there is.
        new = {each.field_number: each for each in fields_left if each.field_number not in type_.fields_by_number}  # fmt: skip
        if not new:
            return Decoded(fields=fields)
        added = self._added(new, data, _types(writer))
        return Decoded(fields=fields, change=", ".join(added), added=added)

    def _added(self, new: Mapping[int, Any], data: bytes, types: MessageTypes) -> dict[str, str]:
        """The fields that the reader does not have: by name, if the writer has them, else by number."""
        type_ = _named(types, self._message)
        budget = MemoryBudget()
        message = types.read(type_, data, budget)
        by_number: dict[int, tuple[Any, Any]] = {
            field.number: (field, value) for field, value in message.ListFields()
        }
        added = {}
        for number, unknown in new.items():
            if number not in by_number:
                added[str(number)] = _raw(unknown.data)
                continue
            field, value = by_number[number]
            found = JsonWriter(types, JSON_CHARACTERS_MAX, budget).field(field, value)
            added[field.name] = found if isinstance(found, str) else as_text(found)
        return added

    def _columns_of_reader(self) -> tuple[ProtobufColumn, ...]:
        return _columns(self._reader, self._message)


def message_name(files: ProtobufFiles, name: str | None) -> str:
    """The name of a type; without one that of the only message that no other has as a field. Raises InvalidSchema."""
    types = _types(files)
    if name is not None:
        if types.named(name) is None:
            raise InvalidSchema(
                f"there is no message {name!r} in the schema; it has {', '.join(types.names()[:10])}"
            )
        return name
    names = types.outermost()
    if len(names) != 1:
        raise InvalidSchema(
            f"the schema has {len(names)} messages"
            + (f", {', '.join(names[:10])}: name one with `message`" if names else "")
        )
    return names[0]


def first_message(files: ProtobufFiles) -> str:
    """The first message of a file that no other has as a field. Raises InvalidSchema."""
    return message_name(files, next(iter(_types(files).outermost()), None))


@lru_cache(maxsize=200)
def _types(files: ProtobufFiles) -> MessageTypes:
    return MessageTypes([FileDescriptorProto.FromString(each) for each in files])


@lru_cache(maxsize=200)
def _columns(files: ProtobufFiles, message: str) -> tuple[ProtobufColumn, ...]:
    types = _types(files)
    return columns_of(types, _named(types, message))


def _named(types: MessageTypes, name: str) -> Descriptor:
    found = types.named(name)
    if found is None:
        raise InvalidSchema(f"there is no message {name!r} in the schema")
    return found


def _raw(data: Any) -> str:
    """The value of a field that no known schema has."""
    match data:
        case bytes():
            return base64.b64encode(data).decode("ascii")
        case int():
            return str(data)
        case _:
            return ""  # a group

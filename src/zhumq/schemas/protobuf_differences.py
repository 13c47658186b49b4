"""Which Protobuf schemas read what was written with others: by the numbers and the wire types of their fields."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

REASONS_MAX: Final = 20
_F: Final = FieldDescriptorProto
# Types of one group have one form on the wire.
_GROUPS: Final = {
    _F.TYPE_INT32: "number", _F.TYPE_INT64: "number", _F.TYPE_UINT32: "number", _F.TYPE_UINT64: "number",
    _F.TYPE_BOOL: "number", _F.TYPE_ENUM: "number",
    _F.TYPE_SINT32: "signed number", _F.TYPE_SINT64: "signed number",
    _F.TYPE_STRING: "text", _F.TYPE_BYTES: "text",
    _F.TYPE_FIXED32: "fixed 32 bits", _F.TYPE_SFIXED32: "fixed 32 bits",
    _F.TYPE_FIXED64: "fixed 64 bits", _F.TYPE_SFIXED64: "fixed 64 bits",
    _F.TYPE_FLOAT: "float", _F.TYPE_DOUBLE: "double",
    _F.TYPE_MESSAGE: "message", _F.TYPE_GROUP: "group",
}  # fmt: skip


def cannot_read(
    reader: Sequence[FileDescriptorProto], writer: Sequence[FileDescriptorProto]
) -> list[str]:
    """Why a file does not read what was written with another; empty if it does. Imports come first."""
    return list(dict.fromkeys(_Comparison(_Types(reader), _Types(writer)).findings()))[:REASONS_MAX]


class _Types:
    """The messages of a file and of those it imports, by their full names."""

    def __init__(self, files: Sequence[FileDescriptorProto]) -> None:
        self.messages: dict[str, DescriptorProto] = {}
        self.own: dict[str, str] = {}  # those of the file itself: the names without the package
        self._packages: dict[str, str] = {}
        for file in files:
            prefix = f".{file.package}" if file.package else ""
            for each in file.message_type:
                self._add(each, prefix, file.package, is_own=file is files[-1])

    def local_name(self, name: str) -> str:
        """A name without the package of its file, which may change."""
        package = self._packages.get(name, "")
        return name.removeprefix(f".{package}.") if package else name.removeprefix(".")

    def _add(self, message: DescriptorProto, scope: str, package: str, *, is_own: bool) -> None:
        name = f"{scope}.{message.name}"
        self.messages[name] = message
        self._packages[name] = package
        if is_own and not message.options.map_entry:
            self.own[self.local_name(name)] = name
        for each in message.nested_type:
            self._add(each, name, package, is_own=is_own)


@dataclass(slots=True)
class _Comparison:
    reader: _Types
    writer: _Types
    _seen: set[tuple[str, str]] = field(default_factory=set)

    def findings(self) -> Iterator[str]:
        for local, name in self.writer.own.items():
            if local not in self.reader.own:
                yield f"the message {local} is gone"
            else:
                yield from self._messages(self.reader.own[local], name)

    def _messages(self, reader: str, writer: str) -> Iterator[str]:
        if (reader, writer) in self._seen:
            return
        self._seen.add((reader, writer))
        mine, theirs = self.reader.messages[reader], self.writer.messages[writer]
        local = self.writer.local_name(writer)
        my_fields = {each.number: each for each in mine.field}
        their_fields = {each.number: each for each in theirs.field}
        for number, each in their_fields.items():
            if number not in my_fields:
                yield from _removed(local, each, theirs, my_fields)
            else:
                yield from self._fields(local, my_fields[number], each)
        for number, each in my_fields.items():
            if number not in their_fields and each.label == _F.LABEL_REQUIRED:
                yield f"the required field {each.name} of {local} was added"
        yield from _moved(local, mine, theirs)

    def _fields(
        self, local: str, mine: FieldDescriptorProto, theirs: FieldDescriptorProto
    ) -> Iterator[str]:
        where = f"the field {mine.name} = {mine.number} of {local}"
        my_map, their_map = self._entry(self.reader, mine), self._entry(self.writer, theirs)
        if (my_map is None) is not (their_map is None):
            yield f"{where} is a map in one of the schemas only"
        elif my_map is not None and their_map is not None:
            for my_part, their_part in zip(my_map.field, their_map.field, strict=True):
                yield from self._fields(f"the map {mine.name} of {local}", my_part, their_part)
        elif _GROUPS[mine.type] != _GROUPS[theirs.type]:
            yield f"{where} was a {_GROUPS[theirs.type]}, and is a {_GROUPS[mine.type]}"
        elif mine.type == _F.TYPE_MESSAGE:
            yield from self._types(where, mine, theirs)
        elif _GROUPS[mine.type] != "text" and _is_repeated(mine) is not _is_repeated(theirs):
            yield f"{where} is repeated in one of the schemas only"

    def _types(
        self, where: str, mine: FieldDescriptorProto, theirs: FieldDescriptorProto
    ) -> Iterator[str]:
        before = self.writer.local_name(theirs.type_name)
        now = self.reader.local_name(mine.type_name)
        if before != now:
            yield f"{where} was of type {before}, and is of type {now}"
        elif mine.type_name in self.reader.messages and theirs.type_name in self.writer.messages:
            yield from self._messages(mine.type_name, theirs.type_name)

    @staticmethod
    def _entry(types: _Types, each: FieldDescriptorProto) -> DescriptorProto | None:
        found = types.messages.get(each.type_name)
        return found if found is not None and found.options.map_entry else None


def _removed(
    local: str,
    each: FieldDescriptorProto,
    message: DescriptorProto,
    left: dict[int, FieldDescriptorProto],
) -> Iterator[str]:
    if each.label == _F.LABEL_REQUIRED:
        yield f"the required field {each.name} of {local} is gone"
    oneof = _oneof(each)
    if oneof is not None:
        others = [one for one in message.field if _oneof(one) == oneof]
        # Readers that know the others take one that is not set for none.
        if any(one.number in left for one in others):
            yield f"the field {each.name} of a oneof of {local} is gone"


def _moved(local: str, mine: DescriptorProto, theirs: DescriptorProto) -> Iterator[str]:
    """Fields that could be set together, and now are of one oneof."""
    before = {each.number: _oneof(each) for each in theirs.field}
    for index, oneof in enumerate(mine.oneof_decl):
        origins: set[object] = set()
        for each in mine.field:
            if _oneof(each) == index and each.number in before:
                group = before[each.number]
                origins.add(("field", each.number) if group is None else ("oneof", group))
        if len(origins) > 1:
            yield f"fields of {local} that could be set together are in the oneof {oneof.name} now"


def _oneof(each: FieldDescriptorProto) -> int | None:
    is_real = each.HasField("oneof_index") and not each.proto3_optional
    return each.oneof_index if is_real else None


def _is_repeated(each: FieldDescriptorProto) -> bool:
    return each.label == _F.LABEL_REPEATED

"""Prints the descriptor of a .proto file as its text: always the same for the same descriptor."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)
from google.protobuf.unknown_fields import UnknownFieldSet

_INDENT: Final = "  "
_TYPES: Final = {
    number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()
}
_LABELS: Final = {
    FieldDescriptorProto.LABEL_REQUIRED: "required ",
    FieldDescriptorProto.LABEL_REPEATED: "repeated ",
}
_EXTENSION_NUMBER_MAX: Final = 536870911
_ENUM_NUMBER_MAX: Final = 2**31 - 1


def is_printable(file: FileDescriptorProto, *, with_custom_options: bool = True) -> bool:
    """Whether the text of a descriptor has all that it has. Custom options, groups and editions are not printed."""
    if file.syntax == "editions":
        return False
    if with_custom_options and any(_is_custom(each) for each in _all_options(file)):
        return False
    return not any(
        each.type == FieldDescriptorProto.TYPE_GROUP
        for each in [*_fields(file.message_type), *file.extension]
    )


def print_file(file: FileDescriptorProto) -> str:
    """The text of a .proto file."""
    is_proto3 = file.syntax == "proto3"
    lines = [f'syntax = "{file.syntax or "proto2"}";']
    if file.package:
        lines.append(f"package {file.package};")
    for index, name in enumerate(file.dependency):
        kind = "public " if index in file.public_dependency else "weak " if index in file.weak_dependency else ""  # fmt: skip
        lines.append(f"import {kind}{_quoted(name)};")
    lines += [f"option {each};" for each in _options(file.options)]
    for message in file.message_type:
        lines += ["", *_message(message, is_proto3=is_proto3)]
    for enum in file.enum_type:
        lines += ["", *_enum(enum)]
    lines += _extensions(file.extension, is_proto3=is_proto3)
    for service in file.service:
        lines += ["", *_service(service)]
    return "\n".join(lines) + "\n"


def map_entries(message: DescriptorProto) -> dict[str, DescriptorProto]:
    """The types that stand for the maps of a message, by the last part of their names."""
    return {each.name: each for each in message.nested_type if each.options.map_entry}


def _message(message: DescriptorProto, *, is_proto3: bool) -> Iterator[str]:
    maps = map_entries(message)
    yield f"message {message.name} {{"
    body: list[str] = [f"option {each};" for each in _options(message.options)]
    body += _reserved(message.reserved_range, message.reserved_name, exclusive=True, largest=_EXTENSION_NUMBER_MAX)  # fmt: skip
    for span in message.extension_range:
        body.append(f"extensions {_span(span.start, span.end - 1, _EXTENSION_NUMBER_MAX)};")
    in_oneofs: dict[int, list[FieldDescriptorProto]] = {}
    for field in message.field:
        if field.HasField("oneof_index") and not field.proto3_optional:
            in_oneofs.setdefault(field.oneof_index, []).append(field)
        else:
            body.append(_field(field, maps, is_proto3=is_proto3))
    for index, fields in in_oneofs.items():
        oneof = message.oneof_decl[index]
        body.append(f"oneof {oneof.name} {{")
        body += [f"{_INDENT}option {each};" for each in _options(oneof.options)]
        body += [_INDENT + _field(each, maps, is_proto3=True) for each in fields]
        body.append("}")
    for nested in message.nested_type:
        if nested.name not in maps:
            body += _message(nested, is_proto3=is_proto3)
    for enum in message.enum_type:
        body += _enum(enum)
    body += _extensions(message.extension, is_proto3=is_proto3)
    yield from (f"{_INDENT}{each}" if each else each for each in body)
    yield "}"


def _field(
    field: FieldDescriptorProto, maps: dict[str, DescriptorProto], *, is_proto3: bool
) -> str:
    label = _LABELS.get(field.label, "" if is_proto3 and not field.proto3_optional else "optional ")
    type_ = _type(field)
    entry = maps.get(field.type_name.rpartition(".")[2]) if field.type_name else None
    if entry is not None:
        key, value = entry.field
        label, type_ = "", f"map<{_type(key)}, {_type(value)}>"
    options = list(_options(field.options))
    if field.HasField("default_value"):
        options.insert(0, f"default = {_default(field)}")
    if field.json_name and field.json_name != _json_name(field.name):
        options.append(f"json_name = {_quoted(field.json_name)}")
    bracket = f" [{', '.join(options)}]" if options else ""
    return f"{label}{type_} {field.name} = {field.number}{bracket};"


def _type(field: FieldDescriptorProto) -> str:
    return field.type_name or _TYPES[field.type]


def _default(field: FieldDescriptorProto) -> str:
    if field.type == FieldDescriptorProto.TYPE_BYTES:
        return f'"{field.default_value}"'  # It is escaped already.
    return _quoted(field.default_value) if field.type == FieldDescriptorProto.TYPE_STRING else field.default_value  # fmt: skip


def _enum(enum: EnumDescriptorProto) -> Iterator[str]:
    yield f"enum {enum.name} {{"
    yield from (f"{_INDENT}option {each};" for each in _options(enum.options))
    spans = _reserved(enum.reserved_range, enum.reserved_name, exclusive=False, largest=_ENUM_NUMBER_MAX)  # fmt: skip
    yield from (_INDENT + each for each in spans)
    for value in enum.value:
        options = ", ".join(_options(value.options))
        yield f"{_INDENT}{value.name} = {value.number}{f' [{options}]' if options else ''};"
    yield "}"


def _service(service: ServiceDescriptorProto) -> Iterator[str]:
    yield f"service {service.name} {{"
    yield from (f"{_INDENT}option {each};" for each in _options(service.options))
    for method in service.method:
        taken = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
        given = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
        options = [f"option {each};" for each in _options(method.options)]
        body = f" {{ {' '.join(options)} }}" if options else ";"
        yield f"{_INDENT}rpc {method.name} ({taken}) returns ({given}){body}"
    yield "}"


def _extensions(fields: Iterable[FieldDescriptorProto], *, is_proto3: bool) -> Iterator[str]:
    for field in fields:
        yield f"extend {field.extendee} {{"
        yield _INDENT + _field(field, {}, is_proto3=is_proto3)
        yield "}"


def _reserved(ranges: Iterable[Any], names: Iterable[str], *, exclusive: bool, largest: int) -> list[str]:  # fmt: skip
    spans = [_span(each.start, each.end - 1 if exclusive else each.end, largest) for each in ranges]
    quoted = [_quoted(each) for each in names]
    return [f"reserved {', '.join(each)};" for each in (spans, quoted) if each]


def _span(first: int, last: int, largest: int) -> str:
    if first == last:
        return str(first)
    return f"{first} to {'max' if last >= largest else last}"


def _options(options: Any) -> Iterator[str]:
    """The options that descriptor.proto has. A list of messages is none of those that are printed."""
    for field, value in options.ListFields():
        if field.name == "map_entry" or field.type == FieldDescriptor.TYPE_MESSAGE:
            continue
        for each in value if _is_repeated(field) else (value,):
            yield f"{field.name} = {_option_value(field, each)}"


def _option_value(field: Any, value: Any) -> str:
    if field.type == FieldDescriptor.TYPE_ENUM:
        name: str = field.enum_type.values_by_number[value].name
        return name
    if field.type == FieldDescriptor.TYPE_BOOL:
        return "true" if value else "false"
    return _quoted(value) if isinstance(value, str) else str(value)


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated)


def _is_custom(options: Any) -> bool:
    is_message = any(each.type == FieldDescriptor.TYPE_MESSAGE for each, _ in options.ListFields())
    return is_message or len(UnknownFieldSet(options)) > 0


def _all_options(file: FileDescriptorProto) -> Iterator[Any]:
    yield file.options
    for message in _messages(file.message_type):
        yield message.options
        parts: list[Any] = [*message.field, *message.extension, *message.oneof_decl, *message.extension_range]  # fmt: skip
        yield from (each.options for each in parts)
    enums = [*file.enum_type, *(each for one in _messages(file.message_type) for each in one.enum_type)]  # fmt: skip
    for enum in enums:
        yield enum.options
        yield from (each.options for each in enum.value)
    for service in file.service:
        yield service.options
        yield from (each.options for each in service.method)
    yield from (each.options for each in file.extension)


def _messages(messages: Iterable[DescriptorProto]) -> Iterator[DescriptorProto]:
    for each in messages:
        yield each
        yield from _messages(each.nested_type)


def _fields(messages: Iterable[DescriptorProto]) -> Iterator[FieldDescriptorProto]:
    for message in _messages(messages):
        yield from message.field
        yield from message.extension


def _json_name(name: str) -> str:
    """The name of a field in JSON, as protoc makes it."""
    found, is_upper = "", False
    for each in name:
        if each == "_":
            is_upper = True
        else:
            found, is_upper = found + (each.upper() if is_upper else each), False
    return found


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'

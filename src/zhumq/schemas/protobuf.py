"""Protobuf schemas: compiled by protoc, or given as the descriptor of a file, as Confluent's Python client does."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError

from zhumq.schemas.errors import InvalidSchema
from zhumq.schemas.protobuf_decoding import protobuf_as_json
from zhumq.schemas.protobuf_differences import cannot_read
from zhumq.schemas.protobuf_encoding import json_as_protobuf
from zhumq.schemas.protobuf_printer import is_printable, print_file
from zhumq.schemas.protobuf_sources import MAIN, Compile
from zhumq.schemas.protobuf_types import MessageTypes, without_indexes
from zhumq.schemas.schema import SchemaType

NESTING_MAX: Final = 100  # of braces in each other


@dataclass(frozen=True, kw_only=True)  # without slots: cached_property has no place there
class ProtobufSchema:
    """A valid .proto file, with the files that it imports. Its own is the last."""

    text: str
    files: tuple[FileDescriptorProto, ...]

    @property
    def type(self) -> SchemaType:
        return SchemaType.PROTOBUF

    @property
    def file(self) -> FileDescriptorProto:
        return self.files[-1]

    def normalized(self) -> str:
        return print_file(self.file) if is_printable(self.file) else self.text

    def formatted(self, name: str) -> str:
        if name != "serialized":
            return self.text
        return base64.b64encode(self.file.SerializeToString(deterministic=True)).decode("ascii")

    @cached_property
    def types(self) -> MessageTypes:
        """The types of its messages. Raises InvalidSchema."""
        return MessageTypes(self.files)

    def as_json(self, data: bytes, characters_max: int) -> str:
        return protobuf_as_json(self.types, data, characters_max)

    def message_of(self, data: bytes) -> str:
        indexes, _ = without_indexes(data)
        return self.types.at(indexes).full_name

    def from_json(self, value: Any, message: str | None) -> bytes:
        return json_as_protobuf(self.types, value, message)

    def cannot_read(self, writer: "ProtobufSchema") -> list[str]:
        return cannot_read(self.files, writer.files)


def parse(text: str, references: Mapping[str, str], compile_: Compile) -> ProtobufSchema:
    """Parse a schema that imports others by their names. Raises InvalidSchema."""
    given = _descriptor(text)
    if given is not None:
        if not is_printable(given, with_custom_options=False):
            raise InvalidSchema("the descriptor has groups or an edition: send the .proto text")
        text = print_file(given)
    if _nesting(text) > NESTING_MAX:
        raise InvalidSchema(f"the messages are nested more than {NESTING_MAX} levels deep")
    if MAIN in references:
        raise InvalidSchema(f"a reference cannot be named {MAIN!r}")
    files = tuple(
        FileDescriptorProto.FromString(each) for each in compile_({**references, MAIN: text}, MAIN)
    )
    # Comments and spaces are left out, as far as the descriptor has all the rest.
    kept = print_file(files[-1]) if is_printable(files[-1]) else text.strip()
    return ProtobufSchema(text=kept, files=files)


def _descriptor(text: str) -> FileDescriptorProto | None:
    """The descriptor that a text is; None if it is the text of a .proto file."""
    try:
        return FileDescriptorProto.FromString(base64.b64decode(text.strip(), validate=True))
    except (binascii.Error, DecodeError, ValueError):
        return None


def _nesting(text: str) -> int:
    deepest = depth = 0
    for each in text:
        if each == "{":
            depth += 1
            deepest = max(deepest, depth)
        elif each == "}":
            depth -= 1
    return deepest

"""Finds the schemas of JSON, Avro and Protobuf messages: in a file, or in the registry with all versions of a subject."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.protoc import compile_protobuf
from zhumq.admin.schemas import ReadableSchema, show_versions
from zhumq.pipelines.avro_messages import AvroDecoder
from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.decoded import MessageDecoder
from zhumq.pipelines.json_columns import json_columns
from zhumq.pipelines.spec import ParseFormat, SchemaSource
from zhumq.schemas.errors import InvalidSchema, SchemaError, VersionNotFound
from zhumq.schemas.formats import Formats
from zhumq.schemas.schema import Schema, SchemaType

if TYPE_CHECKING:
    from zhumq.pipelines.protobuf_messages import ProtobufDecoder, ProtobufFiles

VERSIONS_MAX: Final = 100  # of a subject: the newest ones are known
COMPILED_MAX: Final = 256  # schemas that are kept compiled: each query of `zhumq sql` asks for them
_TYPES: Final = {
    ParseFormat.JSON: SchemaType.JSON,
    ParseFormat.AVRO: SchemaType.AVRO,
    ParseFormat.PROTOBUF: SchemaType.PROTOBUF,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSchema:
    """How the messages of a step are read: by the columns of JSON, in Spark's DDL, or by a decoder."""

    columns: str = ""
    decoder: MessageDecoder | None = None


def message_schema(source: SchemaSource, brokers: Brokers | None) -> MessageSchema:
    """The schema of a step. Raises SpecInvalid with the line of one that cannot be used.

    Without brokers, as in tests of a pipeline, there is no registry.
    """
    try:
        if source.subject is None:
            return _file_schema(source)
        if brokers is None:
            raise source.mark.wrong("needs the schema registry of a broker; tests run without one")
        with ClusterConnection(brokers.bootstrap, security=brokers.security()) as connection:
            found = show_versions(connection, source.subject)
        reader = found[-1]
        if source.version is not None:
            by_number = {each.version: each for each in found}
            if source.version not in by_number:
                raise VersionNotFound(source.version)
            reader = by_number[source.version]
        type_ = _TYPES[source.format]
        if reader.type != type_:
            raise InvalidSchema(f"{reader.subject!r} is {reader.type}, not {type_}")
        if source.format is ParseFormat.JSON:
            return MessageSchema(columns=json_columns(reader.schema, reader.uses))
        return MessageSchema(decoder=registry_decoder(reader, found, message=source.message))
    except SchemaError as error:
        raise source.mark.wrong(str(error)) from None


def check_file_schema(source: SchemaSource) -> None:
    """Raises InvalidSchema for a file that is no schema."""
    _file_schema(source)


def _file_schema(source: SchemaSource) -> MessageSchema:
    assert source.text is not None
    match source.format:
        case ParseFormat.JSON:
            return MessageSchema(columns=json_columns(source.text))
        case ParseFormat.AVRO:
            return MessageSchema(decoder=AvroDecoder(reader=(source.text,), writers=None))
        case _:
            files = _protobuf_files(source.text, source.imports)
            return MessageSchema(decoder=_protobuf_decoder(files, source.message))


def registry_decoder(
    reader: ReadableSchema,
    versions: Sequence[ReadableSchema],
    *,
    message: str | None = None,
    needs_choice: bool = True,
) -> MessageDecoder:
    """The decoder of messages that were written with these versions of a subject. Raises InvalidSchema.

    Of several messages of Protobuf one has to be named, unless the first one is as good (`needs_choice`).
    """
    known = [*versions[-VERSIONS_MAX:], reader]
    for each in known:
        if each.type != reader.type:
            raise InvalidSchema(f"{each.subject!r} is {each.type}, not {reader.type}")
    if reader.type == SchemaType.AVRO:
        texts = {each.id: (*(text for _, text in each.uses), each.schema) for each in known}
        return AvroDecoder(reader=texts[reader.id], writers=texts)
    writers = {each.id: _protobuf_files(each.schema, each.uses) for each in known}
    return _protobuf_decoder(writers[reader.id], message, writers, needs_choice=needs_choice)


@lru_cache(maxsize=COMPILED_MAX)
def _protobuf_files(text: str, imports: tuple[tuple[str, str], ...]) -> "ProtobufFiles":
    """Compile a schema, by a process of its own. Raises InvalidSchema, also if the packages for that are missing."""
    resolved = [(name, Schema(type=SchemaType.PROTOBUF, text=each)) for name, each in imports]
    schema = Schema(type=SchemaType.PROTOBUF, text=text)
    parsed = Formats(compile_protobuf).parse(schema, resolved)
    # Imported here: only this format needs Protobuf.
    from zhumq.schemas.protobuf import ProtobufSchema  # noqa: PLC0415

    assert isinstance(parsed, ProtobufSchema)
    return tuple(each.SerializeToString(deterministic=True) for each in parsed.files)


def _protobuf_decoder(
    files: "ProtobufFiles",
    message: str | None,
    writers: "dict[int, ProtobufFiles] | None" = None,
    *,
    needs_choice: bool = True,
) -> "ProtobufDecoder":
    # Imported here: only this format needs Protobuf.
    from zhumq.pipelines.protobuf_messages import (  # noqa: PLC0415
        ProtobufDecoder,
        first_message,
        message_name,
    )

    name = message_name(files, message) if needs_choice else first_message(files)
    return ProtobufDecoder(reader=files, message=name, writers=writers)

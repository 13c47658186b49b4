"""A registry without a log: changes are replayed as they would be read back."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

from zhumq.admin.protoc import compile_protobuf
from zhumq.schemas import changes
from zhumq.schemas.changes import Change, NewSchema
from zhumq.schemas.formats import Formats
from zhumq.schemas.log_records import LogRecord, decode, encode
from zhumq.schemas.registry import Registry
from zhumq.schemas.schema import Reference, Schema, SchemaType, Version

Answer = TypeVar("Answer")
FORMATS = Formats(compile_protobuf)


class Log:
    """The records of a registry, and the registry that they make."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.messages: list[tuple[bytes, bytes | None]] = []

    def change(self, decide: Callable[[Registry], Change[Answer]]) -> Answer:
        made = decide(self.registry)
        for record in made.records:
            self.write(record)
        return made.answer

    def write(self, record: LogRecord) -> None:
        key, value = encode(record)
        self.messages.append((key, value))
        self.registry.replay(decode(key, value))

    def register(self, subject: str, schema: Any, **options: Any) -> Version:
        new = NewSchema(schema=avro(schema, *options.pop("references", ())), **options)
        return self.change(lambda registry: changes.register(registry, FORMATS, subject, new))

    def compacted(self) -> "Log":
        """What is left after compaction has removed all but the last message of each key, and tombstones."""
        last = {key: index for index, (key, _) in enumerate(self.messages)}
        log = Log()
        for index, (key, value) in enumerate(self.messages):
            if last[key] == index and value is not None:
                log.messages.append((key, value))
                log.registry.replay(decode(key, value))
        return log


def avro(schema: Any, *references: Reference) -> Schema:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return Schema(type=SchemaType.AVRO, text=text, references=references)


def record(name: str, /, **fields: Any) -> dict[str, Any]:
    """An Avro record: each field is a type, or a type and a default."""
    made: list[dict[str, Any]] = []
    for field, type_ in fields.items():
        pair = type_ if isinstance(type_, tuple) else (type_,)
        made.append(dict(zip(("name", "type", "default"), (field, *pair), strict=False)))
    return {"type": "record", "name": name, "fields": made}

"""Avro messages without Spark: the columns of a schema, and the values of a message."""

import io
import json
import struct
from collections.abc import Mapping
from datetime import date, datetime, time
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import fastavro
from fastavro.read import SchemaResolutionError

from zhumq.pipelines.decoded import (
    NESTING_MAX,
    Decoded,
    of_unknown_schema,
    without_id,
)
from zhumq.schemas import framing
from zhumq.schemas.avro import parse
from zhumq.schemas.errors import InvalidSchema

MALFORMED: Final = "not Avro of the given schema"
_PRIMITIVES: Final = {
    "boolean": "BOOLEAN", "int": "INT", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE",
    "bytes": "BINARY", "string": "STRING",
}  # fmt: skip
_LOGICAL: Final = {
    ("int", "date"): "DATE",
    ("int", "time-millis"): "STRING",
    ("long", "time-micros"): "STRING",
    ("long", "timestamp-millis"): "TIMESTAMP",
    ("long", "timestamp-micros"): "TIMESTAMP",
    ("long", "local-timestamp-millis"): "TIMESTAMP_NTZ",
    ("long", "local-timestamp-micros"): "TIMESTAMP_NTZ",
}
_DECIMAL_DIGITS_MAX: Final = 38  # of Spark
# What fastavro raises for bytes that are not of their schema.
_UNREADABLE: Final = (
    EOFError, IndexError, KeyError, OverflowError, SchemaResolutionError, StopIteration, TypeError,
    ValueError, struct.error,
)  # fmt: skip


# The text of a schema, behind those that it refers to.
AvroTexts = tuple[str, ...]


def avro_columns(texts: AvroTexts) -> tuple[tuple[str, str], ...]:
    """The names and the Spark types of the fields of a record. Raises InvalidSchema."""
    *references, text = texts
    parse(text, references)
    schema = json.loads(text)
    if not isinstance(schema, dict) or schema.get("type") not in ("record", "error"):
        raise InvalidSchema("the schema of a message must be a record")
    walk = _TypeWalk()
    for each in references:
        walk.learn(json.loads(each))
    return tuple(walk.fields(schema, depth=0))


class AvroDecoder:
    """Decodes messages with the schema of their writers into the columns of a reader."""

    def __init__(self, *, reader: AvroTexts, writers: Mapping[int, AvroTexts] | None) -> None:
        """With `writers`, by id, every message has the frame of a registry; without, none has. Raises InvalidSchema."""
        self._reader = reader
        self._writers = writers
        self.columns = avro_columns(reader)

    def decode(self, raw: bytes | None) -> Decoded:
        if raw is None:
            return Decoded(fields={}, reason=MALFORMED)
        writer, begin = self._reader, 0
        if self._writers is not None:
            schema_id = framing.schema_id(raw)
            if schema_id is None:
                return without_id()
            if schema_id not in self._writers:
                return of_unknown_schema(schema_id)
            writer, begin = self._writers[schema_id], framing.FRAME_BYTES
        buffer = io.BytesIO(raw)
        buffer.seek(begin)
        try:
            found = _plain(
                fastavro.schemaless_reader(buffer, _parsed(writer), _parsed(self._reader))
            )
            if buffer.tell() != len(raw):
                return Decoded(fields={}, reason=f"{MALFORMED}: there are bytes after it")
            new = _only_in(writer[-1], self._reader[-1])
            if not new:
                return Decoded(fields=found)
            buffer.seek(begin)
            whole = _plain(fastavro.schemaless_reader(buffer, _parsed(writer), None))
        except _UNREADABLE:
            return Decoded(fields={}, reason=MALFORMED)
        added = {name: _as_text(whole[name]) for name in new}
        return Decoded(fields=found, change=", ".join(new), added=added)


@lru_cache(maxsize=1000)
def _parsed(texts: AvroTexts) -> Any:
    named: dict[str, Any] = {}
    for each in texts[:-1]:
        fastavro.parse_schema(json.loads(each), named_schemas=named)
    return fastavro.parse_schema(json.loads(texts[-1]), named_schemas=named)


@lru_cache(maxsize=1000)
def _only_in(writer: str, reader: str) -> tuple[str, ...]:
    """The fields that a writer has and a reader has not, not even by another name."""
    if writer == reader:
        return ()
    known = {
        name
        for field in json.loads(reader)["fields"]
        for name in (field["name"], *field.get("aliases", ()))
    }
    return tuple(
        field["name"] for field in json.loads(writer)["fields"] if field["name"] not in known
    )


class _TypeWalk:
    """Names the Spark types of an Avro schema, whose named types may be used again."""

    def __init__(self) -> None:
        self._named: dict[str, str] = {}

    def learn(self, schema: Any) -> None:
        """Keep the types of a schema that others refer to."""
        self._type(schema, depth=0)

    def fields(self, record: Mapping[str, Any], depth: int) -> list[tuple[str, str]]:
        if depth > NESTING_MAX:
            raise InvalidSchema(f"is nested more than {NESTING_MAX} times")
        return [(each["name"], self._type(each["type"], depth + 1)) for each in record["fields"]]

    def _type(self, schema: Any, depth: int) -> str:
        match schema:
            case str() if schema in _PRIMITIVES:
                return _PRIMITIVES[schema]
            case str():
                simple = schema.rpartition(".")[2]
                if simple not in self._named:
                    raise InvalidSchema(
                        f"the type {schema!r} contains itself: Spark has no such type"
                    )
                return self._named[simple]
            case list():
                others = [each for each in schema if each != "null"]
                if len(others) != 1:
                    raise InvalidSchema(
                        f"{json.dumps(schema)[:80]} has several types: a column has one"
                    )
                return self._type(others[0], depth)
            case {"type": "array"}:
                return f"ARRAY<{self._type(schema['items'], depth + 1)}>"
            case {"type": "map"}:
                return f"MAP<STRING, {self._type(schema['values'], depth + 1)}>"
            case {"type": "record" | "error"}:
                members = ", ".join(
                    f"`{name}`: {kind}" for name, kind in self.fields(schema, depth)
                )
                return self._keep(schema, f"STRUCT<{members}>")
            case {"type": "enum"}:
                return self._keep(schema, "STRING")
            case {"type": "fixed"}:
                return self._keep(schema, _decimal(schema) or "BINARY")
            case {"type": str() as kind} if kind in _PRIMITIVES:
                logical = _LOGICAL.get((kind, str(schema.get("logicalType"))))
                if logical is None and kind == "bytes":
                    logical = _decimal(schema)
                return logical or _PRIMITIVES[kind]
            case {"type": inner}:
                return self._type(inner, depth + 1)
            case _:
                raise InvalidSchema(f"{str(schema)[:60]!r} has no type in Spark")

    def _keep(self, schema: Mapping[str, Any], kind: str) -> str:
        self._named[schema["name"].rpartition(".")[2]] = kind
        return kind


def _decimal(schema: Mapping[str, Any]) -> str | None:
    if schema.get("logicalType") != "decimal":
        return None
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not 0 < precision <= _DECIMAL_DIGITS_MAX:
        raise InvalidSchema(f"a decimal has 1 to {_DECIMAL_DIGITS_MAX} digits in Spark")
    return f"DECIMAL({precision}, {scale})"


def _plain(value: Any) -> Any:
    """A value of types that Spark knows."""
    match value:
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case UUID():
            return str(value)
        case time():
            return value.isoformat()
        case _:
            return value


def _as_text(value: Any) -> str:
    match value:
        case str():
            return value
        case datetime() | date():
            return value.isoformat()
        case _:
            return json.dumps(value, default=str)

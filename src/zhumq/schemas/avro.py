"""Avro schemas: parsed with fastavro, and their canonical text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import fastavro
from fastavro.schema import SchemaParseException, UnknownType

from zhumq.schemas.avro_decoding import avro_as_json
from zhumq.schemas.avro_encoding import json_as_avro
from zhumq.schemas.avro_node import NAMED, PRIMITIVES, Node, NodeBuilder, full_name
from zhumq.schemas.avro_resolution import cannot_read
from zhumq.schemas.errors import InvalidSchema
from zhumq.schemas.json_text import read_json
from zhumq.schemas.log_records import compact
from zhumq.schemas.schema import SchemaType

_ORDER: Final = ("type", "name", "namespace", "doc", "items", "values", "fields", "symbols", "size", "default", "aliases")  # fmt: skip
_FIELD_ORDER: Final = ("name", "type", "doc", "default", "order", "aliases")


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroSchema:
    """A valid Avro schema."""

    text: str
    node: Node
    canonical: Any

    @property
    def type(self) -> SchemaType:
        return SchemaType.AVRO

    def normalized(self) -> str:
        return compact(_sorted(self.canonical))

    def formatted(self, name: str) -> str:
        del name
        return self.text

    def as_json(self, data: bytes, characters_max: int) -> str:
        return avro_as_json(self.node, data, characters_max)

    def message_of(self, data: bytes) -> None:
        del data

    def from_json(self, value: Any, message: str | None) -> bytes:
        del message
        return json_as_avro(self.node, value)

    def cannot_read(self, writer: "AvroSchema") -> list[str]:
        return cannot_read(self.node, writer.node)


def parse(text: str, references: Sequence[str]) -> AvroSchema:
    """Parse a schema that uses the named types of others. Raises InvalidSchema."""
    builder = NodeBuilder()
    named: dict[str, Any] = {}
    for each in references:
        used = read_json(each)
        builder.build(used)
        _parse_with_fastavro(_canonical(used, ""), named)
    schema = read_json(text)
    node = builder.build(schema)
    canonical = _canonical(schema, "")
    _parse_with_fastavro(canonical, named)
    return AvroSchema(text=compact(canonical), node=node, canonical=canonical)


def _parse_with_fastavro(schema: Any, named: dict[str, Any]) -> None:
    try:
        fastavro.parse_schema(schema, named_schemas=named)
    except (SchemaParseException, UnknownType) as error:
        raise InvalidSchema(f"the Avro schema is invalid: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidSchema(f"the Avro schema is invalid: {type(error).__name__} {error}") from None


def _canonical(schema: Any, namespace: str) -> Any:
    """A schema with its attributes in one order, and each namespace where it begins. Nothing is left out."""
    match schema:
        case str():
            # Within its namespace a type is named without it.
            space, dot, simple = schema.rpartition(".")
            return simple if dot and space == namespace and simple not in PRIMITIVES else schema
        case list():
            return [_canonical(each, namespace) for each in schema]
        case {"type": _, **others} if not others:
            return _canonical(schema["type"], namespace)
        case {"type": str() as kind} if kind in NAMED:
            return _canonical_named(schema, namespace)
        case {"type": "array", "items": items}:
            return _ordered(schema | {"items": _canonical(items, namespace)}, _ORDER)
        case {"type": "map", "values": values}:
            return _ordered(schema | {"values": _canonical(values, namespace)}, _ORDER)
        case {"type": inner}:
            return _ordered(schema | {"type": _canonical(inner, namespace)}, _ORDER)
        case _:
            return schema


def _canonical_named(schema: dict[str, Any], namespace: str) -> dict[str, Any]:
    space, _, simple = full_name(schema["name"], schema.get("namespace"), namespace).rpartition(".")
    found = {**schema, "name": simple}
    found.pop("namespace", None)
    if space != namespace:
        found["namespace"] = space
    if "fields" in schema:
        found["fields"] = [
            _ordered(each | {"type": _canonical(each["type"], space)}, _FIELD_ORDER)
            for each in schema["fields"]
        ]
    return _ordered(found, _ORDER)


def _ordered(schema: dict[str, Any], order: Sequence[str]) -> dict[str, Any]:
    known = {name: schema[name] for name in order if name in schema}
    return known | {name: each for name, each in schema.items() if name not in known}


def _sorted(schema: Any) -> Any:
    """A canonical schema with its other attributes by name as well."""
    match schema:
        case list():
            return [_sorted(each) for each in schema]
        case dict():
            by_name = {name: _sorted(schema[name]) for name in sorted(schema)}
            return _ordered(by_name, _FIELD_ORDER if _is_field(schema) else _ORDER)
        case _:
            return schema


def _is_field(schema: dict[str, Any]) -> bool:
    kind = schema.get("type")
    return "name" in schema and not (isinstance(kind, str) and kind in NAMED)

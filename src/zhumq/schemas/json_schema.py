"""JSON Schemas: checked with jsonschema, their references resolved with referencing, and their canonical text."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from jsonschema import Draft7Validator
from jsonschema.exceptions import SchemaError as NoJsonSchema
from jsonschema.validators import validator_for
from jsonschema_specifications import REGISTRY
from referencing import Registry, Resource
from referencing.exceptions import NoSuchResource, Unresolvable
from referencing.jsonschema import DRAFT7, specification_with

from zhumq.schemas.errors import InvalidSchema, NotDecoded
from zhumq.schemas.json_checking import check_json
from zhumq.schemas.json_differences import cannot_read
from zhumq.schemas.json_text import read_json
from zhumq.schemas.json_views import Place, Resolver
from zhumq.schemas.log_records import compact
from zhumq.schemas.schema import SchemaType

_VALUES: Final = frozenset(
    {"enum", "const", "default", "examples", "example"}
)  # of data, not of schemas
_ROOT: Final = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSchema:
    """A valid JSON Schema, all of whose references lead somewhere."""

    text: str
    place: Place
    registry: Registry[Any]  # of what it refers to

    @property
    def type(self) -> SchemaType:
        return SchemaType.JSON

    def normalized(self) -> str:
        return json.dumps(
            self.place.schema, separators=(",", ":"), ensure_ascii=False, sort_keys=True
        )

    def formatted(self, name: str) -> str:
        del name
        return self.text

    def as_json(self, data: bytes, characters_max: int) -> str:
        """The data itself: it is not checked again, as what was written is to be seen."""
        if len(data) > characters_max:
            raise NotDecoded("it is too large to be shown decoded")
        try:
            text = data.decode()
            json.loads(text)
        except (ValueError, RecursionError):
            raise NotDecoded("what follows the id of the schema is no JSON") from None
        return text

    def message_of(self, data: bytes) -> None:
        del data

    def from_json(self, value: Any, message: str | None) -> None:
        del message
        check_json(self.place.schema, self.registry, value)

    def cannot_read(self, writer: "JsonSchema") -> list[str]:
        return cannot_read(self.place, writer.place)


def parse(text: str, references: Mapping[str, str]) -> JsonSchema:
    """Parse a schema that refers to others by their names. Raises InvalidSchema."""
    schema = _checked(text)
    registry: Registry[Any] = REGISTRY
    for name, each in references.items():
        registry = registry.with_resource(name, _resource(_checked(each)))
    root = _resource(schema)
    registry = registry.with_resource(root.id() or _ROOT, root)
    resolver = registry.resolver(root.id() or _ROOT)
    for reference, base in _references(schema, resolver, _specification(schema)):
        try:
            base.lookup(reference)
        except (Unresolvable, NoSuchResource, ValueError):
            raise InvalidSchema(
                f"$ref {reference[:100]!r} leads nowhere: name the schema as a reference"
            ) from None
    place = Place(schema=schema, resolver=resolver, specification=_specification(schema))
    return JsonSchema(text=compact(schema), place=place, registry=registry)


def _checked(text: str) -> Any:
    schema = read_json(text)
    if not isinstance(schema, dict | bool):
        raise InvalidSchema("a JSON Schema is an object, true or false")
    try:
        validator: Any = validator_for(schema, default=Draft7Validator)
        validator.check_schema(schema)
    except NoJsonSchema as error:
        where = "/".join(str(each) for each in error.absolute_path)
        raise InvalidSchema(
            f"the JSON Schema is invalid at /{where}: {error.message[:200]}"
        ) from None
    return schema


def _specification(schema: Any) -> Any:
    uri = schema.get("$schema") if isinstance(schema, dict) else None
    return specification_with(uri, default=DRAFT7) if isinstance(uri, str) else DRAFT7


def _resource(schema: Any) -> Resource[Any]:
    return Resource.from_contents(schema, default_specification=DRAFT7)


def _references(
    schema: Any, resolver: Resolver, specification: Any
) -> Iterator[tuple[str, Resolver]]:
    """Every $ref of a schema, with what it is resolved by."""
    if isinstance(schema, list):
        for each in schema:
            yield from _references(each, resolver, specification)
    elif isinstance(schema, dict):
        if isinstance(schema.get("$id"), str):
            resolver = resolver.in_subresource(specification.create_resource(schema))
        reference = schema.get("$ref")
        if isinstance(reference, str):
            yield reference, resolver
        for name, each in schema.items():
            if name not in _VALUES:
                yield from _references(each, resolver, specification)

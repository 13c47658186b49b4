"""JSON Schemas as views: each has one kind, whatever keywords it was written with."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from referencing.exceptions import Unresolvable

Resolver = Any  # of referencing, whose class is not public

REFERENCES_MAX: Final = 50  # that lead to each other without a schema in between

_OBJECT: Final = frozenset(
    {
        "properties", "required", "additionalProperties", "patternProperties", "unevaluatedProperties", "minProperties",
        "maxProperties", "dependencies", "dependentRequired", "dependentSchemas", "propertyNames",
    }
)  # fmt: skip
_ARRAY: Final = frozenset(
    {
        "items", "prefixItems", "additionalItems", "unevaluatedItems", "minItems", "maxItems", "uniqueItems", "contains",
        "minContains", "maxContains",
    }
)  # fmt: skip
_STRING: Final = frozenset({"minLength", "maxLength", "pattern"})
_NUMBER: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})  # fmt: skip


class Kind(StrEnum):
    """What a schema is, in the words of the reasons."""

    ANYTHING = "anything"
    NOTHING = "nothing"
    STRING = "a string"
    NUMBER = "a number"
    BOOLEAN = "a boolean"
    NULL = "null"
    OBJECT = "an object"
    ARRAY = "an array"
    VALUES = "one of some values"
    NOT = "what a schema does not describe"
    ALL_OF = "all of some schemas"
    ANY_OF = "any of some schemas"
    ONE_OF = "one of some schemas"

    @property
    def is_combined(self) -> bool:
        return self in (Kind.ALL_OF, Kind.ANY_OF, Kind.ONE_OF)


_COMBINED: Final = (("allOf", Kind.ALL_OF), ("anyOf", Kind.ANY_OF), ("oneOf", Kind.ONE_OF))
_TYPES: Final = {
    "string": Kind.STRING,
    "number": Kind.NUMBER,
    "integer": Kind.NUMBER,
    "boolean": Kind.BOOLEAN,
    "null": Kind.NULL,
    "object": Kind.OBJECT,
    "array": Kind.ARRAY,
}
_IMPLIED: Final = (
    (_OBJECT, Kind.OBJECT),
    (_ARRAY, Kind.ARRAY),
    (_STRING, Kind.STRING),
    (_NUMBER, Kind.NUMBER),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A schema, and what its references are resolved by."""

    schema: Any
    resolver: Resolver
    specification: Any

    def at(self, schema: Any) -> "Place":
        """A schema below this one."""
        resolver = self.resolver
        if isinstance(schema, dict) and isinstance(schema.get("$id"), str):
            resolver = resolver.in_subresource(self.specification.create_resource(schema))
        return Place(schema=schema, resolver=resolver, specification=self.specification)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class View:
    """A schema of one kind. Views of one schema are one object, so that pairs of them are compared once."""

    kind: Kind
    place: Place
    parts: tuple["View | Place", ...] = ()  # of a combined schema

    @property
    def keywords(self) -> dict[str, Any]:
        found: dict[str, Any] = self.place.schema
        return found


class Views:
    """The views of the schemas of one comparison."""

    def __init__(self) -> None:
        self._known: dict[int, View] = {}
        self._kept: list[Any] = []  # The key of a view is the address of its schema.

    def view(self, place: "Place | View") -> View:
        if isinstance(place, View):
            return place
        place = self._followed(place)
        key = id(place.schema)
        if key not in self._known:
            self._kept.append(place.schema)
            self._known[key] = self._make(place)
        return self._known[key]

    def _followed(self, place: Place) -> Place:
        for _ in range(REFERENCES_MAX):
            schema = place.schema
            if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
                return place
            try:
                found = place.resolver.lookup(schema["$ref"])
            except Unresolvable:
                return Place(
                    schema=False, resolver=place.resolver, specification=place.specification
                )
            place = Place(
                schema=found.contents, resolver=found.resolver, specification=place.specification
            )
        # References that only lead to each other describe nothing.
        return Place(schema=False, resolver=place.resolver, specification=place.specification)

    def _make(self, place: Place) -> View:
        schema = place.schema
        if schema is False:
            return View(kind=Kind.NOTHING, place=place)
        if not isinstance(schema, dict):
            return View(kind=Kind.ANYTHING, place=place)
        parts = tuple(self._parts(place, schema))
        if not parts:
            return View(kind=Kind.ANYTHING, place=place)
        if len(parts) == 1:
            return parts[0]
        return View(kind=Kind.ALL_OF, place=place, parts=parts)

    def _parts(self, place: Place, schema: dict[str, Any]) -> Iterator[View]:
        if "enum" in schema or "const" in schema:
            yield View(kind=Kind.VALUES, place=place)
        if "not" in schema:
            yield View(kind=Kind.NOT, place=place)
        for name, kind in _COMBINED:
            if name in schema:
                yield View(
                    kind=kind, place=place, parts=tuple(place.at(each) for each in schema[name])
                )
        types = schema.get("type")
        if isinstance(types, list) and len(types) > 1:
            own = {name: each for name, each in schema.items() if name not in _OTHERS}
            parts = tuple(place.at({**own, "type": each}) for each in types)
            yield View(kind=Kind.ANY_OF, place=place, parts=parts)
        elif types:
            yield View(kind=_TYPES[types if isinstance(types, str) else types[0]], place=place)
        else:
            for keywords, kind in _IMPLIED:
                if keywords & schema.keys():
                    yield View(kind=kind, place=place)


_OTHERS: Final = frozenset({"enum", "const", "not", "$id", *(name for name, _ in _COMBINED)})

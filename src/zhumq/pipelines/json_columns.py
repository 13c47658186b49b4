"""The columns of a JSON Schema, in Spark's DDL. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from zhumq.schemas.errors import InvalidSchema

NESTING_MAX: Final = 20  # of references
FIELDS_MAX: Final = 10_000  # with those of nested objects
_SIMPLE: Final = {
    "string": "STRING", "integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN",
}  # fmt: skip
# A value of any other kind stays JSON: Spark gives its text.
_ANYTHING: Final = "STRING"
_ROOT: Final = ""  # the document that refers to the others


def json_columns(text: str, uses: Sequence[tuple[str, str]] = ()) -> str:
    """The properties of the schema of an object, as columns; it refers to the schemas of `uses` by their names.

    Raises InvalidSchema if it has none.
    """
    walk = _TypeWalk({_ROOT: _read(text), **{name: _read(each) for name, each in uses}})
    root = walk.resolved(_Place(document=_ROOT, schema=walk.documents[_ROOT]))
    properties = root.schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        raise InvalidSchema("the schema names no properties, so it has no columns")
    names = [name.lower() for name in properties]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidSchema(f"two properties differ only in their case: {twice[0]!r}")
    # The root is on the way to all others: what refers to it contains itself.
    inside = replace(root, schema=None, path=root.path | {(_ROOT, "")})
    return ", ".join(
        f"{_quoted(name)} {walk.type(replace(inside, schema=each))}"
        for name, each in properties.items()
    )


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidSchema(f"the schema is not JSON: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A schema, the document that it stands in, and the references on the way to it: what contains itself has no
    type in Spark."""

    document: str
    schema: Any
    path: frozenset[tuple[str, str]] = frozenset()


class _TypeWalk:
    """Names the Spark types of JSON Schemas, whose parts may refer to each other."""

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self.documents = documents
        # A reference names a schema as the registry does, or by the id that it gives itself.
        self._by_id = {
            found.removesuffix("#"): name
            for name, each in documents.items()
            if isinstance(each, dict) and isinstance(found := each.get("$id"), str)
        }
        self._left = FIELDS_MAX

    def type(self, place: _Place) -> str:
        self._left -= 1
        if self._left < 0:
            raise InvalidSchema(f"the schema has more than {FIELDS_MAX} fields")
        if len(place.path) > NESTING_MAX:
            return _ANYTHING
        found = self.resolved(place)
        kind = found.schema.get("type")
        if isinstance(kind, list):
            others = [each for each in kind if each != "null"]
            kind = others[0] if len(others) == 1 else None
        match kind:
            case str() if kind in _SIMPLE:
                return _SIMPLE[kind]
            case "array":
                return f"ARRAY<{self.type(replace(found, schema=found.schema.get('items', {})))}>"
            case "object":
                return self._object(found)
            case _:
                return _ANYTHING

    def _object(self, place: _Place) -> str:
        properties = place.schema.get("properties")
        if not isinstance(properties, dict) or not properties:
            return _ANYTHING
        members = ", ".join(
            f"{_quoted(name)}: {self.type(replace(place, schema=each))}"
            for name, each in properties.items()
        )
        return f"STRUCT<{members}>"

    def resolved(self, place: _Place) -> _Place:
        """A schema behind its references, and without the choice of null; empty if it contains itself."""
        for _ in range(NESTING_MAX):
            match place.schema:
                case {"$ref": str() as reference}:
                    document, _, fragment = reference.partition("#")
                    target = self._document(document, place.document), fragment
                    if target in place.path:
                        break
                    place = _Place(
                        document=target[0],
                        schema=_at(self.documents.get(target[0]), fragment),
                        path=place.path | {target},
                    )
                case {"anyOf": list() as choices} | {"oneOf": list() as choices}:
                    others = [each for each in choices if each != {"type": "null"}]
                    if len(others) != 1:
                        break
                    place = replace(place, schema=others[0])
                case dict():
                    return place
                case _:
                    break
        return replace(place, schema={})

    def _document(self, name: str, here: str) -> str:
        if not name:
            return here
        return name if name in self.documents else self._by_id.get(name, name)


def _at(document: Any, fragment: str) -> Any:
    """What a JSON pointer names; None for what is no pointer, as an anchor, and for what is not there."""
    if fragment and not fragment.startswith("/"):
        return None
    found = document
    for word in fragment.split("/")[1:]:
        name = word.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"

"""The columns of a JSON Schema, in Spark's DDL. Pure."""

import json
from collections.abc import Mapping
from typing import Any, Final

from zhumq.schemas.errors import InvalidSchema

NESTING_MAX: Final = 20  # of references
FIELDS_MAX: Final = 10_000  # with those of nested objects
_SIMPLE: Final = {
    "string": "STRING", "integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN",
}  # fmt: skip
# A value of any other kind stays JSON: Spark gives its text.
_ANYTHING: Final = "STRING"


def json_columns(text: str) -> str:
    """The properties of the schema of an object, as columns. Raises InvalidSchema if it has none."""
    try:
        root = json.loads(text)
    except ValueError as error:
        raise InvalidSchema(f"the schema is not JSON: {error}") from None
    walk = _TypeWalk(root)
    schema, _ = walk.resolved(root, frozenset())
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        raise InvalidSchema("the schema names no properties, so it has no columns")
    names = [name.lower() for name in properties]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidSchema(f"two properties differ only in their case: {twice[0]!r}")
    # The root is on the way to all others: what refers to it contains itself.
    path = frozenset(["#"])
    return ", ".join(
        f"{_quoted(name)} {walk.type(each, path)}" for name, each in properties.items()
    )


class _TypeWalk:
    """Names the Spark types of a JSON Schema, whose parts may refer to each other."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._left = FIELDS_MAX

    def type(self, schema: Any, path: frozenset[str]) -> str:
        """`path` has the references on the way: what contains itself has no type in Spark."""
        self._left -= 1
        if self._left < 0:
            raise InvalidSchema(f"the schema has more than {FIELDS_MAX} fields")
        if len(path) > NESTING_MAX:
            return _ANYTHING
        found, path = self.resolved(schema, path)
        kind = found.get("type")
        if isinstance(kind, list):
            others = [each for each in kind if each != "null"]
            kind = others[0] if len(others) == 1 else None
        match kind:
            case str() if kind in _SIMPLE:
                return _SIMPLE[kind]
            case "array":
                return f"ARRAY<{self.type(found.get('items', {}), path)}>"
            case "object":
                return self._object(found, path)
            case _:
                return _ANYTHING

    def _object(self, schema: Mapping[str, Any], path: frozenset[str]) -> str:
        properties = schema.get("properties")
        if not isinstance(properties, dict) or not properties:
            return _ANYTHING
        members = ", ".join(
            f"{_quoted(name)}: {self.type(each, path)}" for name, each in properties.items()
        )
        return f"STRUCT<{members}>"

    def resolved(
        self, schema: Any, path: frozenset[str]
    ) -> tuple[Mapping[str, Any], frozenset[str]]:
        """A schema behind its local references, and without the choice of null; empty if it contains itself."""
        for _ in range(NESTING_MAX):
            match schema:
                case {"$ref": str() as reference} if reference.startswith("#"):
                    if reference in path:
                        return {}, path
                    path |= {reference}
                    schema = _at(self._root, reference)
                case {"anyOf": list() as choices} | {"oneOf": list() as choices}:
                    others = [each for each in choices if each != {"type": "null"}]
                    if len(others) != 1:
                        return {}, path
                    schema = others[0]
                case dict():
                    return schema, path
                case _:
                    return {}, path
        return {}, path


def _at(root: Any, reference: str) -> Any:
    found = root
    for word in reference.removeprefix("#").split("/")[1:]:
        name = word.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"

"""Avro schemas as nodes: the named types of a schema are nodes that other nodes lead to, also in circles."""

import re
from dataclasses import dataclass, field
from typing import Any, Final

from zhumq.schemas.errors import InvalidSchema

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})  # fmt: skip
NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_INT_BITS: Final = {"int": 31, "long": 63}
MISSING: Final[Any] = object()  # a field without a default, as null is one


@dataclass(eq=False, slots=True, kw_only=True)
class Node:
    """A type. What its kind does not have is empty."""

    kind: str  # a primitive, or record, enum, fixed, array, map, union
    name: str = ""  # with the namespace
    aliases: frozenset[str] = frozenset()
    fields: dict[str, "Field"] = field(default_factory=dict)
    symbols: tuple[str, ...] = ()
    has_default: bool = False  # of an enum
    size: int = 0
    item: "Node | None" = None  # of arrays and maps
    branches: tuple["Node", ...] = ()

    @property
    def simple_name(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass(eq=False, slots=True, kw_only=True)
class Field:
    """A field of a record."""

    name: str
    type: Node
    default: Any = MISSING
    aliases: frozenset[str] = frozenset()


class NodeBuilder:
    """Makes nodes of JSON. The named types of one schema are known to those that are built after it."""

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self._unchecked: list[
            tuple[str, Node, Any]
        ] = []  # defaults whose types may not be complete

    def build(self, schema: Any) -> Node:
        """Raises InvalidSchema."""
        node = self._node(schema, "")
        for where, type_, default in self._unchecked:
            if not default_fits(type_, default):
                raise InvalidSchema(f"the default of {where} is no {_described(type_)}")
        self._unchecked.clear()
        return node

    def _node(self, schema: Any, namespace: str) -> Node:
        match schema:
            case str():
                return self._by_name(schema, namespace)
            case list():
                return self._union(schema, namespace)
            case {"type": "array", "items": items}:
                return Node(kind="array", item=self._node(items, namespace))
            case {"type": "map", "values": values}:
                return Node(kind="map", item=self._node(values, namespace))
            case {"type": str() as kind} if kind in NAMED:
                return self._named(schema, kind, namespace)
            case {"type": "array" | "map" as kind}:
                raise InvalidSchema(
                    f"an Avro {kind} needs {'items' if kind == 'array' else 'values'}"
                )
            case {"type": inner}:
                return self._node(inner, namespace)
            case _:
                raise InvalidSchema(f"{str(schema)[:60]!r} is no Avro type")

    def _by_name(self, name: str, namespace: str) -> Node:
        if name in PRIMITIVES:
            return Node(kind=name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self.names.get(full) or self.names.get(name)
        if found is None:
            raise InvalidSchema(f"there is no Avro type {name[:100]!r}")
        return found

    def _union(self, branches: list[Any], namespace: str) -> Node:
        nodes = tuple(self._node(each, namespace) for each in branches)
        seen: set[str] = set()
        for each in nodes:
            if each.kind == "union":
                raise InvalidSchema("an Avro union may not have a union in it")
            name = each.name or each.kind
            if name in seen:
                raise InvalidSchema(f"an Avro union has {name!r} twice")
            seen.add(name)
        return Node(kind="union", branches=nodes)

    def _named(self, schema: dict[str, Any], kind: str, namespace: str) -> Node:
        name = full_name(schema.get("name"), schema.get("namespace"), namespace)
        if name in self.names:
            raise InvalidSchema(f"the Avro type {name!r} is defined twice")
        own_namespace = name.rpartition(".")[0]
        node = Node(
            kind="record" if kind == "error" else kind,
            name=name,
            aliases=_aliases(schema, own_namespace),
        )
        self.names[name] = node
        match kind:
            case "enum":
                node.symbols = _symbols(schema, name)
                node.has_default = "default" in schema
                if node.has_default and schema["default"] not in node.symbols:
                    raise InvalidSchema(f"the default of the enum {name!r} is none of its symbols")
            case "fixed":
                size = schema.get("size")
                if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                    raise InvalidSchema(f"the size of the fixed {name!r} is no number from 0 on")
                node.size = size
            case _:
                self._add_fields(node, schema.get("fields"), own_namespace)
        return node

    def _add_fields(self, node: Node, fields: Any, namespace: str) -> None:
        if not isinstance(fields, list):
            raise InvalidSchema(f"the record {node.name!r} has no list of fields")
        for each in fields:
            match each:
                case {"name": str() as name, "type": type_}:
                    pass
                case _:
                    raise InvalidSchema(f"a field of {node.name!r} has no name or no type")
            _check_name(name)
            if name in node.fields:
                raise InvalidSchema(f"the record {node.name!r} has the field {name!r} twice")
            made = Field(
                name=name,
                type=self._node(type_, namespace),
                default=each.get("default", MISSING),
                aliases=frozenset(_texts(each, "aliases")),
            )
            node.fields[name] = made
            if made.default is not MISSING:
                self._unchecked.append((f"{node.name}.{name}", made.type, made.default))


def full_name(name: Any, namespace: Any, enclosing: str) -> str:
    """The name of a type with its namespace. Raises InvalidSchema."""
    if not isinstance(name, str) or not isinstance(namespace, str | None):
        raise InvalidSchema("an Avro type needs a name")
    space, dot, simple = name.rpartition(".")
    if not dot:
        space = enclosing if namespace is None else namespace
    for part in (*space.split("."), simple) if space else (simple,):
        _check_name(part)
    return f"{space}.{simple}" if space else simple


def default_fits(type_: Node, value: Any) -> bool:
    """Whether a value is a default of a type. One of a union is of any of its branches (Avro 1.12)."""
    match type_.kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long":
            limit = 1 << _INT_BITS[type_.kind]
            return (
                isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit
            )
        case "float" | "double":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case "bytes":
            return _are_bytes(value)
        case "fixed":
            return _are_bytes(value) and len(value) == type_.size
        case "enum":
            return value in type_.symbols
        case "array":
            assert type_.item is not None
            return isinstance(value, list) and all(default_fits(type_.item, each) for each in value)
        case "map":
            assert type_.item is not None
            return isinstance(value, dict) and all(
                default_fits(type_.item, each) for each in value.values()
            )
        case "record":
            return isinstance(value, dict) and all(
                default_fits(each.type, value[name])
                if name in value
                else each.default is not MISSING
                for name, each in type_.fields.items()
            )
        case _:
            return any(default_fits(each, value) for each in type_.branches)


def _are_bytes(value: Any) -> bool:
    return isinstance(value, str) and all(ord(each) < 256 for each in value)


def _symbols(schema: dict[str, Any], name: str) -> tuple[str, ...]:
    symbols = schema.get("symbols")
    if not isinstance(symbols, list) or len(set(map(str, symbols))) != len(symbols):
        raise InvalidSchema(f"the enum {name!r} has no list of different symbols")
    for each in symbols:
        if not isinstance(each, str):
            raise InvalidSchema(f"a symbol of the enum {name!r} is no text")
        _check_name(each)
    return tuple(symbols)


def _aliases(schema: dict[str, Any], namespace: str) -> frozenset[str]:
    return frozenset(
        each if "." in each or not namespace else f"{namespace}.{each}"
        for each in _texts(schema, "aliases")
    )


def _texts(schema: dict[str, Any], name: str) -> list[str]:
    found = schema.get(name) or []
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise InvalidSchema(f"the {name} of an Avro type are no list of names")
    return found


def _check_name(name: str) -> None:
    if not _NAME.match(name):
        raise InvalidSchema(
            f"{name[:60]!r} cannot be a name in Avro, which has A-Z, a-z, 0-9 and _"
        )


def _described(type_: Node) -> str:
    return f"{type_.kind} {type_.name}".strip()

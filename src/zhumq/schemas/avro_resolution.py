"""Avro's schema resolution: why a reader's schema cannot read what was written with another."""

from typing import Final

from zhumq.schemas.avro_node import MISSING, Node
from zhumq.schemas.errors import InvalidSchema

COMPARISONS_MAX: Final = (
    50_000  # of two types: unions of types that differ in their namespaces only can need very many
)

# What a reader of the first type may also find written.
_PROMOTIONS: Final = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}

Pair = tuple[int, int]


def cannot_read(reader: Node, writer: Node) -> list[str]:
    """The places where the reader's schema does not resolve the writer's; empty if it does."""
    return _Resolution().between(reader, writer, "")


class _Resolution:
    """One comparison. A pair of types that is being compared is taken to match, as records may contain themselves."""

    def __init__(self) -> None:
        self._known: dict[Pair, list[str]] = {}
        self._left = COMPARISONS_MAX

    def between(self, reader: Node, writer: Node, path: str) -> list[str]:
        pair = (id(reader), id(writer))
        if pair not in self._known:
            self._left -= 1
            if not self._left:
                raise InvalidSchema(
                    "the schemas take too long to compare: they have too many unions"
                )
            self._known[pair] = []
            self._known[pair] = self._compare(reader, writer, path)
        return self._known[pair]

    def _compare(self, reader: Node, writer: Node, path: str) -> list[str]:
        where = path or "/"
        if writer.kind == "union":
            return [
                reason
                for branch in writer.branches
                for reason in self.between(reader, branch, path)
            ]
        if reader.kind == "union":
            # Pairs in a branch may depend on the pair that is compared, and are compared again elsewhere.
            known = dict(self._known)
            for branch in reader.branches:
                if not self.between(branch, writer, path):
                    return []
                self._known = dict(known)
            return [f"at {where}, {_named(writer)} was written, and is none of the union's types"]
        if reader.kind != writer.kind:
            if writer.kind in _PROMOTIONS.get(reader.kind, ()):
                return []
            return [f"at {where}, {_named(writer)} was written, and {_named(reader)} is expected"]
        match reader.kind:
            case "array" | "map":
                assert reader.item is not None
                assert writer.item is not None
                return self.between(reader.item, writer.item, f"{path}/{reader.kind}")
            case "record":
                return _names(reader, writer, where) or self._fields(reader, writer, path)
            case "enum":
                return _names(reader, writer, where) or _symbols(reader, writer, where)
            case "fixed" if reader.size != writer.size:
                sizes = f"{writer.size} bytes were written, and {reader.size} are expected"
                return _names(reader, writer, where) or [f"at {where}, {sizes}"]
            case "fixed":
                return _names(reader, writer, where)
            case _:
                return []

    def _fields(self, reader: Node, writer: Node, path: str) -> list[str]:
        reasons: list[str] = []
        for name, each in reader.fields.items():
            # The names that the writer may have it under, its own first.
            found = writer.fields.get(name) or next(
                (writer.fields[alias] for alias in sorted(each.aliases) if alias in writer.fields),
                None,
            )
            if found is not None:
                reasons += self.between(each.type, found.type, f"{path}/{name}")
            elif each.default is MISSING:
                reasons.append(f"at {path}/{name}, the field was not written, and has no default")
        return reasons


def _names(reader: Node, writer: Node, where: str) -> list[str]:
    """Avro compares the names without their namespaces."""
    if reader.simple_name == writer.simple_name or writer.name in reader.aliases:
        return []
    return [f"at {where}, {_named(writer)} was written, and {_named(reader)} is expected"]


def _symbols(reader: Node, writer: Node, where: str) -> list[str]:
    missing = [each for each in writer.symbols if each not in reader.symbols]
    if not missing or reader.has_default:
        return []
    return [f"at {where}, the enum {reader.name} lacks the symbols {', '.join(missing[:10])}"]


def _named(node: Node) -> str:
    return f"{node.kind} {node.name}".strip()

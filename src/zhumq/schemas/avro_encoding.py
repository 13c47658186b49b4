"""Writes JSON as Avro data of a schema: what `avro_decoding` shows, and Avro's own JSON with the branches of unions."""

import json
import struct
from collections.abc import Iterator
from typing import Any, Final

from zhumq.schemas.avro_decoding import DEPTH_MAX
from zhumq.schemas.avro_node import MISSING, Node, default_fits
from zhumq.schemas.errors import NotEncoded

STEPS_MAX: Final = (
    1_000_000  # values that are written, also those of a branch that does not fit in the end
)
TRIES_MAX: Final = 20_000  # branches of unions that do not fit
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_NOT_FINITE: Final = {"nan": "nan", "NaN": "nan", "inf": "inf", "Infinity": "inf", "-inf": "-inf", "-Infinity": "-inf"}  # fmt: skip
# Branches of a union that take what another branch is closer to: a whole number, a text.
_LOOSE: Final = frozenset({"float", "double", "bytes", "fixed"})
_SHOWN: Final = 40  # characters of a value in a reason


def json_as_avro(node: Node, value: Any) -> bytes:
    """The data of a value. A value of a union is that of its first branch that fits, or `{"branch": value}`.

    Fields that are left out have their default. Raises NotEncoded, which names the place.
    """
    writer = _Writer()
    try:
        writer.write(node, value, 0)
    except RecursionError:
        raise NotEncoded("the value is nested too deeply") from None
    return bytes(writer.data)


class _Writer:
    def __init__(self) -> None:
        self.data = bytearray()
        self._steps_left = STEPS_MAX
        self._tries_left = TRIES_MAX
        self._path: list[str] = []

    def write(self, node: Node, value: Any, depth: int) -> None:
        self._steps_left -= 1
        if depth > DEPTH_MAX or self._is_spent():
            raise _too_much()
        match node.kind:
            case "record":
                self._record(node, value, depth)
            case "union":
                self._union(node, value, depth)
            case "array":
                self._array(node, value, depth)
            case "map":
                self._map(node, value, depth)
            case "float" | "double":
                self._number(node.kind, value)
            case _:
                self._scalar(node, value)

    def _is_spent(self) -> bool:
        return self._steps_left < 0 or self._tries_left < 0

    def _scalar(self, node: Node, value: Any) -> None:
        if not default_fits(node, value):
            raise self._refused(node, value)
        match node.kind:
            case "null":
                pass
            case "boolean":
                self.data.append(value)
            case "int" | "long":
                self._long(value)
            case "string":
                self._bytes(_utf8(value))
            case "bytes":
                self._bytes(value.encode("latin-1"))
            case "fixed":
                self.data += value.encode("latin-1")
            case _:
                self._long(node.symbols.index(value))

    def _number(self, kind: str, value: Any) -> None:
        # JSON has no NaN and no infinity: they are shown as texts.
        number = _NOT_FINITE.get(value) if isinstance(value, str) else value
        if number is None or isinstance(number, bool) or not isinstance(number, int | float | str):
            raise self._refused(Node(kind=kind), value)
        try:
            self.data += (_FLOAT if kind == "float" else _DOUBLE).pack(float(number))
        except OverflowError:
            raise self._refused(Node(kind=kind), value) from None

    def _record(self, node: Node, value: Any, depth: int) -> None:
        if not isinstance(value, dict):
            raise self._refused(node, value)
        unknown = next((name for name in value if name not in node.fields), None)
        if unknown is not None:
            raise NotEncoded(f"{self._place()}: {node.name} has no field {unknown[:_SHOWN]!r}")
        for name, field in node.fields.items():
            self._path.append(name)
            if name in value:
                self.write(field.type, value[name], depth + 1)
            elif field.default is not MISSING:
                self.write(field.type, field.default, depth + 1)
            else:
                raise NotEncoded(f"{self._place()} is missing, and has no default")
            self._path.pop()

    def _union(self, node: Node, value: Any, depth: int) -> None:
        begin, path = len(self.data), list(self._path)
        reason: NotEncoded | None = None
        for index in _likely(node, value):
            branch = node.branches[index]
            self._long(index)
            try:
                self.write(branch, value, depth + 1)
            except NotEncoded as error:
                self._tries_left -= 1
                if self._is_spent():
                    raise _too_much() from None
                # The reason of the only branch that could have been meant says more than that none fits.
                reason = error if branch.kind in ("record", "array", "map") else reason
                del self.data[begin:]
                self._path = list(path)
            else:
                return
        tagged = _tagged(node, value)
        if tagged is not None:
            index, inner = tagged
            self._long(index)
            self.write(node.branches[index], inner, depth + 1)
            return
        raise reason or self._refused(node, value)

    def _array(self, node: Node, value: Any, depth: int) -> None:
        if not isinstance(value, list):
            raise self._refused(node, value)
        assert node.item is not None
        if value:
            self._long(len(value))
        for index, each in enumerate(value):
            self._path.append(str(index))
            self.write(node.item, each, depth + 1)
            self._path.pop()
        self._long(0)

    def _map(self, node: Node, value: Any, depth: int) -> None:
        if not isinstance(value, dict):
            raise self._refused(node, value)
        assert node.item is not None
        if value:
            self._long(len(value))
        for name, each in value.items():
            self._path.append(name[:_SHOWN])
            self._bytes(_utf8(name))
            self.write(node.item, each, depth + 1)
            self._path.pop()
        self._long(0)

    def _long(self, value: int) -> None:
        unsigned = (value << 1) ^ (value >> 63)
        while unsigned >= 0x80:
            self.data.append((unsigned & 0x7F) | 0x80)
            unsigned >>= 7
        self.data.append(unsigned)

    def _bytes(self, content: bytes) -> None:
        self._long(len(content))
        self.data += content

    def _place(self) -> str:
        return "/" + "/".join(self._path)

    def _refused(self, node: Node, value: Any) -> NotEncoded:
        # A large value is refused for each branch that it does not fit.
        match value:
            case dict():
                shown = "an object"
            case list():
                shown = "a list"
            case _:
                shown = json.dumps(value, ensure_ascii=False)
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]} …"
        return NotEncoded(f"{self._place()}: {shown} is no {_described(node)}")


def _likely(node: Node, value: Any) -> Iterator[int]:
    """The branches of a union, those that a value is close to first."""
    loose = [
        index
        for index, each in enumerate(node.branches)
        if each.kind in _LOOSE and isinstance(value, int | str)
    ]
    yield from (index for index in range(len(node.branches)) if index not in loose)
    yield from loose


def _tagged(node: Node, value: Any) -> tuple[int, Any] | None:
    """The branch that `{"branch": value}` names, as Avro's own JSON has it."""
    if not isinstance(value, dict) or len(value) != 1:
        return None
    ((tag, inner),) = value.items()
    for index, each in enumerate(node.branches):
        if tag in (each.name or each.kind, each.simple_name):
            return index, inner
    return None


def _too_much() -> NotEncoded:
    return NotEncoded("the value is too large, nested too deeply, or has too many unions")


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise NotEncoded("a text has half of a character (a lone surrogate)") from None


def _described(node: Node) -> str:
    if node.kind == "union":
        return " or ".join(each.name or each.kind for each in node.branches)
    if node.kind == "enum":
        return f"{node.name} ({', '.join(node.symbols[:10])})"
    return f"{node.kind} {node.name}".strip()

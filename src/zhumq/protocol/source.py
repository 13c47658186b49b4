"""Base of the source generators: lines, names for constants, and minimum sizes of wire types."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from zhumq.protocol.schema import ArrayOf, Fixed, Message, StructOf, WireType, fields_of

# One message may hold this many array elements in all, so that a frame of two-byte structs cannot
# become gigabytes of Python objects.
ELEMENTS_MAX = 500_000


class Source:
    """The body of one function, for one version of one message."""

    def __init__(self, version: int, *, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self._depth = 1
        self._last_number = 0

    def emit(self, line: str) -> None:
        self.lines.append(" " * self._depth + line)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        self.emit(opening)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, prefix: str) -> str:
        """An unused variable name."""
        self._last_number += 1
        return f"{prefix}{self._last_number}"

    def named(self, name: str, value: object) -> str:
        self.names[name] = value
        return name

    def struct_named(self, codes: str) -> tuple[str, int]:
        """The name of the struct of these codes, and its size."""
        layout = struct.Struct(">" + codes)
        return self.named("S_" + codes.replace("?", "o"), layout), layout.size

    def function(self, signature: str) -> Any:
        text = f"def {signature}:\n" + "\n".join(self.lines)
        exec(text, self.names)  # noqa: S102  the source is made of our own declarations only
        return self.names[signature.partition("(")[0]]


def size_min(wire_type: WireType, version: int, *, flexible: bool) -> int:
    """The fewest bytes of a value, to check a claimed array length against."""
    match wire_type:
        case Fixed(size=size):
            return size
        case StructOf(message):
            return max(1, _struct_size_min(message, version, flexible=flexible))
        case ArrayOf():
            return 1 if flexible else 4
        case _:
            if flexible:
                return 1
            return 2 if wire_type.name == "string" else 4


def _struct_size_min(message: type[Message], version: int, *, flexible: bool) -> int:
    total = 1 if flexible else 0
    for spec in fields_of(message):
        if version not in spec.versions or spec.tag is not None:
            continue
        if isinstance(spec.type, StructOf) and version in spec.nullable:
            total += 1
        else:
            total += size_min(spec.type, version, flexible=flexible)
    return total

"""Reads Avro data with the schema that it was written with, as JSON. What it writes is bounded, whatever the data says."""

import json
import math
import struct
from typing import Any, Final

from zhumq.schemas.avro_node import Node
from zhumq.schemas.errors import NotDecoded

DEPTH_MAX: Final = 100  # of values in each other
_VARINT_BYTES_MAX: Final = 10
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_VALUE_CHARACTERS: Final = 4  # what the least value takes in JSON, with its comma


def avro_as_json(node: Node, data: bytes, characters_max: int) -> str:
    """JSON of data, which is all of it. Values of unions are without their branch; bytes are as Avro's JSON has them.

    Raises NotDecoded if the data is not of this schema, or if the JSON would have more than `characters_max`.
    """
    reader = _Reader(data, characters_max)
    value = reader.value(node, 0)
    if reader.left:
        raise NotDecoded(f"{reader.left} bytes are left behind the Avro data")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class _Reader:
    """Reads from a place on. An array may say that it has any number of items that take no bytes, such as null: so what is
    counted is the JSON, and not the data."""

    def __init__(self, data: bytes, characters_max: int) -> None:
        self._data = data
        self._at = 0
        self._characters_left = characters_max

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def value(self, node: Node, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise NotDecoded(f"the Avro data is nested more than {DEPTH_MAX} levels deep")
        self._spend(_VALUE_CHARACTERS)
        match node.kind:
            case "null":
                return None
            case "boolean":
                return self._boolean()
            case "int" | "long":
                return self._long()
            case "float":
                return _number(_FLOAT.unpack(self._take(_FLOAT.size))[0])
            case "double":
                return _number(_DOUBLE.unpack(self._take(_DOUBLE.size))[0])
            case "bytes":
                return self._text(self._take(self._length()))
            case "fixed":
                return self._text(self._take(node.size))
            case "string":
                return self._string()
            case "enum":
                symbol = _chosen(node.symbols, self._long(), "an enum")
                self._spend(len(symbol))
                return symbol
            case "union":
                return self.value(_chosen(node.branches, self._long(), "a union"), depth + 1)
            case "record":
                return self._record(node, depth)
            case "array":
                assert node.item is not None
                return [self.value(node.item, depth + 1) for _ in self._items()]
            case _:
                assert node.item is not None
                return {self._string(): self.value(node.item, depth + 1) for _ in self._items()}

    def _record(self, node: Node, depth: int) -> dict[str, Any]:
        found = {}
        for name, field in node.fields.items():
            self._spend(len(name) + _VALUE_CHARACTERS)
            found[name] = self.value(field.type, depth + 1)
        return found

    def _items(self) -> Any:
        """Once for each item of the blocks of an array or a map."""
        while count := self._long():
            if count < 0:  # The bytes of the block follow, for those who skip it.
                self._length()
                count = -count
            # Before the items: there may be more than could ever be written.
            if count * _VALUE_CHARACTERS > self._characters_left:
                raise _too_large()
            yield from range(count)

    def _boolean(self) -> bool:
        byte = self._take(1)[0]
        if byte > 1:
            raise NotDecoded(f"{byte} is no boolean in Avro")
        return byte == 1

    def _long(self) -> int:
        unsigned = shift = 0
        for byte in self._data[self._at : self._at + _VARINT_BYTES_MAX]:
            self._at += 1
            unsigned |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (unsigned >> 1) ^ -(unsigned & 1)
            shift += 7
        raise NotDecoded("the Avro data ends within a number, or has one that is too long")

    def _length(self) -> int:
        length = self._long()
        if length < 0:
            raise NotDecoded("the Avro data has a length below zero")
        return length

    def _string(self) -> str:
        content = self._take(self._length())
        self._spend(len(content))
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise NotDecoded("a string of the Avro data is not UTF-8") from None

    def _text(self, content: bytes) -> str:
        self._spend(len(content))
        return content.decode("latin-1")

    def _take(self, length: int) -> bytes:
        if length > self.left:
            raise NotDecoded("the Avro data ends too early")
        self._at += length
        return self._data[self._at - length : self._at]

    def _spend(self, characters: int) -> None:
        self._characters_left -= characters
        if self._characters_left < 0:
            raise _too_large()


def _chosen(choices: tuple[Any, ...], index: int, what: str) -> Any:
    if not 0 <= index < len(choices):
        raise NotDecoded(f"{what} of the Avro data has no number {index}")
    return choices[index]


def _number(value: float) -> float | str:
    """JSON has no NaN and no infinity."""
    return value if math.isfinite(value) else str(value)


def _too_large() -> NotDecoded:
    return NotDecoded("it is too large to be shown decoded")

"""Serializers: how a program's keys and values become bytes and are made of them again."""

import json
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from zhumq.client.json_types import converter, dataclass_of, jsonable

T = TypeVar("T")
if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    # Without a type, whatever JSON is.
    J = TypeVarWithDefault("J", default=Any)
else:
    J = TypeVar("J")


class Serializer(Protocol[T]):
    """What a program gives for `key=` and `value=`. A key or value that is None stays None and is never passed."""

    def serialize(self, topic: str, value: T) -> bytes:
        """The bytes of a value. Raises any exception if the value is none of its own."""

    def deserialize(self, topic: str, data: bytes) -> T:
        """The value of these bytes. Raises any exception if they are none of its own."""


class Bytes:
    """Bytes as they are, which is the default."""

    def serialize(self, topic: str, value: bytes) -> bytes:
        del topic
        if not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError(f"a {type(value).__name__} is not bytes")
        return bytes(value)

    def deserialize(self, topic: str, data: bytes) -> bytes:
        del topic
        return data


class Text:
    """`str` as UTF-8."""

    def serialize(self, topic: str, value: str) -> bytes:
        del topic
        if not isinstance(value, str):
            raise TypeError(f"a {type(value).__name__} is not a str")
        return value.encode()

    def deserialize(self, topic: str, data: bytes) -> str:
        del topic
        return data.decode()


class Json(Generic[J]):
    """JSON: `Json()` of whatever `json.loads` returns, `Json(Order)` of a dataclass.

    Fields that the dataclass does not have are ignored, missing ones take their defaults, and nested dataclasses, lists,
    unions, enums, dates, Decimal, UUID and bytes (base64) are made as their types say.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Order:
    ...     item: str
    ...     count: int = 1
    >>> orders = Json(Order)
    >>> orders.serialize("orders", Order("chair", 2))
    b'{"item":"chair","count":2}'
    >>> orders.deserialize("orders", b'{"item": "table", "since": "2.0"}')
    Order(item='table', count=1)
    """

    def __init__(self, type_: type[J] = Any) -> None:  # type: ignore[assignment]
        """Raises TypeError for a type that cannot be made of JSON."""
        self._dataclass = dataclass_of(type_)
        self._convert = None if type_ is Any else converter(type_)

    def serialize(self, topic: str, value: J) -> bytes:
        del topic
        if self._dataclass is not None and not isinstance(value, self._dataclass):
            raise TypeError(f"a {type(value).__name__} is not a {self._dataclass.__name__}")
        text = json.dumps(
            value, default=jsonable, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        return text.encode()

    def deserialize(self, topic: str, data: bytes) -> J:
        del topic
        try:
            found = json.loads(data)
        except RecursionError:
            raise ValueError("the JSON is nested too deeply") from None
        return found if self._convert is None else self._convert(found, "")  # type: ignore[no-any-return]

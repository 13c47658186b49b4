"""JSON from and to typed values: dataclasses, collections, dates, enums. Pure: a converter for each type, made once."""

import base64
import binascii
import dataclasses
import datetime as dt
import types
import typing
import uuid
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, Final, Literal, Union

# Takes a value as `json.loads` makes it, and where it is in the message. Raises ValueError.
Converter = Callable[[Any, str], Any]

SHOWN_CHARACTERS_MAX: Final = 60  # of a value that is not what it should be

_LISTS: Final = {
    list: list, Sequence: list, set: set, AbstractSet: frozenset, frozenset: frozenset,
}  # fmt: skip


def converter(target: Any) -> Converter:
    """What makes values of this type of JSON. Raises TypeError for a type that JSON cannot be turned into."""
    return _Converters().of(target)


def dataclass_of(target: Any) -> type | None:
    """The type, if it is a dataclass."""
    return target if isinstance(target, type) and dataclasses.is_dataclass(target) else None


def jsonable(value: object) -> Any:
    """What `json.dumps` can write, for a value that it cannot write itself. Raises TypeError."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    match value:
        case Enum():
            return value.value
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case Decimal() | uuid.UUID():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case set() | frozenset():
            return list(value)
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


class _Converters:
    """Converters by type: a dataclass may contain itself."""

    def __init__(self) -> None:
        self._dataclasses: dict[type, Converter] = {}

    def of(self, target: Any) -> Converter:
        if target in _SIMPLE:
            return _SIMPLE[target]
        origin, arguments = typing.get_origin(target), typing.get_args(target)
        if origin is typing.Annotated:
            return self.of(arguments[0])
        if origin is Literal:
            return _one_of(arguments)
        if origin in (Union, types.UnionType):
            return _any_of([self.of(each) for each in arguments])
        if origin in _LISTS and len(arguments) == 1:
            return _list_of(self.of(arguments[0]), _LISTS[origin])
        if origin is tuple and len(arguments) == 2 and arguments[1] is ...:
            return _list_of(self.of(arguments[0]), tuple)
        if origin is tuple:
            return _tuple_of([self.of(each) for each in arguments])
        if origin in (dict, Mapping) and arguments[0] is str:
            return _dict_of(self.of(arguments[1]))
        if isinstance(target, type) and issubclass(target, Enum):
            return _by(target, f"one of {', '.join(repr(each.value) for each in target)}")
        if (found := dataclass_of(target)) is not None:
            return self._of_dataclass(found)
        raise TypeError(
            f"{target!r} cannot be made of JSON: use a dataclass, list[...], dict[str, ...], a union,"
            " an Enum, Literal, str, int, float, bool, bytes, Decimal, UUID, datetime, date or time"
        )

    def _of_dataclass(self, target: type) -> Converter:
        if target in self._dataclasses:
            return self._dataclasses[target]
        fields: dict[str, tuple[Converter, bool]] = {}

        def convert(value: Any, where: str) -> Any:
            if not isinstance(value, dict):
                raise _unexpected(where, f"an object for {target.__name__}", value)
            arguments = {}
            for name, (convert_field, is_required) in fields.items():
                path = f"{where}.{name}" if where else name
                if name in value:
                    arguments[name] = convert_field(value[name], path)
                elif is_required:
                    raise ValueError(f"{path} is missing")
            return target(**arguments)

        self._dataclasses[target] = convert
        hints = typing.get_type_hints(target, include_extras=True)
        for field in dataclasses.fields(target):
            if field.init:
                is_required = field.default is field.default_factory is dataclasses.MISSING
                fields[field.name] = (self.of(hints[field.name]), is_required)
        return convert


def _exactly(kind: type, named: str) -> Converter:
    def convert(value: Any, where: str) -> Any:
        if type(value) is kind:
            return value
        raise _unexpected(where, named, value)

    return convert


def _float(value: Any, where: str) -> float:
    # 3.0 may be written as 3.
    if type(value) is float or type(value) is int:
        return float(value)
    raise _unexpected(where, "a number", value)


def _text(kind: type, parse: Callable[[str], Any], named: str) -> Converter:
    def convert(value: Any, where: str) -> Any:
        if isinstance(value, kind):
            return value  # of another format than JSON, which has this type
        if isinstance(value, str):
            try:
                return parse(value)
            except (ValueError, InvalidOperation, binascii.Error):
                pass
        raise _unexpected(where, named, value)

    return convert


def _decimal(value: Any, where: str) -> Decimal:
    if type(value) is int or isinstance(value, str | Decimal):
        try:
            return Decimal(value)
        except InvalidOperation:
            pass
    raise _unexpected(where, "a decimal number as a string", value)


def _one_of(choices: Sequence[Any]) -> Converter:
    def convert(value: Any, where: str) -> Any:
        for choice in choices:
            if type(choice) is type(value) and choice == value:
                return choice
        raise _unexpected(where, f"one of {', '.join(map(repr, choices))}", value)

    return convert


def _by(make: Callable[[Any], Any], named: str) -> Converter:
    def convert(value: Any, where: str) -> Any:
        try:
            return make(value)
        except ValueError:
            raise _unexpected(where, named, value) from None

    return convert


def _any_of(converters: Sequence[Converter]) -> Converter:
    def convert(value: Any, where: str) -> Any:
        reasons = []
        for each in converters:
            try:
                return each(value, where)
            except ValueError as error:
                reasons.append(str(error))
        # Of `Order | None`, the reason that names a field of the order.
        raise ValueError(max(reasons, key=len))

    return convert


def _list_of(convert_item: Converter, make: Callable[[Any], Any]) -> Converter:
    def convert(value: Any, where: str) -> Any:
        if not isinstance(value, list):
            raise _unexpected(where, "a list", value)
        return make([convert_item(each, f"{where}[{i}]") for i, each in enumerate(value)])

    return convert


def _tuple_of(converters: Sequence[Converter]) -> Converter:
    def convert(value: Any, where: str) -> Any:
        if not isinstance(value, list) or len(value) != len(converters):
            raise _unexpected(where, f"a list of {len(converters)}", value)
        pairs = enumerate(zip(converters, value, strict=True))
        return tuple(each(item, f"{where}[{i}]") for i, (each, item) in pairs)

    return convert


def _dict_of(convert_item: Converter) -> Converter:
    def convert(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise _unexpected(where, "an object", value)
        return {
            key: convert_item(each, f"{where}.{key}" if where else key)
            for key, each in value.items()
        }

    return convert


def _unexpected(where: str, named: str, value: Any) -> ValueError:
    text = repr(value)
    shown = text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}..."
    return ValueError(f"{where or 'the whole'} is not {named}: {shown}")


_SIMPLE: Final[dict[Any, Converter]] = {
    Any: lambda value, _: value,
    object: lambda value, _: value,
    None: _exactly(type(None), "null"),
    type(None): _exactly(type(None), "null"),
    str: _exactly(str, "a string"),
    int: _exactly(int, "a whole number"),
    bool: _exactly(bool, "true or false"),
    float: _float,
    list: _exactly(list, "a list"),
    dict: _exactly(dict, "an object"),
    bytes: _text(bytes, lambda text: base64.b64decode(text, validate=True), "base64"),
    Decimal: _decimal,
    uuid.UUID: _text(uuid.UUID, uuid.UUID, "a UUID"),
    dt.datetime: _text(dt.datetime, dt.datetime.fromisoformat, "a date and time (ISO 8601)"),
    dt.date: _text(dt.date, dt.date.fromisoformat, "a date (ISO 8601)"),
    dt.time: _text(dt.time, dt.time.fromisoformat, "a time (ISO 8601)"),
}

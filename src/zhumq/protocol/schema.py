"""Declaration of messages: typed classes whose fields name the versions they exist in."""

import types
import typing
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Final, TypeVar, dataclass_transform

from zhumq.model.ids import ZERO_UUID

VERSION_MAX = 0x7FFF

Element = TypeVar("Element")


class KeptList(list[Element]):
    """The elements of a field with `may_be_kept` that do not change any more: each version encodes them once."""

    __slots__ = ("encodings",)

    def __init__(self, elements: Iterable[Element] = ()) -> None:
        super().__init__(elements)
        self.encodings: dict[int, bytes] = {}  # by version


@dataclass(frozen=True, slots=True)
class VersionRange:
    """The versions from first to last, both included. Empty when first > last."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


ALL_VERSIONS = VersionRange(0, VERSION_MAX)
NO_VERSIONS = VersionRange(1, 0)


@cache
def parse_versions(text: str) -> VersionRange:
    """Reads "3-12", "9+", "4" and "none"."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return VersionRange(int(text[:-1]), VERSION_MAX)
    first, dash, last = text.partition("-")
    return VersionRange(int(first), int(last) if dash else int(first))


@dataclass(frozen=True, slots=True)
class Fixed:
    """A number (or uuid) of fixed size, with its `struct` format."""

    code: str
    size: int


@dataclass(frozen=True, slots=True)
class Marker:
    """A wire type that shares its Python type with others and differs by name."""

    name: str


STRING: Final = Marker("string")
BYTES: Final = Marker("bytes")
RECORDS: Final = Marker("records")
BOOL: Final = Fixed("?", 1)
UUID: Final = Fixed("16s", 16)

int8 = Annotated[int, Fixed("b", 1)]
int16 = Annotated[int, Fixed("h", 2)]
int32 = Annotated[int, Fixed("i", 4)]
int64 = Annotated[int, Fixed("q", 8)]
float64 = Annotated[float, Fixed("d", 8)]


@dataclass(frozen=True, slots=True)
class ArrayOf:
    element: "WireType"
    may_be_kept: bool = False


@dataclass(frozen=True, slots=True)
class StructOf:
    message: "type[Message]"


WireType = Fixed | Marker | ArrayOf | StructOf


class _Unset:
    """Means "no default given": the default is the type's empty value."""


UNSET: Final = _Unset()


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldOptions:
    """Options of a field declaration beyond its type."""

    versions: VersionRange
    nullable: VersionRange
    default: object
    tag: int | None
    may_be_kept: bool


def field(
    *,
    versions: str = "0+",
    nullable: str | None = None,
    default: object = UNSET,
    tag: int | None = None,
    may_be_kept: bool = False,
) -> Any:
    """A field with options.

    A type that admits None is nullable in all versions unless `nullable` names some. A field with a
    `tag` is in the tagged section, and only when it differs from its default. `may_be_kept`: a list, which may be a
    KeptList.
    """
    return FieldOptions(
        versions=parse_versions(versions),
        nullable=ALL_VERSIONS if nullable is None else parse_versions(nullable),
        default=default,
        tag=tag,
        may_be_kept=may_be_kept,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSpec:
    """A field with its type resolved, for the compiler."""

    name: str
    type: WireType
    versions: VersionRange
    nullable: VersionRange
    default: object  # UNSET where every instance needs an empty value of its own
    tag: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """Options of a message declaration."""

    api_key: int | None
    versions: VersionRange
    flexible: VersionRange
    newer_versions_readable: bool


@dataclass_transform(kw_only_default=True)
class Declaration(type):
    """Makes a slotted class of a declaration. Types are resolved and code is generated at first use."""

    __declared__: Declared
    __options__: dict[str, FieldOptions]

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        api_key: int | None = None,
        versions: str = "0+",
        flexible: str = "none",
        newer_versions_readable: bool = False,
    ) -> "Declaration":
        # Every field has a default, so the assigned names are the fields; annotations stay untouched.
        options: dict[str, FieldOptions] = {}
        if bases:
            for field_name in [key for key in namespace if not key.startswith("__")]:
                value = namespace.pop(field_name)
                options[field_name] = (
                    value if isinstance(value, FieldOptions) else field(default=value)
                )
            namespace["__slots__"] = tuple(options)
            namespace["__match_args__"] = ()
        namespace["__options__"] = options
        namespace["__declared__"] = Declared(
            api_key=api_key,
            versions=parse_versions(versions),
            flexible=parse_versions(flexible),
            newer_versions_readable=newer_versions_readable,
        )
        return super().__new__(mcs, name, bases, namespace)


class Message(metaclass=Declaration):
    """A request, a response, or a struct inside of one. All fields are keywords and have defaults."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, **values: Any) -> None:
        # The first instance generates the class's own __init__, which replaces this one.
        cls = type(self)
        initialise = make_initialiser(cls)
        cls.__init__ = initialise  # type: ignore[method-assign]
        initialise(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in type(self).__options__)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in type(self).__options__)
        return f"{type(self).__name__}({values})"


@cache
def fields_of(cls: type[Message]) -> tuple[FieldSpec, ...]:
    """The fields in wire order, with types resolved at first use so that imports stay fast."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return tuple(_resolve(name, hints[name], options) for name, options in cls.__options__.items())


def is_flexible(cls: type[Message], version: int) -> bool:
    return version in cls.__declared__.flexible


def make_initialiser(cls: type[Message]) -> Any:
    """The keyword-only __init__ of a message, generated as source so that it is as fast as a written one."""
    namespace: dict[str, Any] = {"UNSET": UNSET}
    parameters = []
    lines = []
    for spec in fields_of(cls):
        default, fresh = default_expression(spec, namespace)
        if fresh:
            parameters.append(f"{spec.name}=UNSET")
            lines.append(f" self.{spec.name} = {default} if {spec.name} is UNSET else {spec.name}")
        else:
            parameters.append(f"{spec.name}={default}")
            lines.append(f" self.{spec.name} = {spec.name}")
    star = "*, " if parameters else ""
    source = f"def __init__(self, {star}{', '.join(parameters)}):\n" + "\n".join(lines or [" pass"])
    exec(source, namespace)  # noqa: S102  the source is made of our own declarations only
    return namespace["__init__"]


def default_expression(spec: FieldSpec, namespace: dict[str, Any]) -> tuple[str, bool]:
    """The default as source, and whether each instance needs a fresh one. Names go to `namespace`."""
    if spec.default is not UNSET:
        name = f"default_{spec.name}"
        if spec.default is None or isinstance(spec.default, bool | int | float | str | bytes):
            return repr(spec.default), False
        namespace[name] = spec.default
        return name, False
    match spec.type:
        case ArrayOf():
            return "[]", True
        case StructOf(message):
            namespace[message.__name__] = message
            return f"{message.__name__}()", True
        case Fixed(code="16s"):
            namespace["ZERO_UUID"] = ZERO_UUID
            return "ZERO_UUID", False
        case Fixed(code="?"):
            return "False", False
        case Fixed():
            return "0", False
        case Marker(name="string"):
            return "''", False
        case Marker():
            return "b''", False


def _resolve(name: str, hint: Any, options: FieldOptions) -> FieldSpec:
    wire_type, admits_none = _wire_type(hint)
    if options.may_be_kept:
        assert isinstance(wire_type, ArrayOf)
        wire_type = replace(wire_type, may_be_kept=True)
    return FieldSpec(
        name=name,
        type=wire_type,
        versions=options.versions,
        nullable=options.nullable if admits_none else NO_VERSIONS,
        default=options.default,
        tag=options.tag,
    )


_PLAIN_TYPES: dict[Any, WireType] = {str: STRING, bytes: BYTES, bool: BOOL, uuid.UUID: UUID}


def _wire_type(hint: Any) -> tuple[WireType, bool]:
    """The wire type of a type hint, and whether the hint admits None."""
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin is Annotated:
        marker = arguments[1]
        if isinstance(marker, Fixed | Marker):
            return marker, type(None) in typing.get_args(arguments[0])
    if origin is typing.Union or origin is types.UnionType:
        inner = [argument for argument in arguments if argument is not type(None)]
        if len(inner) == 1 and len(arguments) == 2:
            return _wire_type(inner[0])[0], True
    if origin is list:
        return ArrayOf(_wire_type(arguments[0])[0]), False
    if hint in _PLAIN_TYPES:
        return _PLAIN_TYPES[hint], False
    if isinstance(hint, type) and issubclass(hint, Message):
        return StructOf(hint), False
    raise TypeError(f"a message cannot hold a {hint}")

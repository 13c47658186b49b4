"""The syntax tree of a filter: fields of a message, operands, and conditions."""

from dataclasses import dataclass, field
from enum import Enum, auto

LiteralValue = str | int | float | bool


class FieldKind(Enum):
    """The parts of a message that a filter can name."""

    HEADER = auto()
    KEY = auto()
    VALUE = auto()  # a part of a JSON value
    TAGS = auto()
    TOPIC = auto()
    PARTITION = auto()
    OFFSET = auto()
    TIMESTAMP = auto()

    @property
    def is_number(self) -> bool:
        return self in (FieldKind.PARTITION, FieldKind.OFFSET, FieldKind.TIMESTAMP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A part of a message: of a header its name, of a value the path in its JSON."""

    kind: FieldKind
    name: str = ""
    path: tuple[str | int, ...] = ()
    # Equal for equal fields, and hashed once: columns are looked up by it.
    label: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", f"{self.kind.name} {self.name} {self.path!r}")


# Operands: a text, a number, a boolean, or NULL


@dataclass(frozen=True, slots=True)
class Literal:
    """A value that the filter gives."""

    value: LiteralValue


@dataclass(frozen=True, slots=True)
class FieldValue:
    """The value of a field in the message."""

    field: Field


@dataclass(frozen=True, slots=True)
class Negative:
    """The number with the opposite sign."""

    operand: "Operand"


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Operators of one precedence, from left to right. A list, since a chain may be long and a tree of it deep."""

    first: "Operand"
    rest: tuple[tuple[str, "Operand"], ...]


Operand = Literal | FieldValue | Negative | Arithmetic

# Conditions: true, false, or unknown


@dataclass(frozen=True, slots=True)
class Constant:
    """TRUE or FALSE."""

    value: bool


@dataclass(frozen=True, slots=True)
class Truth:
    """A field that is true."""

    field: Field


@dataclass(frozen=True, slots=True)
class Comparison:
    """`left operator right`."""

    operator: str
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True)
class Between:
    """`operand BETWEEN low AND high`, both included."""

    operand: Operand
    low: Operand
    high: Operand


@dataclass(frozen=True, slots=True)
class InList:
    """`operand IN (...)`."""

    operand: Operand
    values: tuple[LiteralValue, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """`operand LIKE pattern ESCAPE escape`."""

    operand: Operand
    pattern: str
    escape: str


@dataclass(frozen=True, slots=True)
class IsNull:
    """`operand IS NULL`: never unknown."""

    operand: Operand


@dataclass(frozen=True, slots=True)
class HasTag:
    """The message has at least one of these tags; unknown for a message without tags."""

    tags: frozenset[str]


@dataclass(frozen=True, slots=True)
class Not:
    """Unknown stays unknown."""

    condition: "Condition"


@dataclass(frozen=True, slots=True)
class And:
    """False if one is false, else unknown if one is unknown."""

    conditions: tuple["Condition", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """True if one is true, else unknown if one is unknown."""

    conditions: tuple["Condition", ...]


Condition = (
    Constant | Truth | Comparison | Between | InList | Like | IsNull | HasTag | Not | And | Or
)

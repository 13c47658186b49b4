"""Compiles the syntax tree of a filter into closures over columns. Nothing is evaluated as Python code."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, assert_never

from zhumq.filters.columns import IndexKind
from zhumq.filters.like import like
from zhumq.filters.syntax import (
    And,
    Arithmetic,
    Between,
    Comparison,
    Condition,
    Constant,
    Field,
    FieldKind,
    FieldValue,
    HasTag,
    InList,
    IsNull,
    Like,
    Literal,
    LiteralValue,
    Negative,
    Not,
    Operand,
    Or,
    Truth,
)
from zhumq.filters.values import (
    COMPARE,
    Truth3,
    Value,
    as_number,
    boolean_of,
    calculate,
    compare,
    number_of,
    truth,
)

# The columns that a filter uses, in its own order. Their types are those of the fields.
Row = Sequence[Sequence[Any]]
# Called with the columns and the position of a message.
Test = Callable[[Row, int], Truth3]
Read = Callable[[Row, int], Value]

TAGS_FIELD: Final = Field(kind=FieldKind.TAGS)
_SWAPPED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Probe(NamedTuple):
    """A lookup that finds every message that may pass: those with one of these values."""

    field: Field
    kind: IndexKind
    values: frozenset[str | int | float]


class Compiler:
    """Compiles one filter, and numbers the fields that it uses."""

    def __init__(self) -> None:
        self._slots: dict[Field, int] = {}

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(self._slots)

    def _slot(self, field: Field) -> int:
        return self._slots.setdefault(field, len(self._slots))

    def test(self, condition: Condition) -> Test:
        match condition:
            case Constant(value):
                return lambda _row, _position: value
            case Truth(field):
                slot = self._slot(field)
                return lambda row, position: truth(row[slot][position])
            case HasTag(tags):
                return _has_tag(self._slot(TAGS_FIELD), tags)
            case Comparison(operator, left, right):
                return self._comparison(operator, left, right)
            case Between(operand, low, high):
                first = self._comparison(">=", operand, low)
                second = self._comparison("<=", operand, high)
                return _all_of([first, second])
            case InList(operand, values):
                return _in_list(self._read(operand), values)
            case Like(operand, pattern, escape):
                return _like(self._read(operand), pattern, escape)
            case IsNull(operand):
                return self._is_null(operand)
            case Not(inner):
                return _negation(self.test(inner))
            case And(conditions):
                return _all_of([self.test(each) for each in conditions])
            case Or(conditions):
                return _any_of([self.test(each) for each in conditions])
            case _:
                assert_never(condition)

    def _comparison(self, operator: str, left: Operand, right: Operand) -> Test:
        if isinstance(left, Literal) and not isinstance(right, Literal):
            left, right, operator = right, left, _SWAPPED[operator]
        read = self._read(left)
        if isinstance(right, Literal):
            if isinstance(left, FieldValue):
                return _against_literal(self._slot(left.field), operator, right.value)
            value = right.value
            return lambda row, position: compare(operator, read(row, position), value)
        other = self._read(right)
        return lambda row, position: compare(operator, read(row, position), other(row, position))

    def _is_null(self, operand: Operand) -> Test:
        if isinstance(operand, FieldValue):
            slot = self._slot(operand.field)  # also of tags
            return lambda row, position: row[slot][position] is None
        read = self._read(operand)
        return lambda row, position: read(row, position) is None

    def _read(self, operand: Operand) -> Read:
        match operand:
            case Literal(value):
                return lambda _row, _position: value
            case FieldValue(field):
                slot = self._slot(field)
                return lambda row, position: row[slot][position]
            case Negative(inner):
                read = self._read(inner)
                return lambda row, position: _opposite(read(row, position))
            case Arithmetic(first, rest):
                steps = [(symbol, self._read(each)) for symbol, each in rest]
                return _chain(self._read(first), steps)
            case _:
                assert_never(operand)


def _has_tag(slot: int, tags: frozenset[str]) -> Test:
    def test(row: Row, position: int) -> Truth3:
        found = row[slot][position]
        return None if found is None else not tags.isdisjoint(found)

    return test


def _against_literal(slot: int, operator: str, value: LiteralValue) -> Test:
    """The most frequent comparison: of the types that agree, without a further call."""
    compared = COMPARE[operator]
    kinds: tuple[type, ...] = (str,) if isinstance(value, str) else (int, float)
    if isinstance(value, bool):
        kinds = ()

    def test(row: Row, position: int) -> Truth3:
        found = row[slot][position]
        if type(found) in kinds:
            return compared(found, value)
        return compare(operator, found, value)

    return test


def _in_list(read: Read, values: tuple[LiteralValue, ...]) -> Test:
    texts = frozenset(each for each in values if isinstance(each, str))
    numbers = frozenset(each for each in values if not isinstance(each, str))

    def test(row: Row, position: int) -> Truth3:
        found = read(row, position)
        if isinstance(found, str) and not numbers:
            return found in texts
        if isinstance(found, int | float) and not isinstance(found, bool) and not texts:
            return found in numbers
        outcomes = [compare("=", found, each) for each in values]
        return True if True in outcomes else None if None in outcomes else False

    return test


def _like(read: Read, pattern: str, escape: str) -> Test:
    matches = like(pattern, escape)

    def test(row: Row, position: int) -> Truth3:
        found = read(row, position)
        return matches(found) if isinstance(found, str) else None

    return test


def _negation(inner: Test) -> Test:
    def test(row: Row, position: int) -> Truth3:
        outcome = inner(row, position)
        return None if outcome is None else not outcome

    return test


def _all_of(tests: Sequence[Test]) -> Test:
    def test(row: Row, position: int) -> Truth3:
        all_true: Truth3 = True
        for each in tests:
            outcome = each(row, position)
            if outcome is False:
                return False
            if outcome is None:
                all_true = None
        return all_true

    return test


def _any_of(tests: Sequence[Test]) -> Test:
    def test(row: Row, position: int) -> Truth3:
        none_true: Truth3 = False
        for each in tests:
            outcome = each(row, position)
            if outcome:
                return True
            if outcome is None:
                none_true = None
        return none_true

    return test


def _opposite(value: Value) -> Value:
    number = as_number(value)
    return None if number is None else -number


def _chain(first: Read, steps: Sequence[tuple[str, Read]]) -> Read:
    def read(row: Row, position: int) -> Value:
        result: Value = first(row, position)
        for symbol, each in steps:
            result = calculate(symbol, result, each(row, position))
            if result is None:
                return None
        return result

    return read


def probes(condition: Condition) -> tuple[Probe, ...]:
    """Lookups that together find every message that may pass; () if only a look at each message does."""
    match condition:
        case HasTag(tags):
            return (Probe(TAGS_FIELD, IndexKind.TAG, tags),)
        case Comparison("=", FieldValue(field), Literal(value)) | Comparison(
            "=", Literal(value), FieldValue(field)
        ):
            return _probes_of_values(field, (value,))
        case InList(FieldValue(field), values):
            return _probes_of_values(field, values)
        case And(conditions):
            found = [each for each in map(probes, conditions) if each]
            return min(found, key=_value_count, default=())
        case Or(conditions):
            each_one = [probes(each) for each in conditions]
            return sum(each_one, ()) if all(each_one) else ()
        case _:
            return ()


def _value_count(found: tuple[Probe, ...]) -> int:
    return sum(len(each.values) for each in found)


def _probes_of_values(field: Field, values: Sequence[LiteralValue]) -> tuple[Probe, ...]:
    if field.kind not in (FieldKind.HEADER, FieldKind.KEY, FieldKind.VALUE):
        return ()
    texts: set[str] = set()
    numbers: set[int | float] = set()
    for value in values:
        if isinstance(value, bool):
            return ()
        if not isinstance(value, str):
            numbers.add(value)
        elif field.kind is FieldKind.VALUE and not (
            number_of(value) is None and boolean_of(value) is None
        ):
            return ()  # JSON has numbers and booleans, which equal a text that reads as one.
        else:
            texts.add(value)
    found = []
    if texts:
        found.append(Probe(field, IndexKind.TEXT, frozenset(texts)))
    if numbers:
        found.append(Probe(field, IndexKind.NUMBER, frozenset(numbers)))
    return tuple(found)

"""Values in a filter: how texts, numbers and booleans compare, and the arithmetic of numbers."""

import math
import operator
import re
from collections.abc import Callable
from typing import Any, Final

# What a field or an operand is. Objects and arrays of JSON are neither NULL nor comparable.
Value = str | int | float | bool | None | dict[str, object] | list[object]
Number = int | float
Truth3 = bool | None  # None: unknown

NUMBER_CHARACTERS_MAX: Final = 40
EXACT_MAX: Final = 2**63  # whole numbers beyond become floating-point numbers
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def number_of(text: str) -> Number | None:
    """The number that a text is; None if it is none."""
    if len(text) > NUMBER_CHARACTERS_MAX or _NUMBER.fullmatch(text) is None:
        return None
    try:
        return int(text)
    except ValueError:
        number = float(text)
        return number if math.isfinite(number) else None


def boolean_of(text: str) -> bool | None:
    lowered = text.lower()
    return True if lowered == "true" else False if lowered == "false" else None


def truth(value: Value) -> Truth3:
    """The value of a field as a condition."""
    if isinstance(value, bool):
        return value
    return boolean_of(value) if isinstance(value, str) else None


def as_number(value: Value) -> Number | None:
    """The value in arithmetic."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    return number_of(value) if isinstance(value, str) else None


def compare(symbol: str, left: Value, right: Value) -> Truth3:
    """Compare two values; None if one is NULL or they are not comparable.

    A text that is compared with a number or a boolean is read as one: headers and keys have no types.
    """
    if isinstance(left, str) and isinstance(right, str):
        return COMPARE[symbol](left, right)
    if isinstance(left, bool) or isinstance(right, bool):
        one, other = truth(left), truth(right)
        if one is None or other is None or symbol not in ("=", "<>"):
            return None
        return (one == other) is (symbol == "=")
    first, second = as_number(left), as_number(right)
    if first is None or second is None:
        return None
    return COMPARE[symbol](first, second)


def calculate(symbol: str, left: Value, right: Value) -> Number | None:
    """The result of an arithmetic operator; None without one, such as after a division by zero."""
    first, second = as_number(left), as_number(right)
    if first is None or second is None:
        return None
    try:
        match symbol:
            case "+":
                result: Number = first + second
            case "-":
                result = first - second
            case "*":
                result = first * second
            case "/":
                result = first / second
            case _:
                result = _remainder(first, second)
        # Numbers of bounded size, whatever is multiplied how often.
        if not -EXACT_MAX <= result <= EXACT_MAX:
            result = float(result)
    except (ZeroDivisionError, OverflowError, ValueError):
        return None
    return result if math.isfinite(result) else None


def _remainder(first: Number, second: Number) -> Number:
    """With the sign of the dividend, as in SQL."""
    if isinstance(first, int) and isinstance(second, int):
        remainder = abs(first) % abs(second)
        return -remainder if first < 0 else remainder
    return math.fmod(first, second)

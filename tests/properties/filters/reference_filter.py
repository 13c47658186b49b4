"""A simple evaluator of conditions as nested tuples, message by message, which filters are compared with."""

import json
import math
import re
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

TRUE, FALSE, UNKNOWN = "true", "false", "unknown"
NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]+)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class Sample:
    """A message."""

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = 0
    timestamp: int = 0
    partition: int = 0
    topic: str = field(default="orders")


def holds(node: tuple[Any, ...], message: Sample) -> str:
    """true, false or unknown."""
    match node:
        case ("and", *parts):
            outcomes = {holds(part, message) for part in parts}
            return FALSE if FALSE in outcomes else UNKNOWN if UNKNOWN in outcomes else TRUE
        case ("or", *parts):
            outcomes = {holds(part, message) for part in parts}
            return TRUE if TRUE in outcomes else UNKNOWN if UNKNOWN in outcomes else FALSE
        case ("not", part):
            return {TRUE: FALSE, FALSE: TRUE, UNKNOWN: UNKNOWN}[holds(part, message)]
        case ("compare", operator, left, right):
            return _compare(operator, _value(left, message), _value(right, message))
        case ("between", operand, low, high):
            return holds(
                ("and", ("compare", ">=", operand, low), ("compare", "<=", operand, high)), message
            )
        case ("in", operand, *values):
            return holds(("or", *(("compare", "=", operand, each) for each in values)), message)
        case ("like", operand, pattern, escape):
            text = _value(operand, message)
            return _of(_like(text, pattern, escape)) if isinstance(text, str) else UNKNOWN
        case ("is null", operand):
            return _of(_value(operand, message) is None)
        case ("tags", *tags):
            found = _tags(message)
            return _of(bool(found & set(tags))) if found else UNKNOWN
        case ("truth", operand):
            return _boolean(_value(operand, message))
    raise AssertionError(node)


def _value(node: tuple[Any, ...], message: Sample) -> Any:
    match node:
        case ("literal", value):
            return value
        case ("header", name):
            return _text(dict(message.headers).get(name))
        case ("key",):
            return _text(message.key)
        case ("fact", name):
            return getattr(message, name)
        case ("json", *path):
            return _json(message.value, path)
        case ("minus", operand):
            number = _number(_value(operand, message))
            return None if number is None else -number
        case ("arithmetic", first, *rest):
            result = _number(_value(first, message))
            for operator, operand in rest:
                result = _calculate(operator, result, _number(_value(operand, message)))
            return result
    raise AssertionError(node)


def _of(outcome: bool) -> str:
    return TRUE if outcome else FALSE


def _boolean(value: Any) -> str:
    if isinstance(value, bool):
        return _of(value)
    if isinstance(value, str) and value.lower() in (TRUE, FALSE):
        return value.lower()
    return UNKNOWN


def _number(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and NUMBER.fullmatch(value) and len(value) <= 40:
        number = float(value)
        return (
            None if math.isinf(number) else int(value) if value.lstrip("+-").isdigit() else number
        )
    return None


def _compare(operator: str, left: Any, right: Any) -> str:
    if left is None or right is None:
        return UNKNOWN
    if isinstance(left, str) and isinstance(right, str):
        return _ordered(operator, left, right)
    if isinstance(left, bool) or isinstance(right, bool):
        one, other = _boolean(left), _boolean(right)
        if UNKNOWN in (one, other) or operator not in ("=", "<>"):
            return UNKNOWN
        return _of((one == other) == (operator == "="))
    first, second = _number(left), _number(right)
    if first is None or second is None:
        return UNKNOWN
    return _ordered(operator, Fraction(first), Fraction(second))


def _ordered(operator: str, left: Any, right: Any) -> str:
    less, equal = left < right, left == right
    return _of(
        {
            "=": equal,
            "<>": not equal,
            "<": less,
            "<=": less or equal,
            ">": not (less or equal),
            ">=": not less,
        }[operator]
    )


def _calculate(operator: str, left: Any, right: Any) -> Any:
    if left is None or right is None or (operator in "/%" and right == 0):
        return None
    try:
        match operator:
            case "+":
                result = left + right
            case "-":
                result = left - right
            case "*":
                result = left * right
            case "/":
                result = left / right
            case _:
                whole = isinstance(left, int) and isinstance(right, int)
                result = (
                    int(math.copysign(abs(left) % abs(right), left))
                    if whole
                    else math.fmod(left, right)
                )
        if abs(result) > 2**63:
            result = float(result)
    except OverflowError:
        return None
    return result if math.isfinite(result) else None


def _like(text: str, pattern: str, escape: str) -> bool:
    """One character at a time, over all places where the rest of the pattern may begin."""
    places = {0}
    is_escaped = False
    for character in pattern:
        if escape and character == escape and not is_escaped:
            is_escaped = True
            continue
        if character == "%" and not is_escaped:
            places = set(range(min(places), len(text) + 1)) if places else set()
        else:
            any_one = character == "_" and not is_escaped
            places = {
                place + 1
                for place in places
                if place < len(text) and (any_one or text[place] == character)
            }
        is_escaped = False
    return len(text) in places


def _tags(message: Sample) -> set[str]:
    text = _text(dict(message.headers).get("zhumq-tags")) or ""
    return {each.strip() for each in text.split(",")} - {""}


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _json(value: bytes | None, path: list[Any]) -> Any:
    try:
        found = json.loads(value or b"")
        for step in path:
            if isinstance(step, str) != isinstance(found, dict):
                return None
            found = found[step]
    except (ValueError, KeyError, IndexError, TypeError):
        return None
    return found

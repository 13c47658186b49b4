"""Compares rows with the rows that a test expects, and says what is missing, unexpected or different. Pure."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

LINES_MAX: Final = 20  # of differences that are shown for one view
CELL_LENGTH_MAX: Final = 80


def differences(
    expected: Sequence[Mapping[str, Any]],
    found: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
) -> list[str]:
    """Lines for people; none if the rows are the same in any order, in the columns that are expected."""
    named = list(dict.fromkeys(name for row in expected for name in row))
    unknown = [name for name in named if name not in columns]
    if unknown:
        return [f"there is no column {unknown[0]!r}; there are {', '.join(columns)}"]
    shown = named or list(columns)
    missing: list[Mapping[str, Any]] = []
    extra = list(found)
    for row in expected:
        match = next((each for each in extra if _same_row(row, each, named)), None)
        if match is None:
            missing.append(row)
        else:
            # By identity: an equal row may be expected again.
            extra = [each for each in extra if each is not match]
    lines: list[str] = []
    for row in list(missing):
        near = max(extra, key=lambda each: _likeness(row, each, named), default=None)
        if near is not None and _likeness(row, near, named) > 0:
            missing = [each for each in missing if each is not row]
            extra = [each for each in extra if each is not near]
            lines.append(f"different   {_different(row, near, named)}")
    lines += [f"missing     {_words(row, shown)}" for row in missing]
    lines += [f"unexpected  {_words(row, shown)}" for row in extra]
    if len(lines) > LINES_MAX:
        lines = [*lines[:LINES_MAX], f"and {len(lines) - LINES_MAX} more"]
    return lines


def same(expected: Any, found: Any) -> bool:
    """Whether a value of Spark is the one that YAML can write: times and decimals as texts, bytes as UTF-8."""
    match found:
        case None | bool():
            return expected is found
        case bytes() | bytearray():
            return isinstance(expected, str) and expected.encode() == bytes(found)
        case datetime():
            moment = as_moment(expected)
            return moment is not None and moment == _in_utc(found)
        case date():
            return str(expected) == found.isoformat()
        case Decimal():
            return _decimal(expected) == found
        case float():
            if isinstance(expected, bool) or not isinstance(expected, int | float):
                return False
            both_nan = math.isnan(found) and math.isnan(expected)
            return both_nan or math.isclose(expected, found, rel_tol=1e-9)
        case dict():
            return (
                isinstance(expected, dict)
                and {str(name) for name in expected} == {str(name) for name in found}
                and all(same(expected[str(name)], value) for name, value in found.items())
            )
        case list() | tuple():
            return (
                isinstance(expected, list)
                and len(expected) == len(found)
                and all(same(*pair) for pair in zip(expected, found, strict=True))
            )
        case _:
            return type(expected) is type(found) and bool(expected == found)


def as_moment(text: Any) -> datetime | None:
    """A time in ISO 8601, of UTC if it names no zone; None if it is none."""
    if not isinstance(text, str):
        return None
    try:
        return _in_utc(datetime.fromisoformat(text))
    except ValueError:
        return None


def _in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _decimal(value: Any) -> Decimal | None:
    try:
        return None if value is None or isinstance(value, bool) else Decimal(str(value))
    except InvalidOperation:
        return None


def _same_row(expected: Mapping[str, Any], found: Mapping[str, Any], named: Sequence[str]) -> bool:
    return all(same(expected.get(name), found[name]) for name in named)


def _likeness(expected: Mapping[str, Any], found: Mapping[str, Any], named: Sequence[str]) -> int:
    return sum(found[name] is not None and same(expected.get(name), found[name]) for name in named)


def _different(expected: Mapping[str, Any], found: Mapping[str, Any], named: Sequence[str]) -> str:
    alike = [name for name in named if same(expected.get(name), found[name])]
    others = [
        f"{name} is {_cell(found[name])}, expected {_cell(expected.get(name))}"
        for name in named
        if name not in alike
    ]
    return f"{_words(expected, alike)}: {'; '.join(others)}"


def _words(row: Mapping[str, Any], names: Sequence[str]) -> str:
    return "  ".join(f"{name}={_cell(row.get(name))}" for name in names) or "(a row)"


def _cell(value: Any) -> str:
    match value:
        case None:
            text = "null"
        case bytes() | bytearray():
            text = repr(bytes(value).decode(errors="backslashreplace"))
        case str():
            text = repr(value)
        case datetime():
            text = _in_utc(value).isoformat().replace("+00:00", "Z")
        case _:
            text = str(value)
    return text if len(text) <= CELL_LENGTH_MAX else text[: CELL_LENGTH_MAX - 1] + "…"

"""Compares the rows that there are with those that there should be, and says what differs. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SHOWN_MAX: Final = 5  # of one kind in one part
Cells = tuple[object, ...]


class Kind(StrEnum):
    """What is wrong with the rows of a key."""

    MISSING = "missing"
    STRAY = "not expected"
    TWICE = "more than once"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The rows of a table or a topic: the first `key` cells of a row name it."""

    name: str
    columns: tuple[str, ...]
    key: int
    expected: Sequence[Cells]
    found: Sequence[Cells]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One row that is not as it should be."""

    part: str
    kind: Kind
    key: Cells
    words: str


def differences(part: Part) -> list[Difference]:
    """All differences, in the order of their keys. Raises ValueError if the model itself has a row twice."""
    expected, found = Counter(part.expected), Counter(part.found)
    doubled = [row for row, count in expected.items() if count > 1]
    if doubled:
        raise ValueError(f"the model of {part.name} has {doubled[0]} more than once")
    lost: dict[Cells, list[Cells]] = defaultdict(list)
    surplus: dict[Cells, list[Cells]] = defaultdict(list)
    for row in expected - found:
        lost[row[: part.key]].append(row)
    for row in found - expected:
        surplus[row[: part.key]].append(row)
    result: list[Difference] = []
    for key in sorted({*lost, *surplus}, key=repr):
        result += _of_key(part, key, lost[key], surplus[key], expected, found)
    return result


def _of_key(
    part: Part,
    key: Cells,
    lost: list[Cells],
    surplus: list[Cells],
    expected: Counter[Cells],
    found: Counter[Cells],
) -> Iterable[Difference]:
    def difference(kind: Kind, words: str) -> Difference:
        return Difference(part=part.name, kind=kind, key=key, words=words)

    # A row that is right once may be there again; what is no such row stands for one that is lost.
    strange = sorted((row for row in surplus if row not in expected), key=repr)
    for row in sorted((row for row in surplus if row in expected), key=repr):
        yield difference(Kind.TWICE, f"{found[row]} times: {_named(part, row)}")
    missing = sorted(lost, key=repr)
    for right, there in zip(missing, strange, strict=False):
        yield difference(Kind.DIFFERENT, _changed(part, right, there))
    for row in missing[len(strange) :]:
        yield difference(Kind.MISSING, _named(part, row))
    for row in strange[len(missing) :]:
        times = f"{found[row]} times: " if found[row] > 1 else ""
        yield difference(Kind.STRAY, times + _named(part, row))


def report(parts: Sequence[Part], found: Sequence[Difference]) -> list[str]:
    """A line for each part, and the first differences of each kind below it."""
    lines: list[str] = []
    for part in parts:
        own = [each for each in found if each.part == part.name]
        counts = Counter(each.kind for each in own)
        words = ", ".join(f"{count:,} {kind}" for kind, count in counts.items()) or "as expected"
        lines.append(f"{part.name:20} {len(part.expected):>7,} rows: {words}")
        for kind in counts:
            of_kind = [each for each in own if each.kind is kind]
            lines += [f"    {kind}: {each.words}" for each in of_kind[:SHOWN_MAX]]
            if len(of_kind) > SHOWN_MAX:
                lines.append(f"    {kind}: and {len(of_kind) - SHOWN_MAX:,} more")
    return lines


def _named(part: Part, row: Cells) -> str:
    return ", ".join(f"{name} {cell!r}" for name, cell in zip(part.columns, row, strict=True))


def _changed(part: Part, right: Cells, there: Cells) -> str:
    key = ", ".join(
        f"{name} {cell!r}" for name, cell in zip(part.columns[: part.key], right, strict=False)
    )
    cells = zip(part.columns, right, there, strict=True)
    changed = (f"{name} is {b!r}, not {a!r}" for name, a, b in cells if a != b)
    return f"{key}: {'; '.join(changed)}"

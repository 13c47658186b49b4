"""Which JSON Schemas read what others permit: the rules of Confluent's registry for its content models."""

import json
from collections import deque
from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import re2

from zhumq.schemas.errors import InvalidSchema
from zhumq.schemas.json_views import Kind, Place, View, Views

COMPARISONS_MAX: Final = (
    20_000  # of two schemas: each with each of a union, and again while results change
)
REASONS_MAX: Final = 20
# Keywords of numbers that the reader may not lower, and that it may not raise.
_UPPER: Final = {
    Kind.STRING: ("maxLength",),
    Kind.NUMBER: ("maximum", "exclusiveMaximum"),
    Kind.OBJECT: ("maxProperties",),
    Kind.ARRAY: ("maxItems", "maxContains"),
}
_LOWER: Final = {
    Kind.STRING: ("minLength",),
    Kind.NUMBER: ("minimum", "exclusiveMinimum"),
    Kind.OBJECT: ("minProperties",),
    Kind.ARRAY: ("minItems", "minContains"),
}

Pair = tuple[View, View]  # reader and writer
# Where two schemas differ, and why: in words, or two schemas below them of which one does not read the other.
Finding = tuple[str, "str | Pair"]


def cannot_read(reader: Place, writer: Place) -> list[str]:
    """Why a schema does not accept all that another one does; empty if it does."""
    comparison = _Comparison()
    root = (comparison.views.view(reader), comparison.views.view(writer))
    comparison.settle(root)
    return list(dict.fromkeys(comparison.reasons(root, "", set())))[:REASONS_MAX]


class _Comparison:
    """All pairs are taken to match until one is found that does not; then those that rely on it are looked at again."""

    def __init__(self) -> None:
        self.views = Views()
        self._failed: set[Pair] = set()
        self._users: dict[Pair, set[Pair]] = {}  # the pairs that rely on a pair
        self._waiting: deque[Pair] = deque()
        self._current: Pair | None = None

    def settle(self, root: Pair) -> None:
        self._users[root] = set()
        self._waiting.append(root)
        for _ in range(COMPARISONS_MAX):
            if not self._waiting:
                return
            pair = self._current = self._waiting.popleft()
            if pair not in self._failed and next(self._findings(*pair), None) is not None:
                self._failed.add(pair)
                self._waiting.extend(self._users[pair])
        raise _too_long()

    def reasons(self, pair: Pair, path: str, seen: set[Pair]) -> Iterator[str]:
        if pair in seen or pair not in self._failed:
            return
        seen.add(pair)
        self._current = pair
        for where, finding in list(self._findings(*pair)):
            place = f"{path}/{where}" if where else path
            if isinstance(finding, str):
                yield f"at {place or '/'}, {finding}"
            else:
                yield from self.reasons(finding, place, seen)

    def _reads(self, reader: "Place | View", writer: "Place | View") -> bool:
        return self._pair(reader, writer) not in self._failed

    def _pair(self, reader: "Place | View", writer: "Place | View") -> Pair:
        pair = (self.views.view(reader), self.views.view(writer))
        if pair not in self._users:
            if len(self._users) > COMPARISONS_MAX:
                raise _too_long()
            self._users[pair] = set()
            self._waiting.append(pair)
        if self._current is not None:
            self._users[pair].add(self._current)
        return pair

    def _below(self, where: str, reader: Place, writer: Place) -> Iterator[Finding]:
        pair = self._pair(reader, writer)
        if pair in self._failed:
            yield where, pair

    def _findings(self, reader: View, writer: View) -> Iterator[Finding]:
        if reader.kind is Kind.ANYTHING or writer.kind is Kind.NOTHING:
            return
        if reader.kind.is_combined and writer.kind.is_combined:
            yield from self._combined(reader, writer)
        elif reader.kind.is_combined:
            is_sum = reader.kind is not Kind.ALL_OF or len(reader.parts) == 1
            if not is_sum or not self._any_reads(reader.parts, writer):
                yield "", f"{writer.kind} was permitted, and is not {reader.kind}"
        elif writer.kind.is_combined:
            is_product = writer.kind is Kind.ALL_OF or len(writer.parts) == 1
            # All of the parts hold for what was written: one that is read is enough.
            reads = [self._reads(reader, each) for each in writer.parts]
            if not is_product or not any(reads):
                yield "", f"{writer.kind} was permitted, and {reader.kind} is expected"
        elif reader.kind is not writer.kind:
            yield "", f"{writer.kind} was permitted, and {reader.kind} is expected"
        else:
            yield from self._of_one_kind(reader, writer)

    def _any_reads(self, parts: Sequence["Place | View"], writer: View) -> bool:
        return any(self._reads(each, writer) for each in parts)

    def _of_one_kind(self, reader: View, writer: View) -> Iterator[Finding]:
        mine, theirs = reader.keywords, writer.keywords
        for name in _UPPER.get(reader.kind, ()):
            yield from _bound(name, mine, theirs, is_upper=True)
        for name in _LOWER.get(reader.kind, ()):
            yield from _bound(name, mine, theirs, is_upper=False)
        match reader.kind:
            case Kind.STRING:
                if "pattern" in mine and mine["pattern"] != theirs.get("pattern"):
                    yield "pattern", "the pattern was added or changed"
            case Kind.NUMBER:
                yield from _multiples(mine, theirs)
                if "integer" in _types(mine) and "integer" not in _types(theirs):
                    yield "type", "numbers were permitted, and integers are expected"
            case Kind.VALUES:
                missing = [each for each in _values(theirs) if each not in _values(mine)]
                if missing:
                    yield (
                        "enum",
                        f"the values {', '.join(missing[:5])[:100]} were permitted, and are not now",
                    )
            case Kind.NOT:
                # What is excluded now has to have been excluded before.
                if not self._reads(writer.place.at(theirs["not"]), reader.place.at(mine["not"])):
                    yield "not", "more is excluded than before"
            case Kind.OBJECT:
                yield from self._objects(reader, writer)
            case Kind.ARRAY:
                yield from self._arrays(reader, writer)
            case _:
                pass

    # Combined schemas

    def _combined(self, reader: View, writer: View) -> Iterator[Finding]:
        mine, theirs = _distinct(reader.parts), _distinct(writer.parts)
        is_reader_single, is_writer_single = len(mine) == 1, len(theirs) == 1
        is_related = (
            reader.kind is writer.kind
            or reader.kind is Kind.ANY_OF
            or (is_reader_single and is_writer_single)
            or (is_writer_single and reader.kind is Kind.ONE_OF)
            or (is_reader_single and writer.kind is Kind.ALL_OF)
        )
        edges = [
            [index for index, part in enumerate(mine) if self._reads(part, each)] for each in theirs
        ]
        if not is_related:
            yield "", f"{writer.kind} were permitted, and {reader.kind} are expected"
        elif len(mine) > len(theirs) and reader.kind is Kind.ALL_OF:
            yield "", "all of more schemas have to hold"
        elif len(theirs) > len(mine) and writer.kind is not Kind.ALL_OF:
            yield "", "one of the alternatives is gone"
        elif _matching(edges, len(mine)) < min(len(mine), len(theirs)):
            yield "", "an alternative that was permitted matches none that is permitted now"

    # Objects

    def _objects(self, reader: View, writer: View) -> Iterator[Finding]:
        mine, theirs = reader.keywords, writer.keywords
        my_properties, their_properties = mine.get("properties", {}), theirs.get("properties", {})
        for name in [*their_properties, *(each for each in my_properties if each not in their_properties)]:  # fmt: skip
            # A property that is not named is described by what holds for all others.
            read = reader.place.at(my_properties[name]) if name in my_properties else _others(reader, name)  # fmt: skip
            written = writer.place.at(their_properties[name]) if name in their_properties else _others(writer, name)  # fmt: skip
            yield from self._below(f"properties/{name}", read, written)
        for name in mine.get("required", ()):
            if name in theirs.get("required", ()) or _has_default(my_properties.get(name)):
                continue
            if name in my_properties:
                yield (
                    f"required/{name}",
                    "the property was optional, and is required without a default",
                )
        yield from self._below("additionalProperties", _others(reader, None), _others(writer, None))
        yield from self._dependencies(reader, writer)

    def _dependencies(self, reader: View, writer: View) -> Iterator[Finding]:
        before = _dependent(writer.keywords)
        for name, needed in _dependent(reader.keywords).items():
            where, known = f"dependencies/{name}", before.get(name)
            if isinstance(needed, list):
                if not isinstance(known, list) or not set(needed) <= set(known):
                    yield where, "more properties are needed with it than before"
            elif known is None or isinstance(known, list):
                yield where, "a schema was added that holds with it"
            else:
                yield from self._below(where, reader.place.at(needed), writer.place.at(known))

    # Arrays

    def _arrays(self, reader: View, writer: View) -> Iterator[Finding]:
        mine, theirs = reader.keywords, writer.keywords
        if mine.get("uniqueItems") and not theirs.get("uniqueItems"):
            yield "uniqueItems", "items could be equal, and may not now"
        my_first, my_rest = _items(mine)
        their_first, their_rest = _items(theirs)
        for index in range(max(len(my_first), len(their_first))):
            read = my_first[index] if index < len(my_first) else my_rest
            written = their_first[index] if index < len(their_first) else their_rest
            yield from self._below(
                f"items/{index}", reader.place.at(read), writer.place.at(written)
            )
        yield from self._below("items", reader.place.at(my_rest), writer.place.at(their_rest))
        if "contains" in mine:
            if "contains" not in theirs:
                yield "contains", "an item has to be of a kind, and had not before"
            else:
                read, written = mine["contains"], theirs["contains"]
                yield from self._below("contains", reader.place.at(read), writer.place.at(written))


def _too_long() -> InvalidSchema:
    return InvalidSchema("the schemas take too long to compare: they have too many combinations")


def _others(view: View, name: str | None) -> Place:
    """What holds for a property that is not named, or for all that no pattern covers either."""
    keywords = view.keywords
    if name is not None:
        for pattern, schema in keywords.get("patternProperties", {}).items():
            if _matches(pattern, name):
                return view.place.at(schema)
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        if keyword in keywords:
            return view.place.at(keywords[keyword])
    # Beside patterns the rest is permitted, but its names are not those of the patterns.
    is_closed = name is not None and bool(keywords.get("patternProperties"))
    return view.place.at(not is_closed)


def _matches(pattern: str, name: str) -> bool:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options).search(name) is not None
    except re2.error:
        return False  # It has what only slower engines know: then it covers nothing.


def _items(keywords: dict[str, Any]) -> tuple[list[Any], Any]:
    """The schemas of the first items, and that of all others."""
    items = keywords.get("items", True)
    rest = keywords.get("unevaluatedItems", True)
    if isinstance(items, list):
        return items, keywords.get("additionalItems", rest)
    return keywords.get("prefixItems", []), items if "items" in keywords else rest


def _dependent(keywords: dict[str, Any]) -> dict[str, Any]:
    names = ("dependencies", "dependentRequired", "dependentSchemas")
    return {name: each for keyword in names for name, each in keywords.get(keyword, {}).items()}


def _has_default(schema: Any) -> bool:
    return isinstance(schema, dict) and "default" in schema


def _bound(
    name: str, mine: dict[str, Any], theirs: dict[str, Any], *, is_upper: bool
) -> Iterator[Finding]:
    limit, before = mine.get(name), theirs.get(name)
    if limit is None or isinstance(limit, bool):
        # Draft 4 has a flag here: it makes the bound exclusive.
        if limit is True and before is not True:
            yield name, "the bound itself was permitted, and is not now"
        return
    if before is None or isinstance(before, bool):
        yield name, f"it is {limit} now, and was not limited"
    elif limit < before if is_upper else limit > before:
        yield name, f"it is {limit} now, and was {before}"


def _multiples(mine: dict[str, Any], theirs: dict[str, Any]) -> Iterator[Finding]:
    if "multipleOf" not in mine:
        return
    if "multipleOf" not in theirs:
        yield "multipleOf", "any number was permitted, and only multiples are now"
        return
    try:
        left = Decimal(str(theirs["multipleOf"])) % Decimal(str(mine["multipleOf"]))
    except InvalidOperation:  # The quotient has more digits than a Decimal.
        left = Decimal(1)
    if left:
        yield "multipleOf", f"it is {mine['multipleOf']} now, and was {theirs['multipleOf']}"


def _types(keywords: dict[str, Any]) -> list[str]:
    types = keywords.get("type", [])
    return [types] if isinstance(types, str) else types


def _values(keywords: dict[str, Any]) -> list[str]:
    values = [keywords["const"]] if "const" in keywords else keywords["enum"]
    return [json.dumps(each, sort_keys=True) for each in values]


def _distinct(parts: Sequence["Place | View"]) -> list["Place | View"]:
    """The parts of a combined schema without those that are there twice."""
    found: dict[str, Place | View] = {}
    for index, each in enumerate(parts):
        key = json.dumps(each.schema, sort_keys=True) if isinstance(each, Place) else str(index)
        found.setdefault(key, each)
    return list(found.values())


def _matching(edges: list[list[int]], size: int) -> int:
    """How many on the left have one on the right of their own."""
    owner: list[int | None] = [None] * size

    def place(left: int, tried: set[int]) -> bool:
        for right in edges[left]:
            if right in tried:
                continue
            tried.add(right)
            holder = owner[right]
            if holder is None or place(holder, tried):
                owner[right] = left
                return True
        return False

    return sum(place(left, set()) for left in range(len(edges)))

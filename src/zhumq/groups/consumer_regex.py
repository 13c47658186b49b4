"""Regular expressions for topic names, matched in linear time: compiled to a table with one step a character."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

# As in RE2, which Kafka uses here, matching takes time linear in the name. Python's own matcher backtracks: a
# subscription such as (a+)+$ would block the whole broker. The alphabet of topic names is known, so the
# expression becomes a table of states for just these characters.
ALPHABET: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
PATTERN_LENGTH_MAX = 1_000
REPETITIONS_MAX = 1_000  # RE2's limit for {n,m}
PATTERN_STATES_MAX = 4_000  # after repetitions are expanded
TABLE_STATES_MAX = 2_000
TABLE_STEPS_MAX = 1_000_000  # to build the table: about a second at worst
NESTING_MAX = 50

_ALL = frozenset(ALPHABET)
_DIGITS = frozenset("0123456789")
_WORD = frozenset(each for each in ALPHABET if each.isalnum() or each == "_")
_SPACE: frozenset[str] = frozenset()
_ESCAPES: Final = {
    "d": _DIGITS, "D": _ALL - _DIGITS, "w": _WORD, "W": _ALL - _WORD, "s": _SPACE, "S": _ALL,
}  # fmt: skip
_POSIX: Final = {
    "alnum": _WORD - {"_"},
    "alpha": frozenset(each for each in ALPHABET if each.isalpha()),
    "digit": _DIGITS,
    "lower": frozenset(each for each in ALPHABET if each.islower()),
    "upper": frozenset(each for each in ALPHABET if each.isupper()),
    "punct": frozenset("._-"),
    "word": _WORD,
}


class RegexInvalid(Exception):
    """Not a regular expression, or one that this broker does not support; the message has the reason."""


class TopicRegex:
    """A compiled expression. As in Kafka, it must match the whole name."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_LENGTH_MAX:
            raise RegexInvalid(f"longer than {PATTERN_LENGTH_MAX} characters")
        automaton = _Automaton()
        start, end = automaton.fragment(_Parser(pattern).parse())
        self._table, self._accepting = _table_of(automaton, start, end)

    def matches(self, name: str) -> bool:
        state = 0
        for character in name:
            following = self._table[state].get(character)
            if following is None:
                return False
            state = following
        return state in self._accepting


# Nodes of a parsed expression.


@dataclass(frozen=True, slots=True)
class _Set:
    characters: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Sequence:
    parts: tuple["_Node", ...]


@dataclass(frozen=True, slots=True)
class _Choice:
    options: tuple["_Node", ...]


@dataclass(frozen=True, slots=True)
class _Repeat:
    part: "_Node"
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class _Edge:
    """The start or the end of the name."""

    at_start: bool


_Node = _Set | _Sequence | _Choice | _Repeat | _Edge


class _Parser:
    """Parses RE2's syntax as far as it applies to names; refuses the rest with a reason."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._position = 0
        self._depth = 0
        self._ignores_case = False

    def parse(self) -> _Node:
        node = self._choice()
        if self._position < len(self._text):
            raise RegexInvalid("unexpected )")
        return node

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _take(self) -> str:
        if self._position >= len(self._text):
            raise RegexInvalid("unexpected end")
        self._position += 1
        return self._text[self._position - 1]

    def _choice(self) -> _Node:
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise RegexInvalid(f"nested deeper than {NESTING_MAX}")
        options = [self._sequence()]
        while self._peek() == "|":
            self._take()
            options.append(self._sequence())
        self._depth -= 1
        return options[0] if len(options) == 1 else _Choice(tuple(options))

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom()))
        return _Sequence(tuple(parts))

    def _repeated(self, part: _Node) -> _Node:
        bounds: tuple[int, int | None]
        match self._peek():
            case "*" | "+" | "?":
                bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}[self._take()]
            case "{":
                bounds = self._counted()
            case _:
                return part
        if self._peek() == "?":
            self._take()  # lazy or greedy: the same names match
        if self._peek() in ("*", "+", "?", "{"):
            raise RegexInvalid("a repetition of a repetition")
        return _Repeat(part, *bounds)

    def _counted(self) -> tuple[int, int | None]:
        """The bounds of {n}, {n,} or {n,m}."""
        end = self._text.find("}", self._position)
        first, comma, last = self._text[self._position + 1 : max(end, 0)].partition(",")
        if end < 0 or not first.isdecimal() or (last and not last.isdecimal()):
            raise RegexInvalid("a { that does not begin a repetition")
        if len(first) > 4 or len(last) > 4:
            raise RegexInvalid(f"more than {REPETITIONS_MAX} repetitions")
        least = int(first)
        most = (int(last) if last else None) if comma else least
        if max(least, most or 0) > REPETITIONS_MAX or (most is not None and most < least):
            raise RegexInvalid(f"{{n,m}} needs n <= m <= {REPETITIONS_MAX}")
        self._position = end + 1
        return least, most

    def _atom(self) -> _Node:
        character = self._take()
        match character:
            case "(":
                return self._group()
            case "[":
                return _Set(self._cased(self._class()))
            case ".":
                return _Set(_ALL)
            case "^":
                return _Edge(at_start=True)
            case "$":
                return _Edge(at_start=False)
            case "\\":
                return self._escape()
            case "*" | "+" | "?" | "{":
                raise RegexInvalid(f"nothing for {character} to repeat")
            case _:
                return _Set(self._cased(frozenset(character)))

    def _group(self) -> _Node:
        before = self._ignores_case
        if self._peek() == "?":
            self._take()
            opened = self._extension()
            if not opened:
                return _Sequence(())  # (?i) applies until its group ends
        node = self._choice()
        if self._peek() != ")":
            raise RegexInvalid("a ( without its )")
        self._take()
        self._ignores_case = before
        return node

    def _extension(self) -> bool:
        """Parse what follows (? up to the group's content; False if there is no content."""
        named = self._text[self._position :].removeprefix("P")
        if named.startswith("<") and named[1:2] not in ("=", "!"):
            end = self._text.find(">", self._position)
            if end < 0:
                raise RegexInvalid("a group's name without its end")
            self._position = end + 1
            return True
        ignores = True
        while True:
            match self._take():
                case ":":
                    return True
                case ")":
                    return False
                case "i":
                    self._ignores_case = ignores
                case "-":
                    ignores = False
                case "s" | "m" | "U":
                    pass  # about line ends and greediness, irrelevant for names
                case other:
                    raise RegexInvalid(f"(?{other} is not supported")

    def _escape(self) -> _Node:
        character = self._take()
        if character in _ESCAPES:
            return _Set(_ESCAPES[character])
        if character == "A":
            return _Edge(at_start=True)
        if character in "zZ":
            return _Edge(at_start=False)
        if character == "Q":
            end = self._text.find("\\E", self._position)
            literal = self._text[self._position : end if end >= 0 else None]
            self._position = end + 2 if end >= 0 else len(self._text)
            return _Sequence(tuple(_Set(self._cased(frozenset(each))) for each in literal))
        if character.isalnum():
            raise RegexInvalid(f"\\{character} is not supported")
        return _Set(frozenset(character))

    def _class(self) -> frozenset[str]:
        negated = self._peek() == "^"
        if negated:
            self._take()
        found: set[str] = set()
        first = True
        while first or self._peek() != "]":
            first = False
            if self._text.startswith("[:", self._position):
                found |= self._posix()
                continue
            low = self._class_member()
            if isinstance(low, frozenset):
                found |= low
            elif self._peek() == "-" and self._text[self._position + 1 : self._position + 2] != "]":
                self._take()
                high = self._class_member()
                if isinstance(high, frozenset) or high < low:
                    raise RegexInvalid("an invalid character range")
                found.update(each for each in ALPHABET if low <= each <= high)
            else:
                found.add(low)
        self._take()
        return _ALL - self._cased(frozenset(found)) if negated else frozenset(found)

    def _class_member(self) -> str | frozenset[str]:
        character = self._take()
        if character != "\\":
            return character
        character = self._take()
        if character in _ESCAPES:
            return _ESCAPES[character]
        if character.isalnum():
            raise RegexInvalid(f"\\{character} is not supported")
        return character

    def _posix(self) -> frozenset[str]:
        end = self._text.find(":]", self._position)
        name = self._text[self._position + 2 : max(end, 0)]
        if end < 0 or name not in _POSIX:
            raise RegexInvalid("an unknown character class")
        self._position = end + 2
        return _POSIX[name]

    def _cased(self, characters: frozenset[str]) -> frozenset[str]:
        if not self._ignores_case:
            return characters
        return (
            characters
            | {each.lower() for each in characters}
            | {each.upper() for each in characters}
        )


_AT_START: Final = "at the start"
_AT_END: Final = "at the end"


class _Automaton:
    """States with transitions: free ones, free ones at an edge of the name, and ones that consume a character."""

    def __init__(self) -> None:
        self.free: list[list[tuple[int, str | None]]] = []
        self.steps: list[tuple[frozenset[str], int] | None] = []

    def _state(self) -> int:
        if len(self.free) >= PATTERN_STATES_MAX:
            raise RegexInvalid("too many repetitions")
        self.free.append([])
        self.steps.append(None)
        return len(self.free) - 1

    def _link(self, start: int, end: int, edge: str | None = None) -> None:
        self.free[start].append((end, edge))

    def fragment(self, node: _Node) -> tuple[int, int]:
        """Build a node; returns its first and last state."""
        start, end = self._state(), self._state()
        match node:
            case _Set(characters):
                self.steps[start] = (characters, end)
            case _Edge(at_start):
                self._link(start, end, _AT_START if at_start else _AT_END)
            case _Sequence(parts):
                last = start
                for part in parts:
                    inner_start, inner_end = self.fragment(part)
                    self._link(last, inner_start)
                    last = inner_end
                self._link(last, end)
            case _Choice(options):
                for option in options:
                    inner_start, inner_end = self.fragment(option)
                    self._link(start, inner_start)
                    self._link(inner_end, end)
            case _Repeat():
                self._repeat(node, start, end)
        return start, end

    def _repeat(self, node: _Repeat, start: int, end: int) -> None:
        last = start
        for _ in range(node.least):
            inner_start, inner_end = self.fragment(node.part)
            self._link(last, inner_start)
            last = inner_end
        if node.most is None:
            inner_start, inner_end = self.fragment(node.part)
            self._link(last, inner_start)
            self._link(inner_end, inner_start)
            self._link(inner_end, end)
        else:
            for _ in range(node.most - node.least):
                inner_start, inner_end = self.fragment(node.part)
                self._link(last, inner_start)
                self._link(last, end)
                last = inner_end
        self._link(last, end)

    def closure(self, states: Iterable[int], edges: frozenset[str]) -> frozenset[int]:
        """All states that can be reached without consuming a character."""
        reached = set(states)
        waiting = list(reached)
        while waiting:
            for state, edge in self.free[waiting.pop()]:
                if state not in reached and (edge is None or edge in edges):
                    reached.add(state)
                    waiting.append(state)
        return frozenset(reached)


def _table_of(
    automaton: _Automaton, start: int, end: int
) -> tuple[list[dict[str, int]], frozenset[int]]:
    """One row for each reachable set of states: the next row for each character."""
    first = automaton.closure([start], frozenset({_AT_START}))
    rows: dict[frozenset[int], int] = {first: 0}
    waiting = [first]
    table: list[dict[str, int]] = []
    accepting = set()
    steps_left = TABLE_STEPS_MAX
    while waiting:
        states = waiting.pop(0)
        edges = {_AT_END, _AT_START} if not table else {_AT_END}
        if end in automaton.closure(states, frozenset(edges)):
            accepting.add(len(table))
        reached: dict[str, set[int]] = {}
        for state in states:
            step = automaton.steps[state]
            if step is not None:
                for character in step[0] & _ALL:
                    reached.setdefault(character, set()).add(step[1])
        row: dict[str, int] = {}
        closures: dict[frozenset[int], frozenset[int]] = {}
        for character, raw in reached.items():
            frozen = frozenset(raw)
            following = closures.get(frozen)
            if following is None:
                following = closures[frozen] = automaton.closure(frozen, frozenset())
                steps_left -= len(following) + len(reached)
            if following not in rows:
                rows[following] = len(rows)
                waiting.append(following)
            row[character] = rows[following]
        table.append(row)
        if len(rows) > TABLE_STATES_MAX or steps_left < 0:
            raise RegexInvalid("too complex")
    return table, frozenset(accepting)

"""Reads a schema in Spark's DDL (`id BIGINT, name STRING`) without Spark, to find a mistake before a session starts."""

import difflib
import re
from dataclasses import dataclass
from typing import Final, NoReturn

from zhumq.model.errors import ZhumqError

NESTING_MAX: Final = 20
_SIMPLE: Final = (
    "BOOLEAN", "TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG", "FLOAT",
    "REAL", "DOUBLE", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "TIME", "STRING",
    "BINARY", "DECIMAL", "DEC", "NUMERIC", "VARCHAR", "CHAR", "CHARACTER", "VARIANT", "VOID",
    "INTERVAL",
)  # fmt: skip
_NESTED: Final = ("ARRAY", "MAP", "STRUCT")
_NEED_LENGTH: Final = ("VARCHAR", "CHAR", "CHARACTER")
_TOKEN: Final = re.compile(
    r"\s+|--[^\n]*|(?P<token>`(?:[^`]|``)+`|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|\w+|.)",
    re.DOTALL,
)
_INTERVAL_WORDS: Final = frozenset({"YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "TO"})


class SchemaWrong(ZhumqError):
    """A mistake in a schema; `line` counts from 1 within its text."""

    def __init__(self, words: str, line: int) -> None:
        super().__init__(words)
        self.line = line


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaColumn:
    """A column of a schema; its type as it is written."""

    name: str
    type: str

    @property
    def base_type(self) -> str:
        """The type in capitals, without what is in brackets: DECIMAL, ARRAY."""
        match = re.match(r"\w+", self.type)
        return match[0].upper() if match else ""

    @property
    def is_nested(self) -> bool:
        return self.base_type in _NESTED


def parse_ddl(text: str) -> tuple[SchemaColumn, ...]:
    """The columns of a schema. Raises SchemaWrong."""
    return _Reader(text).columns()


class _Reader:
    """A reader of one schema, token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [
            (found["token"], found.start())
            for found in _TOKEN.finditer(text)
            if found["token"] is not None
        ]
        self._next = 0

    def columns(self) -> tuple[SchemaColumn, ...]:
        found: list[SchemaColumn] = []
        while True:
            found.append(self._column(depth=0))
            if any(found[-1].name.lower() == each.name.lower() for each in found[:-1]):
                self._next -= 1
                self._fail(f"the column {found[-1].name!r} is there twice")
            if self._peek() == "":
                return tuple(found)
            self._expect(",")

    def _column(self, depth: int) -> SchemaColumn:
        name = self._take()
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        elif not re.fullmatch(r"\w+", name):
            self._next -= 1 if name else 0
            self._fail(f"a column is a name and a type, as in `id BIGINT`, not {self._shown()}")
        if self._peek() == ":":
            self._take()
        start = self._position()
        self._type(depth, name)
        end = self._position(after_last=True)
        self._attributes()
        return SchemaColumn(name=name, type=self._text[start:end])

    def _type(self, depth: int, column: str) -> None:
        if depth > NESTING_MAX:
            self._fail(f"is nested more than {NESTING_MAX} times")
        word = self._peek().upper()
        if not re.fullmatch(r"\w+", word):
            self._fail(f"the column {column!r} has no type: write `{column} STRING`")
        if word not in _SIMPLE and word not in _NESTED:
            near = difflib.get_close_matches(word, (*_SIMPLE, *_NESTED), n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            self._fail(f"there is no type {self._peek()!r}{hint}")
        self._take()
        if word in _NESTED:
            self._members(word, depth, column)
        elif self._peek() == "(":
            self._numbers()
        elif word in _NEED_LENGTH:
            self._fail(f"{word} needs a length, as in {word}(20)")
        elif word == "INTERVAL":
            while self._peek().upper() in _INTERVAL_WORDS:
                self._take()
        elif word == "STRING" and self._peek().upper() == "COLLATE":
            self._take()
            self._take()

    def _members(self, word: str, depth: int, column: str) -> None:
        self._expect("<")
        if word == "STRUCT":
            while self._peek() != ">":
                self._column(depth + 1)
                if self._peek() != ">":
                    self._expect(",")
        else:
            self._type(depth + 1, column)
            if word == "MAP":
                self._expect(",")
                self._type(depth + 1, column)
        self._expect(">")

    def _numbers(self) -> None:
        self._expect("(")
        while True:
            if not self._take().isdigit():
                self._next -= 1
                self._fail(f"in the brackets of a type there are numbers, not {self._shown()}")
            if self._peek() == ")":
                break
            self._expect(",")
        self._expect(")")

    def _attributes(self) -> None:
        while self._peek().upper() in ("NOT", "COMMENT"):
            if self._take().upper() == "NOT":
                if self._take().upper() != "NULL":
                    self._next -= 1
                    self._fail(f"NULL comes after NOT, not {self._shown()}")
            elif not self._take().startswith(("'", '"')):
                self._next -= 1
                self._fail("COMMENT needs a text in quotes")

    def _expect(self, token: str) -> None:
        if self._peek() != token:
            self._fail(f"needs {token!r} before {self._shown()}")
        self._take()

    def _peek(self) -> str:
        return self._tokens[self._next][0] if self._next < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._next += 1 if token else 0
        return token

    def _shown(self) -> str:
        return repr(self._peek()) if self._peek() else "the end"

    def _position(self, *, after_last: bool = False) -> int:
        """Where the next token begins, or the one before it ends."""
        if after_last:
            token, start = self._tokens[self._next - 1]
            return start + len(token)
        return self._tokens[self._next][1] if self._next < len(self._tokens) else len(self._text)

    def _fail(self, words: str) -> NoReturn:
        raise SchemaWrong(words, self._text.count("\n", 0, self._position()) + 1)

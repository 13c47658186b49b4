"""Splits the text of a condition into tokens, each with its place."""

import re
from enum import Enum, auto
from typing import Final, NamedTuple

from zhumq.filters.invalid import FilterInvalid

NUMBER_CHARACTERS_MAX: Final = 40

KEYWORDS: Final = frozenset(
    {"AND", "BETWEEN", "ESCAPE", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE"}
)
# What other languages write, and what to write here.
_HINTS: Final = {
    "||": "a condition has OR; `a || b` alone is a list of tags, and `tags IN ('a', 'b')` is a condition",
    "&&": "write AND",
    "==": "write =",
    "!": "write NOT",
    ";": "a filter is one condition",
}

# Each alternative is linear in the text: none of them can match the same characters in two ways.
_TOKEN: Final = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    | (?P<name>[^\W\d][\w$]*)
    | (?P<text>'(?:[^']|'')*'?)
    | (?P<quoted>"(?:[^"]|"")*"?)
    | (?P<other>\|\||&&|==|;)
    | (?P<symbol><>|!=|<=|>=|[=<>()+\-*/%,.\[\]])
    """,
    re.VERBOSE,
)


class TokenKind(Enum):
    """The kinds of tokens."""

    NUMBER = auto()
    TEXT = auto()  # in single quotes: a value
    NAME = auto()
    QUOTED = auto()  # in double quotes: a name
    KEYWORD = auto()
    SYMBOL = auto()
    END = auto()


class Token(NamedTuple):
    """One token. `text` is without its quotes, and in upper case if it is a keyword."""

    kind: TokenKind
    text: str
    position: int
    end: int


def tokens(text: str) -> list[Token]:
    """The tokens of a condition, with one of kind END behind them. Raises FilterInvalid."""
    found: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            hint = _HINTS.get(text[position])
            shown = f"{text[position]!r} has no meaning here"
            raise FilterInvalid(f"{shown}: {hint}" if hint else shown, text, position)
        if match.lastgroup == "other":
            raise FilterInvalid(
                f"{match.group()!r} has no meaning here: {_HINTS[match.group()]}", text, position
            )
        if match.lastgroup != "space":
            found.append(_token(text, match))
        position = match.end()
    found.append(Token(TokenKind.END, "the end", len(text), len(text)))
    return found


def _token(text: str, match: "re.Match[str]") -> Token:
    position, end, given = match.start(), match.end(), match.group()
    match match.lastgroup:
        case "number":
            if end - position > NUMBER_CHARACTERS_MAX:
                raise FilterInvalid(
                    f"a number has at most {NUMBER_CHARACTERS_MAX} characters", text, position
                )
            following = text[end : end + 1]
            if following.isalnum() or following in ("_", "$"):
                raise FilterInvalid(
                    f"a number is followed by {following!r}: put a text in single quotes, and a"
                    " name that begins with a digit in double quotes",
                    text,
                    end,
                )
            return Token(TokenKind.NUMBER, given, position, end)
        case "name":
            upper = given.upper()
            if upper in KEYWORDS:
                return Token(TokenKind.KEYWORD, upper, position, end)
            return Token(TokenKind.NAME, given, position, end)
        case "text":
            return Token(TokenKind.TEXT, _unquoted(text, given, position), position, end)
        case "quoted":
            return Token(TokenKind.QUOTED, _unquoted(text, given, position), position, end)
        case _:
            return Token(TokenKind.SYMBOL, given, position, end)


def _unquoted(text: str, given: str, position: int) -> str:
    """What is between the quotes; a doubled quote stands for one."""
    quote = given[0]
    # The number of quotes is even exactly if the last one ends the text.
    if given.count(quote) % 2:
        raise FilterInvalid(f"the {quote} that begins here has no end", text, position)
    return given[1:-1].replace(quote * 2, quote)

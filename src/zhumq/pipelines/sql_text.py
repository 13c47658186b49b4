"""Reads SQL without Spark: which views a query names, and quotes and brackets that are not closed."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

_TOKEN: Final = re.compile(
    r"\s+|--[^\n]*|/\*.*?\*/"
    r"|(?P<text>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<name>`(?:[^`]|``)+`|[A-Za-z_]\w*)"
    r"|(?P<other>\d[\w.]*|.)",
    re.DOTALL,
)
_CLOSING: Final = {"(": ")", "[": "]"}
# Words after which the list of tables in a FROM has ended.
_ENDS: Final = frozenset(
    [
        "where",
        "group",
        "order",
        "having",
        "limit",
        "union",
        "except",
        "intersect",
        "minus",
        "window",
        "lateral",
        "select",
        "on",
        "using",
        "cluster",
        "distribute",
        "sort",
        "qualify",
        "pivot",
        "unpivot",
        "tablesample",
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlMistake:
    """What is wrong in a text, and in which of its lines, counted from 1."""

    words: str
    line: int


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # name, text or other
    text: str
    start: int


def find_mistake(sql: str) -> SqlMistake | None:
    """A quote or a bracket that is not closed, or a text without SQL. Spark finds everything else."""
    tokens = list(_tokens(sql))
    if not tokens:
        return SqlMistake(words="has no SQL", line=1)
    opened: list[_Token] = []
    for token in tokens:
        if token.kind != "other":
            continue
        if token.text in ("'", '"', "`"):
            return _mistake(sql, token, f"the quote {token.text} is not closed")
        if token.text in _CLOSING:
            opened.append(token)
        elif token.text in _CLOSING.values():
            if not opened or _CLOSING[opened[-1].text] != token.text:
                return _mistake(sql, token, f"the bracket {token.text} closes nothing")
            opened.pop()
    if opened:
        return _mistake(sql, opened[-1], f"the bracket {opened[-1].text} is not closed")
    return None


def views_in(sql: str, known: Collection[str]) -> tuple[str, ...]:
    """The known views that a query reads, in the order of their first use."""
    found: list[str] = []
    names = {name.lower(): name for name in known}
    tokens = list(_tokens(sql))
    for name in _tables(tokens, _own_names(tokens)):
        view = names.get(name)
        if view is not None and view not in found:
            found.append(view)
    return tuple(found)


def reads_each_once(sql: str) -> bool:
    """Whether each table and each common table expression of a query is read in one place only."""
    tokens = list(_tokens(sql))
    names = list(_tables(tokens, own=frozenset()))
    return len(names) == len(set(names))


def split_statements(text: str) -> tuple[str, ...]:
    """The statements between semicolons, without those that have no SQL."""
    found: list[str] = []
    start = 0
    ends = [each.start for each in _tokens(text) if each.kind == "other" and each.text == ";"]
    for end in (*ends, len(text)):
        part = text[start:end]
        if any(_tokens(part)):
            found.append(part.strip())
        start = end + 1
    return tuple(found)


def words_of(sql: str) -> tuple[str, ...]:
    """The words of a statement in lower case, without its texts, numbers and signs."""
    return tuple(each.text.lower() for each in _tokens(sql) if each.kind == "name")


def _own_names(tokens: list[_Token]) -> frozenset[str]:
    """The names of common table expressions."""
    return frozenset(
        _plain(token)
        for token, word, bracket in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if token.kind == "name" and word.text.lower() == "as" and bracket.text == "("
    )


def _tables(tokens: list[_Token], own: Collection[str]) -> Iterator[str]:
    """Names after FROM and JOIN, also in its list with commas; those of `own` are left out."""
    depths: list[bool] = [False]  # of each open bracket: whether a list of tables is being read
    is_table = False  # whether the next name is a table
    for index, token in enumerate(tokens):
        word = token.text.lower()
        if token.text == "(":
            depths.append(is_table)
        elif token.text == ")" and len(depths) > 1:
            depths.pop()
            is_table = False
        elif token.kind == "name" and word in ("from", "join", "table"):
            depths[-1], is_table = True, True
        elif token.text == "," and depths[-1]:
            is_table = True
        elif token.kind == "name" and word in _ENDS:
            depths[-1], is_table = False, False
        elif token.kind == "name" and is_table:
            is_table = False
            following = tokens[index + 1].text if index + 1 < len(tokens) else ""
            # `db.table` and `range(10)` are not views of the pipeline.
            if following not in (".", "(") and _plain(token) not in own:
                yield _plain(token)


def _tokens(sql: str) -> Iterator[_Token]:
    for found in _TOKEN.finditer(sql):
        if found.lastgroup is not None:
            yield _Token(found.lastgroup, found[found.lastgroup], found.start())


def _plain(token: _Token) -> str:
    return token.text.strip("`").lower()


def _mistake(sql: str, token: _Token, words: str) -> SqlMistake:
    return SqlMistake(words=words, line=sql.count("\n", 0, token.start) + 1)

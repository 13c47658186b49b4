"""Reads SQL without Spark: which views a query names, and mistakes that show before Spark reads it."""

import difflib
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

# How a query begins; in brackets, only such a query has tables after its FROM, not a function like EXTRACT.
_QUERY_WORDS: Final = ("select", "with", "from", "values", "table", "map", "reduce")
_NOT_TABLES: Final = ("lateral", "values", "stream", "from")
# Words of queries that are more than a join, or that may set a watermark themselves.
_MORE: Final = frozenset({"union", "intersect", "except", "minus", "watermark", "with", "natural"})
_CONDITIONS: Final = ("on", "using", "where")


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


def find_query_mistake(sql: str, views: Collection[str]) -> SqlMistake | None:
    """A statement that is no query, several of them, or a table that is none of the views."""
    tokens = list(_tokens(sql))
    first = next((each for each in tokens if each.text != "("), tokens[0])
    word = first.text.lower()
    if word not in _QUERY_WORDS:
        near = difflib.get_close_matches(word, _QUERY_WORDS, n=1)
        hint = f" (did you mean {near[0].upper()}?)" if near else ""
        return _mistake(sql, first, f"a query begins with SELECT or WITH, not {first.text}{hint}")
    ends = [index for index, each in enumerate(tokens) if each.text == ";"]
    if ends and ends[0] + 1 < len(tokens):
        return _mistake(sql, tokens[ends[0] + 1], "one step is one query: write another step")
    known = [view.lower() for view in views]
    own = _own_names(tokens) | _names_with_columns(tokens)
    for token in _tables_of_queries(tokens):
        name = _plain(token)
        if name not in known and name not in own:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            words = (
                f"there is no source or step {name!r} above{hint}; there are: {', '.join(views)}"
            )
            return _mistake(sql, token, f"{words}. A table of a catalog is DATABASE.TABLE")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedTables:
    """The tables of a query that is one join of them."""

    tables: tuple[str, ...]  # each as often as it is read
    lines: tuple[int, ...]  # of each, counted from 1
    compared: frozenset[str]  # the names behind the first ON, USING or WHERE
    has_bounds: bool  # whether anything is compared by more than equality


def joined_tables(sql: str) -> JoinedTables | None:
    """The join that a query is; None if it is none, or more than that: what is not plain is left to Spark."""
    tokens = list(_tokens(sql))
    words = [each.text.lower() for each in tokens if each.kind == "name"]
    if words.count("select") != 1 or "join" not in words or _MORE.intersection(words):
        return None
    found = list(_tables_of_queries(tokens))
    begin = next(
        (index for index, each in enumerate(tokens) if each.text.lower() in _CONDITIONS), None
    )
    behind = [] if begin is None else tokens[begin:]
    return JoinedTables(
        tables=tuple(_plain(each) for each in found),
        lines=tuple(sql.count("\n", 0, each.start) + 1 for each in found),
        compared=frozenset(_plain(each) for each in behind if each.kind == "name"),
        has_bounds=any(
            each.text in ("<", ">") or (each.kind == "name" and each.text.lower() == "between")
            for each in tokens
        ),
    )


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


def _names_with_columns(tokens: list[_Token]) -> frozenset[str]:
    """The names of common table expressions whose columns are named: `WITH RECURSIVE a (n) AS (`."""
    found, opened = set[str](), list[int]()
    for index, token in enumerate(tokens):
        if token.text == "(":
            opened.append(index)
        elif token.text == ")" and opened:
            before = tokens[opened.pop() - 1]
            following = [each.text.lower() for each in tokens[index + 1 : index + 3]]
            if before.kind == "name" and following == ["as", "("]:
                found.add(_plain(before))
    return frozenset(found)


def _tables_of_queries(tokens: list[_Token]) -> Iterator[_Token]:
    """The names right after FROM and JOIN that can only be tables; those behind commas are left to Spark."""
    in_query = [True]  # of each open bracket: whether a query is in it
    for index, token in enumerate(tokens[:-1]):
        following = tokens[index + 1]
        if token.text == "(":
            first = next((each for each in tokens[index:] if each.text != "("), following)
            in_query.append(first.text.lower() in _QUERY_WORDS)
        elif token.text == ")" and len(in_query) > 1:
            in_query.pop()
        elif token.kind == "name" and token.text.lower() in ("from", "join") and in_query[-1]:
            before = tokens[index - 1].text.lower() if index else ""
            after = tokens[index + 2].text if index + 2 < len(tokens) else ""
            if (
                following.kind == "name"
                and following.text.lower() not in _NOT_TABLES
                and before not in ("distinct", ".")
                and after not in (".", "(")
            ):
                yield following


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

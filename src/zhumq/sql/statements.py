"""What a statement is, and Spark's errors about it in one line that points at the place."""

import difflib
import re
from collections.abc import Collection
from itertools import pairwise
from typing import Any, Final

from pyspark.errors import ParseException, PySparkException

from zhumq.model.errors import ZhumqError
from zhumq.pipelines.causes import one_line
from zhumq.pipelines.spec_errors import plain_words
from zhumq.pipelines.sql_text import find_mistake, words_of

QUERIES: Final = ("select", "with", "values", "from", "table", "explain")
LISTING: Final = "show tables"
NEAR_CHARACTERS: Final = 30  # of the statement, shown after the place of a mistake
_DESCRIBE: Final = re.compile(
    r"\s*desc(?:ribe)?\s+(?:table\s+)?(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<plain>[\w.-]+))\s*",
    re.IGNORECASE,
)
_PLACE: Final = re.compile(r"\(line (\d+), pos (\d+)\)")


class SqlFailed(ZhumqError):
    """A statement that cannot be run; the message names the place in it, and what to do."""


def check_reads_only(sql: str) -> None:
    """Raise SqlFailed for a statement that is no query, and for quotes and brackets that are not closed."""
    mistake = find_mistake(sql)
    if mistake is not None:
        raise SqlFailed(f"line {mistake.line}: {mistake.words}")
    words = words_of(sql)
    first = words[0] if words else ""
    writes = any(pair in (("insert", "into"), ("insert", "overwrite")) for pair in pairwise(words))
    if first not in QUERIES or writes:
        shown = sql.split(maxsplit=1)[0][:NEAR_CHARACTERS] if not writes else "INSERT"
        raise SqlFailed(
            f"{shown} cannot be run: only SELECT, WITH, VALUES, FROM, TABLE, EXPLAIN, SHOW TABLES and"
            " DESCRIBE; a pipeline writes, see `zhumq pipeline --help`"
        )


def described_table(sql: str) -> str | None:
    """The table of a DESCRIBE; None for another statement."""
    match = _DESCRIBE.fullmatch(sql)
    if match is None:
        return None
    return match["plain"] or match["quoted"].replace("``", "`")


def is_listing(sql: str) -> bool:
    return " ".join(sql.lower().split()) == LISTING


def unknown_table(name: str, known: Collection[str]) -> SqlFailed:
    """The error for a table that does not exist, with the nearest names."""
    near = difflib.get_close_matches(name.lower(), [each.lower() for each in known], n=3)
    names = [each for each in known if each.lower() in near]
    if names:
        return SqlFailed(f"there is no table {name!r}: did you mean {' or '.join(sorted(names))}?")
    more = "SHOW TABLES lists them" if known else "the brokers have no topics"
    return SqlFailed(f"there is no table {name!r}: {more}")


def failure(error: PySparkException, sql: str, known: Collection[str]) -> SqlFailed:
    """Spark's error about a statement, with the place in it."""
    parameters = error.getMessageParameters() or {}
    condition = error.getCondition() or ""
    if condition.startswith("TABLE_OR_VIEW_NOT_FOUND"):
        name = str(parameters.get("relationName", "")).strip("`").replace("`.`", ".")
        return unknown_table(name, known)
    place = _place(error, sql)
    where = ""
    if place is not None:
        line = sql.count("\n", 0, place) + 1
        column = place - (sql.rfind("\n", 0, place) + 1) + 1
        near = one_line(sql[place : place + NEAR_CHARACTERS]) or "the end"
        where = f"line {line}, column {column}, at {near!r}: "
    if isinstance(error, ParseException) and condition == "PARSE_SYNTAX_ERROR":
        hint = str(parameters.get("hint", "")).strip(" :")
        return SqlFailed(f"{where}syntax error" + (f"; {hint}" if hint else ""))
    return SqlFailed(where + plain_words(error))


def _place(error: PySparkException, sql: str) -> int | None:
    """Where in the statement the mistake is, as an index."""
    match = _PLACE.search(str(error))
    if match is not None:
        lines = sql.splitlines(keepends=True)
        before = sum(len(each) for each in lines[: int(match[1]) - 1])
        return min(before + int(match[2]), len(sql))
    contexts: Any = error.getQueryContext() or ()
    for context in contexts:
        try:
            start = int(context.startIndex())
        except Exception:  # noqa: S112 - contexts without a place raise various exceptions
            continue
        if 0 <= start <= len(sql):
            return start
    return None

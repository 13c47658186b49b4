"""Turns errors of Spark and of users' functions into errors that name the line of the file."""

import logging
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame

from zhumq.model.errors import ZhumqError
from zhumq.pipelines.document import Mark

logger = logging.getLogger(__name__)

_LINE: Final = re.compile(r"\(line (\d+), pos \d+\)")
_CONDITION: Final = re.compile(r"^\[[\w.]+\]\s*")
_SQLSTATE: Final = re.compile(r"\s*SQLSTATE: \w+.*", re.DOTALL)


def need_column(frame: DataFrame, column: str, mark: Mark) -> None:
    """Fail with the line of the file if there is no such column."""
    if column not in frame.columns:
        raise mark.wrong(f"there is no column {column!r}; there are {', '.join(frame.columns)}")


@contextmanager
def spec_errors(mark: Mark, text: str | None = None) -> Iterator[None]:
    """Raise an error of Spark's for a part of the file as one line that names its place."""
    try:
        yield
    except AnalysisException as error:
        raise mark.wrong(plain_words(error), text_line=_line_in(error, text)) from None
    except PySparkException as error:
        raise mark.wrong(plain_words(error)) from None


@contextmanager
def function_errors(mark: Mark) -> Iterator[None]:
    """Raise an exception of a user's function as an error of the line that names the function."""
    try:
        yield
    except (PySparkException, ZhumqError):
        raise
    except Exception as error:
        logger.exception("%s failed", mark.field)
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f" ({Path(where.filename).name}:{where.lineno})"
        raise mark.wrong(f"{type(error).__name__}: {error}{place}") from error


def _line_in(error: AnalysisException, text: str | None) -> int | None:
    """The line within the text that an error refers to, counted from 1."""
    if text is None:
        return None
    match = _LINE.search(str(error))
    if match is not None:
        return int(match[1])
    for context in error.getQueryContext() or ():
        try:
            start = context.startIndex()
        except Exception:  # noqa: S112 - contexts without a place raise various exceptions
            continue
        if 0 <= start <= len(text):
            return text.count("\n", 0, start) + 1
    return None


def plain_words(error: PySparkException) -> str:
    """Spark's message without its error class, its SQLSTATE and its query context."""
    parameters = error.getMessageParameters() or {}
    condition = error.getCondition() or ""
    if condition.startswith("UNRESOLVED_COLUMN"):
        near = parameters.get("proposal")
        more = f"; there are {near}" if near else ""
        return f"there is no column {parameters.get('objectName')}{more}"
    if condition.startswith("TABLE_OR_VIEW_NOT_FOUND"):
        return f"there is no source or step {parameters.get('relationName')}"
    lines = _SQLSTATE.sub("", str(error)).strip().splitlines() or [type(error).__name__]
    return _CONDITION.sub("", lines[0]).strip()

"""Extracts the cause of a failure from Spark's error text, as one line."""

import re
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import CapturedException

ERROR_LENGTH_MAX: Final = 600

# An error that a worker or the source has raised, inside the error text of the JVM.
_OWN_ERROR: Final = re.compile(r"^\s*(?:pyspark\.errors\S+: )?zhumq\.[\w.]+: (.+)$", re.MULTILINE)
_PYTHON_ERROR: Final = re.compile(
    r"^((?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception)): (.+)$", re.MULTILINE
)
# Python errors that only wrap a Java error: the Java error is more precise.
_CARRIERS: Final = re.compile(r"(?:org|java|scala|py4j|pyspark)\.")
_JAVA_ERROR: Final = re.compile(r"^(?:Caused by)?: ((?:[\w$]+\.)+[\w$]+)(?:: (.*))?$", re.MULTILINE)
# Spark names the file that it could not read in the outermost error, and what was wrong in an inner one.
_FILE: Final = re.compile(r"\[FAILED_READ_FILE\.\w+\] [^\n]*? file (\S+?)\.(?:\s|$)")
_CONDITION: Final = re.compile(r"\[[A-Z][\w.]*\]\s*")
_SQLSTATE: Final = re.compile(r"\s*SQLSTATE: \w+")
# The message of Spark's own exceptions is enough; of others the class name is needed too.
_SPARKS_OWN: Final = re.compile(r"org\.apache\.spark\.|java\.lang\.RuntimeException$")


def explain(error: PySparkException | Py4JError) -> str:
    """The cause in one line."""
    text = whole_text(error)
    cause, file = _cause_in(text), _FILE.search(text)
    if file is None or file[1] in cause:
        return cause or type(error).__name__
    return one_line(f"{file[1]}: {cause}")


def _cause_in(text: str) -> str:
    own = _OWN_ERROR.findall(text)
    if own:
        return one_line(own[-1])
    python = [found for found in _PYTHON_ERROR.findall(text) if _CARRIERS.match(found[0]) is None]
    if python:
        kind, words = python[-1]
        return one_line(f"{kind.rpartition('.')[2]}: {words}")
    # The last Java error is the cause; some have no message.
    for kind, words in reversed(_JAVA_ERROR.findall(text)):
        message = _plain(words)
        if _SPARKS_OWN.match(kind) is None:
            name = kind.rpartition(".")[2]
            return one_line(f"{name}: {message}" if message else name)
        if message:
            return one_line(message)
    lines = [line for line in text.splitlines() if line.strip()]
    return one_line(_plain(lines[0])) if lines else ""


def one_line(text: str) -> str:
    """The text on one line of bounded length."""
    return " ".join(text.split())[:ERROR_LENGTH_MAX]


def _plain(words: str) -> str:
    return _SQLSTATE.sub("", _CONDITION.sub("", words)).strip()


def whole_text(error: PySparkException | Py4JError) -> str:
    """The error's message, and the stack traces that name its causes: str() leaves them out."""
    parts = [str(error)]
    if isinstance(error, CapturedException):
        for each in (error, error._cause):
            trace = getattr(each, "_stackTrace", None)
            if trace:
                parts.append(f": {trace}")
    return "\n".join(parts)

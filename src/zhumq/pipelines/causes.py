"""The cause of a failure in one line, out of all that Spark says around it."""

import re
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import CapturedException

ERROR_LENGTH_MAX: Final = 600

# What a worker or the source has raised, in the middle of what the JVM says about it.
_OWN_ERROR: Final = re.compile(r"^\s*(?:pyspark\.errors\S+: )?zhumq\.[\w.]+: (.+)$", re.MULTILINE)
_PYTHON_ERROR: Final = re.compile(
    r"^((?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception)): (.+)$", re.MULTILINE
)
# Errors of Java's in Python's clothes: what they carry says more.
_CARRIERS: Final = re.compile(r"(?:org|java|scala|py4j|pyspark)\.")
_JAVA_ERROR: Final = re.compile(r"^(?:Caused by)?: ((?:[\w$]+\.)+[\w$]+)(?:: (.*))?$", re.MULTILINE)
_CONDITION: Final = re.compile(r"\[[A-Z][\w.]*\]\s*")
_SQLSTATE: Final = re.compile(r"\s*SQLSTATE: \w+")
# Spark's own exceptions say all in their words; of others the class is half of what is known.
_SPARKS_OWN: Final = re.compile(r"org\.apache\.spark\.|java\.lang\.RuntimeException$")


def explain(error: PySparkException | Py4JError) -> str:
    """The cause in one line."""
    text = _whole_text(error)
    own = _OWN_ERROR.findall(text)
    if own:
        return one_line(own[-1])
    python = [found for found in _PYTHON_ERROR.findall(text) if _CARRIERS.match(found[0]) is None]
    if python:
        kind, words = python[-1]
        return one_line(f"{kind.rpartition('.')[2]}: {words}")
    # The first is what failed, the last is why; some of them say nothing.
    for kind, words in reversed(_JAVA_ERROR.findall(text)):
        said = _plain(words)
        if _SPARKS_OWN.match(kind) is None:
            name = kind.rpartition(".")[2]
            return one_line(f"{name}: {said}" if said else name)
        if said:
            return one_line(said)
    lines = [line for line in text.splitlines() if line.strip()]
    return one_line(_plain(lines[0])) if lines else type(error).__name__


def one_line(text: str) -> str:
    """The text on one line of bounded length."""
    return " ".join(text.split())[:ERROR_LENGTH_MAX]


def _plain(words: str) -> str:
    return _SQLSTATE.sub("", _CONDITION.sub("", words)).strip()


def _whole_text(error: PySparkException | Py4JError) -> str:
    """What the error says, and the stack traces that name its causes: str() leaves them out."""
    parts = [str(error)]
    if isinstance(error, CapturedException):
        for each in (error, error._cause):
            trace = getattr(each, "_stackTrace", None)
            if trace:
                parts.append(f": {trace}")
    return "\n".join(parts)

"""Says of a failure at run time which step it was in, which offsets were read, and what to do."""

import inspect
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from zhumq.pipelines.causes import explain, whole_text
from zhumq.pipelines.document import Mark
from zhumq.pipelines.spec import (
    CheckStep,
    EnrichStep,
    ExpectStep,
    MergeSink,
    Pipeline,
    PythonStep,
    Sink,
    SqlStep,
    TableSink,
    TableSource,
    TopicSink,
)
from zhumq.spark.ranges import Offsets

PARTITIONS_SHOWN_MAX: Final = 3

# A line of a Python traceback, and the place in Python that a column was made at.
_FRAME: Final = re.compile(r'(?:File "|was called from\n)([^"\n]+?\.py)(?:", line |:)(\d+)')
# Spark shows the line of a query, and marks below it the part that failed.
_CONTEXT: Final = re.compile(
    r"^== SQL \(line (\d+), position (\d+)\) ==\n([^\n]*)\n( *)(\^+)", re.MULTILINE
)
_IN_STEP: Final = re.compile(r"\bstep '?\w+'?[ :]")
_NOT_WRITABLE: Final = re.compile(
    r"not a directory|permission denied|AccessControlException|no space left|read-only|quota",
    re.IGNORECASE,
)
_NO_TOPIC: Final = "there is no topic "
_DATA_LOST: Final = "Set failOnDataLoss to false"
_NO_MODULE: Final = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_GONE: Final = re.compile(r"FileNotFoundException|PATH_NOT_FOUND|FILE_NOT_EXIST|does not exist")


@dataclass(frozen=True, slots=True)
class _Text:
    """A text of SQL in the file."""

    where: str
    mark: Mark
    sql: str


@dataclass(frozen=True, slots=True)
class FailurePlaces:
    """Finds the parts of one pipeline that a failure was in."""

    pipeline: Pipeline

    def explain(self, error: PySparkException | Py4JError) -> str:
        """The cause in one line, with the step or the source that it was in, if that is known."""
        cause = explain(error)
        if _IN_STEP.search(cause) is not None:
            return cause  # A step has named itself, or an earlier call has found it.
        place = self.place_in(whole_text(error))
        return cause if place is None else f"{cause}, in {place}"

    def place_in(self, text: str) -> str | None:
        """The step, the expression or the table that the text of an error is about."""
        return self._python_in(text) or self._sql_in(text) or self._table_in(text)

    def _python_in(self, text: str) -> str | None:
        """The last line of a step's own module that a traceback names."""
        for file, number in reversed(_FRAME.findall(text)):
            name, line = Path(file).name, int(number)
            steps = [
                each
                for each in self.pipeline.steps
                if isinstance(each, PythonStep) and _module_file(each) == name
            ]
            # Several functions of a module may be steps: the line tells which.
            steps = [each for each in steps if _has_line(each, line)] or steps
            if steps:
                names = " or ".join(dict.fromkeys(each.name for each in steps))
                return f"step {names} ({name}:{line})"
        return None

    def _sql_in(self, text: str) -> str | None:
        for line, position, shown, space, marked in _CONTEXT.findall(text):
            part = shown[len(space) : len(space) + len(marked)]
            for each in _texts(self.pipeline):
                lines = each.sql.splitlines()
                number, start = int(line), int(position) - 1
                if number <= len(lines) and part and lines[number - 1][start:].startswith(part):
                    place = each.mark.text_line + number - 1
                    return f"{each.where} ({Path(each.mark.file).name}:{place})"
        return None

    def _table_in(self, text: str) -> str | None:
        if _GONE.search(text) is None:
            return None
        for source in self.pipeline.sources:
            if isinstance(source, TableSource) and source.path.rstrip("/") in text:
                return (
                    f"source {source.name}: {source.path} is gone, or its files were replaced while"
                    " they were read"
                )
        return None


def with_advice(words: str, pipeline: Pipeline, sink: Sink | None, reading: str | None) -> str:
    """The words with what a stream was reading, and what a person can do: it begins there again."""
    only = "" if sink is None else f" --sink {sink.name}"
    reset = f"zhumq pipeline reset {pipeline.file}{only}"
    missing = _NO_MODULE.search(words)
    if missing is not None:
        todo = (
            f"install {missing[1]} for the Python of Spark's workers, or put its module beside the file;"
            " zhumq itself and its packages are shipped by zhumq pipeline deploy"
        )
    elif _DATA_LOST in words and pipeline.is_stream:
        todo = (
            "another run would fail in the same way: the source goes on without these records with"
            f" `options: {{failOnDataLoss: false}}`, or the sink begins elsewhere: {reset}"
        )
    elif _IN_STEP.search(words) is not None:
        todo = "correct the step, or keep such rows from it with a rule, and run again"
    elif isinstance(sink, TableSink | MergeSink) and (
        _NOT_WRITABLE.search(words) is not None
        # Every error of a table in a catalog has its name.
        or (sink.path.rstrip("/") in words and not _is_in_catalog(sink))
    ):
        todo = f"see that this user can write to {sink.path}, and run again"
    elif _NO_TOPIC in words and pipeline.is_stream:
        todo = f"if it was deleted, what was read of it is of no use for a new one: {reset}"
    else:
        todo = "run again when that is repaired"
    if reading is None:
        return f"{words}; {todo}"
    return f"{words}; it was reading {reading}; {todo}: the next run begins there"


def _is_in_catalog(sink: TableSink | MergeSink) -> bool:
    return isinstance(sink, TableSink) and sink.format == "iceberg"


def offset_words(first: Offsets | None, until: Offsets) -> str | None:
    """The offsets of a batch: `orders-0 from 5 to 9`. Without a first one, `orders-0 up to 9`."""
    found: list[str] = []
    for place in sorted(until, key=lambda each: (each.topic, each.partition)):
        end = until[place]
        begin = None if first is None else first.get(place, 0)
        if end <= (begin or 0):
            continue
        found.append(
            f"{place} up to {end - 1}" if begin is None else f"{place} from {begin} to {end - 1}"
        )
    if not found:
        return None
    shown, more = found[:PARTITIONS_SHOWN_MAX], len(found) - PARTITIONS_SHOWN_MAX
    return ", ".join(shown) + (f" and {more} more partitions" if more > 0 else "")


def _texts(pipeline: Pipeline) -> Iterable[_Text]:
    for step in pipeline.steps:
        match step:
            case SqlStep():
                yield _Text(f"step {step.name}", step.mark, step.sql)
            case CheckStep():
                for rule in step.rules:
                    yield _Text(f"step {step.name}", rule.mark, rule.expression)
            case ExpectStep():
                for expected in step.rules:
                    where = f"step {step.name}, rule {expected.name}"
                    yield _Text(where, expected.mark, expected.expression)
            case EnrichStep() if step.where is not None:
                text, mark = step.where
                yield _Text(f"step {step.name}", mark, text)
            case _:
                pass
    for sink in pipeline.sinks:
        for name, (text, mark) in _expressions(sink).items():
            yield _Text(f"the {name} of the sink {sink.name}", mark, text)


def _expressions(sink: Sink) -> Mapping[str, tuple[str, Mark]]:
    match sink:
        case TopicSink():
            given = {"key": sink.key, "value": sink.value}
        case TableSink():
            given = {"batch_sql": sink.batch_sql}
        case MergeSink():
            given = {"sequence_by": sink.sequence, "apply_as_deletes": sink.deletes}
        case _:
            given = {}
    return {name: each for name, each in given.items() if each is not None}


def _module_file(step: PythonStep) -> str:
    return f"{step.function.partition(':')[0].rpartition('.')[2]}.py"


def _has_line(step: PythonStep, line: int) -> bool:
    """Whether a line is in the function of a step. The module is loaded, as the step has been applied."""
    module, _, name = step.function.partition(":")
    function = getattr(sys.modules.get(module), name, None)
    try:
        lines, first = inspect.getsourcelines(function)  # type: ignore[arg-type]
    except (OSError, TypeError):
        return False
    return first <= line < first + len(lines)

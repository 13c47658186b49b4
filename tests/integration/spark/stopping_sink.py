"""The exactly-once sink with points at which it stops until it is killed, or may go on."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark.sql.datasource as spark_api
from pyspark import TaskContext

from zhumq.spark import settlement
from zhumq.spark.decisions import Decision, DecisionLog
from zhumq.spark.exactly_once import ExactlyOnceStreamWriter
from zhumq.spark.options import write_options
from zhumq.spark.rows import check_schema
from zhumq.spark.settlement import Held
from zhumq.spark.source import ZhumqSource

STOP_AT = os.environ.get("ZHUMQ_TEST_STOP_AT", "")
MARKS = Path(os.environ.get("ZHUMQ_TEST_MARKS", "."))
POLL_SECONDS = 0.05
ROWS_BEFORE_TROUBLE = 100


def stop(point: str) -> None:
    """Stop here, the first time that any process comes to this point: write the pid, wait for `go`."""
    if point != STOP_AT:
        return
    try:
        with (MARKS / point).open("x") as mark:
            mark.write(str(os.getpid()))
    except FileExistsError:
        return
    while not (MARKS / "go").exists():
        threading.Event().wait(POLL_SECONDS)


class StoppingLog(DecisionLog):
    """Stops after a decision."""

    def record(self, decision: Decision) -> None:
        super().record(decision)
        stop("decided")


class StoppingHeld(Held):
    """Stops between the ends of two transactions."""

    ended = 0
    lock = threading.Lock()

    def end(self, *, is_commit: bool) -> None:
        with StoppingHeld.lock:
            StoppingHeld.ended += 1
            if StoppingHeld.ended == 2:
                stop("between")
            super().end(is_commit=is_commit)


class StoppingWriter(ExactlyOnceStreamWriter):
    """Stops when all tasks have prepared."""

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        stop("prepared")
        super().commit(messages, batchId)


class StoppingSource(ZhumqSource):
    """`format("stopping")`."""

    @classmethod
    def name(cls) -> str:
        return "stopping"

    def streamWriter(self, schema: Any, overwrite: bool) -> spark_api.DataSourceStreamWriter:  # noqa: N802
        super().streamWriter(schema, overwrite)
        options = write_options(self.options)
        settlement.DecisionLog = StoppingLog  # type: ignore[misc]
        settlement.Held = StoppingHeld  # type: ignore[misc]
        return StoppingWriter(options, check_schema(schema, options, overwrite=overwrite))


def with_trouble(batches: Iterator[Any]) -> Iterator[Any]:
    """For mapInArrow: the first attempt of a task fails in the middle of its rows."""
    context = TaskContext.get()
    assert context is not None
    is_first = context.attemptNumber() == 0
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS_BEFORE_TROUBLE):
            yield batch.slice(start, ROWS_BEFORE_TROUBLE)
            if is_first and STOP_AT == "failing":
                (MARKS / "failing").touch()
                raise RuntimeError("the first attempt of this task fails")

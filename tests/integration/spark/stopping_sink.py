"""The exactly-once sink with points at which it stops until it is killed, or may go on."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark.sql.datasource as spark_api
from pyspark import TaskContext

from zhumq.client.transaction_core import PreparedState
from zhumq.client.transactional_producer import TransactionalProducer
from zhumq.spark import settlement, transaction_task
from zhumq.spark.decisions import Decision, DecisionLog
from zhumq.spark.exactly_once import ExactlyOnceStreamWriter
from zhumq.spark.options import write_options
from zhumq.spark.rows import check_schema
from zhumq.spark.settlement import Held
from zhumq.spark.source import ZhumqSource

STOP_AT = os.environ.get("ZHUMQ_TEST_STOP_AT", "")
MARKS = Path(os.environ.get("ZHUMQ_TEST_MARKS", "."))
POLL_SECONDS = 0.05
COPY_SECONDS_MAX = 30.0
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


class StoppingProducer(TransactionalProducer):
    """Stops when the rows of a task are at the broker, and Spark does not know it yet."""

    def prepare(self) -> PreparedState:
        state = super().prepare()
        stop("written")
        return state


class StoppingWriter(ExactlyOnceStreamWriter):
    """Stops when all tasks have prepared."""

    def write(self, iterator: Iterator[Any]) -> spark_api.WriterCommitMessage:
        transaction_task.TransactionalProducer = StoppingProducer  # type: ignore[misc]
        return super().write(iterator)

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
    """For mapInArrow: the first attempt of a task fails in the middle of its rows, or is slow."""
    context = TaskContext.get()
    assert context is not None
    is_first = context.attemptNumber() == 0
    seen = 0
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS_BEFORE_TROUBLE):
            yield batch.slice(start, ROWS_BEFORE_TROUBLE)
            seen += min(ROWS_BEFORE_TROUBLE, batch.num_rows - start)
            if is_first and STOP_AT == "failing":
                (MARKS / "failing").touch()
                raise RuntimeError("the first attempt of this task fails")
    if is_first and STOP_AT == "slow" and context.partitionId() == 0:
        # Until Spark has started a copy, and for as long as the copy may need.
        wait_for_copy(MARKS / "copied")
    elif not is_first and seen:
        (MARKS / "copied").touch()


def wait_for_copy(mark: Path) -> None:
    for _ in range(int(COPY_SECONDS_MAX / POLL_SECONDS)):
        if mark.exists():
            return
        threading.Event().wait(POLL_SECONDS)

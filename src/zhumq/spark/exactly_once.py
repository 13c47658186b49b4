"""The exactly-once sink: a batch appears whole and once in all its topics, or not at all."""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from zhumq.client.transaction_core import PreparedState
from zhumq.spark.decisions import ensure_decisions, ids_of, read_decisions
from zhumq.spark.options import RepeatableBatch, WriteOptions
from zhumq.spark.rows import WriteFailed
from zhumq.spark.settlement import WRITE_PREFIX, Batch, finish_writes, forget, settle
from zhumq.spark.transaction_task import producer_settings, write_prepared
from zhumq.spark.writer import BATCH_PROPERTY, QUERY_PROPERTY

RUN_PROPERTY: Final = "spark.jobGroup.id"  # Spark sets it to the id of the query's run.
ONLY_BATCH: Final = 0  # of a batch write


@dataclass(frozen=True)
class Attempted(WriterCommitMessage):
    """The result of a task attempt: its prepared transaction, if it has written rows."""

    group: str
    run: str
    transaction: tuple[str, PreparedState] | None = None
    rows: int = 0


def begin_exactly_once(options: WriteOptions) -> None:
    """Check the settings and make the topic of decisions, on the driver, before any task begins."""
    producer_settings(options)
    ensure_decisions(options.bootstrap, security=options.security.security())


class ExactlyOnceStreamWriter(DataSourceStreamArrowWriter):
    """Tasks prepare their rows; the driver records which attempts count, and commits these."""

    def __init__(self, options: WriteOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        query, run, batch = (
            context.getLocalProperty(name)
            for name in (QUERY_PROPERTY, RUN_PROPERTY, BATCH_PROPERTY)
        )
        if query is None or run is None or batch is None:
            raise WriteFailed("Spark has not set the query id, run id and batch id of this task")
        return _attempt(iterator, self._options, self._columns, query, run, int(batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _settle(self._options, messages, batchId, is_commit=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _settle(self._options, messages, batchId, is_commit=False)


class ExactlyOnceBatchWriter(DataSourceArrowWriter):
    """A batch write: as a stream with one batch, which Spark does not replay."""

    def __init__(self, options: WriteOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._group = f"{WRITE_PREFIX}{uuid.uuid4()}"
        finish_writes(options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _attempt(
            iterator, self._options, self._columns, self._group, self._group, ONLY_BATCH
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._settle(messages, is_commit=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._settle(messages, is_commit=False)

    def _settle(self, messages: Sequence[WriterCommitMessage | None], *, is_commit: bool) -> None:
        batch = Batch(
            group=self._group, run=self._group, number=ONLY_BATCH, chosen=_chosen(messages)
        )
        settle(self._options, batch, is_commit=is_commit)
        forget(self._options, self._group)


class RepeatableExactlyOnceWriter(DataSourceArrowWriter):
    """A batch write with a name: a micro-batch of `foreachBatch`, which is written again if its driver has died."""

    def __init__(
        self, options: WriteOptions, columns: tuple[str, ...], batch: RepeatableBatch
    ) -> None:
        self._options = options
        self._columns = columns
        self._batch = batch

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        # Outside of a streaming query Spark has no id of a run. Then each write is one.
        run = context.getLocalProperty(RUN_PROPERTY) or f"v{self._batch.version}"
        batch = self._batch
        return _attempt(iterator, self._options, self._columns, batch.app_id, run, batch.version)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _settle(self._options, messages, self._batch.version, is_commit=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _settle(self._options, messages, self._batch.version, is_commit=False)


def _attempt(
    batches: Iterator[Any],
    options: WriteOptions,
    columns: tuple[str, ...],
    group: str,
    run: str,
    batch: int,
) -> Attempted:
    context = TaskContext.get()
    assert context is not None

    def is_decided() -> bool:
        last = read_decisions(options).get(group)
        return last is not None and last.batch >= batch

    first = next((each for each in batches if each.num_rows), None)
    if first is None:
        return Attempted(group, run)
    if is_decided():
        for _ in batches:
            pass  # Spark expects the task to read all of its rows.
        return Attempted(group, run)
    # Attempts that run at the same time have different numbers. The ids are used again for the next batch.
    slot = f"{ids_of(group)}{run}.{context.partitionId()}.{context.attemptNumber()}"
    prepared = write_prepared(
        chain((first,), batches), options, columns, slot, is_decided=is_decided
    )
    if prepared is None:
        return Attempted(group, run)
    return Attempted(group, run, (prepared.transactional_id, prepared.state), prepared.rows)


def _settle(
    options: WriteOptions,
    messages: Sequence[WriterCommitMessage | None],
    number: int,
    *,
    is_commit: bool,
) -> None:
    attempts = [each for each in messages if isinstance(each, Attempted)]
    if not attempts:
        return  # The query is not known here; its next commit ends what is open.
    batch = Batch(
        group=attempts[0].group, run=attempts[0].run, number=number, chosen=_chosen(messages)
    )
    settle(options, batch, is_commit=is_commit)


def _chosen(
    messages: Sequence[WriterCommitMessage | None],
) -> tuple[tuple[str, PreparedState], ...]:
    return tuple(
        each.transaction
        for each in messages
        if isinstance(each, Attempted) and each.transaction is not None
    )

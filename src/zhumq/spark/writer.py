"""The sink: one idempotent producer per task, and a ledger of the finished tasks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, pairwise
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc  # type: ignore[import-untyped]
from confluent_kafka import KafkaError, KafkaException, Producer
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from zhumq.client.errors import ClusterFailed
from zhumq.client.kafka_settings import security_settings
from zhumq.client.refusal import RefusalWatch
from zhumq.records.batch import RecordHeader
from zhumq.spark.cluster_client import ClusterClient
from zhumq.spark.columns import TIMESTAMP
from zhumq.spark.epoch_sender import EpochSender, Row, SendFailed
from zhumq.spark.ledger import LEDGER, Ledger
from zhumq.spark.options import OptionInvalid, RepeatableBatch, WriteOptions
from zhumq.spark.rows import WriteFailed, as_bytes, cells_of, milliseconds

ANY_PARTITION: Final = -1
FULL_QUEUE_POLL_SECONDS: Final = 0.05
FLUSH_CHECK_SECONDS: Final = 1.0
POLL_ROWS: Final = 10_000  # rows between two checks for failed deliveries
ERRORS_KEPT_MAX: Final = 10
# Local properties that Spark sets for each task of a streaming query.
QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"

PRODUCER_DEFAULTS: Final[dict[str, Any]] = {
    "client.id": "zhumq-spark",
    "enable.idempotence": True,
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 64 * 1024,
    "partitioner": "murmur2_random",  # as in Kafka's Java producer
    "delivery.report.only.error": True,
    "log_level": 3,  # delivery reports carry the errors of rows
}

_NO_CALLBACKS: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The result of a task: how many rows it wrote."""

    rows: int


class BatchWriter(DataSourceArrowWriter):
    """Appends the rows of a batch query. A task that Spark repeats writes its rows again."""

    def __init__(self, options: WriteOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return Written(write_rows(iterator, self._options, self._columns))


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends the rows of each micro-batch. When Spark replays a batch, finished tasks are skipped."""

    def __init__(self, options: WriteOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty(QUERY_PROPERTY)
        batch = context.getLocalProperty(BATCH_PROPERTY)
        if query is None or batch is None:
            raise WriteFailed("Spark has not set the query id and batch id of this task")
        return _write_noted(iterator, self._options, self._columns, query, int(batch))


class RepeatableWriter(DataSourceArrowWriter):
    """A batch write with a name, such as a micro-batch of `foreachBatch`: finished tasks are skipped."""

    def __init__(
        self, options: WriteOptions, columns: tuple[str, ...], batch: RepeatableBatch
    ) -> None:
        self._options = options
        self._columns = columns
        self._batch = batch

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        batch = self._batch
        return _write_noted(iterator, self._options, self._columns, batch.app_id, batch.version)


def _write_noted(
    batches: Iterator[Any], options: WriteOptions, columns: tuple[str, ...], query: str, batch: int
) -> Written:
    """Write the rows of a task unless the ledger says that they are written."""
    context = TaskContext.get()
    assert context is not None
    first = next((each for each in batches if each.num_rows), None)
    if first is None:
        return Written(0)  # A task without rows needs no note.
    security = options.security.security()
    ledger = Ledger(options.bootstrap, query, context.partitionId(), security=security)
    if ledger.is_done(batch):
        for _ in batches:
            pass  # Spark expects the task to read all of its rows.
        return Written(0)
    rows = write_rows(chain((first,), batches), options, columns, note=ledger.note(batch))
    ledger.drop_old_group()
    return Written(rows)


def write_rows(
    batches: Iterator[Any],
    options: WriteOptions,
    columns: tuple[str, ...],
    *,
    note: tuple[str, str] | None = None,
) -> int:
    """Send the rows, wait for all acknowledgements, then write the note. Raises WriteFailed."""
    errors: list[str] = []

    def failed(error: KafkaError | None, message: Any) -> None:
        if error is not None and len(errors) < ERRORS_KEPT_MAX:
            errors.append(f"{message.topic()}: {error.str()} ({error.name().lstrip('_')})")

    refusal = RefusalWatch(options.bootstrap, options.security.security())
    producer = _connect(
        options, {"on_delivery": failed, "error_cb": lambda _: refusal.note_error()}
    )
    rows = 0
    try:
        for batch in batches:
            for start in range(0, batch.num_rows, POLL_ROWS):
                part = batch.slice(start, POLL_ROWS)
                for run, at_epoch in _runs(part, columns):
                    if at_epoch:
                        _flush(producer, errors, refusal)  # keeps the order of the rows
                        _send_at_epoch(run, options, columns)
                    else:
                        _produce(producer, run, options, columns, errors)
                producer.poll(0)
                _raise(errors)
                rows += part.num_rows
        _flush(producer, errors, refusal)
        if note is not None:
            key, value = note
            producer.produce(LEDGER.topic, value, key, LEDGER.partition)
            _flush(producer, errors, refusal)
    finally:
        producer.purge()  # After a failure, rows that are still queued must not be sent.
        producer.flush(0)
    return rows


def _produce(
    producer: Producer,
    batch: Any,
    options: WriteOptions,
    columns: tuple[str, ...],
    errors: list[str],
) -> None:
    produce = producer.produce
    for name, value, key, partition, stamp, pairs in cells_of(batch, options, columns):
        more: dict[str, Any] = {}
        if stamp is not None:
            more["timestamp"] = stamp
        if pairs:
            more["headers"] = [(pair["key"], pair["value"]) for pair in pairs]
        where = ANY_PARTITION if partition is None else partition
        while True:
            try:
                produce(name, value, key, where, **more)
                break
            except BufferError:
                # The queue is bounded; its messages are sent or fail within their timeout.
                producer.poll(FULL_QUEUE_POLL_SECONDS)
                _raise(errors)
            except KafkaException as error:
                raise WriteFailed(f"cannot write to {name}: {error.args[0].str()}") from error


def _flush(producer: Producer, errors: list[str], refusal: RefusalWatch) -> None:
    # Ends: librdkafka gives up on a row after its delivery.timeout.ms.
    while producer.flush(FLUSH_CHECK_SECONDS):
        refusal.check()
    _raise(errors)


def _runs(batch: Any, columns: tuple[str, ...]) -> Iterator[tuple[Any, bool]]:
    """The rows in runs, each with whether its rows have the timestamp 0. Raises WriteFailed."""
    if TIMESTAMP not in columns:
        yield batch, False
        return
    stamps = milliseconds(batch.column(batch.schema.get_field_index(TIMESTAMP)))
    least = pc.min(stamps).as_py()
    if least is None or least > 0:
        yield batch, False
        return
    at_epoch = pc.fill_null(pc.equal(stamps, 0), False).to_numpy(zero_copy_only=False)
    bounds = [0, *(np.flatnonzero(at_epoch[1:] != at_epoch[:-1]) + 1).tolist(), len(at_epoch)]
    for first, until in pairwise(bounds):
        yield batch.slice(first, until - first), bool(at_epoch[first])


def _send_at_epoch(batch: Any, options: WriteOptions, columns: tuple[str, ...]) -> None:
    rows = [
        Row(
            topic=name,
            partition=partition,
            key=as_bytes(key),
            value=as_bytes(value),
            headers=tuple(RecordHeader(pair["key"], pair["value"]) for pair in pairs or ()),
        )
        for name, value, key, partition, _, pairs in cells_of(batch, options, columns)
    ]
    try:
        with ClusterClient(options.bootstrap, security=options.security.security()) as client:
            EpochSender(client).send(rows)
    except (SendFailed, ClusterFailed) as error:
        raise WriteFailed(f"rows did not reach their topic: {error}") from error


def check_settings(options: WriteOptions) -> None:
    """Check the settings of the producer before any task begins. Raises OptionInvalid."""
    _connect(options)


def _connect(options: WriteOptions, callbacks: Mapping[str, Any] = _NO_CALLBACKS) -> Producer:
    settings = {
        **PRODUCER_DEFAULTS,
        **options.producer_settings,
        **security_settings(options.security.security()),
        "bootstrap.servers": options.bootstrap,
        **callbacks,
    }
    try:
        return Producer(settings)
    except KafkaException as error:
        raise OptionInvalid(f"kafka.*: {error.args[0].str()}") from None


def _raise(errors: list[str]) -> None:
    if errors:
        raise WriteFailed(f"rows did not reach their topic: {errors[0]}")

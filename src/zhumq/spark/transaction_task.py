"""A task attempt of the exactly-once sink: writes its rows in a transaction of its own, and prepares it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from zhumq.client.errors import ClientError
from zhumq.client.transaction_core import PreparedState
from zhumq.client.transactional_producer import (
    SECONDS_MAX_DEFAULT,
    CompressionName,
    Transaction,
    TransactionalProducer,
)
from zhumq.records.codecs import Compression
from zhumq.spark.columns import HEADERS, KEY, PARTITION, TIMESTAMP, TOPIC, VALUE
from zhumq.spark.options import OptionInvalid, WriteOptions
from zhumq.spark.rows import WriteFailed, as_bytes, cells_of

CLAIMS_MAX: Final = 16
ROWS_AT_ONCE: Final = 10_000
COMPRESSION_SETTING: Final = "compression.type"
TIMEOUT_SETTING: Final = "delivery.timeout.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """The producer's settings that `kafka.*` options may change."""

    compression: CompressionName = "none"
    seconds_max: float = SECONDS_MAX_DEFAULT


def producer_settings(options: WriteOptions) -> ProducerSettings:
    """Raises OptionInvalid for a setting that the transactional producer does not have."""
    given = dict(options.producer_settings)
    compression: Any = given.pop(COMPRESSION_SETTING, "none").lower()
    timeout_ms = given.pop(TIMEOUT_SETTING, str(int(SECONDS_MAX_DEFAULT * 1000)))
    if given:
        raise OptionInvalid(
            f"kafka.{min(given)} has no effect with exactlyOnce; the settings of the producer are"
            f" kafka.{COMPRESSION_SETTING} and kafka.{TIMEOUT_SETTING}"
        )
    if compression.upper() not in Compression.__members__:
        names = ", ".join(name.lower() for name in Compression.__members__)
        raise OptionInvalid(f"kafka.{COMPRESSION_SETTING} is one of {names}, not {compression!r}")
    if not timeout_ms.isascii() or not timeout_ms.isdigit() or not int(timeout_ms):
        raise OptionInvalid(f"kafka.{TIMEOUT_SETTING} is milliseconds above 0, not {timeout_ms!r}")
    return ProducerSettings(compression=compression, seconds_max=int(timeout_ms) / 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The transaction of a task attempt."""

    transactional_id: str
    state: PreparedState
    rows: int


def write_prepared(
    batches: Iterator[Any],
    options: WriteOptions,
    columns: tuple[str, ...],
    slot: str,
    *,
    is_decided: Callable[[], bool],
) -> Prepared | None:
    """Write the rows and prepare. None: the batch was decided meanwhile, and the rows are rolled back.

    Raises WriteFailed; then the rows are rolled back too.
    """
    try:
        name, producer = _claim(options, slot)
        with producer:
            rows = 0
            with producer.transaction() as transaction:
                for batch in batches:
                    for start in range(0, batch.num_rows, ROWS_AT_ONCE):
                        part = batch.slice(start, ROWS_AT_ONCE)
                        _send(transaction, part, options, columns)
                        rows += part.num_rows
                state = producer.prepare()
            # The driver has not seen the transaction of an attempt that began after the decision.
            if is_decided():
                producer.complete(None)
                return None
            return Prepared(transactional_id=name, state=state, rows=rows)
    except ClientError as error:
        raise WriteFailed(f"rows did not reach their topic: {error}") from error


def _claim(options: WriteOptions, slot: str) -> tuple[str, TransactionalProducer]:
    """A producer with the slot's transactional id, or with the next one: an open transaction is never touched here.

    An attempt that Spark has given up may still run when another one gets its slot; the other one may have
    prepared, and Spark may have chosen it.
    """
    settings = producer_settings(options)
    for number in range(CLAIMS_MAX):
        name = f"{slot}-{number}" if number else slot
        producer = TransactionalProducer(
            options.bootstrap,
            transactional_id=name,
            two_phase=True,
            compression=settings.compression,
            seconds_max=settings.seconds_max,
            security=options.security.security(),
        )
        try:
            if producer.connect(keep_prepared=True) is None:
                return name, producer
        except BaseException:
            producer.close()
            raise
        producer.close()
    raise WriteFailed(f"{CLAIMS_MAX} transactions of {slot} are open: see `zhumq transaction list`")


def _send(
    transaction: Transaction, batch: Any, options: WriteOptions, columns: tuple[str, ...]
) -> None:
    if {PARTITION, HEADERS, TIMESTAMP}.isdisjoint(columns):
        for topic, part in _by_topic(batch, options, columns):
            keys = _all_bytes(part, KEY) if KEY in columns else None
            transaction.send_many(topic, _all_bytes(part, VALUE), keys=keys)
        return
    for topic, value, key, partition, stamp, pairs in cells_of(batch, options, columns):
        transaction.send(
            topic,
            as_bytes(value),
            key=as_bytes(key),
            headers=[(pair["key"], pair["value"]) for pair in pairs] if pairs else None,
            partition=partition,
            timestamp_ms=stamp,
        )


def _by_topic(
    batch: Any, options: WriteOptions, columns: tuple[str, ...]
) -> Iterator[tuple[str, Any]]:
    """The rows of each topic, in their order."""
    if TOPIC not in columns:
        assert options.topic is not None
        yield options.topic, batch
        return
    topics = batch.column(batch.schema.get_field_index(TOPIC))
    if topics.null_count:
        raise WriteFailed("a row has no topic: its column topic is null")
    for topic in topics.unique().to_pylist():
        yield topic, batch.filter(pc.equal(topics, topic))


def _all_bytes(batch: Any, name: str) -> list[bytes | None]:
    column = batch.column(batch.schema.get_field_index(name))
    found: list[bytes | None] = column.cast(pa.binary()).to_pylist()
    return found

"""Running queries on real Spark while their topic is deleted or their broker is down."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from spark_support import create_topic, delete_topic, produce, wait_until

from zhumq.spark.columns import DEFAULT_COLUMNS, sql_schema
from zhumq.testing.broker import RunningBroker, broker
from zhumq.testing.process import broker_process

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# How long the broker is down; a query must survive a minute (ZHUMQ_AWAY_SECONDS=60).
AWAY_SECONDS = float(os.environ.get("ZHUMQ_AWAY_SECONDS", "4"))
# Retention runs often here, and deletes a segment as soon as it is not the last one.
RETENTION = {"log.retention.check.interval.ms": "50"}
SMALL_SEGMENTS = {"segment.bytes": "16384"}


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(settings=RETENTION) as started:
        yield started


class Archive:
    """A streaming query from one topic to Parquet, and the rows in Parquet."""

    def __init__(self, spark: SparkSession, bootstrap: str, topic: str, folder: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.topic = topic
        self.table = folder / "table"
        self.checkpoint = folder / "checkpoint"

    def start(self, *, once: bool = False, **options: str) -> StreamingQuery:
        named = {name.replace("__", "."): value for name, value in options.items()}
        reader = self.spark.readStream.format("zhumq").options(
            **{
                "kafka.bootstrap.servers": self.bootstrap,
                "subscribe": self.topic,
                "startingOffsets": "earliest",
                **named,
            }
        )
        writer = reader.load().writeStream.format("parquet").option("path", str(self.table))
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return (writer.trigger(availableNow=True) if once else writer).start()

    def run_once(self, **options: str) -> None:
        assert self.start(once=True, **options).awaitTermination(120)

    def rows(self) -> DataFrame:
        # With a schema, a table without rows can be read too.
        return self.spark.read.schema(sql_schema(DEFAULT_COLUMNS)).parquet(str(self.table))

    def values(self) -> list[bytes]:
        if not (self.table / "_spark_metadata").exists():
            return []
        return sorted(bytes(row.value) for row in self.rows().select("value").collect())


def texts(first: int, until: int) -> list[bytes]:
    return [b"%06d" % index for index in range(first, until)]


def failure(query: StreamingQuery) -> str:
    """Wait until a query fails; its error."""
    wait_until(lambda: not query.isActive, "the query fails")
    error = query.exception()
    assert error is not None
    return str(error)


def test_a_deleted_topic_ends_the_query_and_is_named(
    spark: SparkSession, running: RunningBroker, tmp_path: Path
) -> None:
    create_topic(running.bootstrap, "deleted")
    produce(running.bootstrap, "deleted", texts(0, 10))
    archive = Archive(spark, running.bootstrap, "deleted", tmp_path)
    query = archive.start()
    wait_until(lambda: archive.values() == texts(0, 10), "the rows are archived")
    delete_topic(running.bootstrap, "deleted")
    error = failure(query)
    assert "deleted-0 is gone, from offset 10 on" in error
    assert "failOnDataLoss" in error


@pytest.mark.thorough
def test_a_deleted_topic_is_waited_for_if_data_may_be_lost(
    spark: SparkSession, running: RunningBroker, tmp_path: Path
) -> None:
    create_topic(running.bootstrap, "returns")
    produce(running.bootstrap, "returns", texts(0, 10))
    archive = Archive(spark, running.bootstrap, "returns", tmp_path)
    query = archive.start(failOnDataLoss="false")
    try:
        wait_until(lambda: archive.values() == texts(0, 10), "the rows are archived")
        delete_topic(running.bootstrap, "returns")
        create_topic(running.bootstrap, "returns", 2)
        produce(running.bootstrap, "returns", texts(10, 15))
        produce(running.bootstrap, "returns", texts(15, 20), partition=1)
        wait_until(lambda: archive.values() == texts(0, 20), "the new topic is archived")
        assert query.exception() is None
    finally:
        query.stop()


@pytest.mark.thorough
@pytest.mark.parametrize("may_lose", [False, True])
def test_offsets_that_retention_has_deleted(
    spark: SparkSession, running: RunningBroker, tmp_path: Path, may_lose: bool
) -> None:
    topic = f"expired-{may_lose}"
    create_topic(running.bootstrap, topic, 1, {**SMALL_SEGMENTS, "retention.bytes": "20000"})
    archive = Archive(spark, running.bootstrap, topic, tmp_path)
    produce(running.bootstrap, topic, texts(0, 10))
    archive.run_once()
    # While the query is down, more is written than retention keeps.
    padded = (b"%06d" % index + bytes(1000) for index in range(10, 110))
    produce(running.bootstrap, topic, padded, batch_rows=5)
    log = running.data_dir / f"{topic}-0"
    wait_until(lambda: not (log / f"{0:020}.log").exists(), "retention deletes the first segment")
    if may_lose:
        archive.run_once(failOnDataLoss="false")
        offsets = [row.offset for row in archive.rows().orderBy("offset").collect()]
        kept = [offset for offset in offsets if offset >= 10]
        assert offsets[:10] == list(range(10))
        assert kept == list(range(kept[0], 110))
        assert 10 < kept[0] < 110
    else:
        error = failure(archive.start())
        assert f"{topic}-0: offsets from 10 on, up to 110, cannot be read" in error
        assert "retention may have deleted them" in error
        assert "Set failOnDataLoss to false to go on without them" in error
        assert len(archive.values()) == 10


@pytest.mark.thorough
def test_a_query_outlives_a_broker_that_is_away(spark: SparkSession, tmp_path: Path) -> None:
    with broker_process(tmp_path / "data") as process:
        create_topic(process.bootstrap, "away")
        archive = Archive(spark, process.bootstrap, "away", tmp_path)
        query = archive.start()
        try:
            produce(process.bootstrap, "away", texts(0, 10))
            wait_until(lambda: archive.values() == texts(0, 10), "the first rows are archived")
            process.kill()
            back_at = time.monotonic() + AWAY_SECONDS

            def is_over() -> bool:
                assert query.isActive, query.exception()
                return time.monotonic() >= back_at

            wait_until(is_over, "the time is over", seconds=AWAY_SECONDS + 10)
            process.start()
            produce(process.bootstrap, "away", texts(10, 20))
            wait_until(lambda: archive.values() == texts(0, 20), "the query goes on")
            assert query.exception() is None
        finally:
            query.stop()


def test_a_broker_that_stays_away_fails_the_query_in_words(
    spark: SparkSession, tmp_path: Path
) -> None:
    with broker_process(tmp_path / "data") as process:
        create_topic(process.bootstrap, "stays-away")
        archive = Archive(spark, process.bootstrap, "stays-away", tmp_path)
        query = archive.start(kafkaConsumer__pollTimeoutMs="1000")
        produce(process.bootstrap, "stays-away", texts(0, 10))
        wait_until(lambda: archive.values() == texts(0, 10), "the first rows are archived")
        process.kill()
        assert f"at {process.bootstrap}: " in (error := failure(query))
        assert "tried for 1 s" in error

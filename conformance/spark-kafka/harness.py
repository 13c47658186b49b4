"""Topics, a Spark session with the connector's jars, and a list of named checks that print PASS or FAIL."""

import os
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from zhumq.spark.session import spark_session

BOOTSTRAP = os.environ["BOOTSTRAP"]
WAIT_S = 60.0
ADMIN = AdminClient({"bootstrap.servers": BOOTSTRAP})

Check = Callable[["Spark"], None]
CHECKS: list[tuple[str, Check]] = []


def check(name: str) -> Callable[[Check], Check]:
    def add(body: Check) -> Check:
        CHECKS.append((name, body))
        return body

    return add


class Spark:
    """One session; every read and write names the broker under test."""

    def __init__(self) -> None:
        settings = {"spark.jars": os.environ["JARS"], "spark.driver.memory": "1g"}
        self.session: SparkSession = spark_session(
            "conformance", master="local[2]", settings=settings
        )

    def read(self, source: str = "kafka", **options: Any) -> DataFrame:
        return self.session.read.format(source).options(**_named(options)).load()

    def stream(self, source: str = "kafka", **options: Any) -> DataFrame:
        return self.session.readStream.format(source).options(**_named(options)).load()

    def write(self, rows: DataFrame, sink: str = "kafka", **options: Any) -> None:
        rows.write.format(sink).mode("append").options(**_named(options)).save()

    def copy(
        self,
        rows: DataFrame,
        topic: str,
        checkpoint: Path,
        trigger: Mapping[str, Any] | None = None,
        sink: str = "kafka",
    ) -> StreamingQuery:
        options = _named({"topic": topic, "checkpointLocation": str(checkpoint)})
        # Without the column partition: the target may have fewer partitions.
        written = rows.select(*[name for name in ("key", "value") if name in rows.columns])
        writer = written.writeStream.format(sink).options(**options)
        return (writer.trigger(**trigger) if trigger else writer).start()

    def numbers(self, topic: str) -> list[int]:
        """The values of a topic, which are numbers, in order."""
        rows = self.read(subscribe=topic).selectExpr("cast(cast(value as string) as int) as n")
        return sorted(row.n for row in rows.collect())


def _named(options: Mapping[str, Any]) -> dict[str, Any]:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return {"kafka.bootstrap.servers": BOOTSTRAP, **named}


def finish(query: StreamingQuery) -> list[int]:
    """Wait for the end of an available-now query; returns the rows of each of its batches."""
    assert query.awaitTermination(WAIT_S), "the query did not end"
    return [each.numInputRows for each in query.recentProgress if each.numInputRows]


def fresh(word: str) -> str:
    return f"spark-{word}-{uuid.uuid4().hex[:8]}"


def new_checkpoint() -> Path:
    return Path.cwd() / fresh("checkpoint")


def new_topic(word: str, partitions: int = 1) -> str:
    topic = fresh(word)
    # Some checks give records old timestamps; retention must not delete them.
    made = ADMIN.create_topics([NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})])
    made[topic].result(WAIT_S)
    until(lambda: topic in ADMIN.list_topics(timeout=WAIT_S).topics, f"{topic} is there")
    return topic


def add_partitions(topic: str, total: int) -> None:
    ADMIN.create_partitions([NewPartitions(topic, total)])[topic].result(WAIT_S)


def delete_topic(topic: str) -> None:
    ADMIN.delete_topics([topic])[topic].result(WAIT_S)


def delete_before(topic: str, offset: int) -> None:
    (future,) = ADMIN.delete_records([TopicPartition(topic, 0, offset)]).values()
    future.result(WAIT_S)


def produce(
    topic: str,
    numbers: Iterable[int],
    *,
    partition: int = 0,
    compression: str = "none",
    timestamp: Callable[[int], int] | None = None,
) -> None:
    """Numbers, each its own key and value, with a header."""
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "compression.type": compression})
    for number in numbers:
        text = b"%d" % number
        producer.produce(
            topic, text, text, partition,
            timestamp=0 if timestamp is None else timestamp(number),
            headers=[("n", text)],
        )  # fmt: skip
    assert producer.flush(WAIT_S) == 0


def until(fact: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not fact():
        assert time.monotonic() < deadline, f"timed out waiting until {what}"
        time.sleep(0.1)


def fails(body: Callable[[], Any], words: str) -> None:
    """Check that the body fails with these words in the message."""
    message = "no error"
    try:
        body()
    except Exception as error:  # PySpark raises various types
        message = str(error)
    assert words in message, f"expected {words!r}, got {message[:2000]}"


def main() -> int:
    spark = Spark()
    failed = 0
    for name, body in CHECKS:
        if os.environ.get("ONLY", "") not in name:
            continue
        began = time.monotonic()
        try:
            body(spark)
        except Exception:
            failed += 1
            print(f"FAIL\t{name}", flush=True)
            print(name, file=sys.stderr)
            traceback.print_exc()
        else:
            print(f"PASS\t{name}", flush=True)
        print(f"{time.monotonic() - began:5.1f} s  {name}", file=sys.stderr)
    for query in spark.session.streams.active:
        query.stop()
    spark.session.stop()
    return 1 if failed else 0

"""Measures `format("zhumq")` and Spark's Kafka connector on the same topics of one zhumq broker."""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from benchmarks.cases import Sizes, topic_on
from benchmarks.loaders import Figures, produce
from benchmarks.report import Row, number
from benchmarks.server import Server
from benchmarks.spark_session import connector_jars, cpu_seconds_below, open_session
from benchmarks.zhumq_server import prepare_zhumq

SOURCES = ("zhumq", "kafka")  # as Spark names them: format("zhumq"), format("kafka")
PARTITIONS = 4
BATCHES = 4  # micro-batches of a stream
TITLE = 'format("zhumq") and Spark\'s Kafka connector, same topic, interleaved; median ±spread'


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkCase:
    """One row of the table: moves `rows` rows through one of the two connectors."""

    name: str
    rows: int
    run: Callable[["Bench", str], None]
    notes: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What all cases share."""

    session: SparkSession
    server: Server
    folder: Path
    plain: str  # a topic of 100-byte records
    json: str  # a topic of JSON lines of varying length, compressed with lz4
    rows: int

    def read(self, source: str, topic: str, columns: str = "") -> DataFrame:
        reader = self.session.read.format(source).option("subscribe", topic)
        if columns and source == "zhumq":
            reader = reader.option("columns", columns)
        rows = reader.option("kafka.bootstrap.servers", self.server.bootstrap).load()
        return rows.select(*columns.split(",")) if columns else rows

    def stream(self, source: str, topic: str) -> DataFrame:
        reader = self.session.readStream.format(source).option("subscribe", topic)
        reader = reader.option("kafka.bootstrap.servers", self.server.bootstrap)
        limit = self.rows // BATCHES
        return reader.options(startingOffsets="earliest", maxOffsetsPerTrigger=str(limit)).load()

    def run_stream(self, rows: DataFrame, sink: str, **options: str) -> None:
        checkpoint = tempfile.mkdtemp(dir=self.folder)
        writer = rows.writeStream.format(sink).options(**options)
        writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()

    def write(self, rows: DataFrame, sink: str, topic: str, **options: str) -> None:
        writer = rows.write.format(sink).mode("append").option("topic", topic)
        writer = writer.option("kafka.bootstrap.servers", self.server.bootstrap)
        writer.options(**options).save()

    def json_lines(self, count: int) -> DataFrame:
        """Log lines as applications write them: of varying size, and compressible."""
        return self.session.range(count).selectExpr(
            "cast(id % 5000 as string) as key",
            "to_json(struct(id, if(id % 50 = 0, 'ERROR', 'INFO') as level,"
            " concat('order ', id * 7919 % 1000003, ' of ', repeat('x', int(id * 31 % 60)))"
            " as message, 'shop' as service)) as value",
        )


def read_all(bench: Bench, source: str) -> None:
    _discard(bench.read(source, bench.plain))


def read_values(bench: Bench, source: str) -> None:
    _discard(bench.read(source, bench.plain, "value"))


def read_json(bench: Bench, source: str) -> None:
    lines = bench.read(source, bench.json, "value").selectExpr(
        "get_json_object(cast(value as string), '$.level') as level"
    )
    lines.groupBy("level").count().collect()


def stream_all(bench: Bench, source: str) -> None:
    bench.run_stream(bench.stream(source, bench.plain), "noop")


def write_rows(bench: Bench, sink: str) -> None:
    rows = bench.session.range(bench.rows).selectExpr(
        "cast(id as string) as key", "repeat('x', 100) as value"
    )
    with topic_on(bench.server, PARTITIONS) as target:
        bench.write(rows, sink, target)


def stream_copy(bench: Bench, source: str) -> None:
    rows = bench.stream(source, bench.plain).select("key", "value")
    with topic_on(bench.server, PARTITIONS) as target:
        bench.run_stream(
            rows, source, topic=target, **{"kafka.bootstrap.servers": bench.server.bootstrap}
        )


def spark_cases(rows: int) -> list[SparkCase]:
    return [
        SparkCase(name="spark batch read 100 B, all columns", rows=rows, run=read_all),
        SparkCase(name="spark batch read 100 B, value only", rows=rows, run=read_values),
        SparkCase(
            name="spark batch read JSON lines, lz4, counted by level", rows=rows, run=read_json
        ),
        SparkCase(name="spark stream read 100 B", rows=rows, run=stream_all),
        SparkCase(name="spark batch write 100 B", rows=rows, run=write_rows),
        SparkCase(name="spark stream topic to topic", rows=rows, run=stream_copy),
    ]


def measure_spark(
    only: str, sizes: Sizes, repetitions: int, folder: Path, console: Console
) -> list[Row]:
    """Each repetition measures one connector and then the other, in changing order."""
    rows = sizes.of(4_000_000)
    chosen = [case for case in spark_cases(rows) if only in case.name]
    if not chosen:
        return []
    measured: list[Row] = []
    folder.mkdir(parents=True, exist_ok=True)
    with (
        prepare_zhumq(folder).start() as server,
        open_session("zhumq-bench", jars=connector_jars()) as session,
        topic_on(server, PARTITIONS) as plain,
        topic_on(server, PARTITIONS) as json,
    ):
        produce(server, plain, partitions=PARTITIONS, count=rows, size=100, acks=1)
        bench = Bench(
            session=session, server=server, folder=folder, plain=plain, json=json, rows=rows
        )
        bench.write(bench.json_lines(rows), "zhumq", json, **{"kafka.compression.type": "lz4"})
        _warm(bench, chosen)
        for case in chosen:
            row = Row(name=case.name, main="per_second", notes=case.notes)
            measured.append(row)
            for repetition in range(repetitions):
                for source in SOURCES if repetition % 2 == 0 else reversed(SOURCES):
                    figures = _measure(case, bench, source)
                    row.runs.setdefault(source, []).append(figures)
                    console.print(
                        f"  {repetition + 1} {case.name}: {source}"
                        f" per_second {number(figures['per_second'])}",
                        style="dim",
                    )
    return measured


def _measure(case: SparkCase, bench: Bench, source: str) -> Figures:
    os.sync()
    before, began = _spark_cpu_seconds(bench), time.monotonic()
    case.run(bench, source)
    seconds = time.monotonic() - began
    used = _spark_cpu_seconds(bench) - before
    return {
        "messages": case.rows,
        "seconds": seconds,
        "per_second": case.rows / seconds,
        "spark_cpu_seconds": used,
        "cpu_s_per_million": used / case.rows * 1e6,
    }


def _spark_cpu_seconds(bench: Bench) -> float:
    """The CPU of the JVM and of every Python process, but not of the broker."""
    return cpu_seconds_below(os.getpid()) - cpu_seconds_below(bench.server.pid)


def _warm(bench: Bench, chosen: list[SparkCase]) -> None:
    """Run every case once through both, unmeasured: the JVM and the Python workers start cold."""
    for case in chosen:
        for source in SOURCES:
            case.run(bench, source)


def _discard(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()

"""`make spark-volume`: copies ten million messages through Spark, and measures each process's peak memory."""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks.cases import topic_on
from benchmarks.loaders import build_loaders, produce
from benchmarks.report import commit, machine
from benchmarks.server import Server
from benchmarks.spark_session import ROLES, PeakMemory, open_session
from benchmarks.zhumq_server import prepare_zhumq

MESSAGES = 10_000_000
MESSAGE_BYTES = 100
PARTITIONS = 4
ROWS_PER_TRIGGER = 1_000_000
HEAP = "1g"


class Volume:
    """One broker, one Spark, and one topic that is copied in several ways."""

    def __init__(
        self, session: SparkSession, server: Server, folder: Path, topic: str, count: int
    ) -> None:
        self._session = session
        self._server = server
        self._folder = folder
        self._topic = topic
        self._count = count

    def stream_to_topic(self) -> None:
        with topic_on(self._server, PARTITIONS) as target:
            rows = self._stream().select("key", "value")
            self._run(rows, "zhumq", **self._broker(), topic=target)
            self._check(self._read(target).count())

    def stream_to_parquet(self) -> None:
        table = tempfile.mkdtemp(dir=self._folder)
        self._run(self._stream(), "parquet", path=table)
        self._check_table(table)

    def batch_to_topic(self) -> None:
        with topic_on(self._server, PARTITIONS) as target:
            rows = self._read(self._topic).select("key", "value")
            options = {**self._broker(), "topic": target}
            rows.write.format("zhumq").mode("append").options(**options).save()
            self._check(self._read(target).count())

    def batch_to_parquet(self) -> None:
        table = tempfile.mkdtemp(dir=self._folder)
        self._read(self._topic).write.mode("overwrite").parquet(table)
        self._check_table(table)

    def _broker(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._server.bootstrap}

    def _read(self, topic: str) -> DataFrame:
        reader = self._session.read.format("zhumq").options(**self._broker())
        return reader.option("subscribe", topic).load()

    def _stream(self) -> DataFrame:
        reader = self._session.readStream.format("zhumq").options(**self._broker())
        reader = reader.options(subscribe=self._topic, startingOffsets="earliest")
        return reader.option("maxOffsetsPerTrigger", str(ROWS_PER_TRIGGER)).load()

    def _run(self, rows: DataFrame, sink: str, **options: str) -> None:
        writer = rows.writeStream.format(sink).options(**options).trigger(availableNow=True)
        checkpoint = tempfile.mkdtemp(dir=self._folder)
        writer.option("checkpointLocation", checkpoint).start().awaitTermination()

    def _check_table(self, table: str) -> None:
        """Check that the table has every offset once: rows, distinct offsets and messages are as many."""
        rows = self._session.read.parquet(table)
        found = rows.groupBy("partition").agg({"offset": "max", "*": "count"}).collect()
        self._check(sum(row["count(1)"] for row in found))
        self._check(sum(row["max(offset)"] + 1 for row in found))

    def _check(self, count: int) -> None:
        if count != self._count:
            raise SystemExit(f"{count:,} rows arrived of {self._count:,}")


def measure(name: str, body: Callable[[], None], server: Server, count: int, table: Table) -> None:
    began = time.monotonic()
    with PeakMemory(broker=server.pid) as peak:
        body()
    seconds = time.monotonic() - began
    largest = [f"{size / 1e6:,.0f}" for size in (peak.largest.get(role, 0) for role in ROLES)]
    table.add_row(name, f"{seconds:,.0f}", f"{count / seconds:,.0f}", *largest)
    print(f"{name}: {seconds:,.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--only", default="", help="a part of a way's name")
    arguments = parser.parse_args()
    build_loaders()
    count = arguments.messages
    described = machine()
    title = (
        f"{count:,} messages of {MESSAGE_BYTES} B, {PARTITIONS} partitions, JVM heap {HEAP};"
        f" {commit()}, {described['cores']} cores"
    )
    table = Table(title=title)
    for heading in ("way", "s", "rows/s", *(f"{role}, MB" for role in ROLES)):
        table.add_column(heading, justify="left" if heading == "way" else "right")
    with tempfile.TemporaryDirectory(prefix="zhumq-volume-") as name:
        folder = Path(name)
        with (
            prepare_zhumq(folder).start() as server,
            open_session("zhumq-volume", memory=HEAP) as session,
            topic_on(server, PARTITIONS) as topic,
        ):
            produce(server, topic, partitions=PARTITIONS, count=count, size=MESSAGE_BYTES, acks=1)
            volume = Volume(session, server, folder, topic, count)
            for way, body in (
                ("stream, topic to topic", volume.stream_to_topic),
                ("stream, topic to Parquet", volume.stream_to_parquet),
                ("batch, topic to topic", volume.batch_to_topic),
                ("batch, topic to Parquet", volume.batch_to_parquet),
            ):
                if arguments.only in way:
                    measure(way, body, server, count, table)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()

"""`make spark-sinks`: rows a second and the duration of a micro-batch, of the sink as it is and with exactlyOnce."""

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks.cases import topic_on
from benchmarks.loaders import build_loaders, produce
from benchmarks.report import commit, machine
from benchmarks.server import Server
from benchmarks.spark_session import open_session
from benchmarks.zhumq_server import prepare_zhumq

ROWS = 1_000_000
ROW_BYTES = 100
PARTITIONS = 4
LARGE_BATCHES = 2
SMALL_BATCH_ROWS = 1_000
SMALL_BATCHES = 20
REPETITIONS = 3
SINKS = {"idempotent (default)": "false", "exactlyOnce": "true"}
SETTINGS = {"transaction.two.phase.commit.enable": "true"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One broker, one Spark, and the topics that are copied."""

    session: SparkSession
    server: Server
    folder: Path

    def copy(
        self, source: str, rows_per_batch: int, exactly_once: str
    ) -> tuple[float, list[float]]:
        """Copy a topic. The seconds of all, and the milliseconds of each micro-batch."""
        broker = {"kafka.bootstrap.servers": self.server.bootstrap}
        reader = self.session.readStream.format("zhumq").options(**broker, subscribe=source)
        reader = reader.options(
            startingOffsets="earliest", maxOffsetsPerTrigger=str(rows_per_batch)
        )
        with topic_on(self.server, PARTITIONS) as target:
            writer = reader.load().select("key", "value").writeStream.format("zhumq")
            writer = writer.options(**broker, topic=target, exactlyOnce=exactly_once)
            checkpoint = tempfile.mkdtemp(dir=self.folder)
            writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
            began = time.monotonic()
            query = writer.start()
            query.awaitTermination()
            seconds = time.monotonic() - began
            progress = [each for each in query.recentProgress if each.numInputRows]
            return seconds, [float(each.durationMs["triggerExecution"]) for each in progress]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    arguments = parser.parse_args()
    build_loaders()
    rates: dict[str, list[float]] = {sink: [] for sink in SINKS}
    durations: dict[str, list[float]] = {sink: [] for sink in SINKS}
    with tempfile.TemporaryDirectory(prefix="zhumq-sinks-") as name:
        folder = Path(name)
        with (
            prepare_zhumq(folder, settings=SETTINGS).start() as server,
            open_session("zhumq-sinks") as session,
            topic_on(server, PARTITIONS) as large,
            topic_on(server, PARTITIONS) as small,
        ):
            bench = Bench(session=session, server=server, folder=folder)
            for topic, count in (
                (large, arguments.rows),
                (small, SMALL_BATCH_ROWS * SMALL_BATCHES),
            ):
                produce(server, topic, partitions=PARTITIONS, count=count, size=ROW_BYTES, acks=1)
            for flag in SINKS.values():
                bench.copy(small, SMALL_BATCH_ROWS * SMALL_BATCHES // 2, flag)  # Spark starts cold.
            for repetition in range(arguments.repetitions):
                for sink, flag in sorted(SINKS.items(), reverse=bool(repetition % 2)):
                    seconds, _ = bench.copy(large, arguments.rows // LARGE_BATCHES, flag)
                    rates[sink].append(arguments.rows / seconds)
                    durations[sink] += bench.copy(small, SMALL_BATCH_ROWS, flag)[1]
                    print(f"{repetition + 1} {sink}: {rates[sink][-1]:,.0f} rows/s", flush=True)
    _print(rates, durations, arguments.rows)


def _print(rates: dict[str, list[float]], durations: dict[str, list[float]], rows: int) -> None:
    table = Table(
        title=f"{rows:,} rows of {ROW_BYTES} B, topic to topic, {PARTITIONS} tasks; micro-batches of"
        f" {SMALL_BATCH_ROWS:,} rows; {commit()}, {machine()['cores']} cores; medians"
    )
    for heading in ("sink", "rows/s", "micro-batch, ms", "slowest of 20, ms"):
        table.add_column(heading, justify="left" if heading == "sink" else "right")
    for sink in SINKS:
        slow = sorted(durations[sink])[-max(1, len(durations[sink]) // 20)]
        middle = statistics.median(durations[sink])
        rate = statistics.median(rates[sink])
        table.add_row(sink, f"{rate:,.0f}", f"{middle:,.0f}", f"{slow:,.0f}")
    Console(width=140).print(table)


if __name__ == "__main__":
    main()

"""Runs the four pipelines on the sample and draws the charts in docs/pipelines/."""

import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet  # type: ignore[import-untyped]
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from zhumq.cli.demo_shop import send
from zhumq.cli.sample import sample_lines
from zhumq.pipelines.charts import chart
from zhumq.pipelines.library_files import find_pipeline
from zhumq.pipelines.runner import RowsFound, RunOptions, pipeline_session, run_pipeline
from zhumq.pipelines.spec_reader import load_pipeline
from zhumq.pipelines.status import RunStatus
from zhumq.testing.broker import broker

REPOSITORY = Path(__file__).resolve().parent.parent
TARGET = REPOSITORY / "docs" / "pipelines"
TOPIC = "shop-logs"
RATE = 2000
PALE = ("#a6cee3", "#b2df8a", "#fdbf6f", "#cab2d6", "#fb9a99")
LABEL_OFFSETS_MIN = 900  # a narrower bar has no room for its name
COLORS = {"archived": "#4c9a6a", "missing": "#d33c3c", "twice": "#e7a23c", "different": "#8a4fd3"}


class Printed:
    """A display that prints every update."""

    def update(self, status: RunStatus) -> None:
        sys.stdout.write(f"{status.name} {status.state}\n")

    def show(self, title: str, columns: list[str], rows: list[dict[str, Any]]) -> None:
        sys.stdout.write(f"{title}\n")
        for row in rows:
            sys.stdout.write("  " + " ".join(f"{name}={row[name]}" for name in columns) + "\n")

    def say(self, line: str) -> None:
        sys.stdout.write(line + "\n")


def main() -> int:
    with tempfile.TemporaryDirectory() as name, broker() as running:
        folder = Path(name)
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        for topic in (TOPIC, "again"):
            admin.create_topics([NewTopic(topic, 3)])[topic].result(30)
        send(running.bootstrap, sample_lines())
        options = RunOptions(state_dir=folder / "state", bootstrap=running.bootstrap)
        table = str(folder / "table")
        with pipeline_session(
            "charts", master="local[*]", settings={}, log=folder / "log"
        ) as spark:

            def run(pipeline: str, **values: str) -> None:
                loaded = load_pipeline(find_pipeline(pipeline), values)
                run_pipeline(spark, loaded, options, Printed())

            run("archive", topic=TOPIC, table=table, rows_per_batch="5000")
            paint_archive(Path(table))
            run(
                "inspect", topic=TOPIC, table=str(folder / "inspected"),
                chart=str(TARGET / "inspect.png"),
            )  # fmt: skip
            with watching(admin, "again") as seen:
                run("replay", table=table, topic=TOPIC, target="again", rate=str(RATE),
                    where="partition < 2")  # fmt: skip
            paint_replay(seen)
            damage(Path(table))
            report = folder / "audit.json"
            try:
                run("audit", topic=TOPIC, table=table, report=str(report))
            except RowsFound as found:
                sys.stdout.write(f"found, as expected: {found}\n")
            paint_audit(spark, table, running.bootstrap)
    return 0


def paint_archive(table: Path) -> None:
    """Draw which batch wrote which offsets of each partition."""
    bars: list[tuple[int, int, int, int]] = []
    for path in table.rglob("*.parquet"):
        rows = pyarrow.parquet.read_table(path, columns=["partition", "offset"]).to_pydict()
        batch = int(path.name.split("-")[-2])
        first, last = min(rows["offset"]), max(rows["offset"])
        bars.append((rows["partition"][0], batch, first, last + 1))
    with chart(TARGET / "archive.png", "Offsets of shop-logs in the table, by micro-batch") as axes:
        for partition, batch, first, until in sorted(bars):
            axes.barh(
                partition,
                until - first,
                left=first,
                color=PALE[batch % len(PALE)],
                edgecolor="white",
            )
            if until - first > LABEL_OFFSETS_MIN:
                middle = (first + until) / 2
                axes.text(middle, partition, f"batch {batch}", ha="center", va="center", fontsize=8)
        axes.set_yticks(sorted({bar[0] for bar in bars}))
        axes.set_ylabel("partition")
        axes.set_xlabel("offset")
        axes.invert_yaxis()


@contextmanager
def watching(admin: AdminClient, topic: str) -> Iterator[list[tuple[float, int]]]:
    """Sample how many records a topic holds, every tenth of a second."""
    seen: list[tuple[float, int]] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            places: Any = {
                TopicPartition(topic, number): OffsetSpec.latest() for number in range(3)
            }
            futures = admin.list_offsets(places)
            total = sum(future.result(30).offset for future in futures.values())
            seen.append((time.monotonic(), total))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def paint_replay(seen: list[tuple[float, int]]) -> None:
    """Draw the growth of the target topic, beside the requested rate."""
    began = max(moment for moment, total in seen if total == 0)
    points = [(moment - began, total) for moment, total in seen if moment >= began]
    last = points[-1][1]
    with chart(TARGET / "replay.png", f"Replay of {last:,} records at {RATE:,} a second") as axes:
        axes.plot([0, last / RATE], [0, last], color="grey", linestyle="--", label="requested rate")
        axes.step(*zip(*points, strict=True), where="post", label="in the target topic")
        axes.set_xlabel("seconds")
        axes.set_ylabel("records")
        axes.set_xlim(0, last / RATE * 1.2)
        axes.set_ylim(0)
        axes.legend(frameon=False, loc="lower right")


def damage(table: Path) -> None:
    """Remove rows, duplicate some, change one: the audit finds all of them."""
    for path in table.rglob(".*.crc"):
        path.unlink()
    largest = max(table.rglob("*.parquet"), key=lambda path: path.stat().st_size)
    rows = pyarrow.parquet.read_table(largest)
    pyarrow.parquet.write_table(rows.slice(2000, 300), largest.with_name("again.parquet"))
    values = rows.column("value").to_pylist()
    for index in range(1000, 1040):
        values[index] = b"not what was sent"
    column = rows.column_names.index("value")
    rows = rows.set_column(column, rows.field(column), [values])
    kept = [*range(400), *range(550, rows.num_rows)]
    pyarrow.parquet.write_table(rows.take(kept), largest)


def paint_audit(spark: Any, table: str, bootstrap: str) -> None:
    """Draw every offset of every partition, with the findings of the audit."""
    from zhumq.pipelines import audit

    source = spark.read.format("zhumq").option("kafka.bootstrap.servers", bootstrap)
    records = source.option("subscribe", TOPIC).option("includeHeaders", "true").load()
    judged = audit.offsets(records, spark.read.parquet(table), TOPIC)
    ends = {row["partition"]: row["last_offset"] + 1 for row in audit.summary(judged).collect()}
    found = audit.findings(judged).collect()
    with chart(TARGET / "audit.png", "Audit of shop-logs after its table was edited") as axes:
        for partition, end in sorted(ends.items()):
            axes.barh(partition, end, color=COLORS["archived"])
        for row in found:
            axes.barh(
                row["partition"],
                row["offsets"],
                left=row["first_offset"],
                color=COLORS[row["kind"]],
                label=f"{row['kind']}: {row['first_offset']} to {row['last_offset']}",
            )
        axes.legend(frameon=False, loc="upper right", title="of partition 2")
        axes.set_yticks(sorted(ends))
        axes.invert_yaxis()
        axes.set_ylabel("partition")
        axes.set_xlabel("offset")


if __name__ == "__main__":
    sys.exit(main())

"""A run with the step `enrich` that is killed while it copies its table, and between the sinks of a batch."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pipeline_support import Pipelines, read_topic
from pyspark.sql import SparkSession
from spark_support import create_topic, produce
from test_reset_kills import TRIES_MAX, kill_at

from zhumq.pipelines.delta_table import DeltaTable
from zhumq.testing.broker import RunningBroker, broker

BATCH_ROWS = 5
ROWS = 3 * BATCH_ROWS

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]

PIPELINE = """\
name: orders
trigger: available-now
spark: {{spark.sql.shuffle.partitions: 2, spark.driver.memory: 700m}}
sources:
  records: {{topic: {topic}, from: earliest, options: {{maxOffsetsPerTrigger: 5}}}}
  customers: {{table: {folder}/customers, format: delta}}
steps:
  - {{name: parsed, parse: records, format: json, schema: "n INT, customer INT", on_error: drop}}
  - {{name: named, enrich: parsed, table: customers, by: {{customer: id}}, columns: [tier], refresh: 0s}}
sinks:
  first: {{from: named, topic: {topic}-first, value: "to_json(struct(n, tier))"}}
  second: {{from: named, topic: {topic}-second, value: "to_json(struct(n, tier))"}}
"""


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(settings={"log.retention.ms": "-1"}) as started:
        yield started


def merge(spark: SparkSession, folder: Path, tier: str) -> None:
    """The table has one customer, of this tier."""
    path = folder / "customers"
    for each in path.rglob("*"):
        if each.is_file():
            each.unlink()
    rows = spark.createDataFrame([(1, tier)], "id INT, tier STRING")
    DeltaTable(spark, str(path)).append(rows, query=tier, batch=0)


@pytest.mark.parametrize("point", ["copied", "first sink written"])
def test_each_row_is_in_each_sink_once_with_the_table_as_it_is_when_the_batch_is_written(
    spark: SparkSession, running: RunningBroker, tmp_path: Path, point: str
) -> None:
    topic = point.replace(" ", "-")
    pipelines = Pipelines(spark, running.bootstrap, tmp_path)
    file = pipelines.write("orders.yml", PIPELINE.format(topic=topic, folder=tmp_path))
    create_topic(running.bootstrap, topic)
    values = [json.dumps({"n": number, "customer": 1}).encode() for number in range(ROWS)]
    produce(running.bootstrap, topic, values)
    merge(spark, tmp_path, "old")
    words = ["pipeline", "run", file, "--bootstrap", running.bootstrap]
    words += ["--state-dir", str(tmp_path / "state"), "--master", "local[2]"]
    kill_at(point, words, tmp_path)

    merge(spark, tmp_path, "new")
    pipelines.run(file, tries=TRIES_MAX)

    def tiers(sink: str) -> list[tuple[int, str]]:
        found = [
            json.loads(each.value() or b"")
            for each in read_topic(running.bootstrap, f"{topic}-{sink}")
        ]
        return [(row["n"], row["tier"]) for row in found]

    # What the killed run has written stays; what is repeated, and all behind it, has the table as it is now.
    had = {"first": 2 if point == "first sink written" else 1, "second": 1}
    for sink, batches in had.items():
        assert tiers(sink) == [
            (number, "old" if number < batches * BATCH_ROWS else "new") for number in range(ROWS)
        ], sink
    # Copies of the killed run are gone.
    assert not (tmp_path / "state" / "orders" / "checkpoints" / "enrich.tables").exists()

"""What changes around a pipeline between two of its runs: the types of its rows, the folder of its checkpoints."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pipeline_support import Pipelines
from pyspark.sql import SparkSession
from spark_support import create_topic, produce

from zhumq.pipelines.document import SpecInvalid
from zhumq.testing.broker import RunningBroker, broker

pytestmark = [pytest.mark.slow, pytest.mark.thorough, pytest.mark.timeout(600)]

TRIES_MAX = 5  # on a busy machine a worker of Spark may start too slowly


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker() as started:
        yield started


@pytest.fixture
def pipelines(spark: SparkSession, running: RunningBroker, tmp_path: Path) -> Pipelines:
    return Pipelines(spark, running.bootstrap, tmp_path)


ORDERS = """\
name: orders
sources:
  records: {{topic: drift, from: earliest}}
steps:
  - name: chosen
    sql: SELECT {columns}, topic, partition, offset FROM records
sinks:
  orders: {{from: chosen, table: {folder}/orders{more}}}
"""


def test_rows_of_other_types_do_not_make_a_table_of_files_unreadable(pipelines: Pipelines) -> None:
    create_topic(pipelines.bootstrap, "drift")
    table = pipelines.folder / "orders"

    def run(columns: str, more: str = "") -> None:
        produce(pipelines.bootstrap, "drift", [b"7"])
        text = ORDERS.format(columns=columns, folder=pipelines.folder, more=more)
        pipelines.run(pipelines.write("orders.yml", text), tries=TRIES_MAX)

    def rows() -> list[tuple[object, ...]]:
        read = pipelines.spark.read.option("mergeSchema", "true").parquet(str(table))
        found = [(row["amount"], row.asDict().get("note")) for row in read.collect()]
        return sorted(found, key=repr)

    amount = "CAST(CAST(value AS STRING) AS {}) AS amount"
    run(amount.format("INT"))
    noted = table / "_zhumq" / "columns.json"
    with pytest.raises(SpecInvalid, match="is partitioned by nothing, and would be by topic"):
        run(amount.format("INT"), ", partition_by: [topic]")
    # An earlier version has made the table without the note: its files say the same.
    for _ in range(2):
        with pytest.raises(
            SpecInvalid,
            match=r"orders.yml:8: sinks.orders: .*/orders has the column 'amount' as int, and would"
            r" get it as double: CAST it, or choose another table",
        ):
            run(amount.format("DOUBLE"))
        noted.unlink(missing_ok=True)
    assert rows() == [(7, None)]
    # A new column is no mistake. What was refused comes with it.
    run(f"{amount.format('INT')}, 'new' AS note")
    assert rows() == [(7, "new")] * 4 + [(7, None)]


def test_a_run_in_another_folder_says_that_it_begins_again(pipelines: Pipelines) -> None:
    create_topic(pipelines.bootstrap, "moved")
    produce(pipelines.bootstrap, "moved", [b"a", b"b"])
    text = "name: moved\nsources: {records: {topic: moved, from: earliest}}\nsinks: {seen: {console: 5}}\n"
    file = pipelines.write("moved.yml", text)

    def warnings() -> list[str]:
        return [each for each in pipelines.display.lines if each.startswith("warning: moved: ")]

    for _ in range(2):
        pipelines.run(file, tries=TRIES_MAX)
        assert warnings() == []
    pipelines.run(file, state="elsewhere", tries=TRIES_MAX)
    (warning,) = warnings()
    assert f"no checkpoint in {pipelines.folder}/elsewhere/moved/checkpoints" in warning
    pipelines.run(file, state="elsewhere", tries=TRIES_MAX)
    assert warnings() == []

"""Delta tables that zhumq writes without a jar: each batch once, and the same rows for another engine."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("deltalake")

import deltalake
from pyspark.sql import SparkSession

from zhumq.pipelines.delta_layout import DeltaFailed
from zhumq.pipelines.delta_table import DeltaTable, read_delta
from zhumq.pipelines.delta_upkeep import keep_up

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.long
def test_a_repeated_batch_is_in_once_and_another_engine_reads_the_same_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = DeltaTable(spark, str(tmp_path / "t"), partition_by=("place",))
    places = ["plain", "a/b", "50% off: yes", "Kyōto", None]
    rows = spark.sql(
        "SELECT 1 AS id, 'x' AS place, TIMESTAMP'2026-01-02 03:04:05Z' AS at, map('n', 1) AS tags"
    ).crossJoin(spark.createDataFrame([(place,) for place in places], "name STRING"))
    rows = rows.selectExpr("id", "name AS place", "at", "tags")
    assert table.append(rows, query="q", batch=0) == len(places)
    assert table.append(rows, query="q", batch=0) == 0
    found = read_delta(spark, str(tmp_path / "t")).select("id", "place").collect()
    assert sorted(str(row["place"]) for row in found) == sorted(map(str, places))
    other = deltalake.DeltaTable(str(tmp_path / "t")).to_pyarrow_table().to_pylist()
    assert sorted(str(row["place"]) for row in other) == sorted(map(str, places))
    assert {(row["id"], row["at"].isoformat(), str(row["tags"])) for row in other} == {
        (1, "2026-01-02T03:04:05+00:00", "[('n', 1)]")
    }
    # The upkeep writes the names of folders in its own way.
    table.append(rows, query="q", batch=1)
    (done,) = keep_up(str(tmp_path / "t"), older_than_ms=0, deletes_older_than_ms=0)
    assert (done.files, done.merged, done.removed) == (
        len(places),
        2 * len(places),
        2 * len(places),
    )
    found = read_delta(spark, str(tmp_path / "t")).select("place").collect()
    assert sorted(str(row["place"]) for row in found) == sorted(2 * list(map(str, places)))


def test_rows_that_do_not_fit_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable(spark, str(tmp_path / "t"))
    table.append(spark.range(1), query="q", batch=0)
    with pytest.raises(DeltaFailed, match="is bigint, and the rows have string"):
        table.append(spark.sql("SELECT 'x' AS id"), query="q", batch=1)
    with pytest.raises(DeltaFailed, match="which a Delta table cannot hold"):
        table.append(spark.sql("SELECT INTERVAL 1 DAY AS id"), query="q", batch=1)
    with pytest.raises(DeltaFailed, match="is partitioned by"):
        DeltaTable(spark, table.path, partition_by=("id",)).append(
            spark.range(1), query="q", batch=1
        )
    with pytest.raises(DeltaFailed, match="there is no Delta table at"):
        read_delta(spark, str(tmp_path / "nothing"))
    (tmp_path / "t/_delta_log/00000000000000000002.json").write_text("{}\n")
    with pytest.raises(DeltaFailed, match="the commit 1 is missing"):
        table.append(spark.range(1), query="q", batch=1)

"""The exactly-once sink on real Spark: drivers killed at chosen points, failing and speculative attempts."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from chaos.spark_cluster import standalone_cluster
from pyspark.sql import DataFrame, SparkSession, functions
from sink_support import TWO_PHASE, Sink, committed, open_transactions
from spark_support import create_topic, wait_until

from zhumq.testing.process import BrokerProcess, broker_process

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROWS = 900  # of each of two partitions: four micro-batches


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    with broker_process(tmp_path / "data", settings=TWO_PHASE) as started:
        yield started


def save(rows: DataFrame, process: BrokerProcess, **options: str) -> None:
    sink = rows.write.format("zhumq").mode("append").option("exactlyOnce", "true")
    sink.option("kafka.bootstrap.servers", process.bootstrap).options(**options).save()


@pytest.mark.thorough
def test_a_batch_write_appears_whole(spark: SparkSession, process: BrokerProcess) -> None:
    for topic in ("a", "b"):
        create_topic(process.bootstrap, topic, 2)
    rows = (
        spark.range(1000)
        .repartition(3)
        .selectExpr("cast(id as string) as value", "if(id % 2 = 0, 'a', 'b') as topic")
    )
    save(rows, process)
    assert sorted(map(int, committed(process.bootstrap, "a"))) == list(range(0, 1000, 2))
    assert sorted(map(int, committed(process.bootstrap, "b"))) == list(range(1, 1000, 2))
    assert open_transactions(process.bootstrap) == []


@pytest.mark.thorough
def test_a_batch_write_that_fails_leaves_nothing(
    spark: SparkSession, process: BrokerProcess
) -> None:
    create_topic(process.bootstrap, "a", 2)
    # One task fails at its last row; the others have written all of theirs.
    value = functions.when(
        functions.col("id") == 999, functions.raise_error(functions.lit("row 999 is bad"))
    )
    rows = spark.range(0, 1000, 1, 3).select(
        value.otherwise(functions.col("id").cast("string")).cast("string").alias("value")
    )
    with pytest.raises(Exception, match="row 999 is bad"):
        save(rows, process, topic="a")
    assert committed(process.bootstrap, "a") == []
    wait_until(lambda: not open_transactions(process.bootstrap), "no transaction is open")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "point",
    [
        pytest.param("written", marks=pytest.mark.long),
        "prepared",
        pytest.param("decided", marks=pytest.mark.long),
        pytest.param("between", marks=pytest.mark.long),
    ],
)
def test_a_driver_killed_at_any_point_is_made_good_by_the_next(
    process: BrokerProcess, tmp_path: Path, point: str
) -> None:
    sink = Sink(process.bootstrap, tmp_path)
    sink.feed(ROWS)
    driver = sink.driver(stop_at=point)
    try:
        sink.wait_for_mark(point, driver)
    finally:
        driver.kill("all")
    assert open_transactions(process.bootstrap) != []
    sink.run()
    sink.audit(ROWS)


@pytest.mark.long
@pytest.mark.parametrize("point", ["prepared", "decided"])
def test_a_driver_that_was_taken_for_dead_changes_nothing(
    process: BrokerProcess, tmp_path: Path, point: str
) -> None:
    sink = Sink(process.bootstrap, tmp_path)
    sink.feed(ROWS)
    driver = sink.driver(stop_at=point)
    try:
        late = sink.wait_for_mark(point, driver)
        for pid in driver.processes():
            if pid != late:
                os.kill(pid, signal.SIGKILL)
        sink.run()
        assert late in driver.processes()
        (sink.marks / "go").touch()  # It goes on with a batch that is long done.
        driver.wait_until_gone()
    finally:
        driver.end()
    sink.audit(ROWS)


@pytest.mark.long
def test_failed_attempts_leave_nothing(process: BrokerProcess, tmp_path: Path) -> None:
    sink = Sink(process.bootstrap, tmp_path)
    sink.feed(ROWS)
    sink.run(stop_at="failing", master="local[2,3]")
    assert (sink.marks / "failing").exists()
    sink.audit(ROWS)


@pytest.mark.long
def test_speculative_attempts_leave_nothing(process: BrokerProcess, tmp_path: Path) -> None:
    settings = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.1",
        "spark.executor.memory": "600m",
    }
    with standalone_cluster(tmp_path, hosts=("127.0.0.1", "127.0.0.2")) as cluster:
        sink = Sink(process.bootstrap, tmp_path, master=cluster.master, settings=settings)
        sink.feed(ROWS)
        sink.run(stop_at="slow")
    assert (sink.marks / "copied").exists()
    sink.audit(ROWS)

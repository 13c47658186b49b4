"""Spark's declarative pipelines read topics through the source, which Spark registers by itself."""

import os
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("grpc_status")  # Spark Connect, which declarative pipelines run on, needs it

import pyarrow.dataset
import pyspark
from spark_support import create_topic, produce

from zhumq.spark.session import prepare_environment
from zhumq.testing.broker import broker

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]

SECONDS_MAX = 280.0
SPEC = """\
name: shop
storage: file://{folder}/storage
libraries:
  - glob:
      include: flows/**
"""
FLOWS = """\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()


@dp.table
def orders():
    stream = spark.readStream.format("zhumq").option("kafka.bootstrap.servers", "{bootstrap}")
    return stream.option("subscribe", "orders").option("startingOffsets", "earliest").load()


@dp.materialized_view
def totals():
    return spark.read.table("orders").groupBy("partition").count()
"""


def test_a_declarative_pipeline_reads_a_topic(tmp_path: Path) -> None:
    with broker() as running:
        create_topic(running.bootstrap, "orders", 2)
        for partition, count in enumerate((30, 12)):
            values = (b"order %d" % number for number in range(count))
            produce(running.bootstrap, "orders", values, partition=partition)
        (tmp_path / "flows").mkdir()
        (tmp_path / "flows" / "orders.py").write_text(FLOWS.format(bootstrap=running.bootstrap))
        (tmp_path / "spark-pipeline.yml").write_text(SPEC.format(folder=tmp_path))
        output = _run(tmp_path)
    warehouse = tmp_path / "spark-warehouse"
    assert (warehouse / "totals").exists(), output  # it ends with 0 even where a flow has failed
    orders = pyarrow.dataset.dataset(str(warehouse / "orders"), format="parquet").to_table()
    assert sorted(orders.column("offset").to_pylist()) == sorted([*range(30), *range(12)])
    totals = pyarrow.dataset.dataset(str(warehouse / "totals"), format="parquet").to_table()
    counted = {row["partition"]: row["count"] for row in totals.to_pylist()}
    assert counted == {0: 30, 1: 12}


def _run(folder: Path) -> str:
    prepare_environment()
    home = Path(pyspark.__file__).parent
    settings = {
        # The tables of a pipeline outlive its session, so their catalog must too.
        "spark.sql.catalogImplementation": "hive",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    done = subprocess.run(
        [home / "bin" / "spark-pipelines", "run", "--spec", "spark-pipeline.yml", *options],
        cwd=folder,  # where the catalog and the tables are kept
        env={**os.environ, "SPARK_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout[-4000:]

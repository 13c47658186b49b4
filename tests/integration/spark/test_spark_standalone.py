"""The same pipeline file on a Spark cluster: a master and two workers."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from archive_support import Table
from chaos.spark_cluster import standalone_cluster
from chaos.spark_driver import Driver
from spark_support import create_topic, produce

from zhumq.testing.process import broker_process

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]

ROWS = 3000
PARTITIONS = 4
RUN_SECONDS_MAX = 200.0


def test_the_archive_runs_unchanged_on_a_cluster_of_two_workers(tmp_path: Path) -> None:
    with standalone_cluster(tmp_path) as cluster, broker_process(tmp_path / "data") as process:
        create_topic(process.bootstrap, "orders", PARTITIONS)
        for partition in range(PARTITIONS):
            values = (b"%d" % index for index in range(ROWS))
            produce(process.bootstrap, "orders", values, partition=partition, compression="lz4")
        table = Table(tmp_path / "table")
        log = tmp_path / "driver.log"
        driver = Driver(
            [
                "archive", "--master", cluster.master, "--bootstrap", process.bootstrap,
                "--state-dir", str(tmp_path / "state"),
                "--set", "topic=orders", "--set", f"table={table.path}",
            ],
            log,
        )  # fmt: skip
        try:
            assert driver.wait(RUN_SECONDS_MAX) == 0, log.read_text()[-4000:]
        finally:
            driver.end()
        table.check_against(
            {
                (partition, offset): b"%d" % offset
                for partition in range(PARTITIONS)
                for offset in range(ROWS)
            }
        )
        assert all(cluster.executors()), f"a worker had nothing to do: {cluster.executors()}"

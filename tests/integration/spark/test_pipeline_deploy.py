"""`zhumq pipeline deploy` on a cluster whose Python has no packages: zhumq and a module of the file are shipped."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow.parquet as pq
from chaos.spark_cluster import HOST, standalone_cluster
from spark_support import create_topic, produce

from zhumq.testing.process import broker_process

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]

RUN_SECONDS_MAX = 700.0  # a busy machine packs and unpacks for minutes
ROWS = 50
PIPELINE = """\
name: shipped
sources: {records: {topic: orders}}
steps: [{name: doubled, python: "doubling_steps:doubled", inputs: [records]}]
sinks: {table: {from: doubled, table: TABLE}}
"""
# Runs in the workers, and needs the module there as well as pyarrow.
MODULE = """\
import pyarrow as pa


def doubled(records):
    def twice(batches):
        for batch in batches:
            values = [2 * int(each) for each in batch.column("value").to_pylist()]
            yield pa.RecordBatch.from_arrays([pa.array(values)], names=["value"])

    return records.select("value").mapInArrow(twice, "value BIGINT")
"""


def test_a_pipeline_runs_on_workers_that_have_only_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    bare = tmp_path / "bare" / "bin" / "python"
    for name in ("PYTHONPATH", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    for package in ("zhumq", "pyarrow", "pyspark"):
        done = subprocess.run([bare, "-c", f"import {package}"], capture_output=True, check=False)
        assert done.returncode == 1, f"{package} is there: this would show nothing"
    (tmp_path / "doubling_steps.py").write_text(MODULE)
    file = tmp_path / "shipped.yml"
    file.write_text(PIPELINE.replace("TABLE", str(tmp_path / "table")))
    with (
        standalone_cluster(tmp_path, hosts=[HOST]) as cluster,
        broker_process(tmp_path / "data") as process,
    ):
        create_topic(process.bootstrap, "orders", 2)
        produce(process.bootstrap, "orders", (b"%d" % number for number in range(ROWS)))
        done = subprocess.run(
            [
                sys.executable, "-m", "zhumq", "pipeline", "deploy", str(file),
                "--master", cluster.master, "--python", str(bare),
                "--bootstrap", process.bootstrap, "--state-dir", str(tmp_path / "state"),
            ],
            env=dict(os.environ), capture_output=True, text=True, check=False,
            timeout=RUN_SECONDS_MAX,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        assert all(cluster.executors()), "the worker had nothing to do"
    rows = pq.read_table(tmp_path / "table").column("value").to_pylist()
    assert sorted(rows) == [2 * number for number in range(ROWS)]
    for folder in cluster.work_dirs:
        shutil.rmtree(folder)  # with an unpacked archive in it
    (tmp_path / "state" / "shipped" / "zhumq-packages.zip").unlink()

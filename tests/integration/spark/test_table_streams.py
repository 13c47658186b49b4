"""A streaming pipeline with a merge and a Delta table, killed between the commits of the tables and Spark's own."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("deltalake")

import deltalake
from chaos.spark_driver import PIPELINE_RUN, Driver
from spark_support import create_topic, produce, wait_until
from test_merge_tables import Change, newest_rows, some_changes

from zhumq.testing.process import broker_process

TOPIC = "changes"
PARTITIONS = 2
STOP_AT = 1
RUN_SECONDS_MAX = 240

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]

PIPELINE = """\
name: customers
trigger: available-now
spark: {{spark.sql.shuffle.partitions: 2, spark.driver.memory: 700m}}
sources:
  records: &source {{topic: {topic}, from: earliest, options: {{maxOffsetsPerTrigger: 40}}}}
  others: *source
steps:
  - name: changes
    sql: |
      SELECT partition, offset, data.* FROM (
        SELECT partition, offset, from_json(CAST(value AS STRING),
          'id INT, name STRING, seq BIGINT, gone BOOLEAN') AS data FROM records)
  - name: merged
    sql: |
      SELECT data.* FROM (SELECT from_json(CAST(value AS STRING),
        'id INT, name STRING, seq BIGINT, gone BOOLEAN') AS data FROM {source})
sinks:
  every: {{from: changes, table: {folder}/every, format: delta}}
  newest:
    from: merged
    merge: {folder}/newest
    keys: [id]
    sequence_by: seq
    apply_as_deletes: gone
    except_columns: [seq, gone]
"""


def send(bootstrap: str, partition: int, changes: Sequence[Change]) -> None:
    names = ("id", "name", "seq", "gone")
    values = [json.dumps(dict(zip(names, each, strict=True))).encode() for each in changes]
    produce(bootstrap, TOPIC, values, partition=partition)


def rows(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = deltalake.DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return found


def batches_that_spark_has(state_dir: Path) -> list[str]:
    return sorted(each.name for each in state_dir.rglob("commits/*") if each.name.isdigit())


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_run_that_dies_behind_the_commits_of_its_tables_has_every_row_once(
    tmp_path: Path, is_shared: bool
) -> None:
    """Of sinks that share a read the tables are written in turn, of others side by side."""
    draw = random.Random(7)
    changes = [some_changes(draw, 60) for _ in range(PARTITIONS)]
    source, stop_in = ("records", "newest") if is_shared else ("others", "every newest")
    file, log, marks = tmp_path / "customers.yml", tmp_path / "driver.log", tmp_path / "marks"
    file.write_text(PIPELINE.format(topic=TOPIC, folder=tmp_path, source=source))
    marks.mkdir()
    with broker_process(tmp_path / "data") as process:
        create_topic(process.bootstrap, TOPIC, PARTITIONS)
        for partition, each in enumerate(changes):
            send(process.bootstrap, partition, each)
        words = [
            str(file),
            "--bootstrap",
            process.bootstrap,
            "--state-dir",
            str(tmp_path / "state"),
        ]
        words += ["--master", "local[2]"]
        program = [str(Path(__file__).with_name("stopping_tables.py")), *PIPELINE_RUN[2:]]
        environment = {
            "ZHUMQ_TEST_STOP_AT": str(STOP_AT),
            "ZHUMQ_TEST_STOP_IN": stop_in,
            "ZHUMQ_TEST_MARKS": str(marks),
        }
        driver = Driver(words, log, program=program, environment=environment)
        try:

            def both_have_stopped() -> bool:
                assert driver.is_alive, log.read_text()[-3000:]
                return len(list(marks.iterdir())) == 2

            wait_until(both_have_stopped, "both tables have the batch", seconds=RUN_SECONDS_MAX)
            driver.kill("all")
        finally:
            driver.end()
        # The tables have the batch, and Spark does not know it.
        assert batches_that_spark_has(tmp_path / "state") == ["0"] * (1 if is_shared else 2)
        assert len(rows(tmp_path / "every")) == 80
        more = some_changes(draw, 5)
        send(process.bootstrap, 0, more)
        changes[0] += more
        driver = Driver(words, log)
        try:
            assert driver.wait(RUN_SECONDS_MAX) == 0, log.read_text()[-3000:]
        finally:
            driver.end()
    found = [(each["partition"], each["offset"], each["id"]) for each in rows(tmp_path / "every")]
    sent = [
        (partition, offset, change[0])
        for partition, each in enumerate(changes)
        for offset, change in enumerate(each)
    ]
    assert sorted(found) == sent
    merged = [(each["id"], each["name"], each["_sequence"]) for each in rows(tmp_path / "newest")]
    assert sorted(merged, key=repr) == newest_rows([change for each in changes for change in each])

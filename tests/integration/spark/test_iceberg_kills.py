"""A streaming pipeline with Iceberg tables, killed before a commit, and between it and Spark's own: each row once."""

import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")

from chaos.spark_driver import PIPELINE_RUN, Driver
from iceberg_support import options_of, rows_in, table_in
from spark_support import create_topic, produce, wait_until

from zhumq.testing.process import broker_process

TOPIC = "orders"
STOP_AT = 1
RUN_SECONDS_MAX = 240

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]

PIPELINE = """\
name: orders
trigger: available-now
spark: {{spark.sql.shuffle.partitions: 2, spark.driver.memory: 700m}}
sources:
  records: {{topic: {topic}, from: earliest, options: {{maxOffsetsPerTrigger: 40}}}}
steps:
  - {{name: parsed, parse: records, format: json, schema: id BIGINT, on_error: drop}}
  - {{name: once, deduplicate: parsed, by: [id], time: timestamp, within: 1 hour}}
sinks:
"""
# Two sinks that share a read, of which the second stops; and one alone, whose query keeps a state.
SINKS = {
    "shared": "  first: {{from: parsed, table: shop.first, {rest}}}\n"
    "  second: {{from: parsed, table: shop.second, partition_by: [partition], {rest}}}\n",
    "alone": "  second: {{from: once, table: shop.second, {rest}}}\n",
}


@pytest.mark.parametrize("when", ["before", "behind"])
@pytest.mark.parametrize("kind", ["shared", "alone"])
def test_a_run_that_dies_about_the_commit_of_its_table_has_every_row_once(
    tmp_path: Path, kind: str, when: str
) -> None:
    file, log, mark = tmp_path / "orders.yml", tmp_path / "driver.log", tmp_path / "mark"
    rest = f"format: iceberg, options: {json.dumps(options_of(tmp_path))}"
    file.write_text(PIPELINE.format(topic=TOPIC) + SINKS[kind].format(rest=rest))
    tables = ("first", "second") if kind == "shared" else ("second",)
    with broker_process(tmp_path / "data") as process:
        create_topic(process.bootstrap, TOPIC, 2)
        for partition in range(2):
            ids = range(partition * 100, partition * 100 + 60)
            values = [b'{"id": %d}' % each for each in ids]
            produce(process.bootstrap, TOPIC, values, partition=partition)
        words = [str(file), "--bootstrap", process.bootstrap]
        words += ["--state-dir", str(tmp_path / "state"), "--master", "local[2]"]
        program = [str(Path(__file__).with_name("stopping_iceberg.py")), *PIPELINE_RUN[2:]]
        environment = {
            "ZHUMQ_TEST_STOP_AT": str(STOP_AT),
            "ZHUMQ_TEST_STOP_IN": "second",
            "ZHUMQ_TEST_STOP_WHEN": when,
            "ZHUMQ_TEST_MARK": str(mark),
        }
        driver = Driver(words, log, program=program, environment=environment)
        try:

            def has_stopped() -> bool:
                assert driver.is_alive, log.read_text()[-3000:]
                return mark.exists()

            wait_until(has_stopped, "the batch is at its commit", seconds=RUN_SECONDS_MAX)
            driver.kill("all")
        finally:
            driver.end()
        commits = sorted(
            each.name for each in (tmp_path / "state").rglob("commits/*") if each.name.isdigit()
        )
        assert commits == ["0"]
        assert len(rows_in(tmp_path, "shop.second")) == (40 if when == "before" else 80)
        driver = Driver(words, log)
        try:
            assert driver.wait(RUN_SECONDS_MAX) == 0, log.read_text()[-3000:]
        finally:
            driver.end()
    sent = [each for first in (0, 100) for each in range(first, first + 60)]
    for name in tables:
        assert sorted(row["id"] for row in rows_in(tmp_path, f"shop.{name}")) == sent
    named = {each.file.file_path for each in table_in(tmp_path, "shop.second").scan().plan_files()}
    place = tmp_path / "warehouse/shop/second/data"
    written = {f"file://{each}" for each in place.rglob("*.parquet")}
    # Those of the killed run are there, and no snapshot names them.
    assert named <= written
    assert bool(written - named) == (when == "before")

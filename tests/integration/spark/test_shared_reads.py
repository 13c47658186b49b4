"""One read for many sinks, on real Spark: drivers killed between two sinks, sinks that fail and catch up."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow.dataset
from chaos.spark_driver import Driver
from pipeline_support import Pipelines, read_topic
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from sink_support import TWO_PHASE, committed, open_transactions
from spark_support import create_topic, produce, wait_until

from zhumq.pipelines.read_checkpoint import CheckpointUnfit
from zhumq.pipelines.state_in_plan import state_in
from zhumq.pipelines.status import RunStatus, State, StatusFile
from zhumq.pipelines.stopping import PipelineFailed
from zhumq.testing.broker import RunningBroker, broker
from zhumq.testing.process import broker_process

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROWS = 40  # of each of two partitions
RUN_SECONDS_MAX = 240.0

STEPS = """\
import pathlib
import time


def waiting(rows, begun, go):
    def wait(batches):
        for batch in batches:
            pathlib.Path(begun).touch()
            deadline = time.monotonic() + 240
            while not pathlib.Path(go).exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            yield batch

    return rows.mapInArrow(wait, rows.schema)


def failing(rows, until):
    def check(batches):
        for batch in batches:
            if not pathlib.Path(until).exists():
                raise ValueError("this sink is away")
            yield batch

    return rows.mapInArrow(check, rows.schema)
"""

KILLED = """\
name: killed
parameters: {table: , begun: , go: }
sources:
  records: {topic: source, from: earliest, options: {maxOffsetsPerTrigger: 50}}
steps:
  - name: late
    python: shared_steps:waiting
    inputs: records
    arguments: {begun: "${begun}", go: "${go}"}
sinks:
  table: {from: records, table: "${table}"}
  whole: {from: records, topic: whole, options: {exactlyOnce: "true"}}
  late: {from: late, topic: late}
"""


def values_of(table: Path) -> Counter[bytes]:
    if not table.exists():
        return Counter()
    rows = pyarrow.dataset.dataset(str(table), format="parquet").to_table(columns=["value"])
    return Counter(rows.column("value").to_pylist())


@pytest.mark.long
def test_a_driver_killed_between_two_sinks_of_a_batch_leaves_each_row_once_in_both(
    tmp_path: Path,
) -> None:
    (tmp_path / "shared_steps.py").write_text(STEPS)
    file = tmp_path / "killed.yml"
    file.write_text(KILLED)
    begun, go, table, log = (tmp_path / name for name in ("begun", "go", "table", "log"))
    expected = {b"%d/%d" % (place, number): 1 for place in (0, 1) for number in range(ROWS)}
    with broker_process(tmp_path / "data", settings=TWO_PHASE) as process:
        create_topic(process.bootstrap, "source", 2)
        for place in (0, 1):
            values = [b"%d/%d" % (place, number) for number in range(ROWS)]
            produce(process.bootstrap, "source", values, partition=place)
        words = [str(file), "--bootstrap", process.bootstrap, "--master", "local[2]"]
        words += ["--state-dir", str(tmp_path / "state"), "--set", f"table={table}"]
        words += ["--set", f"begun={begun}", "--set", f"go={go}"]
        driver = Driver(words, log)
        try:

            def is_between() -> bool:
                assert driver.is_alive, log.read_text()[-6000:]
                return begun.exists()

            wait_until(is_between, "the last sink has begun", seconds=RUN_SECONDS_MAX)
            driver.kill("all")
        finally:
            driver.end()
        first = values_of(table)
        assert 0 < first.total() < len(expected)
        assert Counter(committed(process.bootstrap, "whole")) == first
        assert committed(process.bootstrap, "late") == []
        go.touch()
        driver = Driver(words, log)
        try:
            assert driver.wait(RUN_SECONDS_MAX) == 0, log.read_text()[-6000:]
        finally:
            driver.end()
        assert values_of(table) == expected
        for topic in ("whole", "late"):
            assert Counter(committed(process.bootstrap, topic)) == expected, topic
        assert open_transactions(process.bootstrap) == []
    printed = log.read_text()
    assert "killed: one read of records for table, whole, late" in printed
    assert "killed: one read of records for 3 sinks: 80 rows" in printed
    assert "read instead of 240 " in printed


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(settings={"log.retention.ms": "-1"}) as started:
        yield started


@pytest.fixture
def pipelines(spark: SparkSession, running: RunningBroker, tmp_path: Path) -> Pipelines:
    made = Pipelines(spark, running.bootstrap, tmp_path)
    made.write("shared_steps.py", STEPS)
    return made


AWAY = """\
name: away
parameters: {table: , until: }
sources:
  records: {topic: away, from: earliest, options: {maxOffsetsPerTrigger: 15}}
steps:
  - name: shaky
    python: shared_steps:failing
    inputs: records
    arguments: {until: "${until}"}
  - name: good
    check: shaky
    rules:
      - {rule: offset % 2 = 0, reason: odd}
sinks:
  works: {from: records, table: "${table}"}
  shaky: {from: good, topic: away-good}
dead_letters: {topic: away-bad}
"""


@pytest.mark.long
def test_sinks_that_fail_do_not_stop_the_others_and_catch_up_with_each_row_once(
    pipelines: Pipelines,
) -> None:
    create_topic(pipelines.bootstrap, "away")
    table, until = pipelines.folder / "t", pipelines.folder / "until"
    file = pipelines.write("away.yml", AWAY)
    produce(pipelines.bootstrap, "away", (b"%d" % number for number in range(25)))

    def run() -> RunStatus:
        return pipelines.run(file, table=str(table), until=str(until))

    with pytest.raises(PipelineFailed, match="sink shaky: ValueError: this sink is away"):
        run()
    failed = pipelines.last_status("away")
    assert values_of(table) == {b"%d" % number: 1 for number in range(25)}
    assert (failed.sinks["works"].lag, failed.sinks["works"].error) == (0, None)
    assert (failed.sinks["shaky"].lag, failed.sinks["dead_letters"].lag) == (25, 25)
    assert (failed.sinks["shaky"].error or "").startswith("ValueError: this sink is away, in step ")
    assert any("given up" in line for line in pipelines.display.lines)

    until.touch()
    produce(pipelines.bootstrap, "away", (b"%d" % number for number in range(25, 30)))
    status = run()
    assert status.state is State.DONE
    assert {name: sink.lag for name, sink in status.sinks.items()} == dict.fromkeys(status.sinks, 0)
    produce(pipelines.bootstrap, "away", [b"30", b"31"])
    run()
    assert values_of(table) == {b"%d" % number: 1 for number in range(32)}
    for topic, rest in (("away-good", 0), ("away-bad", 1)):
        found = Counter(message.value() for message in read_topic(pipelines.bootstrap, topic))
        assert found == {b"%d" % number: 1 for number in range(rest, 32, 2)}, topic
    folder = pipelines.folder / "state" / "away" / "checkpoints" / "read-records" / "sinks"
    assert sorted(each.name for each in folder.glob("*.json")) == ["members.json"]


def test_a_plan_shows_what_keeps_state(spark: SparkSession) -> None:
    rows = spark.readStream.format("rate").load()
    table = spark.range(3).withColumnRenamed("id", "value")
    without = [
        rows.where("value > 1").selectExpr("explode(array(value, 2)) AS value"),
        rows.join(table.groupBy("value").count(), "value", "left"),
        rows.union(rows).withWatermark("timestamp", "1 minute"),
        rows.select("value").mapInArrow(lambda batches: batches, "value LONG"),
    ]
    assert [state_in(each) for each in without] == [None] * len(without)
    assert state_in(rows.join(rows.selectExpr("value AS other"), F.expr("value = other"))) == (
        "it joins streams"
    )
    keeping = [rows.dropDuplicates(["value"]), rows.groupBy("value").count(), rows.limit(3)]
    for each in keeping:
        assert (state_in(each) or "").startswith("its plan may keep state (")


CHANGED = """\
name: changed
sources:
  records: {topic: changed, from: earliest}
steps:
  - name: counted
    sql: SELECT DISTINCT value FROM records
sinks:
  one: {from: records, topic: changed-one}
"""
TWO = "  two: {from: records, topic: changed-two}\n"
THREE = "  three: {from: records, topic: changed-three}\n"


@pytest.mark.long
def test_checkpoints_of_sinks_are_not_abandoned(pipelines: Pipelines) -> None:
    create_topic(pipelines.bootstrap, "changed")
    produce(pipelines.bootstrap, "changed", [b"a"])

    def run(text: str) -> list[str]:
        pipelines.run(pipelines.write("changed.yml", text))
        return pipelines.display.lines

    run(CHANGED)  # alone: a query of its own
    lines = run(CHANGED + TWO + THREE)
    assert any(line.startswith("changed: own read for one: it goes on from") for line in lines)
    assert "changed: one read of records for two, three" in lines
    for topic in ("changed-one", "changed-two", "changed-three"):
        assert [each.value() for each in read_topic(pipelines.bootstrap, topic)] == [b"a"], topic
    with pytest.raises(CheckpointUnfit, match="the sink two was written by the shared read"):
        run(CHANGED + TWO.replace("from: records", "from: counted") + THREE)
    run(CHANGED + THREE)  # without two
    with pytest.raises(CheckpointUnfit, match="the sink two was left out of an earlier run"):
        run(CHANGED + TWO + THREE)
    status = StatusFile(pipelines.folder / "state", "changed").read()
    assert status is not None
    assert status.state is State.FAILED

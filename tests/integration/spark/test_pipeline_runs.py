"""The runner on real Spark: steps, bad rows, invalid files, stops, and the report of each."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow.dataset
from pipeline_support import Pipelines, headers_of, read_topic
from pyspark.sql import SparkSession
from spark_support import create_topic, produce, wait_until

from zhumq.cli.sample import expected_errors, sample_lines
from zhumq.client.errors import ClusterFailed
from zhumq.pipelines.document import SpecInvalid
from zhumq.pipelines.inspection import read_inspection
from zhumq.pipelines.status import State
from zhumq.pipelines.stopping import PipelineFailed, StopRequest
from zhumq.testing.broker import RunningBroker, broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ORDERS = """\
name: orders
trigger: batch
parameters: {topic: orders, target: large}
sources:
  records: {topic: "${topic}", headers: true}
steps:
  - name: parsed
    json: records
    schema: id BIGINT, amount DOUBLE
  - name: good
    check: parsed
    rules:
      - {rule: id IS NOT NULL, reason: it has no id}
      - {rule: amount > 0, reason: nothing was paid}
  - name: large
    sql: |
      SELECT id, amount, partition, offset
      FROM good
      WHERE amount >= 100
  - name: taxed
    python: own_steps:with_tax
    inputs: large
    arguments: {percent: "20"}
sinks:
  large:
    from: taxed
    topic: ${target}
    key: CAST(id AS STRING)
    value: to_json(struct(id, total))
  seen:
    from: good
    console: 2
dead_letters: {topic: "${topic}.dlq"}
"""
OWN_STEPS = """\
import pathlib
import time

from pyspark.sql import functions as F


def with_tax(rows, percent):
    return rows.withColumn("total", F.col("amount") * (1 + int(percent) / 100))


def broken(rows):
    return rows.no_such_thing()


def endless(rows, begun):
    def wait(batches):
        for _ in batches:
            pathlib.Path(begun).touch()
            while True:
                time.sleep(0.05)
        yield from ()

    return rows.mapInArrow(wait, rows.schema)


def failing_rows(rows):
    def fail(batches):
        for _ in batches:
            raise ValueError("row 7 is not what it seems")
        yield from ()

    return rows.mapInArrow(fail, rows.schema)
"""


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(settings={"log.retention.ms": "-1"}) as started:
        create_topic(started.bootstrap, "orders", 2)
        values = [
            b'{"id": 1, "amount": 100}',
            b'{"id": 2, "amo',
            b'{"id": 3, "amount": "much"}',
            b'{"amount": 5}',
            b'{"id": 5, "amount": -1}',
            b'{"id": 6, "amount": 7}',
            b"[]",
            b"",
        ]
        produce(started.bootstrap, "orders", values, partition=1)
        yield started


@pytest.fixture
def pipelines(spark: SparkSession, running: RunningBroker, tmp_path: Path) -> Pipelines:
    made = Pipelines(spark, running.bootstrap, tmp_path)
    made.write("own_steps.py", OWN_STEPS)
    return made


@pytest.mark.thorough
def test_bad_rows_become_dead_letters_with_the_reason(pipelines: Pipelines) -> None:
    status = pipelines.run(pipelines.write("orders.yml", ORDERS))
    assert status.state is State.DONE
    (message,) = read_topic(pipelines.bootstrap, "large")
    assert message.key() == b"1"
    assert json.loads(message.value() or b"") == {"id": 1, "total": 120.0}
    assert [row["id"] for row in pipelines.display.tables["seen"]] == [1, 6]
    dead_letters = read_topic(pipelines.bootstrap, "orders.dlq")
    reasons = {
        headers_of(each)["zhumq.offset"]: headers_of(each)["zhumq.reason"] for each in dead_letters
    }
    malformed = "not JSON of the given schema"
    assert reasons == {
        "1": malformed, "2": malformed, "3": "it has no id", "4": "nothing was paid",
        "6": malformed, "7": malformed,
    }  # fmt: skip
    dead_letter = next(each for each in dead_letters if headers_of(each)["zhumq.offset"] == "4")
    facts = headers_of(dead_letter)
    assert (dead_letter.key(), dead_letter.value()) == (b"4", b'{"id": 5, "amount": -1}')
    assert (facts["zhumq.topic"], facts["zhumq.partition"]) == ("orders", "1")
    assert (facts["zhumq.group"], facts["zhumq.step"], facts["index"]) == ("orders", "good", "4")


@pytest.mark.parametrize(
    ("before", "after", "line", "words"),
    [
        ("WHERE amount", "WHERE amuont", 19, "steps[2].sql: there is no column `amuont`; there are"),
        ("FROM good", "FRMO good", 18, "steps[2].sql: "),
        ("rule: amount > 0", "rule: amnt > 0", 14, "steps[1].rules[1].rule: there is no column `amnt`"),
        ("key: CAST(id", "key: CAST(idd", 28, "sinks.large.key: there is no column `idd`"),
        ("value: to_json(struct(id, total))", "value: id", 29, "sinks.large.value: is bigint"),
        ('{percent: "20"}', '{percent: "many"}', 21, "ValueError: invalid literal for int()"),
        ('{topic: "${topic}", headers: true}', "{table: nowhere}", 5, "sources.records: Path does not"),
    ],
)  # fmt: skip
def test_an_error_in_the_file_names_its_line(
    pipelines: Pipelines, before: str, after: str, line: int, words: str
) -> None:
    assert before in ORDERS
    file = pipelines.write("orders.yml", ORDERS.replace(before, after, 1))
    with pytest.raises(SpecInvalid) as caught:
        pipelines.run(file)
    assert str(caught.value).startswith(f"{file}:{line}: "), caught.value
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert pipelines.last_status("orders").state is State.FAILED


COPY = """\
name: copy
trigger: ${trigger}
parameters: {topic: , step: "own_steps:failing_rows", trigger: available-now, table: }
sources:
  records: {topic: "${topic}"}
steps:
  - name: stepped
    python: ${step}
sinks:
  table:
    from: ${from}
    table: ${table}
    partition_by: [${by}]
"""


@pytest.mark.thorough
def test_an_exception_of_a_row_ends_the_run_and_is_reported(pipelines: Pipelines) -> None:
    text = COPY.replace("${from}", "stepped").replace("${by}", "topic")
    file = pipelines.write("copy.yml", text)
    table = str(pipelines.folder / "t")
    with pytest.raises(PipelineFailed, match="sink table: ValueError: row 7 is not what it seems"):
        pipelines.run(file, topic="orders", table=table)
    error = pipelines.last_status("copy").error
    assert error is not None
    assert "row 7" in error
    # The checkpoint is valid: after the file is fixed, the run continues from it.
    fixed = pipelines.write("copy.yml", text.replace("from: stepped", "from: records"))
    again = pipelines.run(fixed, topic="orders", table=table)
    assert again.sinks["table"].rows_out == 8


def test_a_missing_partition_column_is_reported_before_the_start(
    pipelines: Pipelines,
) -> None:
    text = COPY.replace("${from}", "records").replace("${by}", "day")
    file = pipelines.write("copy.yml", text)
    with pytest.raises(
        SpecInvalid, match=r"copy.yml:13: .*there is no column 'day'; there are key"
    ):
        pipelines.run(file, topic="orders", table="t")
    assert not (pipelines.folder / "state" / "copy" / "checkpoints").exists()


def test_an_unreachable_broker_is_reported(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zhumq.pipelines.topics.REACH_SECONDS_MAX", 0.1)
    away = Pipelines(spark, "127.0.0.1:1", tmp_path)
    with pytest.raises(ClusterFailed, match=r"127\.0\.0\.1:1: .*refused"):
        away.run("archive", topic="orders", table=str(tmp_path / "t"))


@pytest.mark.thorough
def test_a_stop_finishes_the_batch_and_the_next_run_goes_on(pipelines: Pipelines) -> None:
    create_topic(pipelines.bootstrap, "endless", 1)
    produce(pipelines.bootstrap, "endless", (b"%d" % number for number in range(100)))
    values = {"topic": "endless", "table": str(pipelines.folder / "t"), "trigger": "100ms"}
    stop = StopRequest()
    ended = []
    thread = threading.Thread(
        target=lambda: ended.append(pipelines.run("archive", stop=stop, **values))
    )
    thread.start()
    try:
        wait_until(lambda: _rows_out(pipelines) == 100, "the first rows are in the table")
        produce(pipelines.bootstrap, "endless", (b"%d" % number for number in range(100, 150)))
        wait_until(lambda: _rows_out(pipelines) == 150, "the new rows are in the table")
        assert pipelines.last_status("archive-endless").state is State.RUNNING
    finally:
        stop.ask()
        thread.join(120)
    assert [status.state for status in ended] == [State.STOPPED]
    again = pipelines.run("archive", **{**values, "trigger": "available-now"})
    assert (again.sinks["archive"].rows_out or 0) == 0
    rows = pyarrow.dataset.dataset(values["table"], format="parquet").to_table(columns=["offset"])
    assert sorted(rows.column("offset").to_pylist()) == list(range(150))


@pytest.mark.thorough
def test_a_batch_that_is_stopped_has_not_succeeded(pipelines: Pipelines) -> None:
    begun = pipelines.folder / "begun"
    text = ORDERS.replace("own_steps:with_tax", "own_steps:endless").replace("id, total", "id")
    file = pipelines.write("orders.yml", text.replace('percent: "20"', f"begun: {begun}"))
    stop = StopRequest()
    failed: list[Exception] = []

    def run() -> None:
        try:
            pipelines.run(file, stop=stop)
        except PipelineFailed as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(lambda: begun.exists() or bool(failed), "a task has begun", seconds=200)
    finally:
        stop.ask()
        thread.join(120)
    assert [str(error)[:26] for error in failed] == ["was stopped before its end"]


def _rows_out(pipelines: Pipelines) -> int | None:
    status = pipelines.display.status
    sink = status.sinks.get("archive") if status is not None else None
    return sink.rows_out if sink is not None else None


@pytest.mark.thorough
def test_an_inspection_finds_what_is_in_the_logs(pipelines: Pipelines) -> None:
    lines = sample_lines()[:8000]
    create_topic(pipelines.bootstrap, "logs", 2)
    for partition in range(2):
        produce(
            pipelines.bootstrap, "logs",
            (line.text.encode() for line in lines if len(line.service) % 2 == partition),
            partition=partition,
        )  # fmt: skip
    table, chart = pipelines.folder / "inspected", pipelines.folder / "p.png"
    status = pipelines.run(
        "inspect", topic="logs", table=str(table), chart=str(chart), rows_per_batch="5000"
    )
    assert status.state is State.DONE
    named = [line for line in lines if line.service != "web" and line.level is not None]
    found = read_inspection(str(table), burst=20)
    # Access logs name no service: their service is the key of the record, here its number.
    errors = Counter(
        {
            (service, minute): count
            for service, minutes in found.errors.items()
            if not service.isdigit()
            for minute, count in minutes.items()
        }
    )
    assert errors == expected_errors(named)
    broken = Counter(line.text for line in lines if line.level is None)
    dead_letters = read_topic(pipelines.bootstrap, "logs.dlq")
    assert Counter((dead_letter.value() or b"").decode() for dead_letter in dead_letters) == broken
    alerts = read_topic(pipelines.bootstrap, "logs-alerts")
    last = {alert.key(): json.loads(alert.value() or b"")["errors"] for alert in alerts}
    assert sorted(last.values()) == sorted(n for n in expected_errors(named).values() if n >= 20)
    assert any(line.startswith("burst: payments had") for line in pipelines.display.lines)
    assert chart.stat().st_size > 1000

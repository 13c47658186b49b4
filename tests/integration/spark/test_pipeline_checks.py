"""`zhumq pipeline test` and `preview` on real Spark: tests that pass and fail, and a preview that leaves nothing behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from spark_support import create_topic, produce

from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.case_runner import run_cases
from zhumq.pipelines.cases import read_cases
from zhumq.pipelines.document import read_document
from zhumq.pipelines.preview import preview
from zhumq.pipelines.spec_reader import load_pipeline, with_values
from zhumq.testing.broker import RunningBroker, broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PIPELINE = """\
name: orders
trigger: 10s
sources:
  records: {topic: orders, from: latest, options: {maxOffsetsPerTrigger: 5}}
  customers: {table: CUSTOMERS}
steps:
  - {name: parsed, parse: records, format: json, schema: "id INT, amount DECIMAL(9, 2)"}
  - name: good
    expect: parsed
    rules:
      - {name: positive, rule: amount > 0, action: drop}
      - {name: honest, rule: amount <> 666, action: fail}
  - {name: once, deduplicate: good, by: id, within: 1m}
  - {name: named, sql: "SELECT id, amount, name, timestamp FROM once JOIN customers USING (id)"}
sinks:
  all: {topic: named, key: CAST(id AS STRING), value: name}
dead_letters: {topic: bad}
tests:
  - name: an order has the name of its customer
    given:
      records:
        - value: {id: 1, amount: 5}
        - {value: {id: 1, amount: 6}}
        - {value: {id: 1, amount: 7}, timestamp: "2026-01-01T00:02:00Z"}
        - {value: {id: 2, amount: -1}, key: k}
        - {value: nothing, key: k}
      customers: [{id: 1, name: Ada}, {id: 2, name: Bob}]
    expect:
      named:
        - {id: 1, amount: "7.00", name: Ada, timestamp: "2026-01-01T00:02:00Z"}
        - {id: 1, amount: 5, name: Ada, timestamp: "2026-01-01T00:00:00Z"}
      sinks.all: [{key: "1", value: Ada}, {key: "1", value: Ada}]
      dead_letters: [{key: k, value: nothing, reason: not JSON of the given schema, offset: "4"}]
    counts: {parsed.broken: 1, good.positive: 1, good.honest: 0}
  - name: an order of the devil ends the run
    given: {records: [{value: {id: 1, amount: 666}}], customers: [{id: 1, name: Ada}]}
    fails: breaks the rule honest
  - name: a test that fails
    given: {records: [{value: {id: 1, amount: 5}}], customers: {schema: "id INT, name STRING", rows: [{id: 1}]}}
    expect:
      named: [{id: 1, amount: 6}]
    counts: {good.positive: 1, good.ngeative: 0}
"""


@pytest.mark.thorough
def test_tests_of_a_pipeline_pass_and_fail_as_they_should(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "orders.yml"
    file.write_text(PIPELINE)
    pipeline = load_pipeline(file)
    cases = read_cases(pipeline, with_values(read_document(file), str(file), {}), None)
    passed, failed_as_expected, failed = run_cases(spark, pipeline, cases)
    assert passed.problems == ()
    assert failed_as_expected.problems == ()
    assert (
        failed.place == f"{file}:{PIPELINE.splitlines().index('  - name: a test that fails') + 1}"
    )
    assert failed.problems == (
        f"named: 1 row, expected 1 row ({file}:41)",
        "  different   id=1: amount is 5.00, expected 6",
        "counts: good.positive is 0, expected 1",
        (
            "counts: there is no rule 'good.ngeative' that counts; there are: good.honest,"
            " good.positive, parsed.broken"
        ),
    )


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(settings={"log.retention.ms": "-1"}) as started:
        create_topic(started.bootstrap, "orders")
        values = [b'{"id": 1, "amount": 5}', b"{", b'{"id": 2, "amount": 6}']
        produce(started.bootstrap, "orders", values)
        yield started


@pytest.mark.thorough
def test_a_preview_shows_each_step_and_leaves_nothing_behind(
    spark: SparkSession, running: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    customers = tmp_path / "customers"
    spark.createDataFrame([(1, "Ada"), (2, "Bob")], "id INT, name STRING").write.parquet(
        str(customers)
    )
    file = tmp_path / "orders.yml"
    file.write_text(PIPELINE.replace("CUSTOMERS", str(customers)))
    before = sorted(tmp_path.rglob("*"))
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    pipeline = load_pipeline(file)
    brokers = Brokers(bootstrap=running.bootstrap)
    shown = list(preview(spark, pipeline, brokers, rows=5, records=100))
    assert {each.name: each.error for each in shown if each.error is not None} == {}
    assert [(each.kind, each.name, len(each.rows)) for each in shown] == [
        ("source", "records", 3), ("source", "customers", 2), ("step", "parsed", 2), ("step", "good", 2),
        ("step", "once", 2), ("step", "named", 2), ("sink", "all", 2), ("sink", "dead_letters", 1),
    ]  # fmt: skip
    by_name = {each.name: each for each in shown}
    assert by_name["named"].columns == {
        "id": "int", "amount": "decimal(9,2)", "name": "string", "timestamp": "timestamp",
    }  # fmt: skip
    assert sorted(row["value"] for row in by_name["all"].rows) == ["Ada", "Bob"]
    assert "Physical Plan" in (by_name["all"].plan or "")
    assert by_name["named"].plan is None
    assert by_name["all"].read == "reads on its own: once keeps state"
    assert (by_name["dead_letters"].read or "").endswith(
        "no other sink can share a read of records"
    )
    assert sorted(tmp_path.rglob("*")) == before
    assert set(admin.list_topics(timeout=30).topics) == {"orders"}
    groups = admin.list_consumer_groups(request_timeout=30).result(30)
    assert groups.valid == []
    broken = file.read_text().replace("rule: amount <> 666", "rule: amount <> 6")
    file.write_text(broken)
    shown = list(preview(spark, load_pipeline(file), brokers, rows=5, records=100))
    errors = {each.name: each.error for each in shown if each.error is not None}
    assert set(errors) == {"good", "once", "named", "all"}
    assert "step 'good': a row breaks the rule honest, in orders-0 at offset 2" in (
        errors["good"] or ""
    )

"""What the text of an error says about a pipeline: the step and its line, the offsets, and what to do."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("yaml")
pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

from zhumq.model.ids import TopicPartition
from zhumq.pipelines.failures import FailurePlaces, offset_words, with_advice
from zhumq.pipelines.functions import load_function
from zhumq.pipelines.spec import PythonStep
from zhumq.pipelines.spec_reader import load_pipeline

TEXT = """\
name: orders
sources:
  records: {topic: orders}
  countries: {table: tables/countries}
steps:
  - name: first
    python: failing_steps:first
    inputs: records
  - name: second
    python: failing_steps:second
    inputs: records
  - name: named
    sql: |
      SELECT value,
        CAST(key AS STRING) AS k
      FROM records
  - name: good
    expect: named
    rules:
      - {name: whole, rule: CAST(k AS INT) > 0, action: fail}
sinks:
  large: {from: good, topic: large, key: CAST(k AS DATE)}
  table: {from: good, table: tables/orders}
"""
STEPS = """\
def first(rows):
    def fail(batches):
        raise ValueError("bad")

    return rows.mapInArrow(fail, rows.schema)


def second(rows):
    return rows.selectExpr("CAST(value AS INT)")
"""
WORKER = """\
[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):
  File "/venv/pyspark/worker.py", line 3214, in main
    process()
  File "/tmp/spark-1/userFiles-2/failing_steps.py", line {line}, in fail
    raise ValueError("bad")
ValueError: bad
"""
SQL = """\
[CAST_INVALID_INPUT] The value 'x' of the type "STRING" cannot be cast to "{kind}". SQLSTATE: 22018
== SQL (line {line}, position {position}) ==
{shown}
{marks}

\tat org.apache.spark.sql.errors.QueryExecutionErrors$.invalidInputInCastError(Errors.scala:146)
"""
FRAME = """\
[CAST_INVALID_INPUT] The value 'x' of the type "STRING" cannot be cast to "INT". SQLSTATE: 22018
== DataFrame ==
"selectExpr" was called from
/tmp/userFiles-2/failing_steps.py:9
"""
GONE = """\
: org.apache.spark.SparkException: [FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file \
file:///data/tables/countries/part-0.parquet. File does not exist. It is possible the underlying files have been updated.
"""


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FailurePlaces:
    (tmp_path / "orders.yml").write_text(TEXT)
    (tmp_path / "failing_steps.py").write_text(STEPS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "failing_steps", raising=False)
    pipeline = load_pipeline(tmp_path / "orders.yml")
    for step in pipeline.steps:
        if isinstance(step, PythonStep):
            load_function(step.function, step.mark)
    return FailurePlaces(pipeline)


def sql_error(kind: str, line: int, position: int, shown: str, part: str) -> str:
    marks = " " * shown.index(part) + "^" * len(part)
    return SQL.format(kind=kind, line=line, position=position, shown=shown, marks=marks)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (WORKER.format(line=3), "step first (failing_steps.py:3)"),
        (WORKER.format(line=9), "step second (failing_steps.py:9)"),
        (WORKER.format(line=99), "step first or second (failing_steps.py:99)"),
        (FRAME, "step second (failing_steps.py:9)"),
        (sql_error("STRING", 2, 3, "  CAST(key AS STRING) AS k", "CAST(key AS STRING)"), "step named (orders.yml:15)"),
        (sql_error("INT", 1, 1, "CAST(k AS INT) > 0", "CAST(k AS INT)"), "step good, rule whole (orders.yml:20)"),
        (sql_error("DATE", 1, 1, "CAST(k AS DATE)", "CAST(k AS DATE)"), "the key of the sink large (orders.yml:22)"),
        (GONE, "source countries: tables/countries is gone, or its files were replaced while they were read"),
        (WORKER.format(line=3).replace("failing_steps", "other"), None),
        (sql_error("INT", 9, 9, "CAST(z AS INT)", "CAST(z AS INT)"), None),
        ("tables/countries is full", None),
    ],
)  # fmt: skip
def test_the_place_of_a_failure(places: FailurePlaces, text: str, place: str | None) -> None:
    assert places.place_in(text) == place


def test_a_place_is_named_once(places: FailurePlaces) -> None:
    text = WORKER.format(line=3)
    words = "ValueError: bad, in step first (failing_steps.py:3)"
    assert places.explain(PySparkException(message=text)) == words
    again = f"zhumq.pipelines.sinks.BatchFailed: {words}\n{text}"
    assert places.explain(PySparkException(message=again)) == words
    own = "step 'good': a row breaks the rule whole, in orders-0 at offset 5"
    failed = f"zhumq.pipelines.sinks.BatchFailed: {own}\n{text}"
    assert places.explain(PySparkException(message=failed)) == own


def test_the_offsets_of_a_batch() -> None:
    first = {TopicPartition("orders", 0): 5, TopicPartition("orders", 1): 7}
    until = {TopicPartition("orders", 1): 7, TopicPartition("orders", 0): 10}
    assert offset_words(first, until) == "orders-0 from 5 to 9"
    assert offset_words(None, until) == "orders-0 up to 9, orders-1 up to 6"
    assert offset_words(until, until) is None
    many = {TopicPartition("orders", number): 1 for number in range(9)}
    assert offset_words({}, many) == (
        "orders-0 from 0 to 0, orders-1 from 0 to 0, orders-2 from 0 to 0 and 6 more partitions"
    )


def test_what_to_do_depends_on_where_it_was(places: FailurePlaces) -> None:
    pipeline = places.pipeline
    large, table = pipeline.sinks
    assert with_advice("x, in step first (a.py:3)", pipeline, large, "orders-0 up to 9") == (
        "x, in step first (a.py:3); it was reading orders-0 up to 9; correct the step, or keep such"
        " rows from it with a rule, and run again: the next run begins there"
    )
    assert with_advice(
        "file:/data/tables/orders: Permission denied", pipeline, table, None
    ).endswith("; see that this user can write to tables/orders, and run again")
    assert with_advice("x", pipeline, large, None) == "x; run again when that is repaired"
    missing = "there is no topic 'orders' at 127.0.0.1:9092"
    assert with_advice(missing, pipeline, large, None).endswith(
        f"zhumq pipeline reset {pipeline.file} --sink large"
    )
    lost = (
        "orders-0 begins at 5; records may have been missed. Set failOnDataLoss to false to go on"
    )
    assert with_advice(lost, pipeline, large, None).endswith(
        f"or the sink begins elsewhere: zhumq pipeline reset {pipeline.file} --sink large"
    )
    module = "ModuleNotFoundError: No module named 'shop_steps'"
    assert "; install shop_steps for the Python of Spark's workers, or put" in with_advice(
        module, pipeline, large, None
    )
    full = "IOException: No space left on device"
    assert "see that this user can write to tables/orders" in with_advice(
        full, pipeline, table, None
    )
    assert with_advice(full, pipeline, large, None) == f"{full}; run again when that is repaired"

"""Joins of streams on real Spark: those whose state would grow are refused before a sink begins, and the others run."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pipeline_support import Pipelines, read_topic
from pyspark.sql import SparkSession
from spark_support import create_topic, produce

from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.document import SpecInvalid
from zhumq.pipelines.join_plan import growing_join
from zhumq.pipelines.preview import preview
from zhumq.pipelines.spec_reader import load_pipeline
from zhumq.testing.broker import RunningBroker, broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NEAR = "b.timestamp BETWEEN a.timestamp AND a.timestamp + INTERVAL 1 HOUR"
# What a join lacks that the file alone does not show; None: nothing.
JOINS = {
    f"SELECT a.n FROM a JOIN b ON a.n = b.n AND {NEAR}": None,
    f"SELECT a.n FROM a, b WHERE a.n = b.n AND {NEAR}": None,
    f"SELECT a.n FROM a LEFT JOIN b ON a.n = b.n AND {NEAR}": None,
    f"SELECT a.n FROM a FULL JOIN b ON a.n = b.n AND {NEAR}": None,
    f"SELECT a.n FROM a LEFT SEMI JOIN b ON a.n = b.n AND {NEAR}": None,
    "SELECT a.n FROM a JOIN b ON a.n = b.n AND a.timestamp = b.timestamp": None,
    "SELECT p.n FROM plain p JOIN a ON a.n = p.n AND a.timestamp = p.timestamp": None,
    "SELECT a.n FROM a JOIN tables USING (n)": None,
    "SELECT a.n FROM a LEFT JOIN tables USING (n)": None,
    # The filter behind a join bounds it.
    f"SELECT n FROM (SELECT a.n, a.timestamp s, b.timestamp t FROM a JOIN b ON a.n = b.n) WHERE {NEAR.replace('b.timestamp', 't').replace('a.timestamp', 's')}": None,
    "WITH c AS (SELECT window w, count(*) x FROM a GROUP BY window(timestamp, '1 minute')),"
    " d AS (SELECT window w, count(*) y FROM b GROUP BY window(timestamp, '1 minute'))"
    " SELECT x FROM c JOIN d ON c.w = d.w": None,
    "SELECT a.n FROM a, b WHERE a.n = b.n": "joins the streams a and b without a bound of their times, so Spark would keep the rows of both",
    "SELECT a.n FROM a JOIN a c ON a.n = c.n": "joins the streams a and c without a bound",
    "SELECT a.n FROM a JOIN b ON a.n = b.n AND b.timestamp >= a.timestamp": "would keep the rows of a for ever",
    "SELECT a.n FROM a JOIN b ON a.n = b.n AND b.timestamp <= a.timestamp": "would keep the rows of b for ever",
    f"SELECT a.n FROM a LEFT JOIN plain b ON a.n = b.n AND {NEAR}": "joins the stream b, which has no watermark",
    f"SELECT a.n FROM plain a JOIN plain b ON a.n = b.n AND {NEAR}": "joins the stream a, which has no watermark",
    # The time of one side is not passed on.
    "SELECT a.n FROM a JOIN (SELECT n FROM b) b ON a.n = b.n": "joins the streams a and b without a bound",
    f"SELECT a.n FROM a JOIN tables USING (n) JOIN b ON a.n = b.n JOIN plain c ON {NEAR.replace('b.', 'c.')}": "joins the stream c, which has no watermark",
}  # fmt: skip


@pytest.mark.thorough
def test_what_a_join_lacks_is_read_in_sparks_plan(spark: SparkSession) -> None:
    session = spark.newSession()
    for name, delay in (("a", "1 minute"), ("b", "2 minutes")):
        session.readStream.format("rate").load().withColumnRenamed("value", "n").withWatermark(
            "timestamp", delay
        ).createOrReplaceTempView(name)
    plain = session.readStream.format("rate").load().withColumnRenamed("value", "n")
    plain.createOrReplaceTempView("plain")
    session.range(3).withColumnRenamed("id", "n").createOrReplaceTempView("tables")
    found = {sql: growing_join(session.sql(sql)) for sql in JOINS}
    for sql, words in JOINS.items():
        if words is None:
            assert found[sql] is None, sql
        else:
            assert words in (found[sql] or "nothing"), sql


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(settings={"log.retention.ms": "-1"}) as started:
        for topic in ("orders", "payments"):
            create_topic(started.bootstrap, topic)
            values = [json.dumps({"id": number}).encode() for number in range(3)]
            produce(started.bootstrap, topic, values)
        yield started


TEXT = """\
name: paid
sources:
  orders: {topic: orders, watermark: {column: timestamp, delay: 1 minute}}
  payments: {topic: payments, watermark: {column: timestamp, delay: 1 minute}}
steps:
  - {name: ordered, parse: orders, format: json, schema: id INT, on_error: drop}
  - {name: paid, parse: payments, format: json, schema: id INT, on_error: drop}
  - name: timed
    sql: SELECT id, timestamp AS paid_at FROM paid
  - name: both
    sql: |
      SELECT o.id, o.timestamp AS ordered_at, paid_at
      FROM ordered o
      JOIN timed USING (id)
  - name: near
    sql: SELECT id FROM both WHERE CONDITION
sinks:
  first: {from: ordered, topic: first}
  all: {from: near, topic: near}
"""


@pytest.mark.thorough
def test_a_join_without_a_bound_is_refused_before_any_sink_begins(
    spark: SparkSession, running: RunningBroker, tmp_path: Path
) -> None:
    pipelines = Pipelines(spark, running.bootstrap, tmp_path)
    line = TEXT.splitlines().index("  - name: both") + 2
    refusal = (
        rf"paid.yml:{line}: steps\[3\].sql: joins the streams o and timed without a bound of their"
    )
    file = pipelines.write("paid.yml", TEXT.replace("CONDITION", "paid_at > '2020-01-01'"))
    with pytest.raises(SpecInvalid, match=refusal):
        pipelines.run(file)
    brokers = Brokers(bootstrap=running.bootstrap)
    with pytest.raises(SpecInvalid, match=refusal):
        list(preview(spark, load_pipeline(Path(file)), brokers, rows=1, records=1))
    assert not (tmp_path / "state" / "paid" / "checkpoints").exists()
    # A bound in a step behind the join is one: Spark takes it into the join.
    bound = "paid_at BETWEEN ordered_at - INTERVAL 1 HOUR AND ordered_at + INTERVAL 1 HOUR"
    pipelines.run(pipelines.write("paid.yml", TEXT.replace("CONDITION", bound)))
    found = [json.loads(each.value() or b"") for each in read_topic(running.bootstrap, "near")]
    assert sorted(each["id"] for each in found) == [0, 1, 2]

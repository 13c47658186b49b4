"""The step `enrich` on real Spark and a real broker: a table that changes under a running stream, and one that goes away."""

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from database_support import need_drivers
from pipeline_support import Pipelines, headers_of, read_topic
from pyspark.sql import SparkSession
from spark_support import create_topic, produce, wait_until

from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.case_runner import run_cases
from zhumq.pipelines.cases import read_cases
from zhumq.pipelines.delta_table import DeltaTable, read_delta
from zhumq.pipelines.document import SpecInvalid, parse_document, read_document
from zhumq.pipelines.preview import preview
from zhumq.pipelines.refreshed_tables import FOLDER
from zhumq.pipelines.spec_reader import load_pipeline, parse_pipeline, with_values
from zhumq.pipelines.status import RunStatus, State
from zhumq.pipelines.stopping import PipelineFailed, StopRequest
from zhumq.pipelines.views import Views, build_steps, new_session
from zhumq.testing.broker import RunningBroker, broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SECONDS_MAX = 240.0  # a busy machine takes long to start a query


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(settings={"log.retention.ms": "-1"}) as started:
        yield started


@pytest.fixture
def pipelines(spark: SparkSession, running: RunningBroker, tmp_path: Path) -> Pipelines:
    return Pipelines(spark, running.bootstrap, tmp_path)


@contextmanager
def started(pipelines: Pipelines, file: str) -> Iterator[StopRequest]:
    """A pipeline that runs in a thread, and is stopped at the end."""
    stop, failures = StopRequest(), []

    def run() -> None:
        try:
            pipelines.run(file, stop=stop)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(
            lambda: bool(failures) or is_running(pipelines.display.status),
            "the pipeline runs",
            seconds=SECONDS_MAX,
        )
        yield stop
    finally:
        stop.ask()
        thread.join(SECONDS_MAX)
    assert failures == []


def is_running(status: RunStatus | None) -> bool:
    return status is not None and status.state is State.RUNNING


def send(pipelines: Pipelines, topic: str, *values: dict[str, Any]) -> None:
    produce(pipelines.bootstrap, topic, [json.dumps(each).encode() for each in values])


def rows_in(pipelines: Pipelines, topic: str) -> list[dict[str, Any]]:
    return [json.loads(each.value() or b"") for each in read_topic(pipelines.bootstrap, topic)]


CUSTOMERS = """\
name: customers
parameters: {{folder: }}
sources:
  records: {{topic: {topic}-changes}}
steps:
  - {{name: changes, parse: records, format: json, schema: "id INT, tier STRING, gone BOOLEAN", on_error: fail}}
sinks:
  current: {{merge: "${{folder}}", keys: [id], sequence_by: offset, apply_as_deletes: gone, except_columns: [gone, timestamp]}}
"""
ORDERS = """\
name: orders
trigger: 100 ms
parameters: {{folder: }}
sources:
  records: {{topic: {topic}, watermark: {{column: timestamp, delay: 1 minute}}}}
  customers: {{table: "${{folder}}", format: delta}}
steps:
  - {{name: parsed, parse: records, format: json, schema: "n INT, customer INT"}}
  - name: fresh
    enrich: parsed
    table: customers
    by: {{customer: id}}
    columns: [tier]
    refresh: 0s
  - name: both
    enrich: fresh
    table: customers
    by: {{customer: id}}
    columns: {{first_tier: tier}}
    refresh: 1h
  - name: counted
    sql: |
      SELECT tier, first_tier, window.start AS begin, count(*) AS orders, max(n) AS n
      FROM both GROUP BY tier, first_tier, window(timestamp, '1 day')
sinks:
  shared: {{from: both, topic: {topic}-shared, value: "to_json(struct(n, tier, first_tier))"}}
  rows: {{from: both, table: "${{folder}}-rows", format: delta}}
  own: {{from: both, topic: {topic}-own, value: "to_json(struct(n, tier, first_tier))", mode: update}}
  counts: {{from: counted, topic: {topic}-counts, mode: update}}
dead_letters: {{topic: {topic}-bad}}
"""


@pytest.mark.thorough
def test_a_running_stream_has_the_rows_that_another_pipeline_merges(
    pipelines: Pipelines, spark: SparkSession, tmp_path: Path
) -> None:
    for name in ("shop", "shop-changes"):
        create_topic(pipelines.bootstrap, name)
    folder = str(tmp_path / "customers")
    other = Pipelines(spark, pipelines.bootstrap, tmp_path)
    customers = other.write("customers.yml", CUSTOMERS.format(topic="shop"))

    def merge(*changes: dict[str, Any]) -> None:
        send(other, "shop-changes", *changes)
        other.run(customers, folder=folder)

    merge({"id": 1, "tier": "old"})
    text = ORDERS.format(topic="shop").replace("{folder: }", f"{{folder: '{folder}'}}")
    orders = pipelines.write("orders.yml", text)

    def seen(topic: str) -> dict[int, tuple[Any, Any]]:
        return {
            row["n"]: (row.get("tier"), row.get("first_tier")) for row in rows_in(pipelines, topic)
        }

    def wait_for(number: int, tiers: tuple[Any, Any]) -> None:
        for topic in ("shop-shared", "shop-own", "shop-counts"):
            wait_until(
                lambda topic=topic: number in seen(topic),
                f"{number} is in {topic}",
                seconds=SECONDS_MAX,
            )
            assert seen(topic)[number] == tiers, topic

    with started(pipelines, orders):
        send(pipelines, "shop", {"n": 1, "customer": 1}, {"n": 2, "customer": 2})
        wait_for(2, (None, None))
        assert seen("shop-shared")[1] == ("old", "old")
        merge({"id": 1, "tier": "new"}, {"id": 2, "tier": "two"})
        send(pipelines, "shop", {"n": 3, "customer": 1})
        # The table that may be an hour old is not read again.
        wait_for(3, ("new", "old"))
        merge({"id": 1, "gone": True})
        send(pipelines, "shop", {"n": 4, "customer": 1})
        wait_for(4, (None, "old"))
        copies = tmp_path / "state" / "orders" / "checkpoints" / FOLDER
        assert len(list((copies / "both").iterdir())) == 1
    assert not copies.exists()
    status = pipelines.last_status("orders")
    assert status.state is State.STOPPED
    assert status.tables["fresh"].reads >= 3
    assert (status.tables["both"].reads, status.tables["both"].rows) == (1, 1)
    assert status.tables["fresh"].failures == 0
    assert pipelines.display.lines[0].startswith("orders: one read of records for shared, rows")
    rows = read_delta(spark, f"{folder}-rows").orderBy("n").collect()
    assert [(row["n"], row["tier"]) for row in rows] == [
        (1, "old"),
        (2, None),
        (3, "new"),
        (4, None),
    ]


AWAY = """\
name: away
trigger: 100 ms
parameters: {folder: }
sources:
  records: {topic: away}
  customers: {table: "${folder}/customers", format: csv, options: {header: true, inferSchema: true}}
steps:
  - {name: parsed, parse: records, format: json, schema: "n INT, customer INT", on_error: fail}
  - name: named
    enrich: parsed
    table: customers
    by: {customer: id}
    columns: [tier]
    refresh: 0s
    missing: dead_letters
sinks:
  all: {topic: away-out, value: "to_json(struct(n, tier))"}
dead_letters: {topic: away-bad}
"""


@pytest.mark.thorough
def test_a_table_that_cannot_be_read_goes_on_as_it_was(
    pipelines: Pipelines, tmp_path: Path
) -> None:
    create_topic(pipelines.bootstrap, "away")
    file = pipelines.write("away.yml", AWAY.replace("{folder: }", f"{{folder: '{tmp_path}'}}"))
    table = tmp_path / "customers"
    line = AWAY.splitlines().index("    enrich: parsed") + 1

    # At the start there is no earlier one.
    with pytest.raises(SpecInvalid, match=r"away.yml:6: sources.customers: .*Path does not exist"):
        pipelines.run(file)
    table.mkdir()
    (table / "a.csv").write_text("id,tier\n1,old\n2,gold\n2,silver\n")
    with pytest.raises(
        PipelineFailed,
        match="step 'named': the table customers has 2 rows with id = 2; a key is th",
    ):
        pipelines.run(file)
    (table / "a.csv").write_text("id,name\n1,old\n")
    with pytest.raises(SpecInvalid, match=rf"away.yml:{line + 3}: .*there is no column 'tier'"):
        pipelines.run(file)

    (table / "a.csv").write_text("id,tier\n1,old\n")

    def wait_for(number: int, tier: str | None, topic: str = "away-out") -> None:
        assert tiers_of(number, topic) == [tier]

    def tiers_of(number: int, topic: str = "away-out") -> list[str | None]:
        def seen() -> list[dict[str, Any]]:
            return [each for each in rows_in(pipelines, topic) if each["n"] == number]

        wait_until(lambda: bool(seen()), f"{number} is in {topic}", seconds=SECONDS_MAX)
        return [each.get("tier") for each in seen()]

    def wait_for_failures(words: str) -> None:
        def warned() -> bool:
            return any("warning: step named" in each and words in each for each in lines())

        wait_until(warned, f"there is a warning of {words}", seconds=SECONDS_MAX)

    def lines() -> list[str]:
        return list(pipelines.display.lines)

    with started(pipelines, file):
        send(pipelines, "away", {"n": 1, "customer": 1}, {"n": 2, "customer": 7})
        wait_for(1, "old")
        wait_for(2, None, "away-bad")
        table.rename(tmp_path / "moved")
        send(pipelines, "away", {"n": 3, "customer": 1})
        wait_for(3, "old")
        wait_for_failures("Path does not exist")
        # A key that is there twice now, and a column of another type.
        (tmp_path / "moved" / "a.csv").write_text("id,tier\n1,two\n1,three\n")
        (tmp_path / "moved").rename(table)
        number = 4
        while not any("has 2 rows with id = 1" in each for each in lines()):
            send(pipelines, "away", {"n": number, "customer": 1})
            wait_for(number, "old")
            number += 1
        (table / "a.csv").write_text("id,tier\n1,5\n")
        while not any("'tier' is int now, and was string" in each for each in lines()):
            send(pipelines, "away", {"n": number, "customer": 1})
            wait_for(number, "old")
            number += 1
        (table / "a.csv").write_text("id,tier\n1,new\n")
        tiers: list[str | None] = ["old"]
        while tiers == ["old"]:
            send(pipelines, "away", {"n": number, "customer": 1})
            tiers = tiers_of(number)
            number += 1
        assert tiers == ["new"]
    found = pipelines.last_status("away").tables["named"]
    assert found.failures >= 3
    assert found.error is None
    assert (found.source, found.rows) == ("customers", 1)
    (bad,) = read_topic(pipelines.bootstrap, "away-bad")
    assert headers_of(bad)["zhumq.reason"] == "no row of customers has id = 7"
    assert headers_of(bad)["zhumq.step"] == "named"


@pytest.mark.thorough
def test_a_table_of_a_database_and_files_in_a_stream_and_a_batch(
    pipelines: Pipelines, tmp_path: Path, spark: SparkSession
) -> None:
    need_drivers()
    create_topic(pipelines.bootstrap, "priced")
    send(
        pipelines, "priced", {"n": 1, "item": 1, "place": "AT"}, {"n": 2, "item": 9, "place": None}
    )
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE prices (item INTEGER, price INTEGER, changed INTEGER)")
        database.executemany(
            "INSERT INTO prices VALUES (?, ?, ?)", [(1, 5, 1), (1, 6, 2), (2, 7, 1)]
        )
    rows = [("AT", "Austria", False), ("AT", "Ostarrichi", True)]
    places = spark.createDataFrame(rows, "code STRING, name STRING, is_old BOOLEAN")
    places.write.parquet(str(tmp_path / "places"))
    text = f"""\
name: priced
trigger: TRIGGER
sources:
  records: {{topic: priced, options: {{OPTIONS}}}}
  prices: {{jdbc: prices, options: {{url: "jdbc:sqlite:{tmp_path}/shop.db"}}}}
  places: {{table: {tmp_path}/places}}
steps:
  - {{name: parsed, parse: records, format: json, schema: "n INT, item INT, place STRING", on_error: fail}}
  - {{name: priced, enrich: parsed, table: prices, by: item, columns: [price], sequence_by: changed, missing: drop, refresh: 0s}}
  - {{name: placed, enrich: priced, table: places, by: {{place: code}}, columns: {{country: name}}, where: NOT is_old}}
sinks:
  all: {{console: 10}}
"""
    expected = [{"n": 1, "price": 6, "country": "Austria"}]
    for trigger, options in (("batch", ""), ("available-now", "maxOffsetsPerTrigger: 1")):
        written = text.replace("TRIGGER", trigger).replace("OPTIONS", options)
        status = pipelines.run(pipelines.write("priced.yml", written))
        found = pipelines.display.tables["all"]
        assert [{name: row[name] for name in expected[0]} for row in found] == expected, trigger
        assert (status.counts["priced.missing"], status.counts["placed.missing"]) == (1, 0)
    assert {name: each.rows for name, each in status.tables.items()} == {"priced": 2, "placed": 1}
    # Once before the query begins, and then once for each of its micro-batches.
    assert status.sinks["all"].batches == 2
    assert status.tables["priced"].reads == 3
    assert status.tables["placed"].reads == 1


STEPS = """\
name: orders
trigger: batch
sources:
  records: {topic: orders}
  customers: {table: CUSTOMERS}
steps:
  - {name: parsed, parse: records, format: json, schema: "n INT, customer INT, place STRING", on_error: fail}
  - name: named
    enrich: parsed
    table: customers
    MORE
sinks:
  all: {topic: all}
dead_letters: {topic: bad}
tests:
  - name: a customer that is known, and others
    given:
      records: [{value: {n: 1, customer: 1}}, {value: {n: 2, customer: 2}}, {value: {n: 3}}]
      customers: [{id: 1, name: Ada}, {id: 3, name: Bob}]
    expect:
      named: [{n: 1, name: Ada}, {n: 2, name: null}, {n: 3, name: null}]
    counts: {named.missing: 2}
  - name: a customer that is there twice
    given: {records: [{value: {n: 1, customer: 5}}], customers: [{id: 1, name: Ada}, {id: 1, name: Eda}]}
    fails: "step 'named': the table customers has 2 rows with id = 1; a key is there once"
"""
BY_ID = "by: {customer: id}"


@pytest.mark.thorough
def test_rows_of_a_table_are_given_in_tests_and_a_preview_reads_it_whole(
    spark: SparkSession, running: RunningBroker, tmp_path: Path
) -> None:
    customers = [(number, f"name {number}") for number in range(50)]
    frame = spark.createDataFrame(customers, "id INT, name STRING")
    DeltaTable(spark, str(tmp_path / "customers")).append(frame, query="test", batch=0)
    create_topic(running.bootstrap, "orders")
    values = [json.dumps({"n": n, "customer": n * 7}).encode() for n in range(5)]
    produce(running.bootstrap, "orders", values)
    file = tmp_path / "orders.yml"
    text = STEPS.replace("CUSTOMERS", f"{tmp_path}/customers, format: delta")
    file.write_text(text.replace("MORE", f"{BY_ID}\n    columns: [name]"))
    pipeline = load_pipeline(file)
    cases = read_cases(pipeline, with_values(read_document(file), str(file), {}), None)
    assert [each.problems for each in run_cases(spark, pipeline, cases)] == [(), ()]
    brokers = Brokers(bootstrap=running.bootstrap)
    shown = {each.name: each for each in preview(spark, pipeline, brokers, rows=5, records=5)}
    assert [(row["n"], row["name"]) for row in shown["named"].rows] == [
        (n, f"name {n * 7}") for n in range(5)
    ]
    assert len(shown["customers"].rows) == 5


def built(spark: SparkSession, more: str, customers: Any, schema: str) -> Views:
    text = STEPS.partition("tests:")[0].replace("MORE", more)
    pipeline = parse_pipeline(parse_document(text.encode(), "f.yml"), "f.yml", {})
    session = new_session(spark)
    record = (
        "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
    )
    values = [b'{"n": 1, "customer": 1, "place": "AT"}', b'{"n": 2, "customer": 1, "place": "DE"}']
    rows: Any = [(None, value, "orders", 0, at, None) for at, value in enumerate(values)]
    sources = {
        "records": session.createDataFrame(rows, record),
        "customers": session.createDataFrame(customers, schema),
    }
    return build_steps(session, pipeline, sources, None)


def named(views: Views, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in views.frames["named"].orderBy("n").select(*columns).collect()]


@pytest.mark.thorough
def test_the_newest_row_of_a_key_counts_and_two_newest_are_an_error(spark: SparkSession) -> None:
    schema = "id INT, place STRING, name STRING, at INT"
    newest = f"{BY_ID}\n    columns: [name]\n    sequence_by: at"
    rows: Any = [(1, "AT", "b", 2), (1, "AT", "c", 3), (1, "AT", "a", 1), (None, "AT", "x", 9)]
    assert named(built(spark, newest, rows, schema), "name") == [("c",), ("c",)]
    rows = [(1, "AT", "a", None), (1, "AT", "b", 1)]
    assert named(built(spark, newest, rows, schema), "name") == [("b",), ("b",)]
    rows = [(1, "AT", "a", 4), (1, "AT", "b", 4), (1, "AT", "c", 3)]
    with pytest.raises(Exception, match="customers has 2 rows with id = 1 and the same at"):
        named(built(spark, newest, rows, schema), "name")
    # The key of two columns, and a table without a row.
    both = "by: {customer: id, place: place}\n    columns: [name]\n    missing: dead_letters"
    views = built(spark, both, [(1, "AT", "a", 4), (2, "DE", "b", 4)], schema)
    assert named(views, "n", "name") == [(1, "a")]
    assert views.bad_rows is not None
    (bad,) = views.bad_rows.collect()
    headers = {each["key"]: bytes(each["value"] or b"").decode() for each in bad["headers"]}
    assert headers["zhumq.reason"] == "no row of customers has id = 1 and place = DE"
    assert named(built(spark, both, [], schema), "n") == []


@pytest.mark.thorough
def test_columns_that_do_not_fit_are_refused_with_their_line(spark: SparkSession) -> None:
    schema = "id INT, name STRING, value STRING, tags MAP<STRING, INT>"
    for more, line, words in (
        ("by: {place: id}\n    columns: [name]", 11, "'place' is string, and 'id' of the table customers is int"),
        ("by: {customer: idd}\n    columns: [name]", 11, "there is no column 'idd'; there are id, name"),
        ("by: {custmer: id}\n    columns: [name]", 11, "there is no column 'custmer'; there are"),
        ("by: {customer: tags}\n    columns: [name]", 11, "which cannot be a key"),
        (f"{BY_ID}\n    columns: [nam]", 12, "there is no column 'nam'"),
        (f"{BY_ID}\n    columns: [value]", 12, "as {customers_value: value}"),
        (f"{BY_ID}\n    columns: [name]\n    where: nam > 1", 13, "there is no column `nam`"),
        (f"{BY_ID}\n    columns: [name]\n    where: id + 1", 13, "is int, not true or false"),
        (f"{BY_ID}\n    columns: [name]\n    sequence_by: at", 13, "there is no column 'at'"),
        (f"{BY_ID}\n    columns: [name]\n    sequence_by: tags", 13, "ordering"),
    ):  # fmt: skip
        with pytest.raises(SpecInvalid) as caught:
            built(spark, more, [], schema)
        assert str(caught.value).startswith(f"f.yml:{line}: "), caught.value
        assert words in str(caught.value), caught.value
    # Whole numbers of two sizes are alike.
    assert named(
        built(spark, f"{BY_ID}\n    columns: [name]", [(1, "a")], "id BIGINT, name STRING"), "name"
    )


@pytest.mark.thorough
def test_spark_itself_lists_the_files_of_a_table_once(spark: SparkSession, tmp_path: Path) -> None:
    """What the step is for: if Spark did it by itself, decision 0086 could go."""
    need_drivers()
    table, arriving = tmp_path / "table", tmp_path / "arriving"
    arriving.mkdir()
    schema = "id INT, tier STRING"
    spark.createDataFrame([(1, "old")], schema).write.parquet(str(table))
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE tiers (id INTEGER, level INTEGER)")
        database.execute("INSERT INTO tiers VALUES (1, 1)")
    options = {
        "url": f"jdbc:sqlite:{tmp_path}/shop.db",
        "dbtable": "tiers",
        "driver": "org.sqlite.JDBC",
    }
    files = spark.read.schema(schema).parquet(str(table))
    rows = spark.read.format("jdbc").options(**options).load()
    seen: list[tuple[int, str | None, int | None]] = []

    def keep(batch: Any, _number: int) -> None:
        seen.extend((row["id"], row["tier"], row["level"]) for row in batch.collect())

    stream = spark.readStream.schema("id INT").json(str(arriving))
    query = (
        stream.join(files, "id", "left").join(rows, "id", "left").writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    )  # fmt: skip

    def arrive(name: str, text: str) -> None:
        (tmp_path / name).write_text(text)
        (tmp_path / name).rename(arriving / name)
        query.processAllAvailable()

    try:
        arrive("first", '{"id": 1}')
        spark.createDataFrame([(2, "new")], schema).write.mode("append").parquet(str(table))
        with sqlite3.connect(tmp_path / "shop.db") as database:
            database.execute("INSERT INTO tiers VALUES (2, 2)")
        arrive("second", '{"id": 2}')
        assert seen == [(1, "old", 1), (2, None, 2)]
        spark.createDataFrame([(3, "x")], schema).write.mode("overwrite").parquet(str(table))
        with pytest.raises(Exception, match="FILE_NOT_EXIST"):
            arrive("third", '{"id": 3}')
    finally:
        query.stop()

"""The sink `format: jdbc` on real databases: each batch once, by key, over repeats, crashes and bad rows."""

import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
from database_support import (
    PASSWORD,
    PASSWORD_VARIABLE,
    PostgresServer,
    need_drivers,
    postgres_server,
)
from pipeline_support import Pipelines
from pyspark.sql import DataFrame, SparkSession
from spark_support import create_topic, produce, wait_until

from zhumq.pipelines.document import SpecInvalid, parse_document
from zhumq.pipelines.jdbc_connection import JdbcFailed, JdbcUnreachable
from zhumq.pipelines.jdbc_spec import JdbcTarget
from zhumq.pipelines.jdbc_table import JdbcTable
from zhumq.pipelines.spec import TableSink
from zhumq.pipelines.spec_reader import parse_pipeline
from zhumq.pipelines.stopping import PipelineFailed
from zhumq.testing.broker import RunningBroker, broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SECONDS_MAX = 300.0  # a busy machine takes long to start a query
COLUMNS = "id BIGINT, name STRING, seq BIGINT"
PIPELINE = """\
name: orders
trigger: {trigger}
sources: {{records: {{topic: {topic}}}}}
steps:
  - name: parsed
    parse: records
    format: json
    schema: id BIGINT, name STRING, seq BIGINT
    on_error: drop
  - {{name: changes, sql: "SELECT id, name, seq FROM parsed"}}
sinks:
  orders:
    from: changes
    table: {table}
    format: jdbc
    keys: [id]
    sequence_by: seq
    options: {{url: "{url}", user: shop, password: "${{env:ZHUMQ_TEST_DATABASE_PASSWORD}}"}}
  raw: {{from: records, table: "{folder}/raw"}}
"""


@pytest.fixture(scope="module", autouse=True)
def drivers() -> None:
    need_drivers()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as started:
        yield started


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker() as started:
        yield started


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)


@pytest.fixture
def pipelines(spark: SparkSession, running: RunningBroker, tmp_path: Path) -> Pipelines:
    return Pipelines(spark, running.bootstrap, tmp_path)


def target(url: str, table: str, *, keys: str = "", user: str = "shop") -> JdbcTarget:
    """The target of a sink as the file has it."""
    by_key = f"keys: [{keys}], sequence_by: seq, " if keys else ""
    text = (
        "name: n\nsources: {records: {topic: t}}\nsinks:\n"
        f"  s: {{table: '{table}', format: jdbc, {by_key}options: {{url: '{url}', user: {user},"
        f" password: '${{env:{PASSWORD_VARIABLE}}}'}}}}\n"
    )
    (sink,) = parse_pipeline(parse_document(text.encode(), "f.yml"), "f.yml", {}).sinks
    assert isinstance(sink, TableSink)
    assert sink.jdbc is not None
    return sink.jdbc


def rows(spark: SparkSession, *given: tuple[int | None, str, int | None]) -> DataFrame:
    return spark.createDataFrame(given, COLUMNS).repartition(2)


def staging_tables(server: PostgresServer) -> list[list[str]]:
    return server.query("select tablename from pg_tables where tablename like 'zhumq_staging%'")


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_a_repeated_batch_changes_nothing_and_the_newest_row_of_a_key_stays(
    spark: SparkSession, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    create = "CREATE TABLE kept (id BIGINT PRIMARY KEY, name VARCHAR(20), seq BIGINT, own TEXT)"
    if kind == "sqlite":
        file = tmp_path / "shop.db"
        url = f"jdbc:sqlite:{file}"

        def query(sql: str) -> list[list[str]]:
            with sqlite3.connect(file) as database:
                found = database.execute(sql).fetchall()
            database.close()
            return [["" if each is None else str(each) for each in row] for row in found]

    else:
        server: PostgresServer = request.getfixturevalue("server")
        url, query = server.url, server.query
    query(create)
    query('CREATE TABLE "Added" (id BIGINT, "NAME" VARCHAR(20), seq BIGINT)')
    query("INSERT INTO kept VALUES (1, 'before', NULL, 'mine')")
    table = JdbcTable(spark, target(url, "kept", keys="id"))
    first = rows(spark, (1, "a", 5), (2, "b", 1), (2, "newer", 2), (3, "c", 9))
    assert table.append(first, writer="w", batch=0) == 3
    everything = "SELECT id, name, seq, own FROM kept ORDER BY id"
    after = [["1", "a", "5", "mine"], ["2", "newer", "2", ""], ["3", "c", "9", ""]]
    assert query(everything) == after
    # Of one batch the table knows the number: other rows under it are not written.
    assert table.append(rows(spark, (1, "again", 7)), writer="w", batch=0) == 0
    assert table.has(writer="w", batch=0)
    assert not table.has(writer="w", batch=1)
    assert query(everything) == after
    # An older row of a later batch does not replace a newer one, nor does the batch of another query twice.
    late = rows(spark, (1, "late", 4), (3, "same", 9), (4, "d", 0))
    for _ in range(2):
        table.append(late, writer="w", batch=1)
        table.append(rows(spark, (2, "other", 2)), writer="x", batch=0)
    assert query(everything) == [
        ["1", "a", "5", "mine"], ["2", "other", "2", ""], ["3", "same", "9", ""], ["4", "d", "0", ""],
    ]  # fmt: skip
    # Without keys each batch is added once.
    added = JdbcTable(spark, target(url, '"Added"'))
    for _ in range(2):
        assert added.append(first, writer="a", batch=3) in (4, 0)
    assert query('SELECT count(*), sum(seq) FROM "Added"') == [["4", "17"]]
    assert added.append_once(first) == 4
    assert query('SELECT count(*) FROM "Added"') == [["8"]]
    names = "sqlite_master WHERE name" if kind == "sqlite" else "pg_tables WHERE tablename"
    assert query(f"SELECT count(*) FROM {names} LIKE 'zhumq_staging%'") == [["0"]]


@pytest.mark.thorough
def test_what_the_database_refuses_is_an_error_and_changes_nothing(
    spark: SparkSession, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.query(
        "CREATE TABLE narrow (id INT PRIMARY KEY, name VARCHAR(3), seq BIGINT, about JSONB);"
        "CREATE TABLE loose (id BIGINT, name TEXT, seq BIGINT);"
        "CREATE TABLE dates (id BIGINT PRIMARY KEY, name DATE, seq BIGINT)"
    )

    def refusal(table: str, *given: tuple[int | None, str, int | None], keys: str = "id") -> str:
        with pytest.raises(JdbcFailed) as caught:
            JdbcTable(spark, target(server.url, table, keys=keys)).append(
                rows(spark, *given), writer="w", batch=0
            )
        assert PASSWORD not in str(caught.value)
        return str(caught.value)

    good = (1, "abc", 1)
    assert refusal("nowhere", good) == (
        "there is no table nowhere: create it, with PRIMARY KEY (id)"
    )
    assert refusal("loose", good) == (
        "the table loose has no primary key and no unique index of exactly (id): CREATE UNIQUE INDEX"
        " NAME ON loose (id)"
    )
    assert "value too long for type character varying(3)" in refusal("narrow", good, (2, "long", 1))
    assert "integer out of range" in refusal("narrow", good, (2**40, "a", 1))
    assert 'column "name" is of type date but expression is of type text' in refusal("dates", good)
    server.query("CREATE TABLE short (id BIGINT PRIMARY KEY, seq BIGINT)")
    assert refusal("short", good) == "the table short has no column 'name'; there are id, seq"
    assert server.query("SELECT count(*) FROM narrow") == [["0"]]
    # The batch was not noted: its good rows are written under the same number.
    narrow = JdbcTable(spark, target(server.url, "narrow", keys="id"))
    about = rows(spark, good).selectExpr("id", "name AS NAME", "seq", """'{"a": 1}' AS about""")
    assert narrow.append(about, writer="w", batch=0) == 1
    assert server.query("SELECT id, name, about ->> 'a' FROM narrow") == [["1", "abc", "1"]]
    assert staging_tables(server) == []

    monkeypatch.setenv(PASSWORD_VARIABLE, "a-wrong-secret")
    with pytest.raises(JdbcUnreachable, match="password authentication failed") as caught:
        JdbcTable(spark, target(server.url, "narrow")).has(writer="w", batch=0)
    assert "a-wrong-secret" not in str(caught.value)
    monkeypatch.delenv(PASSWORD_VARIABLE)
    with pytest.raises(JdbcUnreachable, match=f"{PASSWORD_VARIABLE} is not set"):
        JdbcTable(spark, target(server.url, "narrow"))


@pytest.mark.thorough
def test_a_staging_table_that_a_killed_run_has_left_is_removed(
    spark: SparkSession, server: PostgresServer
) -> None:
    table = JdbcTable(spark, target(server.url, "simple"))
    table.append(rows(spark, (1, "a", 1)), writer="killed", batch=0)
    server.query("CREATE TABLE zhumq_staging_0123456789abcdef_1 (id INT)")  # of another writer
    own = f"zhumq_staging_{hashlib.sha256(b'killed').hexdigest()[:16]}_1"
    server.query(f"CREATE TABLE {own} (id INT)")
    table.append(rows(spark, (2, "b", 1)), writer="killed", batch=1)
    assert staging_tables(server) == [["zhumq_staging_0123456789abcdef_1"]]
    server.query("DROP TABLE zhumq_staging_0123456789abcdef_1")


def orders(count: int, *, version: int) -> list[bytes]:
    return [
        json.dumps(
            {"id": number % 7, "name": f"v{version}", "seq": version * 100 + number}
        ).encode()
        for number in range(count)
    ]


@pytest.mark.thorough
def test_a_database_that_goes_away_fails_a_batch_and_has_it_once_when_it_is_back(
    spark: SparkSession, server: PostgresServer, tmp_path: Path
) -> None:
    """Both when the server does not answer, and when the server crashes while the rows of a batch are on their way."""
    server.query("CREATE TABLE away (id BIGINT PRIMARY KEY, name TEXT, seq BIGINT)")
    table = JdbcTable(spark, target(server.url, "away", keys="id"))
    assert table.append(rows(spark, (1, "a", 1)), writer="w", batch=0) == 1
    server.stop()
    with pytest.raises(JdbcUnreachable, match="refused"):
        table.append(rows(spark, (2, "b", 2)), writer="w", batch=1)
    server.start()
    begun, go = tmp_path / "begun", tmp_path / "go"

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            begun.touch()
            deadline = time.monotonic() + SECONDS_MAX
            while not go.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            yield batch

    slow = rows(spark, (2, "b", 2)).mapInArrow(wait, COLUMNS)
    with ThreadPoolExecutor() as pool:
        appended = pool.submit(table.append, slow, writer="w", batch=1)
        wait_until(begun.exists, "the batch is on its way", seconds=SECONDS_MAX)
        server.stop()
        go.touch()
        with pytest.raises(JdbcFailed):
            appended.result(SECONDS_MAX)
    server.start()
    assert server.query("SELECT id FROM away") == [["1"]]
    assert not table.has(writer="w", batch=1)
    for written in (1, 0):
        assert table.append(slow, writer="w", batch=1) == written
    assert server.query("SELECT id, name, seq FROM away ORDER BY id") == [
        ["1", "a", "1"],
        ["2", "b", "2"],
    ]
    assert staging_tables(server) == []


@pytest.mark.long
def test_a_mistake_is_found_before_the_run_with_its_line(
    pipelines: Pipelines, server: PostgresServer
) -> None:
    create_topic(pipelines.bootstrap, "checked")
    produce(pipelines.bootstrap, "checked", [*orders(3, version=1), b'{"name": "no id"}'])
    text = PIPELINE.format(
        trigger="available-now", topic="checked", table="checked", url=server.url,
        folder=pipelines.folder,
    )  # fmt: skip
    with pytest.raises(
        SpecInvalid, match=r"checked.yml:13: sinks.orders: there is no table checked"
    ):
        pipelines.run(pipelines.write("checked.yml", text))
    with pytest.raises(
        SpecInvalid, match=r"checked.yml:16: sinks.orders.keys: there is no column 'no'"
    ):
        pipelines.run(pipelines.write("checked.yml", text.replace("[id]", "[no]")))
    away = text.replace(f":{server.port}/", ":1/")
    with pytest.raises(PipelineFailed, match="the database does not let us in: Connection to"):
        pipelines.run(pipelines.write("checked.yml", away))
    server.query("CREATE TABLE checked (id BIGINT PRIMARY KEY, name TEXT, seq BIGINT)")
    with pytest.raises(
        PipelineFailed, match="sink 'orders': a row has no value for 'id': reject it"
    ):
        pipelines.run(pipelines.write("checked.yml", text))
    assert server.query("SELECT count(*) FROM checked") == [["0"]]


@pytest.mark.long
def test_another_database_gets_rows_by_sparks_own_writer(
    pipelines: Pipelines, spark: SparkSession
) -> None:
    create_topic(pipelines.bootstrap, "others")
    produce(pipelines.bootstrap, "others", orders(3, version=1))
    url = "jdbc:derby:memory:others;create=true"  # of PySpark's jars
    text = PIPELINE.format(
        trigger="available-now", topic="others", table="others", url=url, folder=pipelines.folder
    )
    text = text.replace("    keys: [id]\n    sequence_by: seq\n", "")
    pipelines.run(pipelines.write("others.yml", text))
    assert "own read for orders: jdbc repeats rows" in "\n".join(pipelines.display.lines)
    found = spark.read.jdbc(url, "others", properties={"user": "shop", "password": PASSWORD})
    assert sorted(row["seq"] for row in found.collect()) == [100, 101, 102]


@pytest.mark.thorough
def test_two_runs_of_one_query_write_a_batch_once(
    spark: SparkSession, server: PostgresServer
) -> None:
    added = JdbcTable(spark, target(server.url, "together"))
    added.append_once(rows(spark))
    begin = threading.Barrier(3)

    def run(number: int) -> None:
        begin.wait(60)
        try:
            JdbcTable(spark, target(server.url, "together")).append(
                rows(spark, (number, "a", 1)), writer="same", batch=0
            )
        except JdbcFailed as error:
            assert "zhumq_staging" in str(error) or "zhumq_batches" in str(error)  # noqa: PT017

    with ThreadPoolExecutor() as pool:
        for each in [pool.submit(run, number) for number in range(3)]:
            each.result(200)
    assert server.query("SELECT count(*) FROM together") == [["1"]]

"""The source `jdbc` on real databases: rows as they are added, each range again after a crash, and what is refused."""

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from database_support import (
    PASSWORD,
    PASSWORD_VARIABLE,
    PostgresServer,
    need_drivers,
    postgres_server,
)
from pipeline_support import Pipelines
from pyspark.sql import SparkSession
from spark_support import wait_until

from zhumq.admin.offsets import LATEST
from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.checkpoints import Checkpoints
from zhumq.pipelines.document import SpecInvalid
from zhumq.pipelines.preview import preview
from zhumq.pipelines.resetting import NoSuchBeginning, Resetting
from zhumq.pipelines.spec_reader import load_pipeline
from zhumq.pipelines.stopping import PipelineFailed, StopRequest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SECONDS_MAX = 300.0  # a busy machine takes long to start a query
NO_BROKER = "127.0.0.1:1"
PIPELINE = """\
name: {name}
trigger: {trigger}
sources:
  orders:
    jdbc: {table}
    {more}
    options: {{url: "{url}", user: shop, password: "${{env:ZHUMQ_TEST_DATABASE_PASSWORD}}"}}
steps:
  - {{name: chosen, sql: "{sql}"}}
sinks:
  seen: {{from: chosen, console: 100}}
"""
EVERYTHING = "SELECT * FROM orders"


@pytest.fixture(scope="module", autouse=True)
def drivers() -> None:
    need_drivers()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as started:
        yield started


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)


@pytest.fixture
def pipelines(spark: SparkSession, tmp_path: Path) -> Pipelines:
    return Pipelines(spark, NO_BROKER, tmp_path)


def write(
    pipelines: Pipelines,
    url: str,
    table: str,
    more: str,
    *,
    sql: str = EVERYTHING,
    trigger: str = "available-now",
) -> str:
    name = "".join(each for each in table if each.isalnum())[:20]
    text = PIPELINE.format(name=name, trigger=trigger, table=table, more=more, url=url, sql=sql)
    return pipelines.write(f"{name}.yml", text)


def seen(pipelines: Pipelines) -> list[Any]:
    """The ids that the last run has shown."""
    return sorted(row["id"] for row in pipelines.display.tables.get("seen", []))


@pytest.mark.thorough
def test_rows_are_read_once_as_they_are_added_and_a_repeated_batch_reads_its_range_again(
    pipelines: Pipelines, server: PostgresServer
) -> None:
    server.query(
        "CREATE TABLE growing (id BIGSERIAL PRIMARY KEY, at TIMESTAMP NOT NULL, name TEXT);"
        "INSERT INTO growing (at, name)"
        " SELECT timestamp '2026-01-01 10:00:00.123456', 'n' || n FROM generate_series(1, 7) n"
    )
    file = write(
        pipelines,
        server.url,
        "growing",
        "grows: ID\n    rows_per_batch: 3\n    partitions: 2\n    partition_by: id",
        # Two branches of one source are one read.
        sql="SELECT * FROM orders WHERE id % 2 = 0 UNION ALL SELECT * FROM orders WHERE id % 2 = 1",
    )
    status = pipelines.run(file)
    assert seen(pipelines) == list(range(1, 8))
    assert status.sinks["seen"].batches == 3
    (moment,) = {str(row["at"]) for row in pipelines.display.tables["seen"]}
    assert moment == "2026-01-01 10:00:00.123456"
    # A crash behind the last batch: the same rows again, and the new ones in the next batch.
    folder = pipelines.folder / "state" / "growing" / "checkpoints" / "seen"
    assert '{"column": "ID", "upto": "7"}' in (folder / "offsets" / "2").read_text()
    for each in (folder / "commits").glob("*2*"):
        each.unlink()
    server.query("INSERT INTO growing (at, name) VALUES (now(), 'new')")
    pipelines.run(file)
    assert seen(pipelines) == [7, 8]
    pipelines.run(file)
    assert seen(pipelines) == []
    # A checkpoint of another column is refused.
    Path(file).write_text(Path(file).read_text().replace("grows: ID", "grows: at"))
    with pytest.raises(PipelineFailed, match="how far the column ID was read, and the file has gr"):
        pipelines.run(file)


@pytest.mark.thorough
def test_rows_of_one_time_are_in_one_batch_and_the_newest_are_held_back(
    pipelines: Pipelines, server: PostgresServer
) -> None:
    server.query(
        "CREATE TABLE changes (id INT, updated_at TIMESTAMPTZ);"
        "INSERT INTO changes SELECT n, timestamptz '2026-01-01 10:00:00+02' FROM generate_series(1, 5) n;"
        "INSERT INTO changes VALUES (6, clock_timestamp()), (7, '2026-01-01 11:00:00+02')"
    )
    file = write(
        pipelines,
        server.url,
        "changes",
        "grows: updated_at\n    lag: 1h\n    rows_per_batch: 2\n"
        "    watermark: {column: updated_at, delay: 1 minute}",
        sql="SELECT max(id) AS id, count(*) AS rows FROM orders GROUP BY window(updated_at, '1 minute')",
    )
    pipelines.run(file)
    # State is kept between batches, as of every stream: the first window ends with the second batch.
    assert [(row["id"], row["rows"]) for row in pipelines.display.tables["seen"]] == [(5, 5)]
    offsets = pipelines.folder / "state" / "changes" / "checkpoints" / "seen" / "offsets"
    assert '"upto": "2026-01-01 09:00:00"' in max(offsets.glob("[0-9]*")).read_text()
    server.query("UPDATE changes SET updated_at = '2026-01-01 12:00:00+02' WHERE id = 6")
    pipelines.run(file)
    assert [row["id"] for row in pipelines.display.tables["seen"]] == [7]


@pytest.mark.thorough
def test_sqlite_has_numbers_of_64_bits_and_times_as_texts(pipelines: Pipelines) -> None:
    file = pipelines.folder / "shop.db"
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, at DATETIME)")
        database.execute("INSERT INTO items VALUES (1, '2026-01-01 10:00:00'), (?, NULL)", [2**40])
        database.execute("UPDATE items SET at = datetime('now', '+1 hour') WHERE at IS NULL")
    database.close()
    url = f"jdbc:sqlite:{file}"
    numbers = write(pipelines, url, "SELECT id, at FROM items", "grows: id\n    lag: 10")
    pipelines.run(numbers)
    assert seen(pipelines) == [1]
    times = write(pipelines, url, "items", "grows: at\n    lag: 30s")
    pipelines.run(times)
    assert [row["at"] for row in pipelines.display.tables["seen"]] == ["2026-01-01 10:00:00"]
    whole = write(
        pipelines,
        url,
        "SELECT * FROM items",
        "partitions: 3\n    partition_by: id",
        trigger="batch",
    )
    pipelines.run(whole)
    assert seen(pipelines) == [1, 2**40]


def test_a_mistake_is_found_before_the_run_with_its_line(
    pipelines: Pipelines, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.query(
        "CREATE TABLE typed (id INT, name TEXT, at TIMESTAMP, ratio FLOAT8);"
        "INSERT INTO typed VALUES (1, 'a', NULL, 1)"
    )

    def refusal(table: str, more: str) -> str:
        with pytest.raises(SpecInvalid) as caught:
            pipelines.run(write(pipelines, server.url, table, more))
        return str(caught.value).partition(".yml:")[2]

    assert refusal("nowhere", "grows: id").startswith("5: sources.orders.jdbc: no table nowhere: ")
    assert refusal("SELECT 1 FROM nowhere", "grows: id").startswith(
        "5: sources.orders.jdbc: the query needs a table that is not there: "
    )
    assert "syntax error" in refusal("SELECT id FROM WHERE", "grows: id")
    assert refusal("typed", "grows: nr") == (
        "6: sources.orders.grows: there is no column 'nr'; there are id, name, at, ratio"
    )
    assert refusal("typed", "grows: name").startswith(
        "6: sources.orders.grows: the column name is of the type text: a column that grows holds"
    )
    assert "is of the type float8" in refusal("typed", "grows: ratio")
    assert "typed has rows without a value in at" in refusal("typed", "grows: at")
    assert "holds numbers, so `lag` is a number" in refusal("typed", "grows: id\n    lag: 5s")
    assert "holds times, so `lag` is a time" in refusal(
        "SELECT * FROM typed WHERE at IS NOT NULL", "grows: at\n    lag: 5"
    )
    assert "there is no column 'nr'" in refusal(
        "typed", "grows: id\n    partitions: 2\n    partition_by: nr"
    )
    monkeypatch.setenv(PASSWORD_VARIABLE, "a-wrong-secret")
    with pytest.raises(PipelineFailed, match=r"^source orders: .* authentication failed") as caught:
        pipelines.run(write(pipelines, server.url, "typed", "grows: id"))
    assert "a-wrong-secret" not in str(caught.value)


@pytest.mark.long
def test_a_table_that_begins_anew_ends_the_run_and_one_that_goes_away_is_named(
    pipelines: Pipelines, server: PostgresServer
) -> None:
    server.query(
        "CREATE TABLE anew (id BIGSERIAL, name TEXT);"
        "INSERT INTO anew (name) SELECT 'n' FROM generate_series(1, 5)"
    )
    file = write(pipelines, server.url, "anew", "grows: id")
    pipelines.run(file)
    server.query("TRUNCATE anew RESTART IDENTITY; INSERT INTO anew (name) VALUES ('again')")
    with pytest.raises(
        PipelineFailed,
        match="sink seen: source orders: anew ends at id 1, and rows up to 5 were read: if it was",
    ):
        pipelines.run(file)
    text = Path(file).read_text().replace("grows: id", "grows: id\n    may_shrink: true")
    Path(file).write_text(text)
    pipelines.run(file)
    assert seen(pipelines) == []
    server.query("INSERT INTO anew VALUES (6, 'behind')")
    # A run that goes on sees new rows, and the end of the table.
    Path(file).write_text(text.replace("available-now", "500ms"))
    failures: list[BaseException] = []
    stop = StopRequest()

    def run() -> None:
        try:
            pipelines.run(file, stop=stop)
        except PipelineFailed as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(lambda: seen(pipelines) == [6], "the run reads the row", seconds=SECONDS_MAX)
        server.query("INSERT INTO anew VALUES (7, 'next')")
        wait_until(
            lambda: seen(pipelines) == [6, 7], "the run reads the next row", seconds=SECONDS_MAX
        )
        server.query("DROP TABLE anew")
        wait_until(lambda: not thread.is_alive(), "the run fails", seconds=SECONDS_MAX)
    finally:
        stop.ask()
        thread.join(SECONDS_MAX)
    (failure,) = failures
    assert "sink seen: source orders: no table anew: " in str(failure)


@pytest.mark.thorough
def test_a_preview_a_reset_and_a_table_that_is_read_whole(
    pipelines: Pipelines, server: PostgresServer, spark: SparkSession
) -> None:
    server.query(
        "CREATE TABLE sold (id BIGINT PRIMARY KEY, item INT NOT NULL);"
        "CREATE TABLE items (item INT, name TEXT);"
        "INSERT INTO sold VALUES (1, 1), (2, 2); INSERT INTO items VALUES (1, 'tea'), (2, 'cup')"
    )
    login = f"{{url: '{server.url}', user: shop, password: '${{env:{PASSWORD_VARIABLE}}}'}}"
    file = pipelines.write(
        "sold.yml",
        f"name: sold\nsources:\n  sold: {{jdbc: sold, grows: id, options: {login}}}\n"
        f"  items: {{jdbc: items, options: {login}}}\n"
        "steps: [{name: named, sql: 'SELECT id, name FROM sold JOIN items USING (item)'}]\n"
        "sinks:\n  seen: {from: named, console: 10}\n  kept: {from: named, table: KEPT}\n".replace(
            "KEPT", str(pipelines.folder / "kept")
        ),
    )
    pipeline = load_pipeline(Path(file))
    brokers = Brokers(bootstrap=NO_BROKER, settings={})
    parts = {each.name: each for each in preview(spark, pipeline, brokers, rows=5, records=5)}
    assert [row["name"] for row in parts["named"].rows] == ["tea", "cup"]
    assert parts["kept"].read == "reads on its own: reads the rows of sold"
    for _ in range(2):
        pipelines.run(file)
    kept = spark.read.parquet(str(pipelines.folder / "kept"))
    assert sorted((row["id"], row["name"]) for row in kept.collect()) == [(1, "tea"), (2, "cup")]
    resetting = Resetting(
        spark=spark,
        pipeline=pipeline,
        brokers=brokers,
        checkpoints=Checkpoints(spark, str(pipelines.folder / "state" / "sold" / "checkpoints")),
    )
    with pytest.raises(NoSuchBeginning, match="a reset reads all rows of sold again"):
        resetting.plan(["seen"], LATEST)
    plan = resetting.plan(["seen"], None)
    assert plan.sinks[0].words().startswith("seen: all rows that are in sold are read again; it ")
    resetting.carry_out(plan)
    pipelines.run(file)
    assert seen(pipelines) == [1, 2]


@pytest.mark.long
def test_a_stream_outlives_a_database_that_dies_and_returns(
    pipelines: Pipelines, server: PostgresServer
) -> None:
    server.query("CREATE TABLE dies (id BIGSERIAL PRIMARY KEY); CREATE TABLE copied (id BIGINT)")
    server.query("INSERT INTO dies DEFAULT VALUES")
    login = f"{{url: '{server.url}', user: shop, password: '${{env:{PASSWORD_VARIABLE}}}'}}"
    file = pipelines.write(
        "dies.yml",
        f"name: dies\ntrigger: 200ms\nsources:\n  rows: {{jdbc: dies, grows: id, options: {login}}}\n"
        f"sinks:\n  copied: {{from: rows, table: copied, format: jdbc, options: {login}}}\n",
    )
    stop, failures = StopRequest(), []

    def run() -> None:
        try:
            pipelines.run(file, stop=stop, tries=30)
        except Exception as error:
            failures.append(error)

    def copied() -> list[str]:
        return [row[0] for row in server.query("SELECT id FROM copied ORDER BY id")]

    def waits() -> bool:
        return any("sink copied failed" in each for each in pipelines.display.lines)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        for number in range(2, 4):
            wait_until(
                lambda number=number: len(copied()) == number - 1,  # type: ignore[misc]
                "the rows are copied",
                seconds=SECONDS_MAX,
            )
            pipelines.display.lines.clear()
            server.stop()
            wait_until(waits, "the sink fails", seconds=SECONDS_MAX)
            server.start()
            server.query("INSERT INTO dies DEFAULT VALUES")
        wait_until(lambda: len(copied()) >= 3, "it goes on", seconds=SECONDS_MAX)
        assert thread.is_alive()
    finally:
        stop.ask()
        thread.join(SECONDS_MAX)
    assert failures == []
    rows = [row[0] for row in server.query("SELECT id FROM dies ORDER BY id")]
    assert copied() == rows
    printed = " ".join(pipelines.display.lines)
    assert "sink copied failed" in printed
    assert PASSWORD not in printed

"""Topics as tables: schemas, archives, queries while both move, results, and the notebook."""

import io
import json
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import fastavro
import pyarrow.parquet
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from spark_support import create_topic, delete_topic, produce

import zhumq
import zhumq.spark
from zhumq.admin.schemas import register_schema
from zhumq.cli.sql import ResultFormat
from zhumq.cli.sql_run import SqlOptions, SqlShell
from zhumq.pipelines.archive import ArchiveTable
from zhumq.pipelines.brokers import Brokers
from zhumq.schemas.schema import Reference, SchemaType
from zhumq.sql.attached import TopicTables
from zhumq.sql.boundary import ArchiveAhead, ArchiveGap
from zhumq.sql.catalog import Archives
from zhumq.sql.rows import ArchiveUnusable
from zhumq.sql.statements import SqlFailed
from zhumq.testing.broker import RunningBroker, broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

REPOSITORY = Path(__file__).resolve().parents[3]
NOTEBOOK = REPOSITORY / "examples" / "notebooks" / "orders.ipynb"
HOUR_MS = 3_600_000
ORDER = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "key": {"type": "string"}},
}


@pytest.fixture(scope="module")
def running(spark: SparkSession) -> Iterator[RunningBroker]:
    # Spark first: its workers are forked, and gRPC of a broker in this process has threads.
    with broker(settings={"log.retention.ms": "-1"}) as started:
        yield started


@pytest.fixture(scope="module")
def orders(running: RunningBroker) -> str:
    """Twelve orders an hour apart in two partitions, a message that is none, and one without a value."""
    now_ms = int(time.time() * 1000)
    create_topic(running.bootstrap, "orders", 2)
    with zhumq.Admin(running.bootstrap) as admin:
        register_schema(admin, "orders-value", json.dumps(ORDER), type_=SchemaType.JSON)
    for partition in (0, 1):
        values = [json.dumps({"id": 10 * partition + each}).encode() for each in range(6)]
        produce(
            running.bootstrap, "orders", values, partition=partition,
            timestamp=lambda index, base=partition: now_ms - (6 - index + 6 * base) * HOUR_MS,
        )  # fmt: skip
    framed = b"\0\0\0\0\1" + json.dumps({"id": 99, "key": "a key"}).encode()
    produce(running.bootstrap, "orders", [framed, b"{", None], timestamp=lambda _: now_ms)  # type: ignore[list-item]
    return "orders"


def tables_of(spark: SparkSession, running: RunningBroker, **archives: str) -> TopicTables:
    return TopicTables(spark, Brokers(bootstrap=running.bootstrap), Archives(paths=archives))


def test_a_topic_with_a_schema_has_its_fields(
    spark: SparkSession, running: RunningBroker, orders: str
) -> None:
    tables = tables_of(spark, running)
    rows = tables.sql("SELECT * FROM orders WHERE partition = 0 ORDER BY offset").collect()
    # A column of the record that a field hides has another name.
    assert rows[0].__fields__ == [
        "id", "key", "_record_key", "partition", "offset", "timestamp", "headers", "_error",
    ]  # fmt: skip
    assert [row["id"] for row in rows] == [*range(6), 99, None, None]
    assert rows[6]["key"] == "a key"
    assert [row["_error"] for row in rows[6:]] == [None, "not JSON of the given schema", None]


def test_a_schema_that_refers_to_another_subject_has_its_fields(
    spark: SparkSession, running: RunningBroker
) -> None:
    address = {"type": "object", "properties": {"city": {"type": "string"}}}
    parcel = {"type": "object", "properties": {"id": {"type": "integer"}, "to": {"$ref": "address.json"}}}  # fmt: skip
    with zhumq.Admin(running.bootstrap) as admin:
        register_schema(admin, "addresses", json.dumps(address), type_=SchemaType.JSON)
        uses = [Reference(name="address.json", subject="addresses", version=1)]
        register_schema(
            admin, "parcels-value", json.dumps(parcel), type_=SchemaType.JSON, references=uses
        )
    create_topic(running.bootstrap, "parcels", 1)
    produce(running.bootstrap, "parcels", [b'{"id": 1, "to": {"city": "Oslo"}}'])
    found = tables_of(spark, running).sql("SELECT id, to.city FROM parcels WHERE to.city = 'Oslo'")
    assert [tuple(row) for row in found.collect()] == [(1, "Oslo")]


@pytest.mark.thorough
def test_avro_of_two_versions_is_read_by_the_newest_also_from_the_archive(
    spark: SparkSession, running: RunningBroker, tmp_path: Path
) -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": "-"}]
    create_topic(running.bootstrap, "bills", 1)
    messages = []
    with zhumq.Admin(running.bootstrap) as admin:
        for count, row in ((1, {"id": 1}), (2, {"id": 2, "note": "new"})):
            schema = {"type": "record", "name": "Bill", "fields": fields[:count]}
            made = register_schema(admin, "bills-value", json.dumps(schema))
            buffer = io.BytesIO(struct.pack(">BI", 0, made.id))
            buffer.seek(0, io.SEEK_END)
            fastavro.schemaless_writer(buffer, schema, row)
            messages.append(buffer.getvalue())
    produce(running.bootstrap, "bills", messages[:1])
    archive = ArchiveTable(spark, str(tmp_path / "bills"))
    options = {"kafka.bootstrap.servers": running.bootstrap, "subscribe": "bills"}
    archive.add(spark.read.format("zhumq").options(**options).load(), query="q", batch=0)
    produce(running.bootstrap, "bills", messages[1:])
    found = tables_of(spark, running, bills=archive.path).sql("SELECT id, note, _error FROM bills")
    assert sorted(map(tuple, found.collect())) == [(1, "-", None), (2, "new", None)]


def test_a_time_becomes_an_offset_unless_a_table_is_read_twice(
    spark: SparkSession, running: RunningBroker, orders: str
) -> None:
    tables = tables_of(spark, running)
    recent = "SELECT id FROM orders WHERE timestamp > now() - interval 150 minutes"
    rows = tables.sql(recent)
    # Partition 1 has no record that is so young: it is not read.
    assert rows.rdd.getNumPartitions() == 1
    assert sorted(row["id"] for row in rows.where("id IS NOT NULL").collect()) == [4, 5, 99]
    assert tables.sql("SELECT id FROM orders").rdd.getNumPartitions() == 2
    both = tables.sql(f"WITH new AS ({recent}) SELECT count(o.id) FROM orders o LEFT JOIN new USING (id)")  # fmt: skip
    assert both.collect()[0][0] == 13


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT * FROM ordrs", "there is no table 'ordrs': did you mean orders?"),
        ("SELECT *\nFROM orders WHRE id = 1", "line 2, column 18, at 'id = 1': syntax error"),
        ("SELECT idd FROM orders", "line 1, column 8, at 'idd FROM orders': there is no column"),
    ],
)
def test_a_mistake_points_at_its_place(
    spark: SparkSession, running: RunningBroker, orders: str, query: str, words: str
) -> None:
    with pytest.raises(SqlFailed) as raised:
        tables_of(spark, running).sql(query)
    assert str(raised.value).startswith(words)


class Moving:
    """A topic, its archive, and the list of everything that was ever sent."""

    def __init__(
        self, spark: SparkSession, running: RunningBroker, topic: str, table: Path
    ) -> None:
        self.spark, self.topic, self.bootstrap = spark, topic, running.bootstrap
        self.archive = ArchiveTable(spark, str(table), partition_by=("topic",))
        self.tables = tables_of(spark, running, **{topic: str(table)})
        self.sent: list[tuple[int, int, bytes]] = []
        self.batch = 0
        create_topic(self.bootstrap, topic, 2)

    def ends(self) -> list[int]:
        return [sum(place == each for place, _, _ in self.sent) for each in (0, 1)]

    def archived(self) -> list[int]:
        ends = self.archive.next_offsets().get(self.topic, {})
        return [ends.get(str(each), 0) for each in (0, 1)]

    def produce(self, count: int) -> None:
        for partition in (0, 1):
            first = self.ends()[partition]
            values = [b"%d-%d" % (partition, first + each) for each in range(count + partition)]
            produce(self.bootstrap, self.topic, values, partition=partition)
            self.sent += [(partition, first + each, value) for each, value in enumerate(values)]

    def move_on(self, percent: int) -> None:
        """Archive a part of what is not archived, and delete from the topic what the archive had before."""
        before, ends = self.archived(), self.ends()
        until = [old + (new - old) * percent // 100 for old, new in zip(before, ends, strict=True)]
        options = {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": self.topic,
            "startingOffsets": json.dumps({self.topic: {"0": before[0], "1": before[1]}}),
            "endingOffsets": json.dumps({self.topic: {"0": until[0], "1": until[1]}}),
        }
        self.archive.add(
            self.spark.read.format("zhumq").options(**options).load(), query="q", batch=self.batch
        )
        self.batch += 1
        self.delete(before)

    def delete(self, until: list[int]) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        places = [TopicPartition(self.topic, number, end) for number, end in enumerate(until)]
        for future in admin.delete_records(places).values():
            future.result(30)

    def query(self, meanwhile: Callable[[], None]) -> list[tuple[int, int, bytes]]:
        """What a query finds while the topic and the archive move on between its plan and its rows."""
        moves = [meanwhile]

        def rows(found: DataFrame) -> list[tuple[int, int, bytes]]:
            if moves:
                moves.pop()()
            return sorted((row[0], row[1], bytes(row[2])) for row in found.collect())

        return self.tables.run(f"SELECT partition, offset, value FROM `{self.topic}`", rows)


STEPS = st.lists(
    st.tuples(st.integers(0, 20), st.sampled_from([0, 40, 100]), st.sampled_from(["", "on", "gone"])),
    min_size=1, max_size=2,
)  # fmt: skip


@pytest.mark.thorough
def test_queries_see_each_offset_once_while_topic_and_archive_move(
    spark: SparkSession, running: RunningBroker, tmp_path: Path
) -> None:
    runs = 0

    @settings(
        max_examples=2, deadline=None, phases=[Phase.explicit, Phase.generate], database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(steps=STEPS)
    @example(steps=[(7, 40, "on"), (5, 40, "gone")])  # "gone" needs a second decision
    def check(steps: list[tuple[int, int, str]]) -> None:
        nonlocal runs
        runs += 1
        moving = Moving(spark, running, f"moving.{runs}", tmp_path / str(runs))
        for count, percent, meanwhile in steps:
            moving.produce(count)
            moving.move_on(percent)
            before = sorted(moving.sent)

            def move(how: str = meanwhile) -> None:
                if how:
                    moving.move_on(100)
                if how == "gone":  # Also what the query was going to read from the topic.
                    moving.delete(moving.archived())

            assert moving.query(move) == before

    check()


def test_what_is_in_neither_is_an_error_or_left_out(
    spark: SparkSession, running: RunningBroker, orders: str, tmp_path: Path
) -> None:
    moving = Moving(spark, running, "gap", tmp_path / "gap")
    with pytest.raises(ArchiveUnusable, match="is no archive"):
        moving.tables.frame("gap")
    moving.produce(4)
    moving.move_on(50)
    moving.delete([3, 2])
    with pytest.raises(ArchiveGap, match=r"gap-0 has a gap: the archive ends at offset 2,"):
        moving.tables.frame("gap")
    brokers, archives = Brokers(bootstrap=running.bootstrap), Archives(folder=str(tmp_path))
    lenient = TopicTables(spark, brokers, archives, allows_gaps=True)
    found = lenient.frame("gap").groupBy("partition").agg(F.count("*")).collect()
    assert sorted(map(tuple, found)) == [(0, 3), (1, 5)]
    assert lenient.archive_of("gap") == str(tmp_path / "gap")
    assert lenient.archive_of("orders") is None
    delete_topic(running.bootstrap, "gap")
    create_topic(running.bootstrap, "gap", 2)
    with pytest.raises(ArchiveAhead, match="created again"):
        lenient.frame("gap")
    with pytest.raises(ArchiveUnusable, match="is an archive of gap, not of orders"):
        tables_of(spark, running, orders=str(tmp_path / "gap")).frame("orders")


def test_results_are_printed_and_written(
    spark: SparkSession,
    running: RunningBroker,
    orders: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def printed(statement: str, format_: ResultFormat, output: Path | None = None) -> str:
        options = SqlOptions(
            bootstrap=running.bootstrap, security={}, master="local[2]", archive_paths={},
            archives_folder=str(tmp_path), allows_gaps=False, format=format_, output=output, limit=2,
        )  # fmt: skip
        SqlShell(tables_of(spark, running), options).execute(statement)
        return capsys.readouterr().out

    rows = "SELECT 'a' AS name, 2 AS n, timestamp '2026-01-02 03:04:05' AS t, array(1) AS l"
    assert printed(rows, ResultFormat.TABLE).split() == [
        "name", "n", "t", "l", "a", "2", "2026-01-02", "03:04:05", "[1]",
    ]  # fmt: skip
    assert json.loads(printed(rows, ResultFormat.JSON)) == [
        {"name": "a", "n": 2, "t": "2026-01-02 03:04:05", "l": [1]}
    ]
    assert json.loads(printed("SELECT 1 AS a WHERE false", ResultFormat.JSON)) == []
    assert printed(rows, ResultFormat.CSV) == "name,n,t,l\na,2,2026-01-02 03:04:05,[1]\n"
    assert "█ 2" in printed("SELECT 'a', 2 AS n", ResultFormat.CHART)
    listed = json.loads(printed("SHOW TABLES", ResultFormat.JSON))
    assert {"table": "orders", "partitions": 2, "schema": "JSON", "archive": None} in listed  # fmt: skip
    assert "bigint" in printed("DESCRIBE orders", ResultFormat.TABLE)
    printed("SELECT 1 AS a", ResultFormat.PARQUET, tmp_path / "out")
    assert pyarrow.parquet.read_table(tmp_path / "out").to_pylist() == [{"a": 1}]
    printed("SELECT x'00ff' AS a", ResultFormat.JSON, tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text()) == [{"a": "0x00ff"}]


def test_the_notebook_runs(
    spark: SparkSession, running: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cells are plain Python, so they need no kernel: they run in the order of the file."""
    monkeypatch.setenv("ZHUMQ_BOOTSTRAP", running.bootstrap)
    notebook = json.loads(NOTEBOOK.read_text())
    names: dict[str, Any] = {}
    ran = 0
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
            ran += 1
    assert ran >= 4
    with pytest.raises(AttributeError, match="no attribute 'detach'"):
        _ = zhumq.spark.detach

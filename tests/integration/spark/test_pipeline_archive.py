"""Archive, audit and replay on real Spark: every record once, and the audit proves it."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow.dataset
import pyarrow.parquet
from pipeline_support import Pipelines, read_topic
from pyspark.sql import DataFrame, SparkSession
from spark_support import create_topic, delete_topic, produce

from zhumq.pipelines.archive import STATE_FOLDER, ArchiveFailed, ArchiveTable
from zhumq.pipelines.folder import Folder
from zhumq.pipelines.runner import RowsFound
from zhumq.pipelines.status import State
from zhumq.pipelines.stopping import PipelineFailed
from zhumq.testing.broker import RunningBroker, broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COLUMNS = "topic STRING, partition INT, offset BIGINT, value STRING"


class Killed(BaseException):
    """Stands for kill -9: nothing in the code under test catches it."""


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(settings={"log.retention.ms": "-1"}) as started:
        yield started


@pytest.fixture
def pipelines(spark: SparkSession, running: RunningBroker, tmp_path: Path) -> Pipelines:
    return Pipelines(spark, running.bootstrap, tmp_path)


def records(spark: SparkSession, first: int, until: int, topic: str = "t") -> DataFrame:
    rows = [(topic, number % 2, number // 2, f"v{number}") for number in range(first, until)]
    return spark.createDataFrame(rows, COLUMNS).repartition(3)


def values_in(table: Path) -> list[str]:
    """The values of a table, read without Spark and without the archive's code."""
    found = pyarrow.dataset.dataset(str(table), format="parquet", partitioning="hive")
    return sorted(found.to_table(columns=["value"]).column("value").to_pylist())


def expected(first: int, until: int) -> list[str]:
    return sorted(f"v{number}" for number in range(first, until))


def test_a_batch_that_is_run_again_is_in_the_table_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = ArchiveTable(spark, str(tmp_path / "t"), partition_by=("topic",))
    assert table.add(records(spark, 0, 20), query="q", batch=0) == 20
    assert table.add(records(spark, 0, 20), query="q", batch=0) == 0
    assert table.add(records(spark, 20, 20), query="q", batch=1) == 0
    assert table.add(records(spark, 20, 30), query="q", batch=2) == 10
    assert values_in(tmp_path / "t") == expected(0, 30)
    assert table.next_offsets() == {"t": {"0": 15, "1": 15}}
    assert not (tmp_path / "t" / STATE_FOLDER / "staging" / "q").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("place", ["first move", "second move", "state", "cleaning up"])
def test_a_kill_at_any_moment_leaves_every_row_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    folder = tmp_path / "t"
    table = ArchiveTable(spark, str(folder), partition_by=("topic",))
    table.add(records(spark, 0, 20), query="q", batch=0)
    moves = 0

    def move(self: Folder, source: str, target: str) -> None:
        nonlocal moves
        moves += 1
        if place == ("first move", "second move")[min(moves, 2) - 1]:
            raise Killed
        real_move(self, source, target)

    def write(self: Folder, name: str, document: object) -> None:
        if place == "state" and name.endswith(".state.json"):
            raise Killed
        real_write(self, name, document)

    def remove(self: Folder, name: str) -> None:
        if place == "cleaning up" and moves:
            raise Killed
        real_remove(self, name)

    real_move, real_write, real_remove = Folder.move, Folder.write_document, Folder.remove
    with monkeypatch.context() as patch:
        patch.setattr(Folder, "move", move)
        patch.setattr(Folder, "write_document", write)
        patch.setattr(Folder, "remove", remove)
        with pytest.raises(Killed):
            table.add(records(spark, 20, 40), query="q", batch=1)
    assert moves
    # No row is in the table twice; part of the batch may be in it already.
    seen = values_in(folder)
    assert len(seen) == len(set(seen))
    again = ArchiveTable(spark, str(folder), partition_by=("topic",))
    again.add(records(spark, 20, 40), query="q", batch=1)
    again.add(records(spark, 40, 50), query="q", batch=2)
    assert values_in(folder) == expected(0, 50)
    assert not list(folder.rglob("*.moves.json"))


@pytest.mark.thorough
def test_a_new_checkpoint_adds_only_what_is_not_in_the_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = ArchiveTable(spark, str(tmp_path / "t"))
    table.add(records(spark, 0, 20), query="first", batch=0)
    assert table.add(records(spark, 0, 30), query="second", batch=0) == 10
    assert table.add(records(spark, 30, 40), query="second", batch=1) == 10
    assert values_in(tmp_path / "t") == expected(0, 40)


def test_a_new_checkpoint_is_refused_where_rows_have_no_offsets(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = ArchiveTable(spark, str(tmp_path / "t"))
    counts = spark.createDataFrame([("a", 1)], "name STRING, n INT")
    table.add(counts, query="first", batch=0)
    with pytest.raises(ArchiveFailed, match="was filled by a query with another checkpoint"):
        table.add(counts, query="second", batch=0)


def test_a_topic_that_was_made_anew_is_not_mixed_with_the_old_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = ArchiveTable(spark, str(tmp_path / "t"))
    table.add(records(spark, 0, 20), query="q", batch=0)
    with pytest.raises(ArchiveFailed, match=r"t-\d begins again at offset 0"):
        table.add(records(spark, 0, 4), query="q", batch=1)
    assert values_in(tmp_path / "t") == expected(0, 20)


def fill(bootstrap: str, topic: str, count: int, first: int = 0) -> None:
    for partition in range(2):
        produce(
            bootstrap,
            topic,
            (b"%d" % number for number in range(first, first + count)),
            partition=partition,
            compression="zstd" if partition else "none",
            timestamp=lambda index: 1_700_000_000_000 + 1000 * index,
        )


def audit(pipelines: Pipelines, **values: str) -> list[dict[str, Any]]:
    """The findings of the audit."""
    report = pipelines.folder / "report.json"
    found = ""
    try:
        pipelines.run("audit", **values, report=str(report))
    except RowsFound as error:
        found = str(error)
    written: list[dict[str, Any]] = json.loads(report.read_text())
    assert bool(found) == bool(written)
    if written:
        first = ", ".join(f"{name} {value}" for name, value in written[0].items())
        assert first in found
    return written


def finding(kind: str, partition: int, first: int, last: int | None = None) -> dict[str, Any]:
    until = first if last is None else last
    return {
        "kind": kind, "topic": "orders", "partition": partition, "first_offset": first,
        "last_offset": until, "offsets": until - first + 1,
    }  # fmt: skip


def rewrite(table: Path, partition: int, change: Callable[[list[Any]], list[Any]]) -> None:
    """Edit the rows of a partition by hand, to be found by the audit."""
    for path in table.rglob("*.parquet"):
        rows = pyarrow.parquet.read_table(path)
        if rows.column("partition")[0].as_py() == partition and rows.num_rows >= 5:
            changed = pyarrow.Table.from_pylist(change(rows.to_pylist()), schema=rows.schema)
            pyarrow.parquet.write_table(changed, path)
            # With the checksum file, Hadoop would see the damage before the audit does.
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
            return
    raise AssertionError(partition)


@pytest.mark.thorough
def test_the_archive_goes_on_where_it_was_and_the_audit_says_what_is_wrong(
    pipelines: Pipelines,
) -> None:
    create_topic(pipelines.bootstrap, "orders", 2)
    fill(pipelines.bootstrap, "orders", 300)
    table = pipelines.folder / "orders"
    values = {"topic": "orders", "table": str(table)}
    first = pipelines.run("archive", **values, rows_per_batch="250")
    assert (first.state, first.sinks["archive"].rows_out) == (State.DONE, 600)
    assert (first.sinks["archive"].batches, first.sinks["archive"].lag) == (3, 0)
    fill(pipelines.bootstrap, "orders", 50, first=300)
    behind = [finding("lag", 0, 300, 349), finding("lag", 1, 300, 349)]
    assert audit(pipelines, **values) == behind
    assert audit(pipelines, **values, lag_max="50") == []
    second = pipelines.run("archive", **values)
    assert second.sinks["archive"].rows_out == 100
    rows = pyarrow.dataset.dataset(str(table), format="parquet", partitioning="hive").to_table()
    assert rows.num_rows == 700
    assert set(rows.column_names) == {
        "topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers", "date",
    }  # fmt: skip
    assert audit(pipelines, **values) == []
    shown = pipelines.display.tables["partitions"]
    assert [(row["records"], row["archived"], row["missing"]) for row in shown] == [
        (350, 350, 0)
    ] * 2

    edited: dict[str, int] = {}

    def edit(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        edited["missing"] = rows.pop(4)["offset"]
        edited["twice"] = rows[2]["offset"]
        edited["different"] = rows[0]["offset"]
        rows[0]["headers"] = None
        return [*rows, rows[2]]

    rewrite(table, 1, edit)
    assert audit(pipelines, **values) == [
        finding(kind, 1, edited[kind]) for kind in ("different", "missing", "twice")
    ]


@pytest.mark.thorough
def test_a_replay_keeps_order_keys_headers_and_times(pipelines: Pipelines) -> None:
    create_topic(pipelines.bootstrap, "first", 2)
    create_topic(pipelines.bootstrap, "again", 2)
    fill(pipelines.bootstrap, "first", 40)
    table = str(pipelines.folder / "first")
    pipelines.run("archive", topic="first", table=table)
    status = pipelines.run(
        "replay", table=table, topic="first", target="again",
        from_time="2023-11-14 22:13:30", until_offset="35", where="partition = 1", rate="500",
    )  # fmt: skip
    assert status.sinks["target"].rows_out == 25
    sent = {
        message.value(): message
        for message in read_topic(pipelines.bootstrap, "first")
        if message.partition() == 1
    }
    got = read_topic(pipelines.bootstrap, "again")
    assert sorted(int(message.value() or b"") for message in got) == list(range(10, 35))
    for message in got:
        original = sent[message.value()]
        assert message.key() == original.key()
        assert message.headers() == original.headers()
        assert message.timestamp() == original.timestamp()
    for partition in range(2):
        order = [int(each.value() or b"") for each in got if each.partition() == partition]
        assert order == sorted(order)


@pytest.mark.thorough
def test_a_topic_that_was_created_again_stops_the_archive_with_a_clear_error(
    pipelines: Pipelines,
) -> None:
    create_topic(pipelines.bootstrap, "renewed", 2)
    fill(pipelines.bootstrap, "renewed", 10)
    values = {"topic": "renewed", "table": str(pipelines.folder / "renewed")}
    pipelines.run("archive", **values)
    delete_topic(pipelines.bootstrap, "renewed")
    create_topic(pipelines.bootstrap, "renewed", 2)
    fill(pipelines.bootstrap, "renewed", 3)
    with pytest.raises(
        PipelineFailed, match="sink archive: the topic renewed was deleted and created again"
    ):
        pipelines.run("archive", **values)
    assert pipelines.last_status("archive-renewed").state is State.FAILED

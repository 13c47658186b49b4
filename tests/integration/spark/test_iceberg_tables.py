"""Iceberg tables that zhumq writes without a jar: each batch once, and the same rows for PyIceberg's own scan."""

import datetime as dt
import decimal
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")

import pyarrow.parquet as pq
from iceberg_support import TABLE, catalog_in, options_of, rows_in, table_in, target_in
from pyiceberg import types as ice
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from zhumq.pipelines import iceberg_files, iceberg_table
from zhumq.pipelines.folder import Folder
from zhumq.pipelines.iceberg_spec import IcebergFailed, IcebergTarget, IcebergUnreachable
from zhumq.pipelines.iceberg_table import IcebergTable

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

UTC = dt.UTC
FLAT = (
    "id BIGINT, small SMALLINT, number INT, share DOUBLE, part FLOAT, price DECIMAL(12,2), total DECIMAL(30,4),"
    " name STRING, raw BINARY, good BOOLEAN, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ,"
    " place STRUCT<city: STRING, at: STRUCT<x: INT, y: DOUBLE>>"
)
FLAT_ROWS: list[tuple[Any, ...]] = [
    (
        2**62, 7, -5, 0.1, 0.5, decimal.Decimal("12345678.90"), decimal.Decimal("-12345678901234567890.1234"),
        "Kyōto ' \" \n", b"\x00\xff", True, dt.date(2026, 1, 2),
        dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC).replace(tzinfo=None), ("Rome", (1, -2.5)),
    ),
    (
        -(2**62), -7, 5, float("inf"), -0.5, decimal.Decimal("-0.01"), decimal.Decimal("0.0000"),
        "", b"", False, dt.date(1901, 12, 31),
        dt.datetime(1901, 12, 31, 23, 59, 59, 1, tzinfo=UTC),
        dt.datetime(1901, 12, 31, 23, 59, 59, 1, tzinfo=UTC).replace(tzinfo=None), ("", None),
    ),
    (3, *(None,) * 13),
]  # fmt: skip
NESTED = "id BIGINT, tags MAP<STRING, INT>, items ARRAY<STRUCT<sku: STRING, n: INT>>, deep ARRAY<ARRAY<LONG>>"
NESTED_ROWS: list[tuple[Any, ...]] = [
    (1, {"a": 1, "b": None}, [("x", 1), (None, 2), None], [[1, 2], [], None]),
    (2, {}, [], []),
    (3, None, None, None),
]


def as_row(value: Any) -> Any:
    """A value of PyArrow's as a test writes it: structs and maps as tuples and dictionaries."""
    if isinstance(value, dict):
        return tuple(as_row(each) for each in value.values())
    if isinstance(value, list):
        if value and all(isinstance(each, tuple) for each in value):
            return {key: as_row(each) for key, each in value}
        return [as_row(each) for each in value]
    return value


def found_in(folder: Path) -> list[tuple[Any, ...]]:
    rows = [tuple(as_row(each) for each in row.values()) for row in rows_in(folder)]
    return sorted(rows, key=lambda row: row[0])


def sent(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda row: row[0])


def ids_of(schema: Any) -> set[str | None]:
    return {(each.metadata or {}).get(b"PARQUET:field_id", b"none").decode() for each in schema}


def files_of(folder: Path) -> list[Path]:
    return [Path(each.file.file_path[7:]) for each in table_in(folder).scan().plan_files()]


@pytest.mark.thorough
def test_each_row_is_there_with_its_types_and_a_repeated_batch_is_in_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = IcebergTable(spark, target_in(tmp_path))
    rows = spark.createDataFrame(FLAT_ROWS, FLAT).coalesce(1)
    assert not table.has(query="q", batch=0)
    assert table.append(rows, query="q", batch=0) == 3
    assert table.append(rows, query="q", batch=0) == 0
    assert table.has(query="q", batch=0)
    assert not table.has(query="q", batch=1)
    assert found_in(tmp_path) == sent(FLAT_ROWS)
    # Readers find the columns by their ids, whatever they are called later.
    (file,) = files_of(tmp_path)
    assert ids_of(pq.read_schema(file)) == {str(each) for each in range(1, 15)}
    # The statistics are those of the rows: a scan that leaves out files by them finds the same.
    assert [row["id"] for row in rows_in(tmp_path, row_filter="price > 12345678")] == [2**62]
    assert [row["id"] for row in rows_in(tmp_path, row_filter="total < 0")] == [2**62]
    assert [row["id"] for row in rows_in(tmp_path, row_filter="name = ''")] == [-(2**62)]
    assert not rows_in(tmp_path, row_filter="at > '2026-01-03T00:00:00+00:00'")
    # Rows of the query in another batch, none at all, and those of another query.
    assert table.append(rows.limit(0), query="q", batch=1) == 0
    assert table.has(query="q", batch=1)
    assert table.append(rows.limit(1), query="r", batch=0) == 1
    assert len(rows_in(tmp_path)) == 4
    summaries = [each.summary for each in table_in(tmp_path).snapshots()]
    named = [(each["zhumq.query"], each["zhumq.batch"]) for each in summaries if each is not None]
    assert named == [("q", "0"), ("q", "1"), ("r", "0")]


def test_arrays_and_maps_are_there_by_the_mapping_of_their_names(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = IcebergTable(spark, target_in(tmp_path))
    rows = spark.createDataFrame(NESTED_ROWS, NESTED).coalesce(1)
    assert table.append(rows, query="q", batch=0) == 3
    (file,) = files_of(tmp_path)
    written = pq.read_table(file)
    # PyArrow gives a map as a list of pairs.
    assert [tuple(map(as_row, row.values())) for row in written.to_pylist()] == [
        tuple([] if each == {} else each for each in row) for row in NESTED_ROWS
    ]
    # PyIceberg reads an array of structs that is null as an empty one, also where it has written it itself.
    catalog = catalog_in(tmp_path)
    catalog.create_table("shop.theirs", table_in(tmp_path).schema()).append(written)
    catalog.close()
    assert rows_in(tmp_path) == rows_in(tmp_path, "shop.theirs")
    more = rows.selectExpr("id + 10 AS id", "tags", "items", "deep", "array(id) AS more")
    assert table.append(more, query="q", batch=1) == 3
    assert [row["more"] for row in rows_in(tmp_path) if row["id"] > 10] == [[1], [2], [3]]
    assert all(row["more"] is None for row in rows_in(tmp_path) if row["id"] <= 10)
    assert ids_of(pq.read_schema(file)) == {"none"}
    assert len(table_in(tmp_path).properties["schema.name-mapping.default"]) > 0


def test_a_partition_has_the_value_of_its_rows_whatever_it_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    places = [
        "plain",
        "a/b",
        "50% off: yes",
        "Kyōto",
        "",
        "x" * 5000,
        "__HIVE_DEFAULT_PARTITION__",
        None,
    ]
    days = [dt.date(2026, 1, 2), None]
    given = [(n, place, days[n % 2], n % 3, n % 2 == 0) for n, place in enumerate(places)]
    rows = spark.createDataFrame(given, "id INT, place STRING, day DATE, n LONG, good BOOLEAN")
    by = ("place", "day", "n", "good")
    table = IcebergTable(spark, target_in(tmp_path), partition_by=by)
    assert table.append(rows, query="q", batch=0) == len(places)
    assert found_in(tmp_path) == given
    tasks = list(table_in(tmp_path).scan().plan_files())
    assert len(tasks) == len(places)
    epoch = dt.date(1970, 1, 1)
    kept = {tuple(each.file.partition[x] for x in range(4)) for each in tasks}
    assert kept == {
        (place, None if day is None else (day - epoch).days, n, good)
        for _, place, day, n, good in given
    }
    assert [row["id"] for row in rows_in(tmp_path, row_filter="place = ''")] == [4]
    assert [row["id"] for row in rows_in(tmp_path, row_filter="place IS NULL")] == [7]
    found = rows_in(tmp_path, row_filter="day = '2026-01-02' and good = true")
    assert sorted(row["id"] for row in found) == [0, 2, 4, 6]


@pytest.mark.thorough
def test_a_batch_is_in_once_also_when_its_snapshot_has_expired_or_the_properties_are_gone(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = IcebergTable(spark, target_in(tmp_path))
    for number in range(3):
        assert table.append(spark.range(2), query="q", batch=number) == 2
    catalog = catalog_in(tmp_path)
    there = catalog.load_table(TABLE)
    with there.transaction() as transaction:
        transaction.remove_properties("zhumq.batch.q")
    assert table.append(spark.range(2), query="q", batch=2) == 0
    # Properties and snapshots of before are gone; those of another writer are there.
    assert table.append(spark.range(2), query="q", batch=3) == 2
    there.refresh()
    there.append(there.scan().to_arrow())
    there.maintenance.expire_snapshots().older_than(dt.datetime.now(UTC)).commit()
    catalog.close()
    assert len(table_in(tmp_path).snapshots()) == 1
    assert table.append(spark.range(2), query="q", batch=3) == 0
    assert len(rows_in(tmp_path)) == 16


@pytest.mark.thorough
def test_a_batch_that_other_writers_overtake_is_committed_again_and_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = IcebergTable(spark, target_in(tmp_path))
    table.append(spark.range(1), query="q", batch=0)
    overtaken = _overtaken(monkeypatch)
    # Rows of another engine, a column of another engine, and a batch of another query.
    overtaken(lambda: _append_as_another_engine(tmp_path))
    assert table.append(spark.range(1, 2), query="q", batch=1) == 1
    overtaken(lambda: _add_column(tmp_path))
    assert table.append(spark.range(2, 3), query="q", batch=2) == 1
    overtaken(lambda: table.append(spark.range(3, 4), query="r", batch=7))
    assert table.append(spark.range(4, 5), query="q", batch=3) == 1
    # The same batch, by another run of the query.
    overtaken(lambda: table.append(spark.range(5, 6), query="q", batch=4))
    assert table.append(spark.range(5, 6), query="q", batch=4) == 0
    # Ids of 100 are those of the other engine.
    assert sorted(row["id"] for row in rows_in(tmp_path)) == [0, 1, 2, 3, 4, 5, 100]
    assert table.has(query="r", batch=7)


def test_a_column_that_is_renamed_while_its_batch_is_written_fails_the_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = IcebergTable(spark, target_in(tmp_path))
    table.append(spark.range(1), query="q", batch=0)

    def rename() -> None:
        with catalog_in(tmp_path).load_table(TABLE).update_schema() as update:
            update.rename_column("id", "number")
        _append_as_another_engine(tmp_path)

    _overtaken(monkeypatch)(rename)
    with pytest.raises(IcebergFailed, match=r"'id' of shop\.orders was changed while this batch"):
        table.append(spark.range(1), query="q", batch=1)
    # By its id, the column is the renamed one, also in files of before.
    assert [row["number"] for row in rows_in(tmp_path) if row["number"] is not None] == [0]


def test_a_writer_that_is_always_overtaken_gives_up(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = IcebergTable(spark, target_in(tmp_path))
    table.append(spark.range(1), query="q", batch=0)

    def never(*given: Any, **facts: Any) -> None:
        raise CommitFailedException("another was first")

    monkeypatch.setattr(SqlCatalog, "commit_table", never)
    with pytest.raises(IcebergFailed, match="other writers committed 10 times before this batch"):
        table.append(spark.range(1), query="q", batch=1)
    assert len(rows_in(tmp_path)) == 1


@pytest.mark.parametrize("error", [CommitFailedException, OSError])
def test_a_commit_that_is_made_and_reported_as_failed_is_in_once(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: type[Exception],
) -> None:
    """An answer of the catalog is lost, and what is between repeats the request, or gives up."""
    table = IcebergTable(spark, target_in(tmp_path))
    table.append(spark.range(1), query="q", batch=0)
    commit_table, left = SqlCatalog.commit_table, [1]

    def lost(*given: Any, **facts: Any) -> Any:
        done = commit_table(*given, **facts)
        if left:
            left.pop()
            raise error("the answer was lost")
        return done

    monkeypatch.setattr(SqlCatalog, "commit_table", lost)
    if error is OSError:
        with pytest.raises(
            IcebergFailed, match=r"cannot commit to shop\.orders: OSError: the answer"
        ):
            table.append(spark.range(1, 2), query="q", batch=1)
    assert table.append(spark.range(1, 2), query="q", batch=1) == 0
    assert sorted(row["id"] for row in rows_in(tmp_path)) == [0, 1]
    assert table.append(spark.range(2, 3), query="q", batch=2) == 1
    assert len(rows_in(tmp_path)) == 3


@pytest.mark.thorough
def test_writers_at_the_same_time_lose_nothing(spark: SparkSession, tmp_path: Path) -> None:
    IcebergTable(spark, target_in(tmp_path)).append(spark.range(0), query="0", batch=0)

    def write(number: int) -> int:
        session = spark.newSession()
        table = IcebergTable(session, target_in(tmp_path))
        return sum(
            table.append(
                session.range(number * 100 + batch, number * 100 + batch + 1).coalesce(1),
                query=str(number),
                batch=batch,
            )
            for batch in range(6)
        )

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(write, range(1, 4))) == [6, 6, 6]
    sent = [number * 100 + batch for number in range(1, 4) for batch in range(6)]
    assert sorted(row["id"] for row in rows_in(tmp_path)) == sent


def test_an_error_of_a_step_is_not_one_of_the_table(spark: SparkSession, tmp_path: Path) -> None:
    table = IcebergTable(spark, target_in(tmp_path))
    rows = spark.sql("SELECT if(id > 0, raise_error('too large'), id) AS id FROM range(2)")
    with pytest.raises(PySparkException, match="too large"):
        table.append(rows, query="q", batch=0)
    assert rows_in(tmp_path) == []


def test_odd_names_of_folders_and_columns_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "my tables, 50% Kyōto"
    folder.mkdir()
    options = {**options_of(folder), "warehouse": str(folder)}  # without file://
    target = IcebergTarget(identifier=("a", "b", "orders"), catalog="default", options=options)
    table = IcebergTable(spark, target, partition_by=("a.b", "zhumq_partition"))
    rows = spark.sql("SELECT 1L AS `a.b`, 'x' AS zhumq_partition, 'y' AS `Größe (cm)`")
    assert table.append(rows, query="q", batch=0) == 1
    assert rows_in(folder, "a.b.orders") == [{"a.b": 1, "zhumq_partition": "x", "Größe (cm)": "y"}]


def test_a_table_of_simple_columns_gets_an_array(spark: SparkSession, tmp_path: Path) -> None:
    table = IcebergTable(spark, target_in(tmp_path))
    table.append(spark.range(1), query="q", batch=0)
    table.append(spark.sql("SELECT 1L AS id, array('a') AS tags"), query="q", batch=1)
    table.append(spark.sql("SELECT 2L AS id, named_struct('x', 1) AS place"), query="q", batch=2)
    assert sorted(rows_in(tmp_path), key=lambda row: row["id"]) == [
        {"id": 0, "tags": None, "place": None},
        {"id": 1, "tags": ["a"], "place": None},
        {"id": 2, "tags": None, "place": {"x": 1}},
    ]


def test_a_batch_whose_files_are_elsewhere_or_too_many_is_not_committed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = IcebergTable(spark, target_in(tmp_path), partition_by=("id",))
    with monkeypatch.context() as patch:
        patch.setattr(iceberg_files, "FILES_OF_BATCH_MAX", 1)
        with pytest.raises(
            IcebergFailed, match=r"may add 1 files to shop\.orders, and this one has 2"
        ):
            table.append(spark.range(2), query="q", batch=0)
    assert list((tmp_path / "warehouse").rglob("*.parquet")) == []
    with monkeypatch.context() as patch:
        # An executor with a disk of its own.
        patch.setattr(Folder, "files", lambda folder, name: [])
        with pytest.raises(
            IcebergFailed, match=r"Spark wrote 2 rows .* and the driver finds 0 there"
        ):
            table.append(spark.range(2), query="q", batch=0)
    assert not table.has(query="q", batch=0)
    assert rows_in(tmp_path) == []


def test_rows_that_do_not_fit_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = IcebergTable(spark, target_in(tmp_path))
    table.append(spark.sql("SELECT 1L AS id, 'x' AS name"), query="q", batch=0)
    for sql, words in (
        ("SELECT 'x' AS id", r"'id' of shop\.orders is bigint, and the rows have string: CAST it"),
        ("SELECT 1 AS ID", "is bigint, and the rows have int"),
        ("SELECT INTERVAL 1 DAY AS id", "which an Iceberg table cannot hold: CAST it"),
        ("SELECT array(INTERVAL 1 DAY) AS id", "which an Iceberg table cannot hold: CAST it"),
    ):
        with pytest.raises(IcebergFailed, match=words):
            table.append(spark.sql(sql), query="q", batch=1)
        with pytest.raises(IcebergFailed, match=words):
            table.check(spark.sql(sql).schema)
    other = IcebergTable(spark, target_in(tmp_path), partition_by=("id",))
    with pytest.raises(IcebergFailed, match=r"is partitioned by \(\), and the sink by \(id\)"):
        other.check(spark.range(1).schema)
    with pytest.raises(IcebergFailed, match="which cannot name a partition"):
        other.check(spark.sql("SELECT 1.5D AS id").schema)
    # A column may be missing, may come in another case, and is added if it is new.
    table.append(spark.sql("SELECT 2L AS ID, true AS good"), query="q", batch=1)
    assert sorted(map(str, rows_in(tmp_path))) == [
        "{'id': 1, 'name': 'x', 'good': None}",
        "{'id': 2, 'name': None, 'good': True}",
    ]


def test_tables_of_other_engines_are_extended_if_they_can_be(
    spark: SparkSession, tmp_path: Path
) -> None:
    catalog = catalog_in(tmp_path)
    catalog.create_namespace("shop")
    fields = (
        ice.NestedField(1, "id", ice.LongType(), required=True),
        ice.NestedField(2, "key", ice.UUIDType(), required=False),
        ice.NestedField(3, "name", ice.StringType(), required=False),
    )
    rows = spark.sql("SELECT 'x' AS name, 5L AS id")
    catalog.create_table("shop.plain", Schema(*fields))
    table = IcebergTable(spark, target_in(tmp_path, "shop.plain"))
    assert table.append(rows, query="q", batch=0) == 1
    assert rows_in(tmp_path, "shop.plain") == [{"id": 5, "key": None, "name": "x"}]
    buckets = PartitionSpec(PartitionField(1, 1000, BucketTransform(8), "id_bucket"))
    names = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "name"))
    catalog.create_table("shop.buckets", Schema(*fields), partition_spec=buckets)
    catalog.create_table("shop.names", Schema(*fields), partition_spec=names)
    oldest = {"format-version": "1"}
    catalog.create_table("shop.first", Schema(*fields), partition_spec=names, properties=oldest)
    third = catalog.create_table("shop.third", Schema(*fields))
    metadata = Path(third.metadata_location.removeprefix("file://"))
    # PyIceberg reads the third version, and does not write it.
    newer = {**json.loads(metadata.read_text()), "format-version": 3, "next-row-id": 0}
    metadata.write_text(json.dumps(newer))
    catalog.close()
    optional = spark.sql("SELECT if(id > 5, id, null) AS id FROM range(9)")
    for name, given, words in (
        ("shop.plain", optional, "'id' of shop.plain is required, and rows may have no value"),
        ("shop.plain", rows.select("name"), "'id' of shop.plain is required, and the rows do not"),
        ("shop.plain", rows.selectExpr("id", "name AS key"), "'key' of shop.plain is uuid"),
        (
            "shop.buckets",
            rows,
            r"partitioned by \(bucket\[8\]\(id\)\), .* only columns as they are",
        ),
        ("shop.names", rows, r"partitioned by \(name\), and the sink by \(\): make them the same"),
        ("shop.third", rows, "format version 3; zhumq writes 2"),
    ):
        refusing = IcebergTable(spark, target_in(tmp_path, name))
        with pytest.raises(IcebergFailed, match=words):
            refusing.check(given.schema)
        with pytest.raises(IcebergFailed, match=words):
            refusing.append(given, query="q", batch=1)
    first = IcebergTable(spark, target_in(tmp_path, "shop.first"), partition_by=("name",))
    assert first.append(rows, query="q", batch=0) == 1
    assert first.append(rows, query="q", batch=1) == 1
    assert len(rows_in(tmp_path, "shop.first", row_filter="name = 'x'")) == 2
    by_name = IcebergTable(spark, target_in(tmp_path, "shop.names"), partition_by=("name",))
    assert by_name.append(rows, query="q", batch=0) == 1
    assert [row["id"] for row in rows_in(tmp_path, "shop.names")] == [5]


def test_a_catalog_that_is_away_is_one_line_without_its_secrets(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_CATALOG", f"sqlite:///{tmp_path}/s3cret/catalog.db")
    options = {"type": "sql", "uri": "${env:SHOP_CATALOG}", "warehouse": str(tmp_path)}
    target = IcebergTarget(identifier=("shop", "orders"), catalog="default", options=options)
    for given, words in (
        (target, "cannot be opened: OperationalError: .*unable to open database file"),
        (
            IcebergTarget(
                identifier=("shop", "orders"),
                catalog="default",
                options={"type": "rest", "uri": "http://127.0.0.1:9"},
            ),
            "cannot be opened: ConnectionError",
        ),
    ):
        with pytest.raises(IcebergUnreachable, match=words) as found:
            IcebergTable(spark, given).check(spark.range(1).schema)
        assert "\n" not in str(found.value)
        assert "s3cret" not in str(found.value)
    monkeypatch.delenv("SHOP_CATALOG")
    with pytest.raises(IcebergUnreachable, match="SHOP_CATALOG"):
        IcebergTable(spark, target).check(spark.range(1).schema)


@pytest.mark.thorough
def test_many_batches_keep_the_metadata_small(spark: SparkSession, tmp_path: Path) -> None:
    table = IcebergTable(spark, target_in(tmp_path))
    table.append(spark.range(1).coalesce(1), query="q", batch=0)
    catalog = catalog_in(tmp_path)
    with catalog.load_table(TABLE).transaction() as transaction:
        transaction.set_properties(
            {
                "commit.manifest.min-count-to-merge": "3",
                "write.metadata.previous-versions-max": "2",
            }
        )
    catalog.close()
    for number in range(1, 8):
        table.append(spark.range(number, number + 1).coalesce(1), query="q", batch=number)
    there = table_in(tmp_path)
    snapshot = there.current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(there.io)) < 5
    assert len(list((tmp_path / "warehouse").rglob("*.metadata.json"))) <= 3
    assert sorted(row["id"] for row in rows_in(tmp_path)) == list(range(8))


def _overtaken(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Has another writer commit before the next commit of ours."""
    commit = iceberg_table.commit
    before: list[Callable[[], object]] = []

    def overtaken(*given: Any, **facts: Any) -> None:
        if before:
            before.pop()()
        commit(*given, **facts)

    monkeypatch.setattr(iceberg_table, "commit", overtaken)
    return before.append


def _append_as_another_engine(folder: Path) -> None:
    catalog = catalog_in(folder)
    there = catalog.load_table(TABLE)
    rows = there.scan(limit=1).to_arrow()
    name = rows.schema.names[0]
    there.append(
        rows.slice(0, 1).set_column(0, name, [[100 if name == "id" else None]]).cast(rows.schema)
    )
    catalog.close()


def _add_column(folder: Path) -> None:
    catalog = catalog_in(folder)
    with catalog.load_table(TABLE).update_schema() as update:
        update.add_column("note", ice.StringType())
    catalog.close()

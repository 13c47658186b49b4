"""Sources in databases in pipeline files: what they mean, mistakes with their lines, and the SQL of a range."""

import sqlite3
from pathlib import Path

import pytest

pytest.importorskip("yaml")
pytest.importorskip("pyspark")

from zhumq.pipelines.cases import read_cases
from zhumq.pipelines.document import SpecInvalid, parse_document
from zhumq.pipelines.graph import draw, graph_of
from zhumq.pipelines.jdbc_ranges import (
    Growth,
    RangeUnfit,
    Rows,
    bound_in,
    offset_of,
    slices,
)
from zhumq.pipelines.jdbc_statements import Database
from zhumq.pipelines.sharing import reads_of
from zhumq.pipelines.spec import JdbcSource, Lag, Pipeline
from zhumq.pipelines.spec_reader import parse_pipeline

TEXT = """\
name: orders
sources:
  orders:
    jdbc: shop.orders
    grows: id
    lag: 1_000
    rows_per_batch: 500
    partitions: 4
    partition_by: id
    options:
      url: jdbc:postgresql://host/shop
      user: shop
      password: ${env:SHOP_PASSWORD}
  customers: {jdbc: SELECT * FROM customers, options: {url: "jdbc:sqlite:/shop.db"}}
sinks:
  a: {from: orders, topic: a}
  b: {from: orders, table: b}
"""


def parse(text: str) -> Pipeline:
    return parse_pipeline(parse_document(text.encode(), "f.yml"), "f.yml", {})


def test_a_stream_may_have_a_growing_table_alone_and_each_sink_reads_it_itself() -> None:
    pipeline = parse(TEXT)
    orders, customers = pipeline.sources
    assert isinstance(orders, JdbcSource)
    assert isinstance(customers, JdbcSource)
    assert (orders.database, orders.grows, orders.lag) == (
        Database.POSTGRESQL, "id", Lag(amount=1000, is_time=False),
    )  # fmt: skip
    assert orders.options["password"] == "${env:SHOP_PASSWORD}"
    assert (customers.is_query, customers.grows) == (True, None)
    assert reads_of(pipeline).own == dict.fromkeys("ab", "reads the rows of orders")
    drawn = draw(graph_of(pipeline))
    assert "postgresql shop.orders by id" in drawn
    assert "sqlite query" in drawn
    # With a batch all rows are read, whatever grows.
    (whole, _) = parse(TEXT.replace("name: orders\n", "name: orders\ntrigger: batch\n")).sources
    assert isinstance(whole, JdbcSource)
    assert whole.grows is None
    # A table that is read whole does not keep the sinks of a topic from sharing a read.
    shared = TEXT.replace("    jdbc: shop.orders\n    grows: id\n", "    topic: orders\n")
    shared = "\n".join(
        line
        for line in shared.splitlines()
        if not line.lstrip().startswith(("lag", "rows_", "part", "opt", "url", "user", "pass"))
    )
    assert reads_of(parse(shared)).shared == {"orders": ("a", "b")}


@pytest.mark.parametrize(
    ("before", "after", "line", "words"),
    [
        ("jdbc: shop.orders", "jdbc: DROP TABLE orders", 4, "sources.orders.jdbc: is a table such"),
        ("    grows: id\n", "", 5, "sources.orders.lag: is for a source with `grows`"),
        ("lag: 1_000", "lag: soon", 6, "sources.orders.lag: is a time such as 30s, or a number"),
        ("lag: 1_000", "lag: 9999d", 6, "sources.orders.lag: is a time such as 30s, or a number"),
        ("rows_per_batch: 500", "rows_per_batch: 0", 7, "must be a whole number, at least 1"),
        ("partitions: 4", "partitions: 1000", 8, "is more than 100, and each is a connection"),
        ("    partitions: 4\n", "", 8, "sources.orders.partition_by: goes with another field"),
        ("${env:SHOP_PASSWORD}", "open-sesame", 13, "sources.orders.options.password: holds a sec"),
        ("      user: shop\n", "      dbtable: x\n", 12, "is not an option here"),
        ("      user: shop\n", "      numPartitions: 3\n", 12, "is not an option here: give part"),
        ("postgresql://host", "mysql://host", 11, "is not of a database that a source knows"),
        ("grows: id", "grow: id", 5, "there is no such field (did you mean 'grows'?)"),
    ],
)  # fmt: skip
def test_a_mistake_names_its_line(before: str, after: str, line: int, words: str) -> None:
    assert before in TEXT
    with pytest.raises(SpecInvalid) as caught:
        parse(TEXT.replace(before, after, 1))
    assert str(caught.value).startswith(f"f.yml:{line}: ")
    assert words in str(caught.value)
    assert "open-sesame" not in str(caught.value)


def test_a_stream_of_tables_that_are_read_whole_is_refused() -> None:
    alone = "name: n\nsources: {c: {jdbc: c, options: {url: 'jdbc:sqlite:c'}}}\nsinks: {a: {topic: a}}\n"
    with pytest.raises(SpecInvalid, match="a stream needs a topic, files or a jdbc with `grows`"):
        parse(alone)
    assert parse(f"trigger: batch\n{alone}").sources


def test_tests_give_the_rows_of_such_a_source(tmp_path: Path) -> None:
    text = TEXT + "tests: [{name: t, given: {orders: [{id: 1}]}, counts: {}}]\n"
    document = parse_document(text.encode(), str(tmp_path / "f.yml"))
    pipeline = parse_pipeline(document, str(tmp_path / "f.yml"), {})
    with pytest.raises(SpecInvalid, match="has no rows for the table 'customers'"):
        read_cases(pipeline, document, None)


def test_an_offset_holds_the_value_and_its_column() -> None:
    assert bound_in(offset_of("id", "17"), "id") == "17"
    with pytest.raises(RangeUnfit, match="how far the column id was read, and the file has grows:"):
        bound_in(offset_of("id", "17"), "updated_at")
    for other in ("{}", "17", "[]", "-"):
        with pytest.raises(RangeUnfit, match="which is of another kind of source"):
            bound_in(other, "id")


@pytest.mark.parametrize(
    ("growth", "value"),
    [
        (Growth.NUMBER, "1; DROP TABLE orders"),
        (Growth.NUMBER, "NaN"),
        (Growth.MOMENT, "infinity"),
        (Growth.TIME_TEXT, "2026-01-01T10:00:00"),
    ],
)
def test_a_value_that_is_none_of_the_column_gets_into_no_statement(
    growth: Growth, value: str
) -> None:
    rows = Rows(database=Database.POSTGRESQL, what="t", is_query=False, column="c", growth=growth)
    with pytest.raises(RangeUnfit, match="the column c holds"):
        rows.between(None, value)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100])
def test_each_row_is_in_one_slice(count: int) -> None:
    with sqlite3.connect(":memory:") as database:
        database.execute('CREATE TABLE t ("order" INTEGER)')
        given = [None, -5, -4, 0, 3, 17, 95]
        database.executemany("INSERT INTO t VALUES (?)", [(each,) for each in given])
        conditions = slices("order", -5, 95, count)
        assert len(conditions) <= count
        found = [
            value
            for each in conditions
            for (value,) in database.execute(f"SELECT * FROM t WHERE {each}")
        ]
    database.close()
    assert sorted(found, key=str) == sorted(given, key=str)


def test_ranges_read_each_row_once_and_all_rows_of_one_value_together() -> None:
    rows = Rows(
        database=Database.SQLITE, what="SELECT * FROM t", is_query=True, column="n",
        growth=Growth.NUMBER,
    )  # fmt: skip
    with sqlite3.connect(":memory:") as database:
        database.execute("CREATE TABLE t (n INTEGER)")
        given = [1, 2, 2, 2, 3, 4, 9]
        database.executemany("INSERT INTO t VALUES (?)", [(each,) for each in given])

        def value(sql: str) -> str | None:
            row = database.execute(sql).fetchone()
            return None if row is None else row[0]

        assert value(rows.last_settled(lag=5)) == "4"
        end = value(rows.last())
        assert end == "9"
        start: str | None = None
        batches = []
        while start != end:
            upto = value(rows.nth_behind(start, end, count=2)) or end
            found = database.execute(
                f"SELECT n FROM {rows.place} WHERE {rows.between(start, upto)}"
            )
            batches.append([each for (each,) in found])
            start = upto
        assert batches == [[1, 2, 2, 2], [3, 4], [9]]
        assert value(rows.has_none()) == 0
        database.execute("INSERT INTO t VALUES (NULL)")
        assert value(rows.has_none()) == 1
    database.close()

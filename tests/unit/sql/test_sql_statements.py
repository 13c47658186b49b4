"""Statements: which are run, and what their mistakes say."""

import pytest

pytest.importorskip("pyspark")

from zhumq.pipelines.sql_text import reads_each_once, split_statements
from zhumq.sql.statements import (
    SqlFailed,
    check_reads_only,
    described_table,
    is_listing,
    unknown_table,
)


@pytest.mark.parametrize(
    "sql",
    [
        "select 1",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "-- why\nFROM t SELECT x",
        "explain select 'insert into'",
    ],
)
def test_queries_are_run(sql: str) -> None:
    check_reads_only(sql)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("DROP TABLE orders", "DROP cannot be run"),
        ("FROM orders INSERT INTO t SELECT *", "INSERT cannot be run"),
        ("with a as (select 1) insert overwrite t select 1", "INSERT cannot be run"),
        ("SELECT 'a", "line 1: the quote ' is not closed"),
        ("SELECT\n(1", "line 2: the bracket ( is not closed"),
        ("", "has no SQL"),
    ],
)
def test_nothing_else_is(sql: str, words: str) -> None:
    with pytest.raises(SqlFailed, match=words.replace("(", r"\(")):
        check_reads_only(sql)


def test_a_semicolon_in_a_text_or_a_comment_ends_no_statement() -> None:
    text = "select ';' -- a; b\n; ; select 2 /* ; */;"
    assert split_statements(text) == ("select ';' -- a; b", "select 2 /* ; */")


@pytest.mark.parametrize(
    ("sql", "once"),
    [
        ("select * from a join b using (x)", True),
        ("select * from a, A", False),
        ("with w as (select * from a) select * from w", True),
        ("with w as (select * from a) select * from w x join w y using (i)", False),
        ("select * from a where i in (select i from a)", False),
    ],
)
def test_a_table_that_is_read_twice_is_noticed(sql: str, once: bool) -> None:
    assert reads_each_once(sql) == once


def test_an_unknown_table_names_the_nearest() -> None:
    assert "did you mean orders?" in str(unknown_table("ordres", ["payments", "orders"]))
    assert "SHOW TABLES" in str(unknown_table("x", ["orders"]))
    assert "no topics" in str(unknown_table("x", []))


def test_describe_and_show_tables_are_known() -> None:
    assert described_table("DESCRIBE orders") == "orders"
    assert described_table("desc table `shop.orders` ") == "shop.orders"
    assert described_table("describe query select 1") is None
    assert is_listing(" show\n TABLES ")

"""Schemas and SQL in pipeline files, read without Spark."""

import pytest

from zhumq.pipelines.ddl import SchemaWrong, parse_ddl
from zhumq.pipelines.sql_text import find_mistake, find_query_mistake, views_in

VIEWS = ("orders", "customers", "window", "late")


def test_every_type_of_spark_is_a_type() -> None:
    text = """a BOOLEAN, b tinyint NOT NULL, c: INT, d DECIMAL(10, 2) COMMENT 'it''s', `e f` VARCHAR(5),
        g ARRAY<STRUCT<x: INT, y MAP<STRING, ARRAY<DATE>>>>, -- nested
        h INTERVAL DAY TO SECOND, i TIMESTAMP_NTZ, j STRING COLLATE UTF8_LCASE, k VARIANT, l STRUCT<>"""
    found = {each.name: each.type for each in parse_ddl(text)}
    assert found["e f"] == "VARCHAR(5)"
    assert found["d"] == "DECIMAL(10, 2)"
    assert found["g"] == "ARRAY<STRUCT<x: INT, y MAP<STRING, ARRAY<DATE>>>>"
    assert found["h"] == "INTERVAL DAY TO SECOND"
    assert [each.name for each in parse_ddl(text) if each.is_nested] == ["g", "l"]
    assert len(found) == 11


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "a column is a name and a type"),
        ("a INT,", 1, "a column is a name and a type"),
        ("a INT,\n\nb", 3, "the column 'b' has no type"),
        ("a INT,\n, b INT", 2, "not ','"),
        ("a DECIMAL(x)", 1, "numbers, not 'x'"),
        ("a MAP<STRING>", 1, "needs ',' before '>'"),
        ("a INT NOT nothing", 1, "NULL comes after NOT"),
        ("a INT COMMENT b", 1, "COMMENT needs a text"),
        ("a INT,\nA STRING", 2, "is there twice"),
        ("a " + "ARRAY<" * 30 + "INT" + ">" * 30, 1, "is nested more than"),
    ],
)
def test_a_mistake_in_a_schema_names_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(SchemaWrong) as caught:
        parse_ddl(text)
    assert words in str(caught.value)
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("sql", "views"),
    [
        ("SELECT * FROM orders", ("orders",)),
        ("select * from Orders o join `customers` c on o.id = c.id", ("orders", "customers")),
        ("SELECT * FROM orders o, customers c WHERE o.id IN (1, late)", ("orders", "customers")),
        ("SELECT late, window FROM orders -- FROM customers", ("orders",)),
        ("SELECT 'FROM customers' FROM orders /* FROM late */", ("orders",)),
        ("WITH late AS (SELECT * FROM orders) SELECT * FROM late", ("orders",)),
        ("SELECT * FROM (SELECT * FROM orders) UNION ALL TABLE customers", ("orders", "customers")),
        ("SELECT * FROM shop.orders, range(10)", ()),
        ("SELECT id IN (SELECT id FROM late) FROM orders", ("late", "orders")),
    ],
)
def test_the_views_that_a_query_reads(sql: str, views: tuple[str, ...]) -> None:
    assert views_in(sql, VIEWS) == views


def test_quotes_and_brackets_that_are_not_closed() -> None:
    assert (
        find_mistake("SELECT ')' , \"(\", `(` FROM a -- (\n WHERE (b[0]) = 'it''s \\' ('") is None
    )
    for sql, line, words in (
        ("SELECT (1\n, 2", 1, "the bracket ( is not closed"),
        ("SELECT 1\n, 2]", 2, "the bracket ] closes nothing"),
        ("SELECT (1]", 1, "the bracket ] closes nothing"),
        ("SELECT 1,\n'a", 2, "the quote ' is not closed"),
        (" -- nothing", 1, "has no SQL"),
    ):
        mistake = find_mistake(sql)
        assert mistake is not None
        assert (mistake.line, mistake.words) == (line, words)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT EXTRACT(YEAR FROM stamp), trim((a) FROM b), a IS DISTINCT FROM b FROM orders;",
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT * FROM n",
        "with recent as (select * from Orders), `old ones` as (select 1) select * from recent join `old ones`",
        "(SELECT * FROM orders) UNION ALL TABLE customers",
        "SELECT * FROM shop.elsewhere JOIN range(10) JOIN LATERAL explode(a) JOIN VALUES (1) AS t (n)",
        "FROM orders |> WHERE id IN (SELECT id FROM late)",
        "SELECT table, join FROM ((SELECT 1)) /* FROM nowhere */ -- FROM nowhere",
        "SELECT * FROM json.`a/b.json` JOIN (orders JOIN customers USING (id))",
        "VALUES 1, 2",
    ],
)
def test_queries_that_are_left_to_spark(sql: str) -> None:
    assert find_query_mistake(sql, VIEWS) is None


@pytest.mark.parametrize(
    ("sql", "line", "words"),
    [
        ("INSERT INTO t\nSELECT 1", 1, "a query begins with SELECT or WITH, not INSERT"),
        ("((DROP TABLE x))", 1, "not DROP"),
        ("SELECT 1;\nSELECT 2", 2, "one step is one query"),
        ("SELECT *\nFROM ordres", 2, "there is no source or step 'ordres' above (did you mean 'orders'?)"),
        ("SELECT *, (SELECT max(id)\nFROM nowhere) FROM orders", 2, "there is no source or step 'nowhere'"),
        ("WITH a AS (\nSELECT * FROM b) SELECT * FROM a", 2, "there is no source or step 'b' above; there are"),
    ],
)  # fmt: skip
def test_queries_that_spark_need_not_see(sql: str, line: int, words: str) -> None:
    mistake = find_query_mistake(sql, VIEWS)
    assert mistake is not None
    assert mistake.line == line
    assert words in mistake.words

"""Joins of streams whose state would grow for ever, found in the file alone, and those that are left to Spark's plan."""

import pytest

pytest.importorskip("yaml")
pytest.importorskip("pyspark")

from zhumq.pipelines.document import SpecInvalid, parse_document
from zhumq.pipelines.spec_reader import parse_pipeline
from zhumq.pipelines.sql_text import joined_tables
from zhumq.pipelines.stream_joins import check_stream_joins

MARKED = ", watermark: {column: timestamp, delay: 1m}"
TEXT = """\
name: shop
trigger: TRIGGER
sources:
  orders: {topic: orders LEFT}
  payments: {topic: payments RIGHT}
  customers: {table: tables/customers}
steps:
  - {name: ordered, parse: orders, format: json, schema: id INT}
  - {name: paid, parse: payments, format: json, schema: PAID}
  - name: both
    sql: |
      SELECT o.id
      FROM ordered o
      JOIN SECOND p
      CONDITION
MORE
sinks: {all: {topic: all}}
dead_letters: {topic: bad}
"""
BOUND = "ON o.id = p.id AND p.timestamp BETWEEN o.timestamp AND o.timestamp + INTERVAL 1 HOUR"


def refusal(
    *,
    left: str = MARKED,
    right: str = MARKED,
    condition: str = BOUND,
    second: str = "paid",
    trigger: str = "10s",
    paid: str = "id INT",
    more: str = "",
) -> str | None:
    text = TEXT
    for name, each in {
        "LEFT": left, "RIGHT": right, "CONDITION": condition, "SECOND": second, "TRIGGER": trigger,
        "PAID": paid, "MORE": more,
    }.items():  # fmt: skip
        text = text.replace(name, each)
    pipeline = parse_pipeline(parse_document(text.encode(), "f.yml"), "f.yml", {})
    try:
        check_stream_joins(pipeline)
    except SpecInvalid as error:
        return str(error)
    return None


def test_a_join_with_watermarks_and_a_bound_is_fine() -> None:
    assert refusal() is None


def test_the_side_without_a_watermark_is_named_with_its_line() -> None:
    error = refusal(right="")
    assert error is not None
    assert error.startswith("f.yml:14: steps[2].sql: joins the stream paid, which has no watermark")
    assert "give the source payments watermark: {column: timestamp, delay: 10 minutes}" in error
    error = refusal(left="")
    assert error is not None
    assert error.startswith("f.yml:13: steps[2].sql: joins the stream ordered, which has no wat")
    assert refusal(left="", right="", condition="USING (id)") is not None
    assert refusal(left="", second="ordered") is not None


def test_a_condition_of_keys_alone_has_no_bound() -> None:
    for condition in ("ON o.id = p.id", "USING (id)", "ON o.id = p.id WHERE o.id = 5"):
        error = refusal(condition=condition)
        assert error is not None, condition
        assert error.startswith(
            "f.yml:14: steps[2].sql: joins the streams ordered and paid without a"
        )
        assert (
            "ON ... AND paid.timestamp BETWEEN ordered.timestamp AND ordered.timestamp +" in error
        )


@pytest.mark.parametrize(
    "kept",
    [
        {"second": "customers", "left": "", "condition": "ON o.id = p.id"},
        {"trigger": "batch", "left": "", "condition": "ON o.id = p.id"},
        {"condition": "ON o.id = p.id AND o.timestamp = p.timestamp"},
        {"condition": "ON o.id = p.id WHERE p.timestamp < o.timestamp"},
        # A field of this name has no watermark: what the plan has is for Spark to say.
        {"condition": "ON o.id = p.id", "paid": "timestamp TIMESTAMP"},
        # A step below may hold the condition, and Spark takes it into the join.
        {"condition": "ON o.id = p.id", "more": "  - {name: near, sql: SELECT * FROM both WHERE near}"},
        {"left": "", "condition": "USING (id) UNION ALL SELECT id FROM paid"},
        {"left": "", "condition": "ON o.id IN (SELECT id FROM customers)"},
    ],
)  # fmt: skip
def test_what_the_file_does_not_show_is_no_mistake(kept: dict[str, str]) -> None:
    assert refusal(**kept) is None


def test_a_python_step_may_set_a_watermark() -> None:
    python = "  - {name: paid, python: 'own:timed', inputs: payments}"
    text = TEXT.replace("  - {name: paid, parse: payments, format: json, schema: PAID}", python)
    for name, each in {
        "LEFT": "",
        "RIGHT": "",
        "SECOND": "paid",
        "TRIGGER": "10s",
        "MORE": "",
    }.items():
        text = text.replace(name, each)
    text = text.replace("CONDITION", "USING (id)")
    check_stream_joins(parse_pipeline(parse_document(text.encode(), "f.yml"), "f.yml", {}))


def test_only_a_plain_join_is_read_without_spark() -> None:
    join = joined_tables("SELECT 1\nFROM a\nLEFT JOIN b ON a.x = b.x\nJOIN `C` USING (y)")
    assert join is not None
    assert (join.tables, join.lines) == (("a", "b", "c"), (2, 3, 4))
    assert {"x", "y"} <= join.compared
    assert not join.has_bounds
    for text in (
        "SELECT * FROM a",
        "SELECT * FROM a, b",
        "WITH c AS (SELECT * FROM a) SELECT * FROM c JOIN b",
        "SELECT * FROM a JOIN b EXCEPT SELECT 1",
        "SELECT * FROM a NATURAL JOIN b",
    ):
        assert joined_tables(text) is None, text
    bounded = joined_tables("SELECT * FROM a JOIN b ON a.t >= b.t")
    assert bounded is not None
    assert bounded.has_bounds

"""The tests of a pipeline without Spark: their files, and how rows are compared."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("yaml")
pytest.importorskip("pyspark")

from zhumq.pipelines.cases import Case, read_cases
from zhumq.pipelines.document import SpecInvalid, read_document
from zhumq.pipelines.row_differences import LINES_MAX, differences, same
from zhumq.pipelines.spec_reader import load_pipeline, with_values

NOON = datetime(2026, 1, 1, 12)  # noqa: DTZ001 - a TIMESTAMP_NTZ of Spark
PIPELINE = """\
name: orders
parameters: {topic: orders}
sources:
  records: {topic: "${topic}", headers: true}
  customers: {table: tables/customers}
steps:
  - {name: joined, sql: SELECT * FROM records}
sinks:
  all: {topic: joined}
"""
TESTS = """\
tests:
  - name: two orders of ${topic}
    given:
      records:
        - value: {id: 1}
        - {key: k, value: text, offset: 7, timestamp: "2026-01-01 12:00:00", headers: {a: b}}
        - {value_base64: AAE=}
      customers:
        - {id: 1, name: Ada}
    expect:
      joined:
        - {offset: 0}
      sinks.all: []
    counts: {joined.broken: 1}
"""


def cases_of(folder: Path, tests: str, pipeline: str = PIPELINE, **values: str) -> tuple[Case, ...]:
    path = folder / "orders.yml"
    path.write_text(pipeline)
    if tests:
        (folder / "orders.tests.yml").write_text(tests)
    whole = with_values(read_document(path), str(path), values)
    return read_cases(load_pipeline(path, values), whole, None)


def test_records_have_what_a_broker_would_give_them(tmp_path: Path) -> None:
    (case,) = cases_of(tmp_path, TESTS, topic="shop")
    first, second, third = case.given["records"].rows
    assert case.name == "two orders of shop"
    assert (first["value"], first["topic"], first["offset"]) == (b'{"id": 1}', "shop", 0)
    assert first["headers"] is None
    assert (second["key"], second["value"], second["offset"]) == (b"k", b"text", 7)
    assert second["timestamp"] == datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert second["headers"] == [("a", b"b")]
    assert third["value"] == b"\0\1"
    assert case.given["customers"].rows == ({"id": 1, "name": "Ada"},)
    assert [(each.name, len(each.rows)) for each in case.expected] == [
        ("joined", 1),
        ("sinks.all", 0),
    ]
    assert case.counts == {"joined.broken": 1}


def test_tests_are_in_the_file_or_beside_it(tmp_path: Path) -> None:
    both = cases_of(tmp_path, TESTS, PIPELINE + TESTS.replace("two orders", "the same"))
    assert [case.name for case in both] == ["the same of orders", "two orders of orders"]
    with pytest.raises(SpecInvalid, match=r"orders\.tests\.yml:2: .*two tests named"):
        cases_of(tmp_path, TESTS, PIPELINE + TESTS)


def test_a_file_without_tests_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        SpecInvalid, match=r"has no tests: add the field `tests`, or the file .*orders\.tests\.yml"
    ):
        cases_of(tmp_path, "")


@pytest.mark.parametrize(
    ("before", "after", "line", "words"),
    [
        ("      joined:\n", "      joint:\n", 12, "there is no source, step or sink 'joint'; there are: records"),
        ("records:\n", "recrods:\n", 5, "there is no source 'recrods'; there are: records, customers"),
        ("{id: 1, name: Ada}", "Ada", 9, "a row has names and values"),
        ("value_base64: AAE=", "value_base64: '!'", 7, "value_base64 is not base64"),
        ("offset: 7", "offset: seven", 6, "offset is a number, not 'seven'"),
        ("12:00:00", "noon", 6, "timestamp is a time such as"),
        ("headers: {a: b}", "headers: a", 6, "headers have names and values"),
        ("key: k", "kye: k", 6, "the source has no column 'kye'; it has key, value"),
        ("      customers:\n        - {id: 1, name: Ada}\n", "", 4, "has no rows for the table 'customers'"),
        ("        - {id: 1, name: Ada}\n", "        []\n", 9, "so it needs a schema"),
        ("        - {id: 1, name: Ada}\n", "        {schema: id INTT, rows: []}\n", 9, "there is no type 'INTT'"),
        ("counts: {joined.broken: 1}", "counts: {joined.broken: -1}", 14, "must be a whole number"),
        ("counts: {joined.broken: 1}", "fails: some words", 14, "excludes expect and counts"),
        ("    counts:", "    count:", 14, "there is no such field (did you mean 'counts'?)"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_test_names_its_line(
    tmp_path: Path, before: str, after: str, line: int, words: str
) -> None:
    assert before in TESTS
    with pytest.raises(SpecInvalid) as caught:
        cases_of(tmp_path, TESTS.replace(before, after, 1))
    assert f"orders.tests.yml:{line}: " in str(caught.value)
    assert words in str(caught.value)


def test_a_value_that_repeats_itself_without_end_is_refused(tmp_path: Path) -> None:
    bomb = "        - a0: &a0 [x, x]\n" + "".join(
        f"          a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
    )
    with pytest.raises(SpecInvalid, match="has more than 100,000 values"):
        cases_of(tmp_path, TESTS.replace("        - {id: 1, name: Ada}\n", bomb))
    circle = TESTS.replace("{id: 1, name: Ada}", "{id: &a [*a]}")
    with pytest.raises(SpecInvalid, match="nested more than 50 times"):
        cases_of(tmp_path, circle)


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (1, 1), (1, 1.0), (0.1, 0.1), (None, None), (True, True), ("a", "a"), ("a", bytearray(b"a")),
        ("2026-01-01T12:00:00Z", datetime(2026, 1, 1, 12, tzinfo=UTC)),
        ("2026-01-01T13:00:00+01:00", NOON),
        ("2026-01-01", date(2026, 1, 1)), ("1.50", Decimal("1.5")), (2, Decimal("2.00")),
        ([1, "a"], [1, "a"]), ({"a": None}, {"a": None}), ({"1": 2}, {1: 2}),
    ],
)  # fmt: skip
def test_values_that_are_the_same(expected: Any, found: Any) -> None:
    assert same(expected, found)


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (1, 2), (1, "1"), ("1", 1), (1, True), (True, 1), (None, ""), ("", None), (0, None), (1.0, 1),
        ("noon", NOON), ("x", Decimal(1)), (True, Decimal(1)), ([1], [1, 2]),
        ({"a": 1}, {"a": 1, "b": None}), ("a", b"\xff"), (True, 1.0),
    ],
)  # fmt: skip
def test_values_that_differ(expected: Any, found: Any) -> None:
    assert not same(expected, found)


def test_the_order_of_rows_and_other_columns_do_not_matter() -> None:
    found = [{"id": 2, "amount": 5, "at": 1}, {"id": 1, "amount": 5, "at": 2}]
    columns = ["id", "amount", "at"]
    assert differences([{"id": 1}, {"id": 2}], found, columns) == []
    assert differences([{"id": 1}, {"id": 1}], found, columns) == [
        "missing     id=1",
        "unexpected  id=2",
    ]


def test_a_difference_names_the_rows_and_the_columns() -> None:
    columns = ["id", "amount"]
    found = [{"id": 1, "amount": 99.0}, {"id": 2, "amount": 5.0}, {"id": 4, "amount": 7.0}]
    expected = [{"id": 1, "amount": 100}, {"id": 2, "amount": 5}, {"id": 3, "amount": 1}]
    assert differences(expected, found, columns) == [
        "different   id=1: amount is 99.0, expected 100",
        "missing     id=3  amount=1",
        "unexpected  id=4  amount=7.0",
    ]
    assert differences([], [{"id": 1, "amount": None}], columns) == [
        "unexpected  id=1  amount=null"
    ]
    assert differences([{"total": 1}], found, columns) == [
        "there is no column 'total'; there are id, amount"
    ]
    many = [{"id": number, "amount": 0} for number in range(100)]
    assert len(differences([], many, columns)) == LINES_MAX + 1

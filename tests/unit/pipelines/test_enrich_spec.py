"""The fields of an enrich step, what it refuses with its line, and its place in the graph and in shared reads."""

import pytest

pytest.importorskip("yaml")
pytest.importorskip("pyspark")

from zhumq.pipelines.cases import find_cases
from zhumq.pipelines.document import SpecInvalid, parse_document
from zhumq.pipelines.graph import graph_of
from zhumq.pipelines.sharing import reads_of, views_that_are_read
from zhumq.pipelines.spec import EnrichStep, Missing, Pipeline
from zhumq.pipelines.spec_reader import parse_pipeline, with_values

TEXT = """\
name: orders
trigger: 10s
sources:
  records:
    topic: orders
  customers:
    table: tables/customers
    format: delta
  countries:
    jdbc: shop.countries
    options: {url: "jdbc:postgresql://db/shop"}
  prices:
    jdbc: shop.prices
    grows: id
    options: {url: "jdbc:postgresql://db/shop"}
steps:
  - {name: parsed, parse: records, format: json, schema: "customer INT, country STRING", on_error: drop}
  - name: named
    enrich: parsed
    table: customers
    by: {customer: id}
    columns: {customer_name: name, tier: tier}
    where: _valid_to IS NULL
    sequence_by: updated_at
    refresh: 90s
    missing: dead_letters
  - name: placed
    enrich: named
    table: countries
    by: country
    columns: [continent]
sinks:
  all: {topic: named}
  rows: {table: tables/rows}
dead_letters: {topic: bad}
tests:
  - name: one
    given: {records: [{value: {customer: 1}}], customers: [{id: 1}], countries: [{country: AT}], prices: [{id: 1}]}
    expect: {placed: []}
"""


def parse(text: str) -> Pipeline:
    return parse_pipeline(parse_document(text.encode(), "f.yml"), "f.yml", {})


def test_the_fields_of_the_step() -> None:
    pipeline = parse(TEXT)
    _, named, placed = pipeline.steps
    assert isinstance(named, EnrichStep)
    assert isinstance(placed, EnrichStep)
    assert (named.input, named.table, named.by) == ("parsed", "customers", (("customer", "id"),))
    assert named.columns == (("customer_name", "name"), ("tier", "tier"))
    assert named.where is not None
    assert (named.where[0], named.sequence, named.refresh_ms) == (
        "_valid_to IS NULL", "updated_at", 90_000,
    )  # fmt: skip
    assert named.missing is Missing.DEAD_LETTERS
    assert (placed.by, placed.columns) == ((("country", "country"),), (("continent", "continent"),))
    assert (placed.where, placed.sequence, placed.refresh_ms) == (None, None, 600_000)
    assert placed.missing is Missing.KEEP


def test_a_table_is_drawn_and_does_not_keep_sinks_from_sharing_a_read() -> None:
    pipeline = parse(TEXT)
    graph = graph_of(pipeline)
    edges = [(edge.source, edge.target) for edge in graph.edges]
    assert ("customers", "named") in edges
    assert ("countries", "placed") in edges
    assert ("named", "sink dead_letters") in edges
    assert [box.detail for box in graph.boxes if box.id == "named"] == ["enrich by customer"]
    assert reads_of(pipeline).shared == {"records": ("all", "rows", "dead_letters")}


def test_a_table_that_only_enriches_is_not_read_as_a_view() -> None:
    assert views_that_are_read(parse(TEXT)) == {"records", "parsed", "named", "placed"}
    joined = TEXT.replace(
        "  rows: {table: tables/rows}",
        "  rows: {table: tables/rows, batch_sql: SELECT * FROM batch JOIN customers USING (id)}",
    )
    assert "customers" in views_that_are_read(parse(joined))


def test_rows_for_the_table_are_given_in_a_test() -> None:
    whole = parse_document(TEXT.encode(), "f.yml")
    (case,) = find_cases(parse(TEXT), with_values(whole, "f.yml", {}), None)
    assert case.given["customers"].rows == ({"id": 1},)


@pytest.mark.parametrize(
    ("before", "after", "line", "words"),
    [
        ("table: customers", "table: records", 20, "there is no table 'records' among the sources"),
        ("table: customers", "table: prices", 20, "there are: customers, countries"),
        ("table: customers", "table: parsed", 20, "with `table`, or with `jdbc` and without `grows`"),
        ("enrich: parsed", "enrich: placed", 19, "there is no source or step 'placed' above"),
        ("    by: country\n", "", 27, "needs the field 'by'"),
        ("by: country", "by: []", 30, "names no column"),
        ("by: country", "by: [country, country]", 30, "names the column 'country' twice"),
        ("columns: [continent]", "columns: {}", 31, "names no column"),
        ("columns: [continent]", "columns: [_reason]", 31, "a column cannot be named '_reason'"),
        ("columns: [continent]", "columns: continent, area", 31, None),
        ("where: _valid_to IS NULL", "where: (_valid_to", 23, "the bracket ( is not closed"),
        ("sequence_by: updated_at", "sequence_by: id", 24, "names the column 'id', which is in the key"),
        ("refresh: 90s", "refresh: often", 25, "is a time such as 10s"),
        ("missing: dead_letters", "missing: fail", 26, "must be one of keep, drop, dead_letters"),
        ("dead_letters: {topic: bad}\n", "", 19, "finds bad rows: give the topic for them"),
        ("refresh: 90s", "refesh: 90s", 25, "did you mean 'refresh'?"),
    ],
)  # fmt: skip
def test_a_mistake_is_found_with_its_line(
    before: str, after: str, line: int, words: str | None
) -> None:
    assert before in TEXT
    text = TEXT.replace(before, after, 1)
    if words is None:
        # One text is one name; whether there is such a column is known when the table is read.
        assert parse(text).steps[2].columns == (("continent, area", "continent, area"),)  # type: ignore[union-attr]
        return
    with pytest.raises(SpecInvalid) as caught:
        parse(text)
    assert str(caught.value).startswith(f"f.yml:{line}: "), caught.value
    assert words in str(caught.value)

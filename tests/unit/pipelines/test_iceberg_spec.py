"""Iceberg tables in pipeline files: mistakes with their lines, secrets by reference, and what of rows fits a table."""

import pytest

pytest.importorskip("yaml")

from zhumq.pipelines.document import SpecInvalid, parse_document
from zhumq.pipelines.iceberg_spec import IcebergTarget, IcebergUnreachable
from zhumq.pipelines.sharing import reads_of
from zhumq.pipelines.spec import Pipeline, TableSink
from zhumq.pipelines.spec_reader import parse_pipeline

TEXT = """\
name: orders
sources: {records: {topic: orders}}
sinks:
  raw: {topic: raw}
  orders:
    table: shop.eu.orders
    format: iceberg
    partition_by: [day]
    options:
      catalog: prod
      type: sql
      uri: postgresql+psycopg2://host/catalog
      warehouse: file:///data/tables
      token: ${env:SHOP_TOKEN}
"""


def parse(text: str) -> Pipeline:
    return parse_pipeline(parse_document(text.encode(), "f.yml"), "f.yml", {})


def test_a_sink_names_its_table_and_its_catalog_and_shares_a_read() -> None:
    pipeline = parse(TEXT)
    sink = pipeline.sinks[1]
    assert isinstance(sink, TableSink)
    target = IcebergTarget.of(sink)
    assert (target.namespace, target.name) == (("shop", "eu"), "shop.eu.orders")
    assert target.catalog == "prod"
    assert target.options == {
        "type": "sql",
        "uri": "postgresql+psycopg2://host/catalog",
        "warehouse": "file:///data/tables",
        "token": "${env:SHOP_TOKEN}",
    }
    assert reads_of(pipeline).shared == {"records": ("raw", "orders")}
    unnamed = parse(TEXT.replace("      catalog: prod\n", "")).sinks[1]
    assert isinstance(unnamed, TableSink)
    assert IcebergTarget.of(unnamed).catalog == "default"


@pytest.mark.parametrize(
    ("before", "after", "line", "words"),
    [
        ("shop.eu.orders", "orders", 6, "table: is a namespace and a table, as shop.orders, not 'orders'"),
        ("shop.eu.orders", "shop..orders", 6, "table: is a namespace and a table"),
        ("shop.eu.orders", "file:/data/my orders.x", 6, "table: is a namespace and a table"),
        ("type: sql", "type: sqlite", 11, "options.type: must be one of sql, rest, glue, hive, not 'sqlite'"),
        ("      type: sql\n", "", 10, "options: needs the field 'type'"),
        ("      uri: postgresql+psycopg2://host/catalog\n", "", 10, "options: needs the field 'uri'"),
        ("      warehouse: file:///data/tables\n", "", 10, "options: needs the field 'warehouse'"),
        ("file:///data/tables", "tables", 13, "warehouse: is the whole path of a folder, as file:///data/tables, not"),
        ("${env:SHOP_TOKEN}", "open-sesame", 14, "sinks.orders.options.token: holds a secret: give it by reference"),
        ("token: ${env:SHOP_TOKEN}", "s3.secret-access-key: open-sesame", 14, "holds a secret"),
        ("token: ${env:SHOP_TOKEN}", "credential: open-sesame", 14, "holds a secret"),
        ("token: ${env:SHOP_TOKEN}", "header.Authorization: open-sesame", 14, "holds a secret"),
        ("host/catalog", "u:open-sesame@host/catalog", 12, "uri: holds a secret: give the whole uri by reference"),
        ("host/catalog", "host/catalog?password=open-sesame", 12, "uri: holds a secret"),
        ("    partition_by: [day]", "    keys: [id]", 8, "keys: is for format: jdbc, not for iceberg"),
        ("    partition_by: [day]", "    upkeep: {every: 1h}", 8, "upkeep: is for format: delta and for merge, not"),
    ],
)  # fmt: skip
def test_a_mistake_names_its_line_and_never_a_secret(
    before: str, after: str, line: int, words: str
) -> None:
    assert before in TEXT
    with pytest.raises(SpecInvalid) as caught:
        parse(TEXT.replace(before, after, 1))
    error = str(caught.value)
    assert error.startswith(f"f.yml:{line}: "), error
    assert words in error, error
    assert "open-sesame" not in error


def test_a_whole_uri_may_be_a_reference() -> None:
    parse(TEXT.replace("postgresql+psycopg2://host/catalog", "${env:SHOP_CATALOG}"))
    rest = TEXT.replace("type: sql", "type: rest").replace(
        "      warehouse: file:///data/tables\n", ""
    )
    parse(rest.replace("postgresql+psycopg2://host/catalog", "https://host/catalog"))


def test_a_login_hides_what_its_references_lead_to(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyiceberg")
    from zhumq.pipelines.iceberg_catalog import CatalogLogin

    given = {"type": "sql", "uri": "${env:SHOP_CATALOG}"}
    monkeypatch.delenv("SHOP_CATALOG", raising=False)
    with pytest.raises(IcebergUnreachable, match="environment variable SHOP_CATALOG is not set"):
        CatalogLogin.of(given)
    monkeypatch.setenv("SHOP_CATALOG", "open-sesame")
    login = CatalogLogin.of(given)
    assert login.options["uri"] == "open-sesame"
    assert "open-sesame" not in repr(login)
    text = "no open-sesame\nhere\n[SQL: SELECT ?]\n(Background on this error at: https://x)"
    assert login.without_secrets(text) == "no *** here"

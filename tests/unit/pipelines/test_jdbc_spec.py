"""Databases in pipeline files: mistakes with their lines, secrets by reference, and the SQL of a batch."""

import pytest

pytest.importorskip("yaml")
pytest.importorskip("pyspark")

from zhumq.pipelines.document import SpecInvalid, parse_document
from zhumq.pipelines.jdbc_connection import JdbcUnreachable, Login
from zhumq.pipelines.jdbc_statements import (
    Database,
    TargetColumn,
    beside,
    database_of,
    is_table_name,
    transfer,
)
from zhumq.pipelines.sharing import reads_of
from zhumq.pipelines.spec import Pipeline, TableSink
from zhumq.pipelines.spec_reader import parse_pipeline

TEXT = """\
name: orders
sources: {records: {topic: orders}}
sinks:
  raw: {topic: raw}
  orders:
    table: shop.orders
    format: jdbc
    keys: [id, "line"]
    sequence_by: changed
    options:
      url: jdbc:postgresql://host/shop
      user: shop
      password: ${env:SHOP_PASSWORD}
"""


def parse(text: str) -> Pipeline:
    return parse_pipeline(parse_document(text.encode(), "f.yml"), "f.yml", {})


def test_a_sink_with_keys_gets_each_batch_once_and_shares_a_read() -> None:
    pipeline = parse(TEXT)
    sink = pipeline.sinks[1]
    assert isinstance(sink, TableSink)
    assert sink.jdbc is not None
    assert sink.jdbc.database is Database.POSTGRESQL
    assert (sink.jdbc.keys, sink.jdbc.sequence) == (("id", "line"), "changed")
    assert sink.jdbc.options["password"] == "${env:SHOP_PASSWORD}"
    assert reads_of(pipeline).shared == {"records": ("raw", "orders")}
    other = TEXT.replace("jdbc:postgresql:", "jdbc:oracle:")
    other = other.replace('    keys: [id, "line"]\n    sequence_by: changed\n', "")
    assert reads_of(parse(other)).own["orders"] == "jdbc repeats rows"


@pytest.mark.parametrize(
    ("before", "after", "line", "words"),
    [
        ("${env:SHOP_PASSWORD}", "open-sesame", 13, "sinks.orders.options.password: holds a secret"),
        ("password: ${env:SHOP_PASSWORD}", "sslpassword: open-sesame", 13, "holds a secret: give it by"),
        ("password: ${env:SHOP_PASSWORD}", "password: a${env:SHOP_PASSWORD}", 13, "holds a secret"),
        ("host/shop", "host/shop?user=a&password=open-sesame", 11, "url: holds a secret: give it as an option"),
        ("host/shop", "u:open-sesame@host/shop", 11, "url: holds a secret"),
        ("      url: jdbc:postgresql://host/shop\n", "", 11, "options: needs the field 'url'"),
        ("url: jdbc:postgresql://host", "url: postgresql://host", 11, "url: begins with jdbc:"),
        ("url: jdbc:postgresql://host", "url: jdbc:oracle://host", 8, "keys: is for databases whose upsert is known"),
        ("user: shop", "dbtable: other", 12, "is not an option here: the pipeline's file names the table"),
        ("user: shop", "isolationLevel: none", 12, "isolationLevel: NONE is without transactions"),
        ("    sequence_by: changed\n", "", 8, "keys: needs the field 'sequence_by'"),
        ("sequence_by: changed", "sequence_by: line", 9, "sequence_by: names the column 'line', which is a key"),
        ('    keys: [id, "line"]\n', "", 8, "sequence_by: is for a sink with keys"),
        ('[id, "line"]', "[]", 8, "keys: names no column"),
        ('[id, "line"]', "[id, id]", 8, "keys: names the column 'id' twice"),
        ('[id, "line"]', "[zhumq_task]", 8, "keys: names the column 'zhumq_task', which the staging"),
        ("shop.orders", "orders; DROP TABLE x", 6, "table: is a table such as orders, shop.orders"),
        ("sequence_by", "partition_by: [day]\n    sequence_by", 9, "partition_by: is not for format: jdbc"),
        ("format: jdbc", "format: parquet", 8, "keys: is for format: jdbc, not for parquet; a `merge`"),
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


def test_a_login_hides_what_its_references_lead_to(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"url": "jdbc:sqlite:a.db", "password": "${env:SHOP_PASSWORD}"}
    monkeypatch.delenv("SHOP_PASSWORD", raising=False)
    with pytest.raises(JdbcUnreachable, match="the environment variable SHOP_PASSWORD is not set"):
        Login.of(given)
    monkeypatch.setenv("SHOP_PASSWORD", "open-sesame")
    login = Login.of(given)
    assert login.options["password"] == "open-sesame"
    assert login.options["driver"] == "org.sqlite.JDBC"
    assert "open-sesame" not in repr(login)
    assert login.without_secrets("no open-sesame\nhere") == "no *** here"


def test_the_names_of_tables() -> None:
    assert database_of("jdbc:SQLite:x.db") is Database.SQLITE
    assert database_of("jdbc:mysql://h") is None
    for name in ("orders", "shop.orders", '"My Orders"', 'a."b.c".d'):
        assert is_table_name(name)
    for name in ("", "a.", "a b", "a;b", 'a"b', "a.b.c.d", "(select 1) x", "a--", "ä"):
        assert not is_table_name(name)
    assert beside("orders", "x") == "x"
    assert beside('shop."My.Orders"', "x") == "shop.x"


def test_the_statement_of_a_batch() -> None:
    columns = [
        TargetColumn(name="id", type_name="int8"),
        TargetColumn(name='a"b', type_name="jsonb"),
        TargetColumn(name="seq", type_name="int8"),
    ]
    plain = (
        'INSERT INTO s.t AS old ("id", "a""b", "seq")'
        ' SELECT staged."id", CAST(staged."a""b" AS jsonb), staged."seq" FROM s.x AS staged'
        " WHERE zhumq_attempt IN (SELECT MIN(zhumq_attempt) FROM s.x GROUP BY zhumq_task)"
    )
    texts = frozenset({'a"b'})
    assert transfer("s.t", "s.x", columns, texts=texts) == plain
    assert transfer("s.t", "s.x", columns, texts=texts, keys=["id"], sequence="seq") == (
        f'{plain} ON CONFLICT ("id") DO UPDATE SET "a""b" = excluded."a""b", "seq" = excluded."seq"'
        ' WHERE old."seq" IS NULL OR excluded."seq" >= old."seq"'
    )

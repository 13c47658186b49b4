"""Messages that no sender should send: each becomes a row or a dead letter, and none stops or delays a pipeline."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql import SparkSession

from zhumq.pipelines.document import parse_document
from zhumq.pipelines.spec_reader import parse_pipeline
from zhumq.pipelines.views import build_steps, new_session

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

RECORD = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
LARGE = 200_000
POISON = [
    None,
    b"",
    b" ",
    b"\0",
    b"\0\0\0\0\7",
    b"null",
    b"[]",
    b"{}",
    b"\xff\xfe\x00{",
    b'{"id": "\xff"}',
    b'{"text": "\\ud800"}',
    b'{"id": 1, "id": 2}',  # a field twice
    b'{"new": 1, "new": 2, "id": 3}',  # a field that the schema does not have, twice
    b'{"ID": 1, "id": 2}',
    b'{"": 1}',
    b'{"id": 1e400, "price": 1e400}',
    b'{"price": 1e999999999}',
    b'{"price": -1e-999999999}',
    b'{"id": 99999999999999999999999999}',
    b'{"at": "9999999-01-01T00:00:00Z"}',
    b'{"at": 1e300}',
    b'{"day": "0000-00-00"}',
    b'{"id": 1}{"id": 2}',
    b'{"id": 1} rest',
    b"[" * LARGE,
    b'{"a":' * LARGE + b"1" + b"}" * LARGE,
    b'{"' + b"n" * LARGE + b'": 1}',
    b'{"text": "' + b"x" * LARGE + b'"}',
    b'{"id": ' + b"9" * LARGE + b"}",
    b'{"price": ' + b"9" * LARGE + b"}",
    b"{" + b",".join(b'"f%d": %d' % (each, each) for each in range(30_000)) + b"}",
    b"," * 30_000,
    b'"' * LARGE,
    b"id=1 id=2 new=1 new=2",
    b"=" * LARGE,
    b"a=" * 50_000,
    b'a="' + b"\\" * LARGE,
    b'level=info msg="' + b'\\"' * 5_000 + b'"',
    b"2026-01-01T00:00:00Z " * 5_000,
    b"Jan  1 00:00:00 " + b"x" * LARGE,
    b'127.0.0.1 - - [99/Foo/9999:99:99:99 +9999] "GET / HTTP/1.1" 200 5',
    b'{"op": "c", "after": {"id": 1}, "source": {"a": 1, "a": 2}}',
    b'{"payload": {"op": "d", "before": null}}',
    b'{"payload": "{}"}',
]
SCHEMA = "id BIGINT, text STRING, price DECIMAL(10, 2), ratio DOUBLE, at TIMESTAMP, day DATE"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("format_", "more"),
    [
        ("json", "on_change: add_columns"),
        ("json", "on_change: dead_letters"),
        ("csv", ""),
        ("logfmt", "on_change: add_columns"),
        ("debezium", ""),
        ("log", ""),
    ],
)
def test_each_message_becomes_a_row_or_a_dead_letter(
    spark: SparkSession, tmp_path: Path, format_: str, more: str
) -> None:
    schema = "" if format_ == "log" else f'schema: "{SCHEMA}", '
    text = (
        "name: orders\ntrigger: batch\nsources: {records: {topic: orders}}\ndead_letters: {topic: bad}\n"
        "sinks: {all: {console: 5}}\nsteps:\n"
        f"  - {{name: parsed, parse: records, format: {format_}, {schema}{more}}}\n"
    )
    pipeline = parse_pipeline(parse_document(text.encode(), "f.yml"), "f.yml", {})
    rows = [(b"k", each, "orders", 0, offset, None) for offset, each in enumerate(POISON)]
    records = spark.createDataFrame(rows, RECORD)
    views = build_steps(new_session(spark), pipeline, {"records": records}, None)
    assert views.bad_rows is not None
    # Every column is made, as a sink does it.
    good = [row["offset"] for row in views.frames["parsed"].collect()]
    bad = [
        int(bytes(each["value"]))
        for row in views.bad_rows.collect()
        for each in row["headers"]
        if each["key"] == "zhumq.offset"
    ]
    # A delete of Debezium is followed by a message without a value.
    left_out = [0] if format_ == "debezium" else []
    assert sorted(good + bad + left_out) == list(range(len(POISON)))

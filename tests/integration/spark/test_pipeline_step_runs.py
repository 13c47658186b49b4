"""The steps parse, expect and deduplicate on real Spark: formats, broken rows, changed schemas, rules, counts."""

import io
import json
import struct
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pipeline_support import Pipelines, headers_of, read_topic
from pyspark.sql import DataFrame, SparkSession
from spark_support import create_topic, produce

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.schemas import register_schema
from zhumq.pipelines.document import SpecInvalid, parse_document
from zhumq.pipelines.sinks import prepare
from zhumq.pipelines.spec_reader import parse_pipeline
from zhumq.pipelines.status import State
from zhumq.pipelines.stopping import PipelineFailed
from zhumq.pipelines.views import Views, build_steps, new_session
from zhumq.testing.broker import RunningBroker, broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

FRAME = struct.Struct(">BI")  # as Confluent's serializers write it
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
RECORD = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"


def records(spark: SparkSession, *values: bytes | None) -> DataFrame:
    rows = [
        (b"k", value, "orders", 0, offset, NOON + timedelta(minutes=offset))
        for offset, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, RECORD)


def built(spark: SparkSession, steps: str, *values: bytes | None, sinks: str = "") -> Views:
    """The views of these steps over records with these values, as in a batch run."""
    text = (
        "name: orders\ntrigger: batch\nsources: {records: {topic: orders}}\n"
        f"dead_letters: {{topic: bad}}\nsinks:\n  all: {{console: 5}}\n{sinks}steps:\n{steps}"
    )
    pipeline = parse_pipeline(parse_document(text.encode(), "f.yml"), "f.yml", {})
    session = new_session(spark)
    return build_steps(session, pipeline, {"records": records(session, *values)}, None)


def rows_of(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.orderBy("offset").selectExpr(*columns).collect()]


def reasons_of(views: Views) -> dict[str, str]:
    """The reasons of the dead letters, by offset."""
    assert views.bad_rows is not None
    found = {}
    for row in views.bad_rows.collect():
        headers = {each["key"]: bytes(each["value"]).decode() for each in row["headers"]}
        found[headers["zhumq.offset"]] = headers["zhumq.reason"]
    return found


@pytest.mark.thorough
def test_fields_of_json_csv_and_logfmt_become_columns(spark: SparkSession) -> None:
    json_step = (
        "  - {name: parsed, parse: records, format: json, schema: 'id BIGINT, key STRING, tags"
        " ARRAY<STRING>', on_change: add_columns}\n"
    )
    views = built(
        spark, json_step, b'{"id": 1, "key": "own", "new": {"a": [1]}, "word": "w"}', b"{", None,
        b'{"id": "x"}', b'{"id": 5, "tags": ["a"]}',
    )  # fmt: skip
    assert rows_of(views.frames["parsed"], "id", "key", "tags", "_added") == [
        (1, "own", None, {"new": '{"a":[1]}', "word": "w"}),
        (5, None, ["a"], None),
    ]
    malformed = "not JSON of the given schema"
    assert reasons_of(views) == {"1": malformed, "2": malformed, "3": malformed}
    assert views.bad_rows is not None
    assert views.counters.take(views.bad_rows) == {"parsed.broken": 3, "parsed.changed": 1}

    csv_step = (
        "  - {name: parsed, parse: records, format: csv, schema: 'id BIGINT, text STRING, d DATE',"
        ' options: {sep: ";"}}\n'
    )
    views = built(
        spark, csv_step, b'1;"a;""b""";2026-01-02\n', b"1;a", b"x;a;2026-01-02", b"", b"1;a;2026-01-02;4",
        b"1;a;2026-01-02\n2;b;2026-01-02", b'7;"two\nlines";', None,
    )  # fmt: skip
    assert rows_of(views.frames["parsed"], "id", "text", "CAST(d AS STRING)") == [
        (1, 'a;"b"', "2026-01-02"),
        (7, "two\nlines", None),
    ]
    assert set(reasons_of(views)) == {"1", "2", "3", "4", "5", "7"}

    logfmt_step = (
        "  - {name: parsed, parse: records, format: logfmt, schema: 'level STRING, n INT, t"
        " TIMESTAMP', on_change: dead_letters}\n"
    )
    views = built(
        spark, logfmt_step, rb'level="a \"b\"" n=5 t=2026-01-01T12:00:00Z', b"level=info n=five", b"hello",
        b"level=info level=warn n=", b'level=info msg="' + b"y" * 100_000 + b'"', b'level="open', b"level=info word",
    )  # fmt: skip
    assert rows_of(views.frames["parsed"], "level", "n", "unix_seconds(t)") == [
        ('a "b"', 5, int(NOON.timestamp())),
        ("info", None, None),
    ]
    reasons = reasons_of(views)
    assert reasons.pop("4") == "fields that the schema does not have: msg"
    assert reasons == dict.fromkeys(("1", "2", "5", "6"), "not logfmt of the given schema")


def test_changes_of_debezium_become_the_columns_that_a_merge_takes(spark: SparkSession) -> None:
    step = (
        "  - {name: parsed, parse: records, format: debezium, schema: 'id INT NOT NULL, city STRING,"
        " price DECIMAL(30, 10)'}\n"
    )
    merge = "  kept: {from: parsed, merge: kept, changes: debezium, keys: [id]}\n"
    change = {
        "before": None, "after": {"id": 1, "city": "Rome", "price": "12345678901234567890.25"},
        "op": "c", "ts_ms": 5, "source": {"lsn": 2**40, "db": None},
    }  # fmt: skip
    gone = {"before": {"id": 1}, "after": None, "op": "d", "ts_ms": 6}
    values = [
        json.dumps(change).encode(),
        json.dumps({"schema": {"type": "struct"}, "payload": gone}).encode(),
        None,
        b'{"id": 1, "city": "no envelope"}',
        b'{"before": null, "after": {"id": "x"}, "op": "c", "ts_ms": 7}',
        b"{",
    ]
    views = built(spark, step, *values, sinks=merge)
    parsed = views.frames["parsed"]
    assert rows_of(
        parsed, "op", "ts_ms", "before.id", "after.city", "after.price", "source['lsn']"
    ) == [
        ("c", 5, None, "Rome", Decimal("12345678901234567890.25"), str(2**40)),
        ("d", 6, 1, None, None, None),
    ]
    # The message without a value is left out, and is no bad row.
    broken = "not a change of Debezium of the given schema"
    assert reasons_of(views) == dict.fromkeys("345", broken)
    text = f"name: n\nsources: {{records: {{topic: t}}}}\nsteps:\n{step}sinks:\n{merge}dead_letters: {{topic: d}}\n"
    (sink,) = parse_pipeline(parse_document(text.encode(), "f.yml"), "f.yml", {}).sinks
    assert prepare(sink, parsed).count() == 2
    with pytest.raises(
        SpecInvalid, match="on_change: is not for debezium, whose envelope has fields"
    ):
        built(spark, step.replace("}\n", ", on_change: fail}\n"), *values)


@pytest.mark.thorough
def test_a_message_that_is_broken_or_changed_can_end_the_run(spark: SparkSession) -> None:
    step = "  - {name: parsed, parse: records, format: json, schema: id INT, on_error: drop"
    views = built(spark, f"{step}, on_change: fail}}\n", b'{"id": 1}', b"{", b'{"id": 2}')
    assert rows_of(views.frames["parsed"], "id") == [(1,), (2,)]
    assert views.bad_rows is None
    views = built(spark, f"{step}, on_change: fail}}\n", b'{"id": 1}', b'{"id": 2, "b": 1, "a": 2}')
    with pytest.raises(Exception, match=r"step 'parsed': fields .* not have: a, b, in orders-0 at"):
        views.frames["parsed"].collect()
    views = built(spark, step.replace("drop", "fail}\n"), b'{"id": 1}', b"{")
    with pytest.raises(Exception, match="not JSON of the given schema, in orders-0 at offset 1"):
        views.frames["parsed"].count()


@pytest.mark.thorough
def test_log_lines_and_avro_messages_become_columns(spark: SparkSession, tmp_path: Path) -> None:
    step = "  - {name: parsed, parse: records, format: log}\n"
    line = b"2026-01-01T08:00:00.123Z ERROR deliveries: van 7 has no driver"
    views = built(spark, step, line, b"nothing", b"2026-99-01T08:00:00Z INFO a: b")
    assert rows_of(views.frames["parsed"], "level", "service", "message") == [
        ("ERROR", "deliveries", "van 7 has no driver")
    ]
    assert reasons_of(views) == {
        "1": "not a log line of a known format",
        "2": "its time cannot be read",
    }
    schema = {
        "type": "record", "name": "Order", "fields": [
            {"name": "id", "type": "long"},
            {"name": "value", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
                {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}}]}}},
        ],
    }  # fmt: skip
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(schema))
    order = {"id": 7, "value": None, "at": NOON, "lines": [{"kind": "B"}]}
    good = encoded(schema, order)
    step = f"  - {{name: parsed, parse: records, format: avro, schema_file: {file}}}\n"
    views = built(spark, step, good, good[:-1], good + b"\0", b"", None)
    (row,) = views.frames["parsed"].collect()
    assert (row["id"], row["value"], row["lines"][0]["kind"]) == (7, None, "B")
    assert (row["at"].timestamp(), bytes(row["_message"]["value"])) == (NOON.timestamp(), good)
    assert set(reasons_of(views)) == {"1", "2", "3", "4"}


def encoded(schema: Any, value: dict[str, Any], schema_id: int | None = None) -> bytes:
    buffer = io.BytesIO()
    if schema_id is not None:
        buffer.write(FRAME.pack(0, schema_id))
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), value)
    return buffer.getvalue()


RULES = """\
  - {name: parsed, parse: records, format: json, schema: 'id INT, amount INT'}
  - name: good
    expect: parsed
    rules:
      - {name: known, rule: id IS NOT NULL, action: quarantine, sink: broken}
      - {name: positive, rule: amount > 0, action: drop}
      - {name: small, rule: amount < 100, action: warn}
      - {name: honest, rule: amount <> 666, action: fail}
"""


@pytest.mark.thorough
def test_rules_count_drop_quarantine_and_fail(spark: SparkSession) -> None:
    sinks = "  broken: {console: 5}\n"
    values = (b'{"id": 1, "amount": 5}', b'{"amount": 500}', b'{"id": 3, "amount": -1}', b'{"id": 4, "amount": 500}')  # fmt: skip
    views = built(spark, RULES, *values, b'{"amount": -7}', sinks=sinks)
    assert rows_of(views.frames["good"], "id", "amount") == [(1, 5), (4, 500)]
    assert views.counters.take(views.frames["good"]) == {
        "parsed.broken": 0, "good.known": 2, "good.positive": 2, "good.small": 2, "good.honest": 0,
    }  # fmt: skip
    assert rows_of(views.frames["quarantine of broken"], "offset", "_broken_rules", "_step") == [
        (1, ["known", "small"], "good"),
        (4, ["known", "positive"], "good"),
    ]
    views = built(spark, RULES, *values, b'{"id": 5, "amount": 666}', sinks=sinks)
    with pytest.raises(Exception, match="a row breaks the rule honest, in orders-0 at offset 4"):
        views.frames["good"].collect()
    # A row without an amount breaks a rule about it.
    views = built(spark, RULES, b'{"id": 5}', sinks=sinks)
    with pytest.raises(Exception, match="a row breaks the rule honest"):
        views.frames["quarantine of broken"].collect()


@pytest.mark.parametrize(
    ("before", "after", "line", "words"),
    [
        ("amount < 100", "amuont < 100", 15, "there is no column `amuont`"),
        ("amount < 100", "amount + 100", 15, "is int; a rule is true or false"),
        ("amount < 100", "count(*) > 1", 15, "rules[2].rule"),
        ("amount < 100", "amount <", 15, "rules[2].rule"),
        ("id INT, amount INT", "id INT, _message INT", 9, "a field cannot be named '_message'"),
        ("json,", "json, column: topci,", 9, "there is no column 'topci'; there are key, value"),
        ("json,", "json, column: partition,", 9, "the column 'partition' is int"),
    ],
)
def test_a_mistake_that_only_spark_finds_names_its_line_before_the_run(
    spark: SparkSession, before: str, after: str, line: int, words: str
) -> None:
    assert before in RULES
    with pytest.raises(SpecInvalid) as caught:
        built(spark, RULES.replace(before, after), sinks="  broken: {console: 5}\n")
    assert str(caught.value).startswith(f"f.yml:{line}: "), caught.value
    assert words in str(caught.value)


@pytest.mark.thorough
def test_a_key_is_kept_once_within_a_time(spark: SparkSession) -> None:
    step = "  - {name: once, deduplicate: records, by: value, within: 2 minutes}\n"
    # Records are a minute apart.
    views = built(spark, step, b"a", b"a", b"b", b"a", b"a", None, b"b", None)
    assert rows_of(views.frames["once"], "offset") == [(0,), (2,), (3,), (5,), (6,)]
    with pytest.raises(SpecInvalid, match=r"f\.yml:8: .* the column 'offset' is not a timestamp"):
        built(spark, step.replace("within", "time: offset, within"))
    with pytest.raises(SpecInvalid, match=r"f\.yml:8: steps\[0\]\.by: there is no column 'vlaue'"):
        built(spark, step.replace("by: value", "by: vlaue"))


STREAM = """\
name: orders
trigger: available-now
sources:
  records: {topic: orders}
steps:
  - name: parsed
    parse: records
    format: avro
    registry: {subject: orders-value, version: 1}
    on_change: add_columns
  - name: once
    deduplicate: parsed
    by: [id]
    within: 1 hour
  - name: good
    expect: once
    rules:
      - {name: positive, rule: amount > 0, action: quarantine, sink: broken}
      - {name: small, rule: amount < 100, action: warn}
sinks:
  good:
    from: good
    topic: good
    value: to_json(struct(id, amount, _added))
  broken: {topic: broken}
dead_letters: {topic: bad}
"""


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(settings={"log.retention.ms": "-1"}) as started:
        yield started


@pytest.mark.long
def test_a_stream_parses_deduplicates_and_quarantines(
    spark: SparkSession, running: RunningBroker, tmp_path: Path
) -> None:
    first = {
        "type": "record", "name": "Order",
        "fields": [{"name": "id", "type": "int"}, {"name": "amount", "type": "int"}],
    }  # fmt: skip
    second = {
        **first,
        "fields": [*first["fields"], {"name": "note", "type": "string", "default": ""}],
    }  # type: ignore[list-item,misc]
    with ClusterConnection(running.bootstrap) as connection:
        one = register_schema(connection, "orders-value", json.dumps(first)).id
        two = register_schema(connection, "orders-value", json.dumps(second)).id
    create_topic(running.bootstrap, "orders")
    values = [
        encoded(first, {"id": 1, "amount": 5}, one),
        encoded(second, {"id": 1, "amount": 5, "note": "again"}, two),
        encoded(second, {"id": 2, "amount": 500, "note": "hello"}, two),
        encoded(first, {"id": 3, "amount": -5}, one),
        FRAME.pack(0, 4711) + b"\2\2",
        b"plain",
    ]
    produce(running.bootstrap, "orders", values)
    pipelines = Pipelines(spark, running.bootstrap, tmp_path)
    status = pipelines.run(pipelines.write("orders.yml", STREAM))
    assert status.state is State.DONE
    assert status.counts == {
        "good.positive": 1, "good.small": 1, "parsed.broken": 2, "parsed.changed": 3,
    }  # fmt: skip
    (line,) = (each for each in pipelines.display.lines if "have changed" in each)
    assert line.startswith("orders: messages of the step parsed have changed: the schema 4711 was")
    good = Counter((each.value() or b"").decode() for each in read_topic(running.bootstrap, "good"))
    assert good == {
        '{"id":1,"amount":5}': 1,
        '{"id":2,"amount":500,"_added":{"note":"hello"}}': 1,
    }
    (broken,) = read_topic(running.bootstrap, "broken")
    assert broken.value() == values[3]
    assert headers_of(broken)["zhumq.reason"] == "breaks the rule positive"
    reasons = {headers_of(each)["zhumq.reason"] for each in read_topic(running.bootstrap, "bad")}
    assert reasons == {
        "the schema 4711 was not registered for it when the run started",
        "it does not begin with the id of a schema",
    }
    failing = STREAM.replace("name: orders", "name: failing").replace(
        "action: warn", "action: fail"
    )
    with pytest.raises(PipelineFailed, match="the rule small, in orders-0 at offset 2"):
        pipelines.run(pipelines.write("failing.yml", failing))
    late = STREAM.replace(
        "{topic: orders}", "{topic: orders, watermark: {column: timestamp, delay: 5m}}"
    )
    with pytest.raises(SpecInvalid, match=r":12: .*the watermark above has a delay of 300000 ms"):
        pipelines.run(pipelines.write("late.yml", late))

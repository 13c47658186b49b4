"""Mistakes in the steps of a pipeline file: each is found before a session starts, with its line."""

from pathlib import Path

import pytest

pytest.importorskip("yaml")
pytest.importorskip("pyspark")
pytest.importorskip("fastavro")

from zhumq.pipelines.document import SpecInvalid, parse_document
from zhumq.pipelines.spec import (
    Action,
    DeduplicateStep,
    ExpectStep,
    OnChange,
    OnError,
    ParseFormat,
    ParseStep,
    Pipeline,
    TopicSource,
)
from zhumq.pipelines.spec_reader import parse_pipeline

GOOD = """\
name: orders
trigger: 10s
sources:
  records:
    topic: orders
steps:
  - name: parsed
    parse: records
    format: json
    schema: |
      id BIGINT,
      amount DOUBLE
    on_error: drop
    on_change: add_columns
  - name: good
    expect: parsed
    rules:
      - name: positive
        rule: amount > 0
        action: quarantine
        sink: broken
      - {name: known, rule: id IS NOT NULL, action: fail}
      - {name: small, rule: amount < 1e6, action: warn}
  - name: once
    deduplicate: good
    by: [id]
    time: timestamp
    within: 10 minutes
  - name: large
    sql: |
      SELECT id, amount
      FROM once
      WHERE amount > 100
sinks:
  large:
    topic: large
    key: CAST(id AS STRING)
  broken:
    topic: broken
"""
AVRO = """\
name: orders
sources: {records: {topic: orders}}
steps:
  - name: parsed
    parse: records
    format: avro
    schema_file: order.avsc
sinks: {all: {console: 5}}
dead_letters: {topic: bad}
"""
ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'


def parse(text: str, file: str = "f.yml") -> Pipeline:
    return parse_pipeline(parse_document(text.encode(), file), file, {})


def refusal(text: str, file: str = "f.yml") -> str:
    with pytest.raises(SpecInvalid) as caught:
        parse(text, file)
    return str(caught.value)


def test_the_fields_of_the_steps() -> None:
    parsed, good, once, _ = parse(GOOD).steps
    assert isinstance(parsed, ParseStep)
    assert (parsed.format, parsed.on_error, parsed.on_change, parsed.column) == (
        ParseFormat.JSON, OnError.DROP, OnChange.ADD_COLUMNS, "value",
    )  # fmt: skip
    assert isinstance(good, ExpectStep)
    assert [(rule.name, rule.action, rule.sink) for rule in good.rules] == [
        ("positive", Action.QUARANTINE, "broken"),
        ("known", Action.FAIL, None),
        ("small", Action.WARN, None),
    ]
    assert isinstance(once, DeduplicateStep)
    assert (once.by, once.time, once.within_ms) == (("id",), "timestamp", 600_000)
    assert parse(GOOD).sinks[1].input == "quarantine of broken"


def test_a_parse_step_has_dead_letters_unless_it_says_otherwise() -> None:
    text = GOOD.replace("    on_error: drop\n", "")
    assert "f.yml:8: steps[0].parse: finds bad rows: give the topic for them" in refusal(text)
    step = parse(text + "dead_letters: {topic: bad}\n").steps[0]
    assert isinstance(step, ParseStep)
    assert step.on_error is OnError.DEAD_LETTERS


@pytest.mark.parametrize(
    ("before", "after", "line", "words"),
    [
        ("format: json", "format: jsno", 9, "must be one of json, csv, logfmt, debezium, avro, protobuf, log, not 'jsno' (did you mean 'json'?)"),
        ("    format: json\n", "", 7, "steps[0]: needs the field 'format'"),
        ("on_error: drop", "on_error: skip", 13, "on_error: must be one of fail, drop, dead_letters"),
        ("on_change: add_columns", "on_change: add", 14, "must be one of ignore, fail, add_columns"),
        ("format: json", "format: csv", 14, "on_change: is not for csv"),
        ("id BIGINT,", "id BIGNIT,", 11, "there is no type 'BIGNIT' (did you mean BIGINT?)"),
        ("amount DOUBLE", "amount", 13, "the column 'amount' has no type"),
        ("amount DOUBLE", "id DOUBLE", 12, "the column 'id' is there twice"),
        ("id BIGINT,", "id BIGINT", 12, "needs ',' before 'amount'"),
        ("id BIGINT,", "id ARRAY<INT,", 11, "needs '>' before ','"),
        ("id BIGINT,", "id VARCHAR,", 11, "VARCHAR needs a length"),
        ("format: json", "format: logfmt\n    options: {a: b}", 10, "logfmt has no options"),
        ("format: json", "format: json\n    options: {dateFromat: y}", 10, "did you mean 'dateFormat'?"),
        ("format: json", "format: json\n    schema_file: a.json", 10, "schema_file: excludes the field 'schema'"),
        ("format: json", "format: json\n    registry: {subject: a}", 10, "registry: excludes the field 'schema'"),
        ("format: json", "format: logfmt\n    schema_file: a.json", 10, "schema_file: is for format: json, avro and protobuf, not for logfmt"),
        ("format: json", "format: json\n    message: M", 10, "message: is for format: protobuf, not for json"),
        ("format: json", "format: protobuf", 10, "schema: is not for protobuf"),
        ("format: json", "format: log", 14, "on_change: is not for log lines"),
        ("format: json", "format: avro", 10, "schema: is not for avro"),
        ("parse: records", "parse: recrods", 8, "there is no source or step 'recrods' above"),
        ("action: fail", "action: stop", 22, "action: must be one of warn, drop, quarantine, fail"),
        ("        sink: broken\n", "", 18, "steps[1].rules[0]: needs the field 'sink'"),
        ("sink: broken", "sink: brokne", 19, "there is no sink 'brokne' for the quarantine"),
        ("action: warn", "action: warn, sink: broken", 23, "is for action: quarantine, not for warn"),
        ("name: known", "name: positive", 22, "there are two rules named 'positive'"),
        ("name: known", "name: Known", 22, "'Known' is not a name"),
        ("rule: amount > 0", "rule: (amount > 0", 19, "the bracket ( is not closed"),
        ("rule: amount > 0", "rule: amount > 'a", 19, "the quote ' is not closed"),
        ("    by: [id]\n", "", 24, "steps[2]: needs the field 'by'"),
        ("by: [id]", "by: []", 26, "steps[2].by: names no column"),
        ("by: [id]", "by: [id, id]", 26, "steps[2].by: names the column 'id' twice"),
        ("within: 10 minutes", "within: ten minutes", 28, "within: is a time such as 10s"),
        ("within: 10 minutes", "within: 0s", 28, "within: must be longer than 0"),
        ("within: 10 minutes", "within: 900d", 28, "within: is longer than a year"),
        ("within: 10 minutes", "witihn: 10 minutes", 28, "there is no such field (did you mean 'within'?)"),
        ("WHERE amount > 100", "WHERE amount > 100)", 33, "the bracket ) closes nothing"),
        ("FROM once", "FROM large", 30, "steps[3].sql: reads itself"),
        ("expect: parsed", "expect: once", 16, "there is no source or step 'once' above"),
        ("broken:\n    topic: broken", "broken:\n    from: good\n    topic: broken", 39, "is not for the sink of a quarantine"),
        ("key: CAST(id AS STRING)", "key: CAST(id AS STRING", 37, "sinks.large.key: the bracket ( is not closed"),
        ("    topic: orders\n", "    topic: orders\n    watermark: {column: timestamp, delay: soon}\n", 6, "delay: is a time such as 10s"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_step_names_its_line(before: str, after: str, line: int, words: str) -> None:
    assert before in GOOD
    error = refusal(GOOD.replace(before, after, 1))
    assert error.startswith(f"f.yml:{line}: "), error
    assert words in error, error


def test_a_query_cannot_read_a_step_below_it() -> None:
    below = "  - name: early\n    sql: SELECT * FROM records JOIN once USING (id)\nsteps_end"
    text = GOOD.replace("steps:\n", f"steps:\n{below}", 1).replace("steps_end", "")
    assert "f.yml:8: steps[0].sql: reads the step 'once' below" in refusal(text)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (None, "cannot read"),
        ("{", "the schema is no JSON"),
        ('"string"', "the schema of a message must be a record"),
        (ORDER.replace('"long"', '["int", "string"]'), "has several types: a column has one"),
        (ORDER.replace('"long"', '["null", "Order"]'), "the type 'Order' contains itself"),
        (ORDER.replace("long", "lnog"), "there is no Avro type 'lnog'"),
    ],
)
def test_an_avro_schema_that_cannot_be_used_names_its_line(
    tmp_path: Path, schema: str | None, words: str
) -> None:
    if schema is not None:
        (tmp_path / "order.avsc").write_text(schema)
    file = str(tmp_path / "f.yml")
    error = refusal(AVRO, file)
    assert error.startswith(f"{file}:7: steps[0].schema_file: "), error
    assert words in error, error


def test_an_avro_schema_is_read_beside_the_pipeline_file(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(ORDER)
    step = parse(AVRO, str(tmp_path / "f.yml")).steps[0]
    assert isinstance(step, ParseStep)
    assert step.source is not None
    assert step.source.text == ORDER


def test_the_schema_of_a_subject() -> None:
    text = AVRO.replace("schema_file: order.avsc", "registry: {subject: orders-value, version: 2}")
    step = parse(text).steps[0]
    assert isinstance(step, ParseStep)
    assert step.source is not None
    assert (step.source.subject, step.source.version) == ("orders-value", 2)
    assert "registry.version: must be a whole number" in refusal(text.replace("2}", "two}"))
    both = AVRO.replace("schema_file", "registry: {subject: a}\n    schema_file")
    assert "excludes the field 'schema_file'" in refusal(both)


JSON_SCHEMA = AVRO.replace("format: avro", "format: json").replace("order.avsc", "order.json")


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (None, "cannot read"),
        ("{", "the schema is not JSON"),
        ('{"type": "string"}', "the schema names no properties"),
        ('{"properties": {"id": {}, "ID": {}}}', "two properties differ only in their case: 'id'"),
    ],
)
def test_a_json_schema_that_cannot_be_used_names_its_line(
    tmp_path: Path, schema: str | None, words: str
) -> None:
    if schema is not None:
        (tmp_path / "order.json").write_text(schema)
    file = str(tmp_path / "f.yml")
    error = refusal(JSON_SCHEMA, file)
    assert error.startswith(f"{file}:7: steps[0].schema_file: "), error
    assert words in error, error


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("10m", 600_000), ("1 hour 30 minutes", 5_400_000), ("interval 2 days", 172_800_000), ("500 ms", 500), ("1w", 604_800_000)],
)  # fmt: skip
def test_times_are_written_as_in_spark_and_shorter(text: str, milliseconds: int) -> None:
    step = parse(GOOD.replace("within: 10 minutes", f"within: {text}")).steps[2]
    assert isinstance(step, DeduplicateStep)
    assert step.within_ms == milliseconds
    source = f"    topic: orders\n    watermark: {{column: timestamp, delay: {text}}}\n"
    marked = parse(GOOD.replace("    topic: orders\n", source, 1)).sources[0]
    assert isinstance(marked, TopicSource)
    assert marked.watermark is not None
    assert marked.watermark.delay == f"{milliseconds} milliseconds"


PROTOBUF = AVRO.replace("format: avro", "format: protobuf").replace("order.avsc", "order.proto")
ORDER_PROTO = (
    'syntax = "proto3"; import "shop/money.proto"; message Order { shop.Money total = 1; }'
)
MONEY_PROTO = 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }'


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (None, "cannot read"),
        (ORDER_PROTO, "shop/money.proto: File not found"),
        ("syntax = \"proto3\"; message", "Expected message name"),
        ('syntax = "proto3"; message A { int32 a = 1; } message B { int32 a = 1; }', "has 2 messages, A, B: name one with `message`"),
        ('syntax = "proto3"; message A {}', "the message A has no fields"),
        ('syntax = "proto3"; message A { int32 a = 1; int32 A = 2; }', "two fields differ only in their case"),
        ('syntax = "proto3";', "the schema has 0 messages"),
    ],
)  # fmt: skip
def test_a_protobuf_schema_that_cannot_be_used_names_its_line(
    tmp_path: Path, schema: str | None, words: str
) -> None:
    if schema is not None:
        (tmp_path / "order.proto").write_text(schema)
    file = str(tmp_path / "f.yml")
    error = refusal(PROTOBUF, file)
    assert error.startswith(f"{file}:7: steps[0].schema_file: "), error
    assert words in error, error


def test_a_protobuf_schema_is_read_with_its_imports(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "order.proto").write_text(ORDER_PROTO)
    (tmp_path / "shop/money.proto").write_text(MONEY_PROTO)
    text = PROTOBUF.replace("order.proto", "order.proto\n    message: shop.Money")
    step = parse(text, str(tmp_path / "f.yml")).steps[0]
    assert isinstance(step, ParseStep)
    assert step.source is not None
    assert step.source.imports == (("shop/money.proto", MONEY_PROTO),)
    assert step.source.message == "shop.Money"
    error = refusal(text.replace("shop.Money", "Money"), str(tmp_path / "f.yml"))
    assert "there is no message 'Money' in the schema; it has Order" in error

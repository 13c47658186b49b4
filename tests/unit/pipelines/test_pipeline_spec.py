"""Pipeline files: valid ones become a spec, and errors of invalid ones name the line."""

import re
from pathlib import Path

import pytest

pytest.importorskip("yaml")
pytest.importorskip("pyspark")

from hypothesis import given
from hypothesis import strategies as st

from zhumq.pipelines.document import FILE_BYTES_MAX, SpecInvalid, parse_document, read_document
from zhumq.pipelines.library_files import NoSuchPipeline, find_pipeline, shipped
from zhumq.pipelines.sinks import all_sinks
from zhumq.pipelines.spec import (
    ChangeFormat,
    CheckStep,
    MergeSink,
    ParseStep,
    Pipeline,
    PythonStep,
    SqlStep,
    TableSink,
    TopicSink,
    TopicSource,
    TriggerKind,
)
from zhumq.pipelines.spec_reader import load_pipeline, parse_pipeline

GOOD = """\
name: orders
trigger: 10s
parameters:
  topic: orders
  table: tables/${topic}
sources:
  records:
    topic: ${topic}
    headers: true
steps:
  - name: parsed
    json: records
    schema: id BIGINT, amount DOUBLE
  - name: good
    check: parsed
    rules:
      - {rule: amount > 0, reason: nothing was paid}
  - name: large
    sql: |
      SELECT id, amount
      FROM good
      WHERE amount > 100
  - name: counted
    python: shop.steps:count
    inputs: [large]
    arguments: {by: id}
sinks:
  table:
    from: good
    table: ${table}
    partition_by: [topic]
  large:
    from: counted
    topic: large-orders
    key: CAST(id AS STRING)
    keep: [headers, timestamp]
dead_letters:
  topic: ${topic}.dlq
"""


def parse(text: str, **values: str) -> Pipeline:
    return parse_pipeline(parse_document(text.encode(), "f.yml"), "f.yml", values)


def refusal(text: str, **values: str) -> str:
    with pytest.raises(SpecInvalid) as caught:
        parse(text, **values)
    return str(caught.value)


def test_a_file_has_sources_steps_and_sinks() -> None:
    pipeline = parse(GOOD)
    assert (pipeline.name, pipeline.trigger.kind) == ("orders", TriggerKind.INTERVAL)
    assert pipeline.trigger.interval == "10 seconds"
    source = pipeline.sources[0]
    assert isinstance(source, TopicSource)
    assert source.options == {
        "subscribe": "orders",
        "startingOffsets": "earliest",
        "includeHeaders": "true",
    }
    assert [type(step) for step in pipeline.steps] == [ParseStep, CheckStep, SqlStep, PythonStep]
    table, topic = pipeline.sinks
    assert isinstance(table, TableSink)
    assert (table.path, table.format, table.partition_by) == (
        "tables/orders",
        "parquet",
        ("topic",),
    )
    assert isinstance(topic, TopicSink)
    assert topic.keep == ("headers", "timestamp")
    assert pipeline.dead_letters is not None
    assert pipeline.dead_letters.topic == "orders.dlq"
    assert pipeline.dead_letters.options == {}


def test_dead_letters_have_the_options_of_a_topic_sink() -> None:
    text = GOOD + '  options: {exactlyOnce: "true"}\n'
    sink = all_sinks(parse(text))[-1]
    assert isinstance(sink, TopicSink)
    assert (sink.name, sink.topic, sink.options) == (
        "dead_letters",
        "orders.dlq",
        {"exactlyOnce": "true"},
    )
    found = refusal(GOOD + '  options: {exactlyTwice: "true"}\n')
    assert found.startswith("f.yml:39: dead_letters.options.exactlyTwice: ")


def test_parameters_are_filled_in_and_can_be_given() -> None:
    pipeline = parse(GOOD, topic="payments")
    table = pipeline.sinks[0]
    assert isinstance(table, TableSink)
    assert table.path == "tables/payments"


def test_an_error_within_sql_names_the_line_of_the_file() -> None:
    step = parse(GOOD).steps[2]
    lines = GOOD.splitlines()
    error = step.mark.wrong("there is no column", text_line=3)
    assert lines[int(str(error).split(":")[1]) - 1].strip() == "WHERE amount > 100"


@pytest.mark.parametrize(
    ("before", "after", "line", "words"),
    [
        ("trigger: 10s", "trigger: soon", 2, "trigger: is batch, available-now, or a time"),
        ("name: orders", "name: a/b", 1, "name: 'a/b' is not a name"),
        ("name: orders", "nmae: orders", 1, "nmae: there is no such field (did you mean 'name'?)"),
        ("${topic}.dlq", "${tpoic}.dlq", 38, "dead_letters.topic: there is no parameter 'tpoic'"),
        ("headers: true", "headers: yes", 9, "sources.records.headers: must be true or false"),
        ("json: records", "json: recrods", 12, "steps[0].json: there is no source or step 'recrods'"),
        ("check: parsed", "chekc: parsed", 14, "steps[1]: needs one of the fields sql, python"),
        ("python: shop.steps:count", "python: shop.count", 24, "steps[3].python: is module:function"),
        ("rule: amount > 0, ", "", 17, "steps[1].rules[0]: needs the field 'rule'"),
        ("partition_by: [topic]", "partition_by: {a: b}", 31, "sinks.table.partition_by: must be"),
        ("    table: ${table}", "    table: ${table}\n    topic: a", 30, "excludes the field 'topic'"),
        ("    table: ${table}", "    table: ${table}\n    format: exel", 31, "sinks.table.format: must be"),
        ("    table: ${table}", "    table: a.t\n    format: iceberg", 29, "needs the options of its catalog: {type: sql"),
        ("    table: ${table}", "    table: t\n    format: delta\n    options: {a: b}", 32, "is not for format: delta"),
        ("keep: [headers, timestamp]", "keep: [value]", 36, "sinks.large.keep[0]: must be one of headers"),
        ("name: counted", "name: good", 23, "steps[3].name: there are two views named 'good'"),
        ("name: counted", "name: Counted!", 23, "steps[3].name: 'Counted!' is not a name"),
        ("headers: true", "options: {maxOffsetsPerTrigger: -1}", 9, "sources.records.options.maxOffsetsPerTrigger: "),
        ("headers: true", "options: {subscribePattern: a}", 8, "sources.records.topic: subscribe and"),
        ("headers: true", "columns: [value, vlaue]", 9, "there is no column 'vlaue'"),
        ("headers: true", "from: yesterday", 9, "sources.records.from: startingOffsets"),
        ("topic: ${topic}\n", "segments: data\n", 8, "a stream needs a broker"),
        ("topic: large-orders", "topic: large-orders\n    rate: 5", 35, "rate: is for trigger: batch"),
        ("dead_letters:\n  topic: ${topic}.dlq\n", "", 12, "finds bad rows: give the topic for them"),
        ("sinks:\n", "sinks:\n  dead_letters: {topic: a}\n", 28, "cannot name a sink"),
        ("parameters:", "parameters: [", 5, "this is not YAML"),
        ("trigger: 10s", "trigger: 10s\ntrigger: 20s", 3, "trigger: is given twice"),
    ],
)  # fmt: skip
def test_an_error_names_the_line_and_the_field(
    before: str, after: str, line: int, words: str
) -> None:
    assert before in GOOD
    error = refusal(GOOD.replace(before, after, 1))
    assert error.startswith(f"f.yml:{line}: "), error
    assert words in error, error


def test_a_parameter_without_a_value_must_be_given() -> None:
    text = GOOD.replace("topic: orders\n", "topic:\n", 1)
    assert "f.yml:4: parameters.topic: has no value: give it with --set topic=..." in refusal(text)
    assert parse(text, topic="a").dead_letters is not None


def test_an_unknown_parameter_is_refused() -> None:
    assert "there is no parameter 'tabel'; there are: topic, table" in refusal(GOOD, tabel="x")


@pytest.mark.parametrize("text", ["", "# nothing", "[]", "just words", "name: a", "- a\n- b"])
def test_a_file_that_is_no_pipeline_is_refused(text: str) -> None:
    assert refusal(text).startswith("f.yml:1: ")


def test_a_file_that_is_nested_without_end_is_refused() -> None:
    assert "nested too deeply" in refusal("[" * 50_000)


def test_a_file_that_is_far_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.yml"
    path.write_bytes(b"a" * (FILE_BYTES_MAX + 1))
    with pytest.raises(SpecInvalid, match="is larger than"):
        read_document(path)


def test_an_alias_that_multiplies_is_refused() -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(
        f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]\n" for n in range(1, 40)
    )
    assert "there is no such field" in refusal(bomb)


@given(raw=st.binary(max_size=200))
def test_any_bytes_are_a_pipeline_or_an_error_with_a_line(raw: bytes) -> None:
    with pytest.raises(SpecInvalid, match=r"^f\.yml:\d+: "):
        parse_pipeline(parse_document(raw, "f.yml"), "f.yml", {})


def test_the_pipelines_that_come_with_zhumq_are_valid() -> None:
    values = {"topic": "orders", "table": "t", "target": "again"}
    assert set(shipped()) == {"archive", "audit", "inspect", "replay"}
    for path in shipped().values():
        declared = read_document(path).fields().need("parameters").fields()
        names = {name for name, _ in declared}
        own = {name: value for name, value in values.items() if name in names}
        assert load_pipeline(path, own).description


def test_the_file_in_the_docs_is_valid() -> None:
    docs = Path(__file__).resolve().parents[3] / "docs" / "pipelines" / "README.md"
    (text,) = re.findall(r"```yaml\n(.*?)```", docs.read_text(), re.DOTALL)
    pipeline = parse(text)
    assert (pipeline.name, len(pipeline.steps), len(pipeline.sinks)) == ("large-orders", 4, 2)
    # The error in the docs is in the third step, and names the right line.
    shown = re.search(r"large-orders\.yml:(\d+): steps\[2\]\.sql", docs.read_text())
    assert shown is not None
    assert "amount >= 1000" in text.splitlines()[int(shown[1]) - 1]


def test_a_pipeline_is_found_by_its_file_or_its_name(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yml"
    mine.write_text(GOOD)
    assert find_pipeline(str(mine)) == mine
    assert find_pipeline("archive") == shipped()["archive"]
    assert find_pipeline("archive.yml") == shipped()["archive"]
    with pytest.raises(NoSuchPipeline, match="zhumq comes with archive, audit, inspect, replay"):
        find_pipeline("archiev")


MERGE = """\
name: customers
sources:
  changes: {topic: changes}
sinks:
  table:
    merge: tables/customers
    keys: [id]
    sequence_by: seq
    apply_as_deletes: op = 'gone'
    except_columns: [op]
    scd_type: 2
    partition_by: [country]
"""


def test_a_merge_has_keys_a_sequence_and_a_kind() -> None:
    (sink,) = parse(MERGE).sinks
    assert isinstance(sink, MergeSink)
    assert (sink.path, sink.keys, sink.sequence[0]) == ("tables/customers", ("id",), "seq")
    assert (sink.scd_type, sink.changes, sink.partition_by) == (2, ChangeFormat.ROWS, ("country",))
    without = MERGE.replace("    sequence_by: seq\n    apply_as_deletes: op = 'gone'\n", "")
    (sink,) = parse(without.replace("scd_type: 2", "changes: debezium")).sinks
    assert isinstance(sink, MergeSink)
    assert (sink.scd_type, sink.sequence[0], sink.deletes) == (1, "ts_ms", None)


@pytest.mark.parametrize(
    ("before", "after", "line", "words"),
    [
        ("    keys: [id]\n", "", 6, "needs the field 'keys'"),
        ("keys: [id]", "keys: []", 7, "keys: names no column"),
        ("keys: [id]", "keys: [id, id]", 7, "names the column 'id' twice"),
        ("keys: [id]", "keys: [_sequence]", 7, "which the merge itself writes"),
        ("keys: [id]", "kyes: [id]", 7, "(did you mean 'keys'?)"),
        ("    sequence_by: seq\n", "", 6, "needs the field 'sequence_by'"),
        ("sequence_by: seq", "sequence_by: max(seq", 8, "the bracket ( is not closed"),
        ("scd_type: 2", "scd_type: 3", 11, "must be one of 1, 2, not '3'"),
        ("scd_type: 2", "changes: debezium", 9, "is not for changes: debezium"),
        ("scd_type: 2", "changes: maxwell", 11, "must be one of rows, debezium"),
        ("except_columns: [op]", "except_columns: [id]", 10, "'id', which is a key"),
        ("except_columns: [op]", "except_columns: [country]", 12, "which except_columns leaves out"),
        ("merge: tables/customers", "merge: ' '", 6, "must name the folder"),
        ("merge: tables/customers", "merge: t\n    table: t", 6, "excludes the field"),
        ("sinks:", "sinks:\n  a: {table: tables/customers/}", 7, "'a' writes to tables/customers too"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_merge_names_its_line(
    before: str, after: str, line: int, words: str
) -> None:
    assert before in MERGE
    error = refusal(MERGE.replace(before, after, 1))
    assert error.startswith(f"f.yml:{line}: "), error
    assert words in error, error

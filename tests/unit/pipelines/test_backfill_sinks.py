"""What a backfill does to each kind of sink, and what its steps make of the edges of the range."""

import re
from collections import Counter

import pytest

pytest.importorskip("yaml")

from zhumq.pipelines.backfill_note import BackfillRefused
from zhumq.pipelines.backfill_sinks import Way, chosen_sinks, edges_of, replacing, way_of
from zhumq.pipelines.document import SpecInvalid, parse_document
from zhumq.pipelines.sinks import all_sinks
from zhumq.pipelines.spec import Pipeline, Sink
from zhumq.pipelines.spec_reader import parse_pipeline

TEXT = """\
name: orders
description: each kind of sink
spark:
  spark.jars.packages: org.postgresql:postgresql:42.7.7
sources:
  records: {topic: orders}
  arrived: {files: inbox, format: text}
  prices: {table: tables/prices}
steps:
  - {name: parsed, parse: records, format: json, schema: id INT, on_error: dead_letters}
  - {name: once, deduplicate: parsed, by: [id], time: timestamp, within: 1 hour}
  - {name: counted, sql: "SELECT id, count(*) AS n FROM once GROUP BY id"}
  - {name: priced, sql: "SELECT * FROM parsed JOIN prices USING (id)"}
  - {name: own, python: "steps:own", inputs: [parsed]}
sinks:
  copy: {from: parsed, topic: copied}
  safe: {from: parsed, topic: safe, options: {exactlyOnce: "TRUE"}}
  counts: {from: counted, topic: counts, mode: update}
  files: {from: records, table: tables/files}
  sums: {from: records, table: tables/sums, batch_sql: SELECT count(*) AS n FROM batch}
  rows: {from: priced, table: tables/rows, format: delta}
  newest: {from: parsed, merge: tables/newest, keys: [id], sequence_by: offset}
  upserts:
    from: parsed
    table: shop.orders
    format: jdbc
    keys: [id]
    sequence_by: seq
    options: {url: "jdbc:postgresql://db/shop", user: u, password: "${env:P}"}
  adds:
    from: parsed
    table: shop.log
    format: jdbc
    options: {url: "jdbc:postgresql://db/shop", user: u, password: "${env:P}"}
  ice: {from: parsed, table: db.ice, format: iceberg, options: {type: glue}}
  plain: {from: parsed, table: log, format: jdbc, options: {url: "jdbc:mysql://db/shop"}}
  seen: {from: parsed, console: 5}
  lines: {from: arrived, topic: lines}
  stated: {from: own, topic: stated}
dead_letters: {topic: bad}
"""
OFFSETS = ("topic", "partition", "offset", "value")


@pytest.fixture
def pipeline() -> Pipeline:
    return parse_pipeline(parse_document(TEXT.encode(), "orders.yml"), "orders.yml", {})


def sink(pipeline: Pipeline, name: str) -> Sink:
    return next(each for each in all_sinks(pipeline) if each.name == name)


@pytest.mark.parametrize(
    ("name", "way", "words"),
    [
        ("copy", Way.ONCE, "sends each of its rows to copied, also those that the stream has sent .* again what unfinished"),
        ("safe", Way.ONCE, "sends each of its rows to safe, .*; all in one transaction, and once however often"),
        ("dead_letters", Way.ONCE, "sends each of its rows to bad"),
        ("files", Way.FILL, "adds to tables/files the rows whose topic, partition, offset it does not have"),
        ("rows", Way.ONCE, "appends each of its rows to tables/rows, also .*; all in one commit, and once"),
        ("newest", Way.ONCE, "merges the changes into tables/newest by id: .* an older one does not win"),
        ("upserts", Way.ONCE, "writes its rows to shop.orders by id: .* with a lower seq than that of the table"),
        ("adds", Way.ONCE, "appends each of its rows to shop.log, .* once however often"),
        ("ice", Way.ONCE, r"appends each of its rows to db\.ice, also .*; all in one commit, and once"),
        ("plain", Way.PLAIN, r"appends each of its rows to log, .* \(jdbc\); repeated after a kill"),
        ("seen", Way.LEFT_OUT, "is left out"),
    ],
)  # fmt: skip
def test_each_sink_has_its_way_and_its_words(
    pipeline: Pipeline, name: str, way: Way, words: str
) -> None:
    found = way_of(sink(pipeline, name), OFFSETS, shuffles=False)
    assert found.way is way
    assert found.line().startswith(f"{name}: ")
    assert re.match(words, found.words)


def test_rows_without_offsets_are_appended(pipeline: Pipeline) -> None:
    found = way_of(sink(pipeline, "sums"), ("n",), shuffles=False)
    assert found.way is Way.FILL
    assert "appends each of its rows to tables/sums, also those" in found.words


def test_tasks_that_exchange_rows_are_not_skipped_by_their_number(pipeline: Pipeline) -> None:
    """The ledger of a topic knows finished tasks: others with the same numbers would have other rows."""
    found = way_of(sink(pipeline, "counts"), ("value",), shuffles=True)
    assert found.way is Way.PLAIN
    assert "repeated after a kill, it sends all of them again" in found.words
    assert way_of(sink(pipeline, "safe"), OFFSETS, shuffles=True).way is Way.ONCE


def test_steps_with_a_state_say_what_is_not_whole_at_the_edges(pipeline: Pipeline) -> None:
    kept = {
        "once": Counter({"DeduplicateWithinWatermark": 1}),
        "counted": Counter({"DeduplicateWithinWatermark": 1, "Aggregate": 1}),
    }
    duplicates, counts = edges_of(pipeline, sink(pipeline, "counts"), kept)
    assert duplicates.startswith("once (orders.yml:11) does not know the keys of before the range")
    assert counts.startswith("counted (orders.yml:12) counts messages of the range alone")
    assert edges_of(pipeline, sink(pipeline, "copy"), kept) == ()
    assert edges_of(pipeline, sink(pipeline, "rows"), kept) == ("prices is read as it is now",)
    (words,) = edges_of(pipeline, sink(pipeline, "sums"), kept)
    assert words == "its batch_sql gets the whole range as one batch"
    other = edges_of(pipeline, sink(pipeline, "stated"), {"own": Counter({"Window": 1})})
    assert other == ("own (orders.yml:14) sees the range alone, as one batch",)


def test_a_step_that_needs_a_stream_is_refused_with_its_line(pipeline: Pipeline) -> None:
    kept = {"own": Counter({"TransformWithStateInPySpark": 1})}
    words = r"^orders\.yml:14: .*step 'own' keeps a state from batch to batch \(TransformWithStateInPySpark\)"
    with pytest.raises(SpecInvalid, match=words):
        edges_of(pipeline, sink(pipeline, "stated"), kept)
    assert edges_of(pipeline, sink(pipeline, "copy"), kept) == ()


def test_the_sinks_that_are_named_are_chosen(pipeline: Pipeline) -> None:
    sinks = all_sinks(pipeline)
    assert [x.name for x in chosen_sinks(pipeline, sinks, ["rows", "copy"])] == ["copy", "rows"]
    with pytest.raises(BackfillRefused, match=r"orders\.yml has no sink 'cpoy'; it has copy, safe"):
        chosen_sinks(pipeline, sinks, ["cpoy"])
    with pytest.raises(BackfillRefused, match="seen only shows rows"):
        chosen_sinks(pipeline, sinks, ["seen"])
    words = "the sink lines reads the files of arrived, which have no offsets: name the others, --sink copy"
    with pytest.raises(BackfillRefused, match=words):
        chosen_sinks(pipeline, sinks, [])


def test_rows_are_replaced_by_their_offsets_alone(pipeline: Pipeline) -> None:
    found = replacing(sink(pipeline, "rows"), OFFSETS)
    assert found.way is Way.REPLACE
    assert "replaces the rows of these offsets in tables/rows, in one commit" in found.words
    assert replacing(sink(pipeline, "seen"), OFFSETS).way is Way.LEFT_OUT
    for name, columns in (("rows", ("id", "offset")), ("files", OFFSETS), ("copy", OFFSETS)):
        with pytest.raises(BackfillRefused, match=f"topic, partition, offset, which {name} is not"):
            replacing(sink(pipeline, name), columns)

"""Which sinks of a file share a read, the reason why others do not, and the steps that a read needs."""

import pytest

pytest.importorskip("yaml")

from zhumq.pipelines.document import parse_document
from zhumq.pipelines.library_files import find_pipeline
from zhumq.pipelines.sharing import reads_of, steps_for
from zhumq.pipelines.spec import Pipeline
from zhumq.pipelines.spec_reader import load_pipeline, parse_pipeline

TEXT = """\
name: orders
sources:
  records: {topic: orders}
  others: {topic: others}
  customers: {table: tables/customers}
steps:
  - {name: parsed, parse: records, format: json, schema: id INT}
  - name: good
    expect: parsed
    rules: [{name: known, rule: id > 0, action: quarantine, sink: broken}]
  - {name: joined, sql: "SELECT * FROM good JOIN customers USING (id)"}
  - {name: once, deduplicate: good, by: [id], within: 1 hour}
  - {name: later, sql: "SELECT * FROM once"}
  - {name: counted, sql: "SELECT id, count(*) FROM good GROUP BY id"}
  - {name: both, sql: "SELECT value FROM records UNION ALL SELECT value FROM others"}
sinks:
  all: {from: joined, topic: joined}
  raw: {from: records, table: tables/raw}
  again: {from: records, table: tables/raw}
  broken: {topic: broken}
  seen: {from: records, console: 5}
  late: {from: later, topic: late}
  counts: {from: counted, topic: counts}
  changes: {from: joined, topic: changes, mode: update}
  ice: {from: joined, table: db.ice, format: iceberg, options: {type: glue}}
  far_rows: {from: joined, table: rows, format: jdbc, options: {url: "jdbc:mysql://db/shop"}}
  newest: {from: joined, merge: tables/newest, keys: [id], sequence_by: id}
  rows: {from: joined, table: tables/rows, format: delta}
  mixed: {from: both, topic: mixed}
  far: {from: others, topic: far}
dead_letters: {topic: bad}
"""


def parse(text: str) -> Pipeline:
    return parse_pipeline(parse_document(text.encode(), "f.yml"), "f.yml", {})


def test_sinks_without_state_share_a_read_and_others_have_a_reason() -> None:
    reads = reads_of(parse(TEXT))
    assert reads.shared == {
        "records": ("all", "raw", "broken", "ice", "newest", "rows", "dead_letters")
    }
    assert reads.own == {
        "again": "another sink writes to the same table",
        "seen": "it only shows rows",
        "late": "once keeps state",
        "counts": "counted may keep state (GROUP)",
        "changes": "its mode is update",
        "far_rows": "jdbc repeats rows",
        "mixed": "reads others and records",
        "far": "no other sink can share a read of others",
    }
    assert (
        reads.of("raw")
        == "shares one read of records with all, broken, ice, newest, rows, dead_letters"
    )
    assert (
        reads.words()[0]
        == "one read of records for all, raw, broken, ice, newest, rows, dead_letters"
    )
    fewer = reads.without(dict.fromkeys(("all", "raw", "broken", "ice", "newest", "rows"), "x"))
    assert fewer.shared == {}
    assert fewer.of("dead_letters") == (
        "reads on its own: no other sink can share a read of records"
    )


def test_words_in_quotes_are_not_those_of_the_query() -> None:
    sql = "SELECT 'a GROUP BY' AS x, `order` FROM records -- LIMIT 5"
    text = f"name: a\nsources: {{records: {{topic: t}}}}\nsteps:\n  - name: s\n    sql: |-\n      {sql}\n"
    sinks = "sinks:\n  a: {topic: a}\n  b: {topic: b}\n"
    assert reads_of(parse(text + sinks)).shared == {"records": ("a", "b")}


def test_a_batch_run_shares_nothing_and_a_single_sink_needs_no_words() -> None:
    batch = TEXT.replace("name: orders\n", "name: orders\ntrigger: batch\n")
    assert reads_of(parse(batch)).words() == []
    one = parse("name: a\nsources: {records: {topic: t}}\nsinks: {a: {topic: a}}\n")
    assert reads_of(one).words() == []
    inspect = reads_of(load_pipeline(find_pipeline("inspect"), {"topic": "logs"}))
    assert inspect.shared == {"logs": ("counts", "dead_letters")}


def test_only_the_steps_of_its_sinks_are_made_for_a_read() -> None:
    pipeline = parse(TEXT)

    def names(*sinks: str) -> list[str]:
        return [step.name for step in steps_for(pipeline, sinks)]

    assert names("raw") == []
    assert names("all") == ["parsed", "good", "joined"]
    assert names("broken") == ["parsed", "good"]
    assert names("dead_letters") == ["parsed"]
    assert names("late", "raw") == ["parsed", "good", "once", "later"]

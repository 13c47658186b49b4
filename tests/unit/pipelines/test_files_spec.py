"""Sources of files in pipeline files: what they mean, and mistakes with their lines."""

import pytest

pytest.importorskip("yaml")

from zhumq.pipelines.document import SpecInvalid, parse_document
from zhumq.pipelines.graph import draw, graph_of
from zhumq.pipelines.sharing import reads_of
from zhumq.pipelines.spec import FileFormat, FilesSource, OnError, Pipeline
from zhumq.pipelines.spec_reader import parse_pipeline

TEXT = """\
name: orders
sources:
  drop:
    files: /data/drop
    format: csv
    schema: id BIGINT, at TIMESTAMP
    pattern: "*.csv"
    options: {header: true}
    watermark: {column: at, delay: 1 hour}
sinks:
  a: {topic: a}
  b: {table: b}
"""


def parse(text: str) -> Pipeline:
    return parse_pipeline(parse_document(text.encode(), "f.yml"), "f.yml", {})


def test_a_stream_may_have_files_alone_and_each_sink_reads_them_itself() -> None:
    pipeline = parse(TEXT)
    (source,) = pipeline.sources
    assert isinstance(source, FilesSource)
    assert (source.format, source.on_error) == (FileFormat.CSV, OnError.FAIL)
    assert source.files_per_batch == 1000
    assert source.watermark is not None
    assert reads_of(pipeline).own == dict.fromkeys("ab", "reads the files of drop")
    assert "csv files /data/drop" in draw(graph_of(pipeline))
    both = TEXT.replace("sources:\n", "sources:\n  records: {topic: t}\n")
    both = both.replace(
        "  a: {topic: a}", "  a: {from: records, topic: a}\n  c: {from: records, topic: c}"
    )
    assert reads_of(parse(both)).shared == {"records": ("a", "c")}


@pytest.mark.parametrize(
    ("before", "after", "line", "words"),
    [
        ("format: csv", "format: avro", 5, "format: must be one of text, json, csv, parquet, orc"),
        ("    format: csv\n", "", 4, "sources.drop: needs the field 'format'"),
        ("    schema: id BIGINT, at TIMESTAMP\n", "", 4, "sources.drop: needs the field 'schema'"),
        ("id BIGINT, at", "id BIGNIT, at", 6, "sources.drop.schema: "),
        ("format: csv", "format: text", 6, "schema: is not for text, whose only column is `value`"),
        ("files: /data/drop", "files: ''", 4, "files: must name a folder"),
        ("options: {header: true}", "files_per_batch: 0", 8, "files_per_batch: must be a whole number"),
        ("options: {header: true}", "options: {maxFilesPerTrigger: 1}", 8, "is not an option here: give files_per_batch"),
        ("options: {header: true}", "options: {MODE: permissive}", 8, "is not an option here: give on_error"),
        ("options: {header: true}", "on_error: dead_letters", 8, "use format: text and a `parse` step"),
        ("options: {header: true}", "on_error: ignore", 8, "on_error: must be one of fail, drop"),
        ("options: {header: true}", "topic: t", 8, "topic: there is no such field"),
        ("delay: 1 hour", "delay: soon", 9, "delay: is a time such as 10s"),
    ],
)  # fmt: skip
def test_a_mistake_names_its_line(before: str, after: str, line: int, words: str) -> None:
    assert before in TEXT
    with pytest.raises(SpecInvalid) as caught:
        parse(TEXT.replace(before, after, 1))
    assert str(caught.value).startswith(f"f.yml:{line}: "), caught.value
    assert words in str(caught.value)


def test_files_of_columns_have_no_lines_to_leave_out() -> None:
    text = TEXT.replace("format: csv", "format: parquet").replace(
        "options: {header: true}", "on_error: drop"
    )
    with pytest.raises(
        SpecInvalid, match=r"f\.yml:8: .*on_error: is for json and csv, not for parquet"
    ):
        parse(text)

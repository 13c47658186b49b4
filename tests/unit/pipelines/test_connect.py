"""What runs on a server of Spark Connect, and the refusals of all else."""

import socket
from pathlib import Path

import pytest

pytest.importorskip("yaml")
pytest.importorskip("pyspark")

from pyspark.sql import Row

from zhumq.cli.options import CommandFailed
from zhumq.cli.pipeline_run import run_files
from zhumq.pipelines.connect import check_runs_on_connect, connect_session, is_connect, reads_alone
from zhumq.pipelines.document import SpecInvalid, parse_document
from zhumq.pipelines.progress import counts_of
from zhumq.pipelines.runner import pipeline_session
from zhumq.pipelines.spec import Pipeline
from zhumq.pipelines.spec_reader import parse_pipeline
from zhumq.pipelines.stopping import PipelineFailed

MASTER = "sc://127.0.0.1:15002"
TEXT = """\
name: large
trigger: available-now
sources:
  orders: {topic: orders}
steps:
  - {name: parsed, parse: orders, format: json, schema: id BIGINT}
sinks:
  out: {from: parsed, topic: large}
dead_letters: {topic: bad}
"""


def parse(text: str) -> Pipeline:
    return parse_pipeline(parse_document(text.encode(), "f.yml"), "f.yml", {})


def test_topics_to_topics_run_and_each_sink_reads_alone() -> None:
    pipeline = parse(TEXT)
    check_runs_on_connect(pipeline)
    reads = reads_alone(pipeline)
    assert (list(reads.own), reads.shared) == (["out", "dead_letters"], {})


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("available-now", "batch", "f.yml:8: sinks.out: trigger: batch does not run"),
        ("steps:", "  old: {table: tables/old}\nsteps:", "f.yml:5: sources.old: is no topic"),
        ("topic: large", "table: tables/large", "f.yml:8: sinks.out: is no topic"),
        ("topic: large", "console: 5", "f.yml:8: sinks.out: is no topic"),
    ],
)
def test_what_needs_a_jvm_is_refused_with_its_line(before: str, after: str, line: str) -> None:
    with pytest.raises(SpecInvalid) as refused:
        check_runs_on_connect(parse(TEXT.replace(before, after, 1)))
    assert line in str(refused.value)


def test_a_server_that_is_not_there_is_one_line_at_once() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with (
            pytest.raises(
                PipelineFailed, match=f"no server of Spark Connect at sc://127.0.0.1:{port}"
            ),
            connect_session("p", master=f"sc://127.0.0.1:{port}/;user_id=a", settings={}),
        ):
            pass


def test_an_address_that_is_none_is_one_line() -> None:
    with (
        pytest.raises(PipelineFailed, match="no server of Spark Connect at sc://host:many"),
        connect_session("p", master="sc://host:many", settings={}),
    ):
        pass


def test_a_run_needs_a_folder_that_the_server_keeps(tmp_path: Path) -> None:
    file = tmp_path / "f.yml"
    file.write_text(TEXT)
    with pytest.raises(CommandFailed, match="give --checkpoints URL"):
        run_files(
            [str(file)], {}, master=MASTER, bootstrap=None, security=None,
            state_dir=tmp_path, checkpoint_root=None, as_json=False,
        )  # fmt: skip


def test_other_commands_do_not_work_with_it(tmp_path: Path) -> None:
    assert is_connect(MASTER)
    assert not is_connect("spark://127.0.0.1:7077")
    with (
        pytest.raises(PipelineFailed, match="only `zhumq pipeline run` works with it"),
        pipeline_session("p", master=MASTER, settings={}, log=tmp_path / "log"),
    ):
        pass


def test_counts_are_read_from_the_rows_of_either_client() -> None:
    fields = [{"name": "values", "type": "long"}, {"name": "late", "type": "long"}]
    sent = Row("values", "schema")([3, 1], {"type": "struct", "fields": fields})
    for row in (sent, Row("values", "late")(3, 1)):
        report = {"observedMetrics": {"zhumq.good": row, "mine": row}}
        assert counts_of(report) == {"good.values": 3, "good.late": 1}

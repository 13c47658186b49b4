"""A run of a pipeline publishes its progress if it is asked to, also that it failed."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import Refused
from zhumq.admin.pipeline_runs import read_runs
from zhumq.pipelines.runner import RunOptions, run_pipeline
from zhumq.pipelines.spec_reader import load_pipeline
from zhumq.pipelines.status import RunStatus


class Lines:
    """A display that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def update(self, status: RunStatus) -> None: ...

    def show(self, title: str, columns: list[str], rows: list[dict[str, Any]]) -> None: ...

    def say(self, line: str) -> None:
        self.lines.append(line)


@pytest.mark.parametrize("publish", [True, False])
def test_a_run_that_fails_is_published_with_its_reason_if_it_is_asked_to(
    connection: ClusterConnection, topic: str, tmp_path: Path, publish: bool
) -> None:
    file = tmp_path / "wrong.yml"
    file.write_text(
        f"name: {topic}\nsources:\n  records: {{topic: {topic}}}\nsinks:\n  out: {{from: records, topic: out}}\n"
    )
    valid = load_pipeline(file, {})
    # A name that the brokers refuse; in a file it would be found before the run.
    wrong = replace(valid, sinks=tuple(replace(each, topic="a/b") for each in valid.sinks))  # type: ignore[call-arg]
    options = RunOptions(state_dir=tmp_path, bootstrap=connection.bootstrap, publish=publish)
    display = Lines()
    # It fails before it needs Spark: the topic of its sink cannot be created.
    no_spark: Any = None
    with pytest.raises(Refused, match="cannot create 'a/b'"):
        run_pipeline(no_spark, wrong, options, display)
    assert display.lines == []
    found = [each for each in read_runs(connection) if each.pipeline == topic]
    assert [json.loads(each.document)["state"] for each in found] == ["failed"] * publish
    assert all("cannot create 'a/b'" in json.loads(each.document)["error"] for each in found)

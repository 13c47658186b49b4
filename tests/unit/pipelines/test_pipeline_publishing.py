"""What a run publishes: everything that is shown of it, within its bound."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from zhumq.admin.pipeline_runs import DOCUMENT_BYTES_MAX
from zhumq.pipelines.library_files import find_pipeline
from zhumq.pipelines.publishing import document_of, encoded
from zhumq.pipelines.spec_reader import load_pipeline
from zhumq.pipelines.status import RunStatus, SinkProgress, State

SINKS = 20  # the most that a file may have


def status(**fields: Any) -> RunStatus:
    return RunStatus(
        name="inspect-logs", file="inspect.yml", state=State.RUNNING, pid=7, started_at="2026-01-01T12:00:00.500+00:00",
        updated_at="2026-01-01T12:00:01.000+00:00", bootstrap="a:1", master="local[2]", **fields,
    )  # fmt: skip


def test_a_document_has_the_run_its_sources_and_its_sinks() -> None:
    pipeline = load_pipeline(find_pipeline("inspect"), {"topic": "logs", "trigger": "10s"})
    sinks = {
        name: SinkProgress(name=name, rows_in=5, rows_out=2, lag=1)
        for name in ("counts", "alerts", "dead_letters")
    }
    found = document_of(pipeline, status(sinks=sinks, error="no answer"), {"lines": 3})
    assert (found["state"], found["sources"], found["trigger"]) == (
        "running",
        ["logs"],
        "10 seconds",
    )
    assert (found["started_ms"], found["pid"]) == (1_767_268_800_500, 7)
    assert (found["error"], found["findings"]) == ("no answer", {"lines": 3})
    assert [(each["name"], each["kind"], each["target"]) for each in found["sinks"]] == [
        ("counts", "table", "tables/logs-inspected"),
        ("alerts", "topic", "logs-alerts"),
        ("dead_letters", "bad rows", "logs.dlq"),
    ]
    assert "a:1" not in json.dumps(found)


def test_a_document_stays_within_its_bound(tmp_path: Path) -> None:
    file = tmp_path / "big.yml"
    file.write_text(
        "name: big\nsources:\n  records: {topic: a}\nsinks:\n"
        + "".join(f"  s{number}: {{from: records, console: 1}}\n" for number in range(SINKS))
    )
    pipeline = load_pipeline(file, {})
    long = "\U0001f600" * 5_000 + "\ud800"
    sinks = {f"s{number}": SinkProgress(name=long) for number in range(SINKS)}
    found = document_of(pipeline, status(sinks=sinks, error=long), {"x": "y" * 100_000})
    raw = encoded(found)
    assert len(raw) <= DOCUMENT_BYTES_MAX
    assert json.loads(raw)["findings"] is None
    small = document_of(pipeline, status(), {"x": "y"})
    assert json.loads(encoded(small)) == small

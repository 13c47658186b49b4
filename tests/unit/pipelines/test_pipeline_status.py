"""The status of a run: added up, written and read again; and the lock of a pipeline."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from zhumq.model.errors import ZhumqError
from zhumq.pipelines.progress import QueryProgress, lag_of
from zhumq.pipelines.status import (
    PipelineBusy,
    RunStatus,
    SinkProgress,
    State,
    StatusFile,
    known_runs,
    timestamp,
)


def status(state: State) -> RunStatus:
    return RunStatus(
        name="orders", file="orders.yml", state=state, pid=1, started_at=timestamp(),
        updated_at=timestamp(), bootstrap="a:1", master="local",
        sinks={"table": SinkProgress(name="table", rows_in=7, lag=0)},
    )  # fmt: skip


def progress(batch: int, rows: int, *, end: int, latest: int, out: int = -1) -> dict[str, Any]:
    start = {"orders": {"0": end - rows}}
    return {
        "batchId": batch,
        "numInputRows": rows,
        "durationMs": {"triggerExecution": 100},
        "sink": {"numOutputRows": out},
        "sources": [
            {
                "startOffset": start,
                "endOffset": {"orders": {"0": end}},
                "latestOffset": {"orders": {"0": latest, "1": 5}},
            }
        ],
    }


def test_each_report_of_a_query_counts_once() -> None:
    query = QueryProgress(SinkProgress(name="table"))
    first = progress(0, 10, end=10, latest=30, out=10)
    assert not query.update(None, list)
    assert query.update(first, never)
    assert not query.update(first, never)
    second = progress(1, 20, end=30, latest=30, out=20)
    idle = progress(2, 0, end=30, latest=30, out=0)
    assert query.update(idle, lambda: [first, second, idle])
    assert not query.update(idle, never)
    sink = query.sink
    assert (sink.batch, sink.batches, sink.rows_in, sink.rows_out) == (1, 2, 30, 30)
    assert (sink.batch_ms, sink.rate, sink.lag) == (100, 200, 5)


def never() -> list[Any]:
    raise AssertionError("the last report is enough")


def test_rows_that_only_the_table_reports_are_counted() -> None:
    query = QueryProgress(SinkProgress(name="table"))
    query.count(3)
    query.update(progress(0, 10, end=10, latest=10), never)
    assert query.sink.rows_out == 3


def test_lag_is_unknown_while_the_source_does_not_report_it() -> None:
    report = progress(0, 1, end=1, latest=1)
    report["sources"][0]["latestOffset"] = None
    assert lag_of(report) is None


def test_a_status_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = StatusFile(tmp_path, "orders")
    assert file.read() is None
    with file.locked():
        file.write(status(State.RUNNING))
        read = file.read()
        assert read is not None
        assert (read.state, read.sinks["table"].rows_in) == (State.RUNNING, 7)
    assert [each.name for each in known_runs(tmp_path)] == ["orders"]


def test_a_run_whose_process_is_gone_is_lost(tmp_path: Path) -> None:
    file = StatusFile(tmp_path, "orders")
    with file.locked():
        file.write(status(State.RUNNING))
    read = file.read()
    assert read is not None
    assert read.state is State.LOST


def test_a_damaged_status_is_an_error(tmp_path: Path) -> None:
    file = StatusFile(tmp_path, "orders")
    with file.locked():
        file.path.write_text('{"name": "or')
    with pytest.raises(ZhumqError, match="is damaged"):
        file.read()


def test_two_runs_of_one_pipeline_are_refused(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from zhumq.pipelines.status import StatusFile\n"
        "with StatusFile(Path(sys.argv[1]), 'orders').locked():\n"
        "    print('locked', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as other:  # fmt: skip
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        busy = rf"'orders' is running already \(process {other.pid}\)"
        with pytest.raises(PipelineBusy, match=busy), StatusFile(tmp_path, "orders").locked():
            pass
        other.kill()
    # The lock of a killed process is released.
    with StatusFile(tmp_path, "orders").locked():
        pass

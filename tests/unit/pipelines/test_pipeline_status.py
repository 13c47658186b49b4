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
    ReadProgress,
    RunStatus,
    SinkProgress,
    State,
    StatusFile,
    TableProgress,
    known_runs,
    timestamp,
)


def status(state: State) -> RunStatus:
    return RunStatus(
        name="orders", file="orders.yml", state=state, pid=1, started_at=timestamp(),
        updated_at=timestamp(), bootstrap="a:1", master="local",
        sinks={"table": SinkProgress(name="table", rows_in=7, lag=0)},
    )  # fmt: skip


class Counted:
    """A row of Spark's with counts."""

    def __init__(self, **counts: Any) -> None:
        self._counts = counts

    def asDict(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self._counts


def progress(batch: int, rows: int, *, end: int, latest: int, out: int = -1) -> dict[str, Any]:
    start = {"orders": {"0": end - rows}}
    return {
        "batchId": batch,
        "numInputRows": rows,
        "durationMs": {"triggerExecution": 100},
        "sink": {"numOutputRows": out},
        "stateOperators": [
            {"numRowsTotal": 3, "memoryUsedBytes": 100},
            {"numRowsTotal": 4, "memoryUsedBytes": 50},
        ],
        "eventTime": {"watermark": "2026-01-01T12:00:00.000Z"},
        "observedMetrics": {"zhumq.good": Counted(positive=1, known=0), "own": Counted(rows=9)},
        "sources": [
            {
                "startOffset": start,
                "endOffset": {"orders": {"0": end}},
                "latestOffset": {"orders": {"0": latest, "1": 5}},
            }
        ],
    }


def test_the_place_in_the_topics_the_state_and_the_watermark_are_kept() -> None:
    query = QueryProgress(SinkProgress(name="table"))
    query.update(progress(0, 10, end=10, latest=13), list, behind=4)
    sink = query.sink
    assert (sink.offsets_behind_min, sink.offsets_behind_max, sink.offsets_behind_avg) == (3, 5, 4)
    assert (sink.lag, sink.state_rows, sink.state_bytes) == (12, 7, 150)
    assert sink.watermark == "2026-01-01T12:00:00.000Z"


def test_what_a_shared_read_saves_is_shown_and_kept(tmp_path: Path) -> None:
    read = ReadProgress(source="records", sinks=["a", "b", "c"])
    read.add(rows=1000, size=2048)
    read.add(rows=500, size=1024)
    assert read.words() == (
        "one read of records for 3 sinks: 1,500 rows (3.0 KiB) read instead of 4,500 (9.0 KiB)"
    )
    files = StatusFile(tmp_path, "orders")
    with files.locked():
        written = status(State.DONE)
        written.reads.append(read)
        files.write(written)
    found = files.read()
    assert found is not None
    assert found.reads == [read]


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


def test_rows_that_break_a_rule_are_counted_by_the_sink_that_has_read_furthest() -> None:
    table, topic = SinkProgress(name="table"), SinkProgress(name="topic")
    for sink, batches in ((table, 3), (topic, 2)):
        query = QueryProgress(sink)
        for batch in range(batches):
            query.update(progress(batch, 10, end=10, latest=10), never)
    assert (table.counts, topic.counts["good.positive"]) == (
        {"good.positive": 3, "good.known": 0},
        2,
    )
    run = status(State.DONE)
    run.sinks = {"table": table, "topic": topic}
    assert run.counts == {"good.known": 0, "good.positive": 3}
    assert run.document()["counts"] == run.counts


def test_what_is_new_in_messages_is_kept_until_there_is_something_newer() -> None:
    query = QueryProgress(SinkProgress(name="table"))
    for batch, words in enumerate(("new: a", None, "new: b")):
        report = progress(batch, 10, end=10, latest=10)
        report["observedMetrics"] = {"zhumq.parsed": Counted(broken=1, changed=2, _note=words)}
        query.update(report, never)
        assert query.sink.changes == {"parsed": "new: b" if batch == 2 else "new: a"}
    assert query.sink.counts == {"parsed.broken": 3, "parsed.changed": 6}


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


def test_files_have_no_lag_and_do_not_hide_that_of_a_topic() -> None:
    report = progress(0, 3, end=3, latest=10)
    (topic,) = report["sources"]
    files = {
        "startOffset": None,
        "endOffset": '{"logOffset": 0}',
        "latestOffset": {"logOffset": 2},
    }
    assert lag_of({**report, "sources": [files, topic]}) == lag_of(report) == 12
    sink = SinkProgress(name="table")
    assert QueryProgress(sink).update({**report, "sources": [files]}, list)
    assert (sink.rows_in, sink.lag) == (3, None)


def test_the_tables_that_steps_enrich_from_are_in_the_status(tmp_path: Path) -> None:
    run = status(State.DONE)
    run.tables["named"] = TableProgress(source="customers", rows=1200, reads=2, read_at="10:00")
    file = StatusFile(tmp_path, "orders")
    file.folder.mkdir()
    file.write(run)
    found = file.read()
    assert found is not None
    assert found.tables == run.tables
    assert found.tables["named"].words() == "1,200 rows of customers, read at 10:00"
    found.tables["named"].error = "no such table"
    assert found.tables["named"].words().endswith("10:00; it cannot be read now: no such table")

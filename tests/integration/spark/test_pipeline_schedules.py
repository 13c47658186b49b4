"""Schedules on real Spark: a pipeline that runs at its times, and the upkeep of a table beside its stream."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import deltalake
from pipeline_support import Pipelines
from pyspark.sql import SparkSession
from spark_support import create_topic, produce, wait_until

from zhumq.pipelines.spec_reader import load_pipeline
from zhumq.pipelines.status import State
from zhumq.pipelines.stopping import StopRequest, is_alive
from zhumq.pipelines.timetable import NOTES_FILE, UPKEEP_FILE, Timetable, wall_ms
from zhumq.testing.broker import RunningBroker, broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

HOUR_MS = 3_600_000
TEXT = """\
name: orders
parameters: {table: , trigger: }
trigger: ${trigger}
sources:
  records: {topic: "${topic}", from: earliest, options: {maxOffsetsPerTrigger: 2}}
sinks:
  table:
    merge: ${table}
    keys: [key]
    sequence_by: offset
    upkeep: {every: 1h}
"""


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker() as started:
        yield started


@pytest.fixture
def pipelines(spark: SparkSession, running: RunningBroker, tmp_path: Path) -> Pipelines:
    return Pipelines(spark, running.bootstrap, tmp_path)


def note(pipelines: Pipelines, file: str, name: str, done_ms: int) -> None:
    folder = pipelines.folder / "state" / "orders"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(json.dumps({name: done_ms}))


def rows_in(table: Path) -> int:
    try:
        return int(deltalake.DeltaTable(str(table)).count())
    except deltalake.exceptions.TableNotFoundError:
        return 0


@pytest.mark.thorough
def test_a_pipeline_whose_time_was_missed_runs_once_and_keeps_up_its_table(
    pipelines: Pipelines,
) -> None:
    create_topic(pipelines.bootstrap, "scheduled")
    produce(pipelines.bootstrap, "scheduled", (b"%d" % number for number in range(6)))
    text = TEXT.replace("${topic}", "scheduled").replace(
        "sources:", "schedule: {every: 1h}\nsources:"
    )
    table = pipelines.folder / "t"
    file = pipelines.write("orders.yml", text)
    values = {"table": str(table), "trigger": "available-now"}
    now_ms = wall_ms()
    note(pipelines, NOTES_FILE, "pipeline", now_ms - 3 * HOUR_MS)
    note(pipelines, UPKEEP_FILE, "table", now_ms - 2 * HOUR_MS)
    stop = StopRequest()
    lines: list[str] = []

    def run(_: object) -> None:
        assert pipelines.run(file, **values).state is State.DONE
        lines.extend(pipelines.display.lines)

    def say(line: str) -> None:
        lines.append(line)
        if "runs next at" in line:
            stop.ask()

    timetable = Timetable(
        pipelines=[load_pipeline(Path(file), values)],
        state_dir=pipelines.folder / "state",
        run=run,
        is_alive=lambda: is_alive(pipelines.spark),
        say=say,
        stop=stop.asked,
    )
    assert timetable.follow() == {}
    assert rows_in(table) == 6
    assert lines[0].startswith("orders: ")
    assert lines[0].endswith(" times were missed; it runs once")
    kept = [line for line in lines if line.startswith(f"orders: kept up {table}: 1 files now")]
    assert len(kept) == 1, lines
    # The next start waits for the next time.
    noted = json.loads((pipelines.folder / "state" / "orders" / NOTES_FILE).read_text())
    assert noted["pipeline"] >= now_ms - HOUR_MS


@pytest.mark.thorough
def test_a_table_is_kept_up_while_its_stream_goes_on(pipelines: Pipelines) -> None:
    create_topic(pipelines.bootstrap, "streamed")
    produce(pipelines.bootstrap, "streamed", (b"%d" % number for number in range(6)))
    table = pipelines.folder / "t"
    file = pipelines.write("orders.yml", TEXT.replace("${topic}", "streamed"))
    stop = StopRequest()
    ended: list[State] = []

    def run() -> None:
        values = {"table": str(table), "trigger": "100ms"}
        ended.append(pipelines.run(file, stop=stop, **values).state)

    def is_kept_up() -> bool:
        return any(line.startswith("orders: kept up") for line in pipelines.display.lines)

    thread = threading.Thread(target=run)
    try:
        # A first run has made the table; its upkeep is due when the second one begins.
        thread.start()
        wait_until(lambda: rows_in(table) == 6 or bool(ended), "the table has rows", seconds=200)
        stop.ask()
        thread.join(200)
        stop = StopRequest()
        note(pipelines, UPKEEP_FILE, "table", wall_ms() - HOUR_MS)
        thread = threading.Thread(target=run)
        thread.start()
        wait_until(lambda: is_kept_up() or len(ended) == 2, "it is kept up", seconds=200)
        produce(pipelines.bootstrap, "streamed", (b"new" for _ in range(9)))
        wait_until(lambda: rows_in(table) == 9 or len(ended) == 2, "it goes on", seconds=200)
    finally:
        stop.ask()
        thread.join(200)
    assert ended == [State.STOPPED] * 2
    assert rows_in(table) == 9  # by keys, of which six are those of the first run

"""Pipelines and upkeeps at their times, in simulated time: what runs, what is missed, and what is noted."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("yaml")
pytest.importorskip("pyspark")

from zhumq.model.errors import ZhumqError
from zhumq.pipelines.document import SpecInvalid, parse_document
from zhumq.pipelines.schedule import MINUTE_MS
from zhumq.pipelines.spec import Pipeline
from zhumq.pipelines.spec_reader import parse_pipeline
from zhumq.pipelines.status import PipelineBusy, StatusFile
from zhumq.pipelines.stopping import PipelineFailed
from zhumq.pipelines.timetable import NOTES_FILE, Notes, Timetable
from zhumq.pipelines.upkeeping import Upkeeper

HOUR_MS = 60 * MINUTE_MS
MIDNIGHT_MS = 20_000 * 24 * HOUR_MS


@dataclass
class Simulated:
    """A clock, and a stop that comes at a time; waiting lets the time pass."""

    now_ms: int
    until_ms: int
    lines: list[str] = field(default_factory=list)

    def is_set(self) -> bool:
        return self.now_ms >= self.until_ms

    def wait(self, timeout: float) -> bool:
        self.now_ms += max(1, round(timeout * 1000))
        return self.is_set()


def pipeline(name: str, schedule: str) -> Pipeline:
    text = (
        f"name: {name}\nschedule: {schedule}\nsources: {{records: {{topic: a}}}}\n"
        "sinks: {out: {topic: b}}\n"
    )
    return parse_pipeline(parse_document(text.encode(), "f.yml"), "f.yml", {})


def timetable(
    folder: Path, time: Simulated, run: Callable[[Pipeline], object], *pipelines: Pipeline
) -> Timetable:
    return Timetable(
        pipelines=pipelines, state_dir=folder, run=run, is_alive=lambda: True,
        say=time.lines.append, stop=time, now_ms=lambda: time.now_ms,
    )  # fmt: skip


def minutes(time: Simulated) -> int:
    return (time.now_ms - MIDNIGHT_MS) // MINUTE_MS


def test_pipelines_run_at_their_times_one_after_the_other(tmp_path: Path) -> None:
    time = Simulated(MIDNIGHT_MS + MINUTE_MS, MIDNIGHT_MS + 6 * HOUR_MS + MINUTE_MS)
    ran: list[tuple[str, int, int]] = []

    def run(each: Pipeline) -> None:
        begun = minutes(time)
        time.now_ms += 10 * MINUTE_MS
        ran.append((each.name, begun, minutes(time)))

    daily = pipeline("daily", "{at: [04:00, 02:00]}")
    failed = timetable(tmp_path, time, run, pipeline("hourly", "{every: 2h}"), daily).follow()
    assert failed == {}
    # Of two that are due at once the second runs when the first has ended.
    assert ran == [
        ("hourly", 120, 130), ("daily", 130, 140), ("hourly", 240, 250), ("daily", 250, 260),
        ("hourly", 360, 370),
    ]  # fmt: skip
    assert time.lines[0] == "hourly: runs next at 2024-10-04 02:00 UTC"


def test_times_that_were_missed_are_printed_and_run_once(tmp_path: Path) -> None:
    hourly = pipeline("hourly", "{every: 1h}")
    ran: list[int] = []

    def run(_: Pipeline) -> None:
        ran.append(minutes(time))
        time.now_ms += (150 if len(ran) == 1 else 1) * MINUTE_MS

    time = Simulated(MIDNIGHT_MS, MIDNIGHT_MS + 5 * HOUR_MS)
    timetable(tmp_path, time, run, hourly).follow()
    # The first run takes two and a half hours: two times come meanwhile.
    assert ran == [60, 210, 240]
    assert "hourly: one time was missed; it runs once" in time.lines
    # And while nothing ran at all.
    time = Simulated(MIDNIGHT_MS + 30 * HOUR_MS + MINUTE_MS, MIDNIGHT_MS + 30 * HOUR_MS + HOUR_MS)
    timetable(tmp_path, time, run, hourly).follow()
    assert ran[3:] == [30 * 60 + 1]
    assert time.lines[0] == "hourly: 25 times were missed; it runs once"


def test_a_run_that_fails_is_tried_at_the_next_time(tmp_path: Path) -> None:
    time = Simulated(MIDNIGHT_MS, MIDNIGHT_MS + 4 * HOUR_MS)
    tries: list[int] = []

    def run(_: Pipeline) -> None:
        tries.append(minutes(time))
        if len(tries) != 2:
            raise PipelineFailed("sink out: it is away")

    failed = timetable(tmp_path, time, run, pipeline("hourly", "{every: 1h}")).follow()
    assert tries == [60, 120, 180]
    assert [str(error) for error in failed.values()] == ["sink out: it is away"]
    assert time.lines.count("hourly: failed: sink out: it is away") == 2


def test_a_run_that_a_stop_ends_is_due_again(tmp_path: Path) -> None:
    hourly = pipeline("hourly", "{every: 1h}")
    time = Simulated(MIDNIGHT_MS, MIDNIGHT_MS + HOUR_MS + 1)

    def run(_: Pipeline) -> None:
        time.now_ms += MINUTE_MS

    timetable(tmp_path, time, run, hourly).follow()
    ran: list[Pipeline] = []
    time = Simulated(MIDNIGHT_MS + HOUR_MS + 2 * MINUTE_MS, MIDNIGHT_MS + HOUR_MS + 3 * MINUTE_MS)
    timetable(tmp_path, time, ran.append, hourly).follow()
    assert ran == [hourly]


def test_a_schedule_is_followed_by_one_process(tmp_path: Path) -> None:
    hourly = pipeline("hourly", "{every: 1h}")
    time = Simulated(MIDNIGHT_MS, MIDNIGHT_MS + 2 * HOUR_MS)

    def run(each: Pipeline) -> None:
        with pytest.raises(PipelineBusy, match="'hourly' is run on its schedule already"):
            timetable(tmp_path, time, run, each).follow()
        # A run by hand, or a reset, may have the pipeline for itself.
        with StatusFile(tmp_path, "hourly").locked():
            raise PipelineBusy("the pipeline 'hourly' is running already")

    assert timetable(tmp_path, time, run, hourly).follow() == {}
    assert "hourly: left out, the pipeline 'hourly' is running already" in time.lines


def test_what_cannot_get_better_ends_the_timetable(tmp_path: Path) -> None:
    hourly = pipeline("hourly", "{every: 1h}")

    def wrong(_: Pipeline) -> None:
        raise SpecInvalid("f.yml:1: it is wrong")

    with pytest.raises(SpecInvalid):
        timetable(tmp_path, Simulated(MIDNIGHT_MS, MIDNIGHT_MS * 2), wrong, hourly).follow()

    def fail(_: Pipeline) -> None:
        raise PipelineFailed("Spark has ended")

    dead = timetable(tmp_path, Simulated(MIDNIGHT_MS, MIDNIGHT_MS * 2), fail, hourly)
    dead.is_alive = lambda: False
    with pytest.raises(PipelineFailed, match="Spark has ended"):
        dead.follow()
    (tmp_path / "hourly" / NOTES_FILE).write_text('{"pipeline": "soon"}')
    with pytest.raises(ZhumqError, match=r"schedule\.json is damaged: delete it"):
        timetable(tmp_path, Simulated(MIDNIGHT_MS, MIDNIGHT_MS * 2), fail, hourly).follow()


def test_a_table_is_kept_up_at_its_time(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    pyarrow = pytest.importorskip("pyarrow")
    text = (
        "name: orders\ntrigger: 10s\nsources: {records: {topic: a}}\n"
        f"sinks: {{out: {{table: {tmp_path}/t, format: delta, upkeep: {{every: 1h}}}}}}\n"
    )
    spec = parse_pipeline(parse_document(text.encode(), "f.yml"), "f.yml", {})
    lines: list[str] = []
    upkeeper = Upkeeper.of(spec, tmp_path / "state", lines.append)
    (table,) = upkeeper.tables
    begun_ms = table.occasions.done_ms
    for number in range(5):
        rows = pyarrow.table({"number": [number]})
        deltalake.write_deltalake(str(tmp_path / "t"), rows, mode="append")
    now_ms = begun_ms + 1
    upkeeper.now_ms = lambda: now_ms
    upkeeper.tick()
    upkeeper.close()
    assert lines == []
    now_ms = begun_ms + 3 * HOUR_MS
    upkeeper.tick()
    upkeeper.close()
    assert lines == [
        f"orders: upkeep of {tmp_path}/t: 2 times were missed; it is done once",
        f"orders: kept up {tmp_path}/t: 1 files now, 5 merged, 0 removed, 0 deletes forgotten",
    ]
    # Once for that time, also in the next run.
    upkeeper.finish()
    notes = Notes(tmp_path / "state" / "orders" / "upkeep.json")
    assert notes.open("out", table.upkeep.schedule, now_ms).done_ms == now_ms
    assert len(lines) == 2
    # A table that cannot be kept up does not stop the run.
    (tmp_path / "t" / "_delta_log" / "00000000000000000006.json").write_text("{")
    now_ms += HOUR_MS
    upkeeper.finish()
    assert "failed, and is tried at its next time" in lines[-1]

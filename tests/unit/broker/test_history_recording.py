"""The history of a broker: its files through starts, kills and damage, and its samples."""

import asyncio
import logging
from pathlib import Path

import pytest
from tests.manual_time import ManualClock

from zhumq.broker.history import History, Levels, Sampler, lags_by_group
from zhumq.broker.traffic import TopicTraffic
from zhumq.history.chart import Grid
from zhumq.history.fields import FIELDS, Sample, Subject, Values
from zhumq.history.ring import COARSE, FINE

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
START_MS = 1_700_000_040_000  # the beginning of a minute
BROKER = len(FIELDS[Subject.BROKER])
MESSAGES_IN = 0


class ReplayedTraffic:
    """Counters that the test sets."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicTraffic] = {}

    async def look(self) -> None:
        """They are set already."""


class World:
    """A history on a clock that the test moves."""

    def __init__(self, data_dir: Path, now_ms: int = START_MS) -> None:
        self.clock = ManualClock(now_ms)
        self.traffic = ReplayedTraffic()
        self.requests = 0
        self.groups: dict[str, Values] = {}
        self.data_dir = data_dir
        self.history = self.open()

    def open(self) -> History:
        """As after a start of the broker."""
        sampler = Sampler(self.traffic, self.levels, self.clock)  # type: ignore[arg-type]
        self.history = History(self.data_dir, sampler, self.clock)
        return self.history

    def levels(self) -> Levels:
        return Levels(
            requests_total=self.requests,
            connections=3,
            producers=2,
            disk_used_bytes=10,
            disk_total_bytes=100,
            under_replicated=1,
            leaderless=0,
            groups=self.groups,
        )

    def keep(self, figure: float, topics: dict[str, Values] | None = None) -> None:
        sample = Sample(self.clock.ms, (figure,) * BROKER, topics or {}, {})
        asyncio.run(self.history.keep(sample))

    def chart(self, step_ms: int, from_ms: int, to_ms: int) -> list[float | None]:
        start_ms = from_ms // step_ms * step_ms
        grid = Grid(start_ms=start_ms, step_ms=step_ms, count=-(-(to_ms - start_ms) // step_ms))
        points = asyncio.run(self.history.chart(grid, Subject.BROKER, ""))
        return [None if point is None else point[MESSAGES_IN] for point in points]

    def file(self, name: str) -> Path:
        return self.data_dir / "history" / name


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_samples_are_there_after_a_start_and_minutes_are_their_means(world: World) -> None:
    for number in range(7):
        world.keep(float(number))
        world.clock.ms += 10_000
    world.open()
    end_ms = START_MS + 70_000
    assert world.chart(10_000, START_MS, end_ms) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert world.chart(30_000, START_MS, end_ms) == [1.0, 4.0, 6.0]
    assert world.chart(60_000, START_MS, end_ms) == [2.5, None], "the second minute goes on"


def test_the_minute_of_a_stop_is_filled_in_after_the_next_start(world: World) -> None:
    world.keep(4.0)
    world.clock.ms += 5 * MINUTE_MS
    world.open()
    world.keep(9.0)
    found = world.chart(60_000, START_MS, START_MS + 6 * MINUTE_MS)
    assert found == [4.0, None, None, None, None, None], "a gap is a gap, not zero"
    assert world.chart(10_000, world.clock.ms, world.clock.ms + 1) == [9.0]


def test_what_is_older_than_the_ring_is_gone(world: World) -> None:
    world.keep(1.0)
    world.clock.ms += FINE.span_ms
    assert world.chart(10_000, START_MS, START_MS + 10_000) == [None]
    world.keep(2.0)
    assert world.chart(10_000, START_MS, START_MS + 10_000) == [None]
    assert world.chart(60_000, START_MS, START_MS + MINUTE_MS) == [None], "no minute had passed"


def test_a_clock_that_is_set_back_shows_no_future_and_goes_on(world: World) -> None:
    world.clock.ms += 10 * MINUTE_MS
    world.keep(7.0)
    world.clock.ms = START_MS
    assert world.chart(10_000, START_MS, START_MS + HOUR_MS) == [None] * 360
    world.keep(1.0)
    world.clock.ms += 10_000
    world.keep(2.0)
    assert world.chart(10_000, START_MS, START_MS + 20_000) == [1.0, 2.0]
    world.clock.ms += 50_000
    world.keep(3.0)
    assert world.chart(60_000, START_MS, START_MS + MINUTE_MS) == [1.5]


def test_a_torn_sample_is_a_gap_and_the_others_are_read(world: World) -> None:
    for number in range(3):
        world.keep(float(number))
        world.clock.ms += 10_000
    path = world.file("hour.ring")
    data = bytearray(path.read_bytes())
    position = FINE.position_of(FINE.slot_of(START_MS + 10_000))
    data[position + 30 : position + 60] = bytes(30)
    path.write_bytes(data)
    assert world.chart(10_000, START_MS, START_MS + 30_000) == [0.0, None, 2.0]


@pytest.mark.parametrize("damaged", [b"no ring", b"\0" * 5_000, COARSE.header()])
def test_a_file_that_is_no_ring_is_replaced_and_logged(
    world: World, damaged: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    world.keep(1.0)
    world.file("hour.ring").write_bytes(damaged)
    assert world.chart(10_000, START_MS, START_MS + 10_000) == [None]
    world.clock.ms += 10_000
    with caplog.at_level(logging.WARNING):
        world.keep(2.0)
    assert [each.getMessage() for each in caplog.records] == [
        f"the history in {world.file('hour.ring')} is damaged or of another version: it begins anew"
    ]
    assert world.chart(10_000, START_MS, START_MS + 20_000) == [None, 2.0]


def test_a_folder_that_cannot_be_written_is_a_gap_and_one_line_in_the_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    (world.data_dir / "history").write_text("a file in the place of the folder")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            world.keep(1.0)
            world.clock.ms += 10_000
    assert len(caplog.records) == 1
    (world.data_dir / "history").unlink()
    world.keep(2.0)
    assert world.chart(10_000, world.clock.ms, world.clock.ms + 1) == [2.0]


def test_files_stay_below_their_bound_however_long_it_runs(world: World) -> None:
    topics = {f"topic-{number:0240}": (1.0,) * 5 for number in range(50)}
    for _ in range(2):
        for slot in range(0, FINE.slots, 40):
            world.clock.ms += 40 * FINE.step_ms * (slot >= 0)
            world.keep(1.0, topics)
    for name, ring in (("hour.ring", FINE), ("day.ring", COARSE)):
        assert world.file(name).stat().st_size <= ring.file_bytes


def test_rates_are_differences_of_counters_over_the_time_between(world: World) -> None:
    async def look(after_ms: int) -> Sample | None:
        world.clock.ms += after_ms
        return await sampler.sample()

    sampler = Sampler(world.traffic, world.levels, world.clock)  # type: ignore[arg-type]
    world.traffic.topics["busy"] = TopicTraffic(received_messages=1_000, received_bytes=5_000)
    assert asyncio.run(look(0)) is None
    world.requests = 50
    world.groups = {"g": (5.0, 2.0)}
    world.traffic.topics["busy"] = TopicTraffic(
        received_messages=1_100, received_bytes=6_000, sent_messages=40, size_bytes=77
    )
    world.traffic.topics["idle"] = TopicTraffic()
    found = asyncio.run(look(10_000))
    assert found is not None
    assert found.topics == {"busy": (10.0, 100.0, 4.0, 0.0, 77.0), "idle": (0.0,) * 5}
    assert list(found.topics) == ["busy", "idle"]
    assert found.broker == (10.0, 100.0, 4.0, 0.0, 5.0, 3.0, 2.0, 10.0, 100.0, 1.0, 0.0)
    assert found.groups == {"g": (5.0, 2.0)}
    del world.traffic.topics["busy"]
    again = asyncio.run(look(10_000))
    assert again is not None
    assert again.broker[MESSAGES_IN] == 0.0
    assert "busy" not in again.topics


def test_a_step_has_one_sample_and_the_next_begins_in_time(world: World) -> None:
    async def look_each_second(seconds: int) -> None:
        for _ in range(seconds):
            await world.history.look()
            world.clock.ms += 1_000

    asyncio.run(look_each_second(35))
    found = world.chart(10_000, START_MS, START_MS + 40_000)
    assert found == [None, 0.0, 0.0, 0.0]


def test_the_lag_of_a_group_is_that_of_all_its_partitions() -> None:
    lags = lags_by_group([("g", 5, None), ("g", 3, 7.0), ("g", 0, 0.0), ("new", 1, None)])
    assert lags["g"] == (8.0, 7.0)
    assert repr(lags["new"]) == "(1.0, nan)"

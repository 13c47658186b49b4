"""The history of this broker: samples it, keeps the samples in two rings, and reads charts from them."""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from zhumq.broker.housekeeping import Chore
from zhumq.broker.ring_file import RingFile
from zhumq.broker.traffic import TopicTraffic, Traffic
from zhumq.history.chart import Chart, Grid
from zhumq.history.fields import Sample, Subject, Values, combine, weight_of
from zhumq.history.ring import COARSE, FINE, GROUPS_MAX, TOPICS_MAX, Ring
from zhumq.host.clock import Clock

logger = logging.getLogger(__name__)

FOLDER: Final = "history"
# How often it is checked whether a step of the ring has begun.
LOOK_MS: Final = 1_000
SLOTS_PER_TURN: Final = 16  # read and decoded before others have the event loop
CHARTS_AT_ONCE_MAX: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """The figures of a broker that are not traffic."""

    requests_total: int
    connections: int
    producers: int
    disk_used_bytes: int
    disk_total_bytes: int
    under_replicated: int
    leaderless: int
    groups: Mapping[str, Values]  # lag, and its seconds


class _Counts(NamedTuple):
    """Counters at one moment, for the rates until the next."""

    monotonic_ms: int
    requests: int
    topics: Mapping[str, tuple[int, int, int, int]]


class Sampler:
    """Computes samples: rates from two looks at the counters, and the levels of the second."""

    def __init__(self, traffic: Traffic, levels: Callable[[], Levels], clock: Clock) -> None:
        self._traffic = traffic
        self._levels = levels
        self._clock = clock
        self._before: _Counts | None = None

    async def sample(self) -> Sample | None:
        """The sample of now; None at the first look."""
        await self._traffic.look()
        levels = self._levels()
        topics = self._traffic.topics
        now = _Counts(
            self._clock.monotonic_ms(),
            levels.requests_total,
            {name: _counts_of(traffic) for name, traffic in topics.items()},
        )
        before, self._before = self._before, now
        if before is None:
            return None
        seconds = max(now.monotonic_ms - before.monotonic_ms, 1) / 1000
        # A topic that is there again after it was deleted begins at zero.
        rates = {
            name: tuple(
                max(count - earlier, 0) / seconds
                for count, earlier in zip(
                    counts, before.topics.get(name, (0, 0, 0, 0)), strict=True
                )
            )
            for name, counts in now.topics.items()
        }
        broker = tuple(sum(each) for each in zip(*rates.values(), strict=True)) or (0.0,) * 4
        return Sample(
            self._clock.now_ms(),
            (
                *broker,
                max(now.requests - before.requests, 0) / seconds,
                float(levels.connections),
                float(levels.producers),
                float(levels.disk_used_bytes),
                float(levels.disk_total_bytes),
                float(levels.under_replicated),
                float(levels.leaderless),
            ),
            _heaviest(
                {
                    name: (*each, float(topics[name].size_bytes))
                    for name, each in rates.items()
                    if name in topics
                },
                Subject.TOPIC,
                TOPICS_MAX,
            ),
            _heaviest(levels.groups, Subject.GROUP, GROUPS_MAX),
        )


def _counts_of(traffic: TopicTraffic) -> tuple[int, int, int, int]:
    return (
        traffic.received_messages,
        traffic.received_bytes,
        traffic.sent_messages,
        traffic.sent_bytes,
    )


def _heaviest(named: Mapping[str, Values], subject: Subject, count_max: int) -> dict[str, Values]:
    ordered = sorted(
        named.items(), key=lambda item: (weight_of(item[1], subject), item[0]), reverse=True
    )
    return dict(ordered[:count_max])


def lags_by_group(lags: Iterable[tuple[str, int, float | None]]) -> dict[str, Values]:
    """The lag of each group in messages, and the seconds of the partition where it is oldest."""
    found: dict[str, Values] = {}
    for group, messages, seconds in lags:
        lag, oldest = found.get(group, (0.0, math.nan))
        age = math.nan if seconds is None else seconds
        known = [each for each in (oldest, age) if not math.isnan(each)]
        found[group] = (lag + messages, max(known, default=math.nan))
    return found


class History:
    """Two files below the data folder: the last hour in steps of ten seconds, the last day in minutes."""

    def __init__(self, data_dir: Path, sampler: Sampler, clock: Clock) -> None:
        folder = data_dir / FOLDER
        self._files = {
            FINE: RingFile(FINE, folder / "hour.ring"),
            COARSE: RingFile(COARSE, folder / "day.ring"),
        }
        self._sampler = sampler
        self._clock = clock
        self._step: int | None = None
        self._minute: int | None = None
        self._is_failing = False
        self._reading = asyncio.Semaphore(CHARTS_AT_ONCE_MAX)

    def chore(self) -> Chore:
        """Takes a sample once in each step. Chores drift, steps do not."""
        return Chore(name="history", interval_ms=LOOK_MS, work=self.look)

    async def look(self) -> None:
        """Take a sample if a step of the clock has begun since the last one."""
        step = self._clock.now_ms() // FINE.step_ms
        if step == self._step:
            return
        self._step = step
        sample = await self._sampler.sample()
        if sample is not None:
            await self.keep(sample)

    async def keep(self, sample: Sample) -> None:
        """Write a sample; and with the first one of a minute, the minutes before that have none yet."""
        minute = sample.time_ms // COARSE.step_ms
        try:
            await asyncio.to_thread(self._files[FINE].write, sample)
            if minute != self._minute:
                # After a start, all minutes that samples of the last hour can fill in.
                filled = (
                    range(minute - FINE.span_ms // COARSE.step_ms + 1, minute)
                    if self._minute is None
                    else (self._minute,)
                )
                for each in filled:
                    await self._keep_minute(each, sample.time_ms)
                self._minute = minute
        except OSError as reason:
            if not self._is_failing:
                self._is_failing = True
                logger.warning("the history has a gap: %s", reason)
        else:
            self._is_failing = False

    async def _keep_minute(self, minute: int, now_ms: int) -> None:
        """Write the sample of a minute that has passed, of those of its steps, unless it is there."""
        time_ms = minute * COARSE.step_ms
        if await self._read(COARSE, [COARSE.slot_of(time_ms)], now_ms):
            return
        grid = Grid(start_ms=time_ms, step_ms=FINE.step_ms, count=COARSE.step_ms // FINE.step_ms)
        samples = [
            each
            for each in await self._read(FINE, grid.slots(now_ms), now_ms)
            if grid.start_ms <= each.time_ms < grid.end_ms
        ]
        if samples:
            await asyncio.to_thread(self._files[COARSE].write, combine(samples, time_ms))

    async def chart(self, grid: Grid, subject: Subject, name: str) -> list[Values | None]:
        """The figures of each step of a grid; None for a gap. Raises OSError."""
        now_ms = self._clock.now_ms()
        chart = Chart(grid, subject, name)
        slots = grid.slots(now_ms)
        async with self._reading:
            for first in range(0, len(slots), SLOTS_PER_TURN):
                turn = slots[first : first + SLOTS_PER_TURN]
                chart.add(await self._read(grid.ring, turn, now_ms))
        return chart.points()

    async def _read(self, ring: Ring, slots: list[int], now_ms: int) -> list[Sample]:
        """The samples in some slots, which are neighbours, or wrap around the end of the ring."""
        if not slots:
            return []
        file = self._files[ring]
        until_wrap = min(len(slots), ring.slots - slots[0])
        data = await asyncio.to_thread(file.read, slots[0], until_wrap)
        if until_wrap < len(slots):
            data += await asyncio.to_thread(file.read, 0, len(slots) - until_wrap)
        read = (ring.read(slot, each, now_ms) for slot, each in zip(slots, data, strict=True))
        return [sample for sample in read if sample is not None]

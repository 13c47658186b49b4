"""The results of an inspection: bursts, the most frequent errors, and a chart of errors over time."""

import importlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import pyarrow.dataset  # type: ignore[import-untyped]

from zhumq.model.errors import ZhumqError

ERROR: Final = "ERROR"
COLUMNS_MAX: Final = 60  # of the chart on the terminal
STEPS_MAX: Final = 120  # of the chart that is published
LEVELS_MAX: Final = 20
EXAMPLE_CHARACTERS_MAX: Final = 200
TOP_ERRORS: Final = 5
BURSTS_SHOWN_MAX: Final = 10
SERVICES_SHOWN_MAX: Final = 8  # those with the most errors; the rest share one row
OTHERS: Final = "(others)"
MINUTES_MAX: Final = 100_000  # in one chart, to limit memory if a line has a wrong time
BARS: Final = " ▁▂▃▄▅▆▇█"
MINUTE: Final = timedelta(minutes=1)


class NothingInspected(ZhumqError):
    """The table of an inspection does not exist or is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """Many errors of one service in consecutive minutes."""

    service: str
    first_minute: datetime
    minutes: int
    errors: int
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """The contents of the table of an inspection, added up."""

    lines: int
    levels: Mapping[str, int]
    errors: Mapping[str, Mapping[datetime, int]]  # by service and minute
    first_minute: datetime
    last_minute: datetime
    bursts: Sequence[Burst]
    top_errors: Sequence[tuple[int, str, str, str]]  # how many, service, template, example

    @property
    def shown_errors(self) -> dict[str, Mapping[datetime, int]]:
        """Errors of the services that are shown in a chart, and of all others together."""
        by_weight = sorted(self.errors, key=lambda each: -sum(self.errors[each].values()))
        shown = sorted(by_weight[:SERVICES_SHOWN_MAX])
        found: dict[str, Mapping[datetime, int]] = {each: self.errors[each] for each in shown}
        rest: dict[datetime, int] = defaultdict(int)
        for service in by_weight[SERVICES_SHOWN_MAX:]:
            for minute, count in self.errors[service].items():
                rest[minute] += count
        return {**found, OTHERS: dict(rest)} if rest else found

    @property
    def minutes(self) -> list[datetime]:
        count = int((self.last_minute - self.first_minute) / MINUTE) + 1
        return [self.first_minute + index * MINUTE for index in range(min(count, MINUTES_MAX))]


def report(table: str, burst: str = "20", chart: str | None = None) -> Iterator[str]:
    """The lines to print after a run; also writes a chart to a file."""
    found = read_inspection(table, burst=int(burst))
    yield ""
    yield from draw(found)
    yield ""
    yield from summarize(found)
    if chart is not None:
        # matplotlib is slow to import, and only charts need it.
        charts = importlib.import_module("zhumq.pipelines.charts")
        charts.paint_inspection(found, Path(chart))
        yield f"chart: {chart}"


def findings(table: str, burst: str = "20", chart: str | None = None) -> dict[str, Any]:
    """The same as figures, for a chart elsewhere: a bounded number of them, with times in milliseconds."""
    del chart
    found = read_inspection(table, burst=int(burst))
    minutes = found.minutes
    step = -(-len(minutes) // STEPS_MAX)
    return {
        "lines": found.lines,
        "levels": dict(sorted(found.levels.items(), key=lambda each: _rank(each[0]))[:LEVELS_MAX]),
        "start_ms": _milliseconds(found.first_minute),
        "step_ms": step * MINUTE // timedelta(milliseconds=1),
        "errors": [
            {
                "service": service[:EXAMPLE_CHARACTERS_MAX],
                "counts": _by_step(counts, minutes, step),
            }
            for service, counts in found.shown_errors.items()
        ],
        "bursts": [
            {
                "service": each.service[:EXAMPLE_CHARACTERS_MAX],
                "start_ms": _milliseconds(each.first_minute),
                "minutes": each.minutes,
                "errors": each.errors,
                "example": each.example[:EXAMPLE_CHARACTERS_MAX],
            }
            for each in found.bursts[:BURSTS_SHOWN_MAX]
        ],
        "top_errors": [
            {
                "count": count,
                "service": service[:EXAMPLE_CHARACTERS_MAX],
                "template": template[:EXAMPLE_CHARACTERS_MAX],
            }
            for count, service, template, _ in found.top_errors
        ],
    }


def read_inspection(table: str, *, burst: int) -> Inspection:
    """The counts of every batch, added up."""
    try:
        dataset = pyarrow.dataset.dataset(table, format="parquet", exclude_invalid_files=False)
        rows = dataset.to_table().to_pylist()
    except FileNotFoundError:
        raise NothingInspected(f"there is no table {table}: run the inspection first") from None
    if not rows:
        raise NothingInspected(f"the table {table} is empty: there were no log lines")
    levels: dict[str, int] = defaultdict(int)
    errors: dict[str, dict[datetime, int]] = defaultdict(lambda: defaultdict(int))
    kinds: dict[tuple[str, str], tuple[int, str]] = {}
    examples: dict[tuple[str, datetime], tuple[int, str]] = {}
    for row in rows:
        service, level, lines = row["service"], row["level"], row["lines"]
        levels[level] += lines
        errors[service]  # creates the entry, so that a service without errors is in the chart
        if level == ERROR:
            minute, words = row["minute"], row["example"] or ""
            errors[service][minute] += lines
            before = kinds.get((service, row["template"] or ""), (0, words))
            kinds[service, row["template"] or ""] = (before[0] + lines, before[1])
            if lines > examples.get((service, minute), (0, ""))[0]:
                examples[service, minute] = (lines, words)
    top = sorted(
        (
            (count, service, template, words)
            for (service, template), (count, words) in kinds.items()
        ),
        reverse=True,
    )
    return Inspection(
        lines=sum(levels.values()),
        levels=dict(levels),
        errors={service: dict(errors[service]) for service in sorted(errors)},
        first_minute=min(row["minute"] for row in rows),
        last_minute=max(row["minute"] for row in rows),
        bursts=find_bursts(errors, examples, burst),
        top_errors=top[:TOP_ERRORS],
    )


def find_bursts(
    errors: Mapping[str, Mapping[datetime, int]],
    examples: Mapping[tuple[str, datetime], tuple[int, str]],
    burst: int,
) -> list[Burst]:
    """Minutes with at least `burst` errors of one service, joined where they are consecutive."""
    found: list[Burst] = []
    for service, minutes in sorted(errors.items()):
        run: list[datetime] = []
        hot = sorted(minute for minute, count in minutes.items() if count >= burst)
        for minute, following in zip_longest(hot, hot[1:]):
            run.append(minute)
            if following is None or following - minute > MINUTE:
                worst = max(run, key=lambda each: minutes[each])
                found.append(
                    Burst(
                        service=service,
                        first_minute=run[0],
                        minutes=len(run),
                        errors=sum(minutes[each] for each in run),
                        example=examples.get((service, worst), (0, ""))[1],
                    )
                )
                run = []
    return sorted(found, key=lambda each: each.first_minute)


def draw(found: Inspection) -> Iterator[str]:
    """Errors over time, one row of bars for each service, for a terminal."""
    minutes = found.minutes
    step = -(-len(minutes) // COLUMNS_MAX)
    cells = {
        service: _by_step(counts, minutes, step) for service, counts in found.shown_errors.items()
    }
    highest = max((max(row) for row in cells.values()), default=0)
    width = max(len(service) for service in cells)
    yield f"errors per {'minute' if step == 1 else f'{step} minutes'} (highest: {highest})"
    for service, row in cells.items():
        bars = "".join(_bar(count, highest) for count in row)
        yield f"  {service:<{width}}  {bars}  {sum(row):,}"
    columns = len(next(iter(cells.values())))
    first, last = f"{minutes[0]:%H:%M}", f"{minutes[-1]:%H:%M}"
    yield f"  {'':<{width}}  {first}{last:>{max(len(last) + 1, columns - len(first))}}"


def summarize(found: Inspection) -> Iterator[str]:
    """Counts, bursts and the most frequent errors, as lines of text."""
    counted = ", ".join(
        f"{found.levels[level]:,} {level}" for level in sorted(found.levels, key=_rank)
    )
    yield f"{found.lines:,} log lines: {counted}"
    for each in found.bursts[:BURSTS_SHOWN_MAX]:
        span = "1 minute" if each.minutes == 1 else f"{each.minutes} minutes"
        yield (
            f"burst: {each.service} had {each.errors:,} errors in {span} from"
            f" {each.first_minute:%Y-%m-%d %H:%M}: {each.example}"
        )
    if len(found.bursts) > BURSTS_SHOWN_MAX:
        yield f"and {len(found.bursts) - BURSTS_SHOWN_MAX} more bursts"
    for count, service, template, _ in found.top_errors:
        yield f"error: {count:,}x {service}: {template}"


def _by_step(counts: Mapping[datetime, int], minutes: Sequence[datetime], step: int) -> list[int]:
    return [
        sum(counts.get(minute, 0) for minute in minutes[start : start + step])
        for start in range(0, len(minutes), step)
    ]


def _milliseconds(moment: datetime) -> int:
    # A table without time zones has the times of UTC.
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _bar(count: int, highest: int) -> str:
    if count == 0 or highest == 0:
        return BARS[0]
    return BARS[max(1, round(count / highest * (len(BARS) - 1)))]


def _rank(level: str) -> tuple[int, str]:
    order = ("ERROR", "WARN", "INFO", "DEBUG")
    return (order.index(level) if level in order else len(order), level)

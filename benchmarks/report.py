"""Turns the repetitions into a table and a JSON file, with a verdict for each goal."""

import json
import math
import platform
import statistics
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.loaders import Figures
from benchmarks.server import REPOSITORY

HIGHER_IS_BETTER = frozenset(
    {"per_second", "per_core_second", "mb_per_second", "commits_per_second"}
)
PAIRS_FOR_AN_INTERVAL = 9
FLOOR_FACTOR = 1.5  # performance.md: the largest allowed ratio to the prototype


@dataclass(slots=True, kw_only=True)
class Row:
    """One case: the figures of every repetition, per server."""

    name: str
    main: str
    also: tuple[str, ...] = ()
    floor_figure: str = ""
    floor: float = 0.0
    notes: str = ""
    runs: dict[str, list[Figures]] = field(default_factory=dict)

    def values(self, server: str, figure: str) -> list[float]:
        return [run[figure] for run in self.runs.get(server, []) if figure in run]

    def median(self, server: str, figure: str) -> float | None:
        values = self.values(server, figure)
        return statistics.median(values) if values else None

    @property
    def peer(self) -> str:
        """What zhumq is compared with: Kafka, or an earlier tree of zhumq."""
        return next((name for name in self.runs if name != "zhumq"), "kafka")

    def ratio(self, figure: str) -> float | None:
        """zhumq / peer, of the medians."""
        ours, theirs = self.median("zhumq", figure), self.median(self.peer, figure)
        return ours / theirs if ours is not None and theirs else None

    def ratios(self, figure: str) -> list[float]:
        """zhumq / peer of each repetition; both were measured one right after the other."""
        pairs = zip(self.values("zhumq", figure), self.values(self.peer, figure), strict=False)
        return [ours / theirs for ours, theirs in pairs if theirs]

    @property
    def higher_is_better(self) -> bool:
        return self.main in HIGHER_IS_BETTER

    @property
    def cpu_figure(self) -> str:
        """CPU per GB for cases about bytes, per million messages otherwise."""
        both = ("cpu_s_per_gb", "cpu_s_per_million")
        for figure in (self.floor_figure, *both) if self.floor_figure in both else both:
            if self.values("zhumq", figure) or self.values(self.peer, figure):
                return figure
        return ""


def machine() -> dict[str, str | int]:
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    pages = next(
        line
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemTotal")
    )
    return {
        "cpu": cpu,
        "cores": len([line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("processor")]),
        "memory_gb": round(int(pages.split()[1]) / 1e6),
        "system": platform.platform(),
        "python": platform.python_version(),
    }  # fmt: skip


def commit() -> str:
    """The commit measured, with a mark when files differ from it."""
    words = ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty", "--abbrev=12"]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "no commit yet"


def spread(values: list[float]) -> str:
    """The median, with the distance of the farthest repetition in per cent."""
    if not values:
        return "-"
    middle = statistics.median(values)
    apart = max(abs(value - middle) for value in values) / middle * 100 if middle else 0.0
    return f"{number(middle)} ±{apart:.0f}%"


def number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def ratio_text(row: Row, figure: str) -> str:
    """The ratio of the medians, and the range of the repetitions' own ratios.

    With many repetitions: the median of their ratios, and its 95 % confidence interval. A machine whose speed changes
    from second to second slows both runs of a pair, so their ratio changes little.
    """
    ratio = row.ratio(figure)
    if ratio is None:
        return "-"
    each = sorted(row.ratios(figure))
    low, high = each[0], each[-1]
    if len(each) >= PAIRS_FOR_AN_INTERVAL:
        ratio = statistics.median(each)
        low, high = median_interval(each)
    good = ratio >= 1 if figure in HIGHER_IS_BETTER else ratio <= 1
    return f"[{'green' if good else 'red'}]{ratio:.2f}[/] ({low:.2f}-{high:.2f})"


def median_interval(ordered: list[float]) -> tuple[float, float]:
    """The 95 % confidence interval of the median, from the binomial distribution of ranks."""
    count = len(ordered)
    rank, tail = 0, 0.5**count
    while tail <= 0.025:
        rank += 1
        tail += math.comb(count, rank) * 0.5**count
    rank = max(rank - 1, 0)
    return ordered[rank], ordered[count - 1 - rank]


TITLE = "zhumq and {peer}, same client, interleaved; median ±spread"


def print_table(
    rows: list[Row], console: Console, *, title: str = TITLE, peer: str | None = None
) -> None:
    peer = peer or rows[0].peer
    table = Table(title=title.format(peer=peer))
    for heading in ("case", "figure", "zhumq", peer, f"zhumq/{peer}", "prototype", "within 1.5x"):
        table.add_column(heading, justify="left" if heading in ("case", "figure") else "right")
    for row in rows:
        shown = (row.main, *row.also, row.cpu_figure, row.floor_figure)
        figures = list(dict.fromkeys(filter(None, shown)))
        for index, figure in enumerate(figures):
            floor, within = "", ""
            if figure == row.floor_figure:
                ours = row.median("zhumq", figure)
                floor = number(row.floor)
                if ours is not None:
                    within = "[green]yes[/]" if ours <= row.floor * FLOOR_FACTOR else "[red]no[/]"
            table.add_row(
                row.name if index == 0 else "",
                figure,
                spread(row.values("zhumq", figure)),
                spread(row.values(row.peer, figure)),
                ratio_text(row, figure),
                floor,
                within,
                end_section=index == len(figures) - 1,
            )
    console.print(table)
    for row in rows:
        if row.notes:
            console.print(f"{row.name}: {row.notes}", style="dim")


def write_json(rows: list[Row], path: Path, *, command: str, began: str, load: list[float]) -> None:
    document = {
        "began": began,
        "command": command,
        "commit": commit(),
        "machine": machine(),
        "load_average_before": load,
        "cases": [
            {
                "name": row.name,
                "main": row.main,
                "higher_is_better": row.higher_is_better,
                "ratio": row.ratio(row.main),
                "cpu_figure": row.cpu_figure,
                "cpu_ratio": row.ratio(row.cpu_figure) if row.cpu_figure else None,
                "prototype": {"figure": row.floor_figure, "value": row.floor}
                if row.floor_figure
                else None,
                "notes": row.notes,
                "runs": row.runs,
            }
            for row in rows
        ],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")

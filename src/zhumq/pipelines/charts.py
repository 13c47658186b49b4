"""Draws the results of pipelines as charts in files."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from matplotlib import dates
from matplotlib.figure import Figure

from zhumq.pipelines.inspection import MINUTE, Inspection

BURSTS_MARKED_MAX: Final = 10
INCHES: Final = (9.0, 3.6)
DOTS_PER_INCH: Final = 110
LEGEND_COLUMNS: Final = 5


@contextmanager
def chart(path: Path, title: str) -> Iterator[Any]:
    """Axes to draw on; the file is written at the end."""
    figure = Figure(figsize=INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    axes: Any = figure.subplots()
    axes.set_title(title, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    yield axes
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def paint_inspection(found: Inspection, path: Path) -> None:
    """Draw errors per minute as stacked bars, with the bursts marked."""
    with chart(path, "Errors per minute") as axes:
        minutes = found.minutes
        below = [0] * len(minutes)
        errors = found.shown_errors
        for service, counts in errors.items():
            heights = [counts.get(minute, 0) for minute in minutes]
            axes.bar(minutes, heights, bottom=below, width=MINUTE, label=service, align="edge")
            below = [low + height for low, height in zip(below, heights, strict=True)]
        _mark_bursts(axes, found, below, minutes)
        axes.set_ylabel("errors")
        axes.set_ylim(0, max([*below, 1]) * 1.3)
        formatter: Any = dates.DateFormatter
        axes.xaxis.set_major_formatter(formatter("%H:%M"))
        axes.legend(ncols=LEGEND_COLUMNS, loc="upper right", frameon=False)


def _mark_bursts(
    axes: Any, found: Inspection, heights: Sequence[int], minutes: Sequence[datetime]
) -> None:
    for each in found.bursts[:BURSTS_MARKED_MAX]:
        until = each.first_minute + each.minutes * MINUTE
        inside = [
            height
            for minute, height in zip(minutes, heights, strict=True)
            if each.first_minute <= minute < until
        ]
        axes.annotate(
            f"{each.service}: {each.errors}",
            (each.first_minute + (until - each.first_minute) / 2, max(inside, default=0)),
            xytext=(0, 4),
            textcoords="offset points",
            ha="center",
            fontsize=9,
        )

"""Draws the ratios of one benchmark run: one bar per case with the range of its repetitions, Kafka is 1."""

import statistics
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")  # no display is needed to write a file

from matplotlib import pyplot as plt

from benchmarks.report import Row

GOOD, BAD = "#2a9d6f", "#c8553d"


def draw(rows: list[Row], path: Path, *, caption: str) -> None:
    """Left: the main figure, turned so that higher is better. Right: CPU, lower is better."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(14, 1.2 + 0.5 * len(rows)), sharey=True)
    for axes, title, pick, higher in (
        (left, "zhumq / Kafka, higher is better", main_ratios, True),
        (
            right,
            "CPU of the broker, or of Spark, zhumq / Kafka, lower is better",
            cpu_ratios,
            False,
        ),
    ):
        ratios = [pick(row) for row in rows]
        values = [statistics.median(each) if each else 0.0 for each in ratios]
        good = [value >= 1 if higher else value <= 1 for value in values]
        axes.barh(range(len(rows)), values, color=[GOOD if each else BAD for each in good])
        for index, each in enumerate(ratios):
            if each:
                axes.plot([min(each), max(each)], [index, index], color="black", linewidth=1)
                axes.text(max(each), index, f" {values[index]:.2f}", va="center", fontsize=8)
        axes.axvline(1.0, color="black", linewidth=0.8)
        axes.set_title(title, fontsize=10)
        axes.margins(x=0.15)
    left.set_yticks(range(len(rows)), [row.name for row in rows], fontsize=8)
    left.invert_yaxis()
    figure.text(0.01, 0.005, caption, fontsize=7)
    figure.tight_layout(rect=(0, 0.03, 1, 1))
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main_ratios(row: Row) -> list[float]:
    ratios = row.ratios(row.main)
    return ratios if row.higher_is_better else [1 / each for each in ratios if each]


def cpu_ratios(row: Row) -> list[float]:
    return row.ratios(row.cpu_figure) if row.cpu_figure else []

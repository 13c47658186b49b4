"""Shows the progress of a pipeline run: a live table at a terminal, lines in a log."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from zhumq.pipelines.status import ACTIVE, RunStatus, SinkProgress, State

COLORS = {State.DONE: "green", State.STOPPED: "green", State.FAILED: "red"}


class LineDisplay:
    """One line for each finished batch and each change of state, on stdout."""

    def __init__(self) -> None:
        self._state: State | None = None
        self._batches: dict[str, int] = {}
        self._counts: dict[str, int] = {}

    def begin(self, name: str, description: str) -> None:
        self._state = None
        self._batches = {}
        self._counts = {}
        _print_line(f"{name}: {description}" if description else name)

    def update(self, status: RunStatus) -> None:
        for sink in status.sinks.values():
            if sink.batches > self._batches.get(sink.name, 0):
                self._batches[sink.name] = sink.batches
                _print_line(f"{status.name}: {sink.name}: {_words(sink)}")
        if status.counts != self._counts and any(status.counts.values()):
            self._counts = status.counts
            _print_line(f"{status.name}: {count_words(status)}")
        if status.state is not self._state:
            self._state = status.state
            if status.state is not State.STARTING:
                _print_line(f"{status.name}: {status.state}")

    def show(self, title: str, columns: list[str], rows: list[dict[str, Any]]) -> None:
        _print_line(f"{title}:")
        for row in rows:
            _print_line("  " + "  ".join(f"{name}={_cell(row[name])}" for name in columns))

    def say(self, line: str) -> None:
        _print_line(line)


class LiveDisplay:
    """A table at a terminal, redrawn after each batch."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._live.update(Spinner("dots", Text("starting Spark ...")))

    def begin(self, name: str, description: str) -> None:
        self._live.update(Spinner("dots", Text(f"{name}: {description}")))

    def update(self, status: RunStatus) -> None:
        if status.state in ACTIVE:
            self._live.update(
                Group(_status_table(status), Spinner("dots", Text(str(status.state))))
            )
        else:
            # The table of a finished run stays on the screen above the next one.
            self._live.update(Text(""))
            self._live.console.print(_status_table(status))

    def show(self, title: str, columns: list[str], rows: list[dict[str, Any]]) -> None:
        table = Table(box=None, header_style="bold")
        for name in columns:
            table.add_column(name)
        for row in rows:
            table.add_row(*(Text(_cell(row[name])) for name in columns))
        self._live.console.print(Group(Text(title, style="bold"), table))

    def say(self, line: str) -> None:
        self._live.console.print(Text.from_ansi(line))


class NoDisplay:
    """Shows nothing: programs read one JSON document at the end."""

    def begin(self, name: str, description: str) -> None:
        del name, description

    def update(self, status: RunStatus) -> None:
        del status

    def show(self, title: str, columns: list[str], rows: list[dict[str, Any]]) -> None:
        del title, columns, rows

    def say(self, line: str) -> None:
        del line


@contextmanager
def open_display(*, as_json: bool) -> Iterator[LineDisplay | LiveDisplay | NoDisplay]:
    """The display that fits stdout: none for JSON, lines for a file, live for a terminal."""
    if as_json:
        yield NoDisplay()
    elif not sys.stdout.isatty():
        yield LineDisplay()
    else:
        with Live(console=Console(), refresh_per_second=8, transient=True) as live:
            yield LiveDisplay(live)


def _status_table(status: RunStatus) -> Group:
    color = COLORS.get(status.state, "yellow")
    # Not the title of the table: a title is folded to the table's width.
    return Group(
        Text.assemble((status.name, "bold"), "  ", (str(status.state), color)),
        _table(status),
        *([Text(count_words(status))] if any(status.counts.values()) else []),
    )


def count_words(status: RunStatus) -> str:
    """The rules that rows have broken, and how many rows did."""
    broken = {name: count for name, count in status.counts.items() if count}
    return "rows that broke a rule: " + ", ".join(f"{name} {n:,}" for name, n in broken.items())


def _table(status: RunStatus) -> Table:
    table = Table(box=None, header_style="dim")
    sinks = list(status.sinks.values())
    table.add_column("sink")
    cells: list[list[str]] = [[sink.name] for sink in sinks]
    for heading, values in {
        "batch": [sink.batch for sink in sinks],
        "rows in": [sink.rows_in or None for sink in sinks],
        "rows out": [sink.rows_out for sink in sinks],
        "lag": [sink.lag for sink in sinks],
        "rows/s": [sink.rate for sink in sinks],
        "batch ms": [sink.batch_ms for sink in sinks],
    }.items():
        # A column without values, such as the lag of a batch run, is left out.
        if any(value is not None for value in values):
            table.add_column(heading, justify="right")
            for row, value in zip(cells, values, strict=True):
                row.append("-" if value is None else f"{value:,}")
    for row in cells:
        table.add_row(*row)
    return table


def _words(sink: SinkProgress) -> str:
    parts = []
    if sink.batch is not None:
        parts.append(f"batch {sink.batch}")
        parts.append(f"{sink.rows_in:,} rows in")
    if sink.rows_out is not None:
        parts.append(f"{sink.rows_out:,} rows out")
    if sink.lag is not None:
        parts.append(f"lag {sink.lag:,}")
    if sink.batch_ms is not None:
        parts.append(f"{sink.batch_ms:,} ms")
    return ", ".join(parts)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bytes | bytearray):
        return value.decode(errors="replace")
    return str(value)


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()

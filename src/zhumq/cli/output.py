"""Output of the commands: tables for people, JSON for programs."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

# Wide enough that a table in a pipe or a file is never folded or cut.
PIPE_COLUMNS = 10_000


def print_json(value: Any) -> None:
    """Print one JSON document to stdout."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_facts(facts: Mapping[str, Any]) -> None:
    """Print facts one per line, their names in a column, and an empty line below."""
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        sys.stdout.write(f"{name:<{width}}  {_cell(value)}\n")
    sys.stdout.write("\n")


def headings(fields: str, **others: str) -> dict[str, str]:
    """The column headings of a table: the fields in capitals, but for those that have another heading."""
    return {name: others.get(name, name.upper().replace("_", " ")) for name in fields.split()}


def print_table(
    rows: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str],
    *,
    empty: str,
    as_json: bool = False,
) -> None:
    """Print a table for people, or JSON. `columns` maps a row's field to its column heading."""
    if as_json:
        print_json(rows)
        return
    if not rows:
        print_note(empty)
        return
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for field, heading in columns.items():
        values = [row[field] for row in rows if row[field] is not None]
        numeric = bool(values) and all(isinstance(value, int) for value in values)
        justify: Any = "right" if numeric else "left"
        table.add_column(
            heading,
            justify=justify,
            no_wrap=numeric,
            overflow="fold",
            min_width=len(heading),  # a narrow terminal folds long values, never a heading
        )
    for row in rows:
        table.add_row(*(Text(_cell(row[field])) for field in columns))
    if sys.stdout.isatty():
        Console().print(table)
        return
    plain = Console(width=PIPE_COLUMNS, color_system=None)
    for line in plain.render_lines(table, pad=False):
        sys.stdout.write("".join(segment.text for segment in line).rstrip() + "\n")


def print_note(text: str | None) -> None:
    """Print a note, if there is one, to stderr if that is a terminal, so that programs never get it."""
    if text is not None and sys.stderr.isatty():
        sys.stderr.write(f"{text}\n")


def _cell(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ",".join(str(item) for item in value) or "-"
        case _:
            return str(value)

"""Results of `zhumq sql`: as a table, JSON, CSV, a chart, or a folder of Parquet."""

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final, TextIO

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.types import TimestampNTZType, TimestampType

from zhumq.cli.options import CommandFailed
from zhumq.cli.output import print_note, print_table
from zhumq.cli.sql import ResultFormat
from zhumq.cli.sql_chart import chart
from zhumq.pipelines.causes import explain

CELL_CHARACTERS_MAX: Final = 200


def print_result(rows: DataFrame, format_: ResultFormat, *, limit: int) -> None:
    """Print the result. A table and a chart have at most `limit` rows."""
    if len(set(rows.columns)) < len(rows.columns):
        twice = next(name for name in rows.columns if rows.columns.count(name) > 1)
        raise CommandFailed(f"the result has two columns {twice!r}: name them with AS")
    match format_:
        case ResultFormat.TABLE | ResultFormat.CHART:
            found = [_plain(row) for row in as_texts(rows).limit(limit + 1).collect()]
            shown, is_cut = found[:limit], len(found) > limit
            if format_ is ResultFormat.CHART:
                sys.stdout.write(chart(rows.columns, shown) + "\n")
            else:
                cells = [{name: _cell(value) for name, value in row.items()} for row in shown]
                print_table(cells, {name: name for name in rows.columns}, empty="no rows")
            if is_cut:
                print_note(f"the first {limit} rows; --limit shows more")
        case _:
            _write_text(rows, format_, sys.stdout)


def write_result(rows: DataFrame, format_: ResultFormat, path: Path) -> None:
    """Write the whole result to a file, or for Parquet to a folder."""
    if format_ is ResultFormat.PARQUET:
        # The folder of an attempt that failed may be there.
        rows.write.mode("overwrite").parquet(str(path.absolute()))
        return
    # A file that is complete, or none.
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("w", encoding="utf-8", newline="") as file:
            _write_text(rows, format_, file)
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)


def describe(rows: DataFrame, format_: ResultFormat) -> None:
    """Print the columns of a table and their types."""
    columns = [
        {"column": each.name, "type": each.dataType.simpleString()} for each in rows.schema.fields
    ]
    as_json = format_ is ResultFormat.JSON
    print_table(columns, {"column": "COLUMN", "type": "TYPE"}, empty="", as_json=as_json)


def as_texts(rows: DataFrame) -> DataFrame:
    """The rows with their times as texts in the session's zone: Python would show that of the machine."""
    changed = {
        each.name: F.col(f"`{each.name}`").cast("string")
        for each in rows.schema.fields
        if isinstance(each.dataType, TimestampType | TimestampNTZType)
    }
    return rows.withColumns(changed) if changed else rows


def _write_text(rows: DataFrame, format_: ResultFormat, file: TextIO) -> None:
    # Partition by partition, so that a large result needs little memory.
    found = _all(rows)
    if format_ is ResultFormat.CSV:
        _write_csv(rows.columns, found, file)
    else:
        _write_json(found, file)


def _all(rows: DataFrame) -> Iterator[Mapping[str, Any]]:
    """Every row. Once the first is printed, the query cannot be run again."""
    has_begun = False
    try:
        for row in as_texts(rows).toLocalIterator():
            yield _plain(row)
            has_begun = True
    except (PySparkException, Py4JError) as error:
        if not has_begun:
            raise
        raise CommandFailed(f"the result ends early: {explain(error)}") from error


def _write_json(rows: Iterable[Mapping[str, Any]], file: TextIO) -> None:
    """One array; each row on a line of its own."""
    before = "[\n "
    for row in rows:
        file.write(before + json.dumps(row, ensure_ascii=False))
        before = ",\n "
    file.write("[]\n" if before.startswith("[") else "\n]\n")


def _write_csv(columns: list[str], rows: Iterator[Mapping[str, Any]], file: TextIO) -> None:
    writer = csv.writer(file, lineterminator="\n")
    # The first row first: a query that fails has printed nothing, and can be run again.
    first = next(rows, None)
    writer.writerow(columns)
    for row in () if first is None else _from(first, rows):
        writer.writerow(_csv_cell(row[name]) for name in columns)


def _from(first: Mapping[str, Any], rows: Iterator[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:  # fmt: skip
    yield first
    yield from rows


def _plain(row: Any) -> dict[str, Any]:
    return {name: _value(value) for name, value in row.asDict(recursive=True).items()}


def _value(value: Any) -> Any:
    """A value of JSON. Bytes are their text, or hexadecimal where they are none."""
    match value:
        case bytes() | bytearray():
            try:
                return bytes(value).decode()
            except UnicodeDecodeError:
                return f"0x{bytes(value).hex()}"
        case None | bool() | int() | str():
            return value
        case float():
            return value if value == value and abs(value) != float("inf") else str(value)
        case dict():
            return {str(_value(name)): _value(each) for name, each in value.items()}
        case list() | tuple():
            return [_value(each) for each in value]
        case datetime() | date():
            return value.isoformat()
        case _:
            return str(value)


def _cell(value: Any) -> Any:
    text = _csv_cell(value)
    if isinstance(text, str) and len(text) > CELL_CHARACTERS_MAX:
        return text[: CELL_CHARACTERS_MAX - 1] + "…"
    return text


def _csv_cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value

"""A chart of rows in the terminal: bars by name, or columns over time. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from zhumq.model.errors import ZhumqError

BARS_MAX: Final = 50
COLUMNS_MAX: Final = 100
BAR_CHARACTERS: Final = 50
LABEL_CHARACTERS_MAX: Final = 30
HEIGHT: Final = 8
_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
_HORIZONTAL: Final = " ▏▎▍▌▋▊▉█"


class NoChart(ZhumqError):
    """Rows that cannot be a chart."""


def chart(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Bars of the last column by the first one; more rows than bars become columns in their order.

    Raises NoChart.
    """
    if len(columns) < 2:
        raise NoChart("a chart needs two columns: a name or a time, and a number")
    label, value = columns[0], columns[-1]
    values: list[float] = []
    for row in rows:
        number = row[value]
        if isinstance(number, str):  # a decimal
            try:
                number = float(number)
            except ValueError:
                number = row[value]
        if number is not None and (isinstance(number, bool) or not isinstance(number, int | float)):
            raise NoChart(f"the last column of a chart is a number, and {value!r} has {number!r}")
        if number is not None and number < 0:
            raise NoChart(f"a chart begins at zero, and {value!r} has {number}")
        values.append(number or 0)
    if not rows:
        return "no rows"
    labels = ["-" if row[label] is None else str(row[label]) for row in rows]
    if len(rows) <= BARS_MAX:
        return _bars(labels, values)
    if len(rows) <= COLUMNS_MAX:
        return _columns(labels, values)
    raise NoChart(
        f"a chart has at most {COLUMNS_MAX} rows, and there are {len(rows)}: group them, or use LIMIT"
    )


def _bars(labels: list[str], values: list[float]) -> str:
    width = min(LABEL_CHARACTERS_MAX, max(len(each) for each in labels))
    top = max(values) or 1
    lines = []
    for label, value in zip(labels, values, strict=True):
        eighths = round(value / top * BAR_CHARACTERS * 8)
        bar = "█" * (eighths // 8) + _HORIZONTAL[eighths % 8].strip()
        shown = label if len(label) <= width else label[: width - 1] + "…"
        lines.append(f"{shown:<{width}}  {bar} {_number(value)}")
    return "\n".join(lines)


def _columns(labels: list[str], values: list[float]) -> str:
    top = max(values) or 1
    heights = [round(value / top * HEIGHT * 8) for value in values]
    margin = max(len(_number(top)), 1)
    lines = []
    for level in range(HEIGHT - 1, -1, -1):
        cells = "".join(_EIGHTHS[min(8, max(0, each - level * 8))] for each in heights)
        scale = {HEIGHT - 1: _number(top), 0: "0"}.get(level, "")
        lines.append(f"{scale:>{margin}} {cells}".rstrip())
    lines.append(f"{'':>{margin}} {labels[0]} … {labels[-1]}")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else f"{value:,}"

"""The cells of tables: names and bytes of others as plain text, whatever they contain, and numbers. Pure."""

from datetime import datetime
from typing import Final

from rich.text import Text

from zhumq.model.sizes import size_text

NAME_CHARACTERS_MAX: Final = 60
VALUE_CHARACTERS_MAX: Final = 400
NUMBER_WIDTH: Final = 11  # so that columns keep their places while numbers change


def shown(text: str, characters_max: int = NAME_CHARACTERS_MAX) -> str:
    """A text of others in one line: what a terminal would obey or not show is escaped, and a long one is cut."""
    # An escape sequence, a line break or a mark that turns the direction of writing round is not printable.
    cut = text[: characters_max + 1]
    plain = "".join(each if each.isprintable() else escaped(each) for each in cut)
    return plain if len(plain) <= characters_max else f"{plain[: characters_max - 1]}…"


def escaped(character: str) -> str:
    """A character as it is written in Python."""
    return character.encode("unicode_escape").decode()


def shown_bytes(data: bytes | None, characters_max: int = VALUE_CHARACTERS_MAX) -> str:
    """A key or a value: as text if it is UTF-8, else in hexadecimal."""
    if data is None:
        return "null"
    # A character has at most four bytes: the rest would be cut.
    head = data[: 4 * (characters_max + 1)]
    try:
        text = head.decode() if len(head) == len(data) else head.decode(errors="ignore")
    except UnicodeDecodeError:
        return shown(f"0x{head.hex()}", characters_max)
    return shown(text, characters_max)


def name_cell(name: str | None) -> Text:
    """Text takes no markup: a group may be called `[red]`."""
    return Text("-", style="dim") if name is None else Text(shown(name))


def number_cell(number: int | None) -> Text:
    return _right("-" if number is None else f"{number:,}")


def size_cell(count: int | None, unit: str = "") -> Text:
    return _right("-" if count is None else size_text(count) + unit)


def rate_cell(rate: float | None) -> Text:
    return _right("-" if rate is None else f"{rate:,.1f}/s")


def lag_cell(lag: int | None) -> Text:
    """A lag, which stands out if there is one."""
    cell = number_cell(lag)
    return cell if not lag else Text(cell.plain, style="yellow")


def seconds_cell(seconds: float | None) -> Text:
    return _right("-" if seconds is None else f"{seconds:,.0f} s")


def state_cell(state: str) -> Text:
    good = {"stable": "green", "empty": "dim"}
    return Text(shown(state), style=good.get(state.lower(), "yellow"))


def time_text(moment_ms: int) -> str:
    """The local time of a message; its producer may have written any number."""
    try:
        return datetime.fromtimestamp(moment_ms / 1000).astimezone().strftime("%H:%M:%S.%f")[:-3]
    except (ValueError, OverflowError, OSError):
        return f"{moment_ms} ms"


def _right(text: str) -> Text:
    return Text(text.rjust(NUMBER_WIDTH))

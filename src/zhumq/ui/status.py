"""The line at the top of a screen: the brokers, what is shown, and since when no broker answers."""

from datetime import datetime

from rich.text import Text
from textual.widgets import Static

from zhumq.ui.cells import shown

FAULT_CHARACTERS_MAX = 300


class Status(Static):
    """What is shown, and how fresh it is."""

    DEFAULT_CSS = """
    Status { dock: top; height: auto; max-height: 3; padding: 0 1; background: $panel; }
    """

    def __init__(self, bootstrap: str, title: str) -> None:
        super().__init__(_line(bootstrap, title, Text("reading ...", style="dim")), markup=False)
        self._bootstrap = bootstrap
        self._heading = title
        self._away_since: str | None = None

    def show_note(self, note: str) -> None:
        """All is well."""
        self._away_since = None
        self.update(_line(self._bootstrap, self._heading, Text(f"{note}, {_now()}", style="dim")))

    def show_fault(self, reason: str) -> None:
        """What is shown is old."""
        self._away_since = self._away_since or _now()
        words = f"no answer since {self._away_since}, trying again: "
        state = Text(words + shown(reason, FAULT_CHARACTERS_MAX), style="bold red")
        self.update(_line(self._bootstrap, self._heading, state))


def _line(bootstrap: str, heading: str, state: Text) -> Text:
    line = Text()
    line.append("zhumq ", style="bold").append(f"{shown(bootstrap)}  ")
    return line.append(heading, style="bold").append("  ").append_text(state)


def _now() -> str:
    return datetime.now().astimezone().strftime("%H:%M:%S")

"""A screen with a table that stays fresh: cells change where they are, and the cursor stays on its row."""

from collections.abc import Callable
from typing import Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import Screen
from textual.widgets import DataTable, Footer

from zhumq.ui.reader import Broken, Brokers, Read, Reader, Unread
from zhumq.ui.status import Status
from zhumq.ui.views import Row, Rows, View

REFRESH_SECONDS: Final = 2.0

Action = Callable[[str], None]


class OpenTable(DataTable[Text], inherit_bindings=False):
    """A table whose rows can be opened, as the footer says."""

    BINDINGS = [
        Binding("enter", "select_cursor", "Open"),
        *(each for each in DataTable.BINDINGS if isinstance(each, Binding) and each.key != "enter"),
    ]


class TableScreen(Screen[None]):
    """Shows a view. `on_open` gets the key of the row that a person chooses."""

    BINDINGS = [Binding("r", "refresh", "Refresh")]

    def __init__(self, brokers: Brokers, view: View, *, on_open: Action | None = None) -> None:
        super().__init__()
        self._view = view
        self._on_open = on_open
        self._reader = Reader(brokers, view.read, self.post_message, seconds=REFRESH_SECONDS)
        self._status = Status(brokers.bootstrap, view.title)
        table = DataTable[Text] if on_open is None else OpenTable
        self._table = table(cursor_type="row", zebra_stripes=True)

    def compose(self) -> ComposeResult:
        yield self._status
        yield self._table
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        for column in self._view.columns:
            self._table.add_column(column, key=column)
        self._table.focus()
        self._reader.start()

    def on_unmount(self) -> None:
        self._reader.stop()

    def action_refresh(self) -> None:
        self._reader.refresh()

    @property
    def chosen(self) -> str | None:
        """The key of the row under the cursor."""
        if not self._table.row_count:
            return None
        return self._table.coordinate_to_cell_key(self._table.cursor_coordinate).row_key.value

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        if self._on_open is not None and event.row_key.value is not None:
            self._on_open(event.row_key.value)

    def on_read(self, message: Read[Rows]) -> None:
        rows = message.facts.rows
        if [row.key for row in rows] == [key.value for key in self._table.rows]:
            self._update(rows)
        else:
            self._fill(rows)
        self._status.show_note(message.facts.note)

    def on_unread(self, message: Unread) -> None:
        self._status.show_fault(message.reason)

    def on_broken(self, message: Broken) -> None:
        raise message.error

    def _update(self, rows: tuple[Row, ...]) -> None:
        """Change the cells that are different."""
        for row in rows:
            before = self._table.get_row(row.key)
            for column, old, new in zip(self._view.columns, before, row.cells, strict=True):
                if old != new:
                    self._table.update_cell(row.key, column, new, update_width=True)

    def _fill(self, rows: tuple[Row, ...]) -> None:
        """Rows came or went. The cursor stays on its row, if there still is one."""
        chosen = self.chosen
        self._table.clear()
        for row in rows:
            self._table.add_row(*row.cells, key=row.key)
        if chosen is not None and chosen in {row.key for row in rows}:
            self._table.move_cursor(row=self._table.get_row_index(chosen), animate=False)

"""The terminal UI: its screens, and the keys that lead from one to another."""

from collections.abc import Callable
from typing import Final

from textual.app import App
from textual.binding import Binding
from textual.screen import Screen

from zhumq.ui.reader import Brokers
from zhumq.ui.table_screen import TableScreen
from zhumq.ui.tail import TailScreen
from zhumq.ui.views import brokers_view, group_view, groups_view, partitions_view, topics_view

_FIRST: Final = 2  # screens: Textual's own, and the one that was chosen by its key


class TopicsScreen(TableScreen):
    """All topics. A chosen one opens its tail."""

    BINDINGS = [
        Binding("p", "partitions", "Partitions"),
        Binding("i", "internal", "Internal"),
    ]

    def __init__(self, brokers: Brokers, *, with_internal: bool = False) -> None:
        self._brokers = brokers
        self._with_internal = with_internal
        view = topics_view(with_internal=with_internal)
        super().__init__(brokers, view, on_open=self._open_tail)

    def action_partitions(self) -> None:
        if self.chosen is not None:
            self.app.push_screen(TableScreen(self._brokers, partitions_view(self.chosen)))

    def action_internal(self) -> None:
        self.app.switch_screen(TopicsScreen(self._brokers, with_internal=not self._with_internal))

    def _open_tail(self, topic: str) -> None:
        self.app.push_screen(TailScreen(self._brokers, topic))


class GroupsScreen(TableScreen):
    """All groups. A chosen one opens its partitions."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        super().__init__(brokers, groups_view(), on_open=self._open_group)

    def _open_group(self, group: str) -> None:
        self.app.push_screen(TableScreen(self._brokers, group_view(group)))


class TerminalUi(App[None]):
    """`zhumq ui`."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS = [
        Binding("t", "show('topics')", "Topics"),
        Binding("g", "show('groups')", "Groups"),
        Binding("b", "show('brokers')", "Brokers"),
        Binding("escape", "back", "Back"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, brokers: Brokers) -> None:
        super().__init__()
        self._screens: dict[str, Callable[[], Screen[None]]] = {
            "topics": lambda: TopicsScreen(brokers),
            "groups": lambda: GroupsScreen(brokers),
            "brokers": lambda: TableScreen(brokers, brokers_view()),
        }

    def on_mount(self) -> None:
        self.push_screen(self._screens["topics"]())

    async def action_show(self, name: str) -> None:
        """Show all topics, groups or brokers, whatever was open."""
        while len(self.screen_stack) > _FIRST:
            await self.pop_screen()
        await self.switch_screen(self._screens[name]())

    async def action_back(self) -> None:
        if len(self.screen_stack) > _FIRST:
            await self.pop_screen()

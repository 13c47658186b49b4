"""The live tail of a topic: its newest messages, and each that comes, in a bounded number of lines."""

from dataclasses import dataclass
from typing import Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import Screen
from textual.widgets import Footer, RichLog

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.lookup import FoundMessage
from zhumq.admin.messages import read_messages
from zhumq.admin.offsets import EARLIEST, LATEST, resolve_offsets
from zhumq.admin.topics import led_partitions
from zhumq.ui.cells import shown, shown_bytes, time_text
from zhumq.ui.reader import Broken, Brokers, Read, Reader, Unread
from zhumq.ui.status import Status

LINES_MAX: Final = 1_000  # on the screen and in memory; the oldest go
PAGE_MESSAGES_MAX: Final = 200
NEWEST_MESSAGES: Final = 20  # of each partition, shown at first
WAIT_SECONDS: Final = 1.0  # for the next message
REFRESH_SECONDS: Final = 0.5
KEY_CHARACTERS_MAX: Final = 40
OFFSET_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Tailed:
    """Messages, and how many before them were left out."""

    messages: tuple[FoundMessage, ...]
    skipped: int


class TailPosition:
    """Where the tail of a topic goes on in each partition. It is used by one thread."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._next: dict[int, int] = {}

    def read(self, connection: ClusterConnection) -> Tailed:
        """The next messages; waits a moment for the first. A tail that falls behind skips."""
        numbers = led_partitions(connection, self._topic)
        latest = resolve_offsets(connection, self._topic, numbers, LATEST)
        earliest = resolve_offsets(connection, self._topic, numbers, EARLIEST)
        skipped = 0
        begin: dict[int, int] = {}
        for number in numbers:
            newest = max(latest[number] - NEWEST_MESSAGES, earliest[number])
            known = self._next.get(number)
            if known is None or known > latest[number]:
                begin[number] = newest  # At first, or of a topic that was made anew.
            elif latest[number] - known > PAGE_MESSAGES_MAX:
                skipped += newest - known
                begin[number] = newest
            else:
                begin[number] = known
        page = read_messages(
            connection,
            self._topic,
            begin=begin,
            ends=dict.fromkeys(numbers, OFFSET_MAX),
            limit=PAGE_MESSAGES_MAX,
            seconds_max=WAIT_SECONDS,
            is_tail=True,
        )
        self._next = page.next_offsets
        return Tailed(messages=page.messages, skipped=skipped)


class TailScreen(Screen[None]):
    """Shows messages as they come."""

    BINDINGS = [Binding("space", "pause", "Pause"), Binding("c", "clear", "Clear")]

    def __init__(self, brokers: Brokers, topic: str) -> None:
        super().__init__()
        self._reader = Reader(
            brokers, TailPosition(topic).read, self.post_message, seconds=REFRESH_SECONDS
        )
        self._status = Status(brokers.bootstrap, f"Tail of {shown(topic)}")
        self._lines = RichLog(max_lines=LINES_MAX, markup=False, highlight=False, wrap=False)
        self._seen = 0
        self._is_paused = False

    def compose(self) -> ComposeResult:
        yield self._status
        yield self._lines
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self._lines.focus()
        self._reader.start()

    def on_unmount(self) -> None:
        self._reader.stop()

    def action_clear(self) -> None:
        self._lines.clear()

    def action_pause(self) -> None:
        """Leave the screen as it is. Messages that come meanwhile are counted, and not shown."""
        self._is_paused = not self._is_paused
        self._show_note()

    def on_read(self, message: Read[Tailed]) -> None:
        found = message.facts
        self._seen += len(found.messages) + found.skipped
        if not self._is_paused:
            if found.skipped:
                self._lines.write(Text(f"... {found.skipped:,} messages left out", style="yellow"))
            for each in sorted(found.messages, key=lambda each: each.timestamp_ms):
                self._lines.write(line_of(each))
        self._show_note()

    def on_unread(self, message: Unread) -> None:
        self._status.show_fault(message.reason)

    def on_broken(self, message: Broken) -> None:
        raise message.error

    def _show_note(self) -> None:
        paused = "paused, " if self._is_paused else ""
        self._status.show_note(f"{paused}{self._seen:,} messages")


def line_of(message: FoundMessage) -> Text:
    """A message in one line: time, place, key, value, headers. Nothing in it is markup, and it is cut."""
    line = Text(no_wrap=True)
    line.append(time_text(message.timestamp_ms), style="dim")
    line.append(f"  {message.partition}@{message.offset}  ", style="cyan")
    if message.key is not None:
        line.append(f"{shown_bytes(message.key, KEY_CHARACTERS_MAX)}  ", style="bold")
    line.append(shown_bytes(message.value))
    for name, value in message.headers:
        header = f"{shown(name)}={shown_bytes(value, KEY_CHARACTERS_MAX)}"
        line.append(f"  {header}", style="dim")
    return line

"""When a producer of which group is asked about which half message. Pure."""

from dataclasses import dataclass, field
from typing import Final

from zhumq.half_messages.message import HalfMessage
from zhumq.model.deadlines import Deadlines

CHECKS_AT_ONCE_MAX: Final = 100  # in one answer to AwaitChecks
# Of one group, asked and not answered. The others wait for their turn, which is not counted as a check: producers that
# take long to answer, or were away, lose no messages.
CHECKS_UNANSWERED_MAX: Final = 100


@dataclass(slots=True)
class _Group:
    name: str
    pending: int = 0
    is_live: bool = False  # A producer is connected.
    due: dict[str, None] = field(default_factory=dict)  # to be asked about, the longest due first
    unanswered: set[str] = field(default_factory=set)

    @property
    def can_be_asked(self) -> bool:
        return self.is_live and bool(self.due) and len(self.unanswered) < CHECKS_UNANSWERED_MAX


class Checks:
    """The pending messages of a shard, by the time of their next check and by the group of their producers."""

    def __init__(self, first_ms: int, interval_ms: int) -> None:
        self._first_ms = first_ms
        self._interval_ms = interval_ms
        self._deadlines: Deadlines[str] = Deadlines()
        self._groups: dict[str, _Group] = {}
        self._askable: dict[str, None] = {}  # groups, the next one to be asked first

    @property
    def next_deadline_ms(self) -> int | None:
        return self._deadlines.next_deadline_ms

    def name_of(self, group: str) -> str:
        """One string for all messages of a group."""
        known = self._groups.get(group)
        return group if known is None else known.name

    def set_live(self, group: str, *, is_live: bool) -> None:
        of_group = self._group(group)
        of_group.is_live = is_live
        self._settle(of_group)

    def add(self, message: HalfMessage) -> None:
        self._group(message.group).pending += 1
        self.set(message)

    def set(self, message: HalfMessage) -> None:
        """Set the time of the next check."""
        if message.checks:
            due_ms = message.changed_ms + self._interval_ms
        else:
            due_ms = message.prepared_ms + self._first_ms
        self._deadlines.set(message.id, due_ms)

    def remove(self, message: HalfMessage) -> None:
        """The message is decided."""
        group = self._groups[message.group]
        group.pending -= 1
        group.due.pop(message.id, None)
        group.unanswered.discard(message.id)
        self._deadlines.cancel(message.id)
        self._settle(group)

    def answered(self, message: HalfMessage) -> None:
        """The producer does not know yet. It is asked again after the interval."""
        group = self._groups[message.group]
        group.unanswered.discard(message.id)
        self._settle(group)

    def pop_due(self, now_ms: int) -> str | None:
        """A message whose time has come: the caller gives it up, or makes it due."""
        return self._deadlines.pop_due(now_ms)

    def make_due(self, message: HalfMessage, now_ms: int) -> None:
        """The message waits for its turn. It comes back after an interval, in case that no producer connects."""
        group = self._groups[message.group]
        group.unanswered.discard(message.id)
        group.due[message.id] = None
        self._deadlines.set(message.id, now_ms + self._interval_ms)
        self._settle(group)

    def take(self) -> list[str]:
        """The messages to ask about now, of each group in turn."""
        taken: list[str] = []
        while self._askable and len(taken) < CHECKS_AT_ONCE_MAX:
            name = next(iter(self._askable))
            del self._askable[name]
            group = self._groups[name]
            message_id = next(iter(group.due))
            del group.due[message_id]
            group.unanswered.add(message_id)
            taken.append(message_id)
            self._settle(group)
        return taken

    def _group(self, name: str) -> _Group:
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = _Group(name)
        return group

    def _settle(self, group: _Group) -> None:
        if group.can_be_asked:
            self._askable.setdefault(group.name)
        else:
            self._askable.pop(group.name, None)
        if not group.pending and not group.is_live:
            self._groups.pop(group.name, None)

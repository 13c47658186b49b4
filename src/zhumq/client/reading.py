"""The iteration over polled messages: which one the program works on, and when it counts as processed."""

from collections.abc import Sequence
from typing import Protocol

from zhumq.client.expiry import ExpiredCounts
from zhumq.client.message import Message


class Source(Protocol):
    """A source of messages: the partitions of a Kafka consumer group, or a subscription."""

    def poll(self, seconds: float) -> list[Message]: ...

    def on_reading(self, messages: Sequence[Message], index: int) -> None:
        """The program works on `messages[index]` and has not reached those after it."""

    @property
    def expired(self) -> ExpiredCounts: ...

    def close(self) -> None: ...


class Reading:
    """The messages that were polled and not read yet, and the one that the program works on. It never waits."""

    def __init__(self, source: Source, *, auto_ack: bool) -> None:
        self._source = source
        self._auto_ack = auto_ack
        self._polled: list[Message] = []
        self._index = 0  # of the next one to read
        self._current: Message | None = None

    def add(self, polled: list[Message]) -> None:
        """Read these next: the ones before have been read."""
        self._polled, self._index = polled, 0

    def next(self) -> Message | None:
        """The next message that is not stale: the program works on it from now on. None: poll for more."""
        while self._index < len(self._polled):
            message = self._polled[self._index]
            self._index += 1
            if not message.is_stale:
                self._source.on_reading(self._polled, self._index - 1)
                self._current = message
                return message
        return None

    def rest(self) -> list[Message]:
        """All that is left to read, for a program that answers by itself."""
        rest = [each for each in self._polled[self._index :] if not each.is_stale]
        self.add([])
        return rest

    def finish(self) -> None:
        """The message in hand is processed."""
        current, self._current = self._current, None
        if current is not None and self._auto_ack:
            current.ack()

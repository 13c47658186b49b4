"""Answers in memory that clients do not read: bounded over all connections."""

from typing import Final, Protocol

# A connection that holds less than this is not cut off: that would free too little.
SMALL_ANSWER_BYTES: Final = 64 * 1024


class SlowReader(Protocol):
    """A connection whose client has to read before more can be sent to it."""

    def cut_off(self, reason: str) -> None: ...


class UnreadAnswers:
    """Answers in memory that clients have not read. File regions are not in memory."""

    __slots__ = ("_bytes_by_reader", "bytes_max", "bytes_used")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0
        self._bytes_by_reader: dict[SlowReader, int] = {}  # the longest unread first

    def add(self, reader: SlowReader, size: int) -> None:
        """Counts a connection whose client does not read. Beyond the bound, cuts off the oldest."""
        self.discard(reader)
        self._bytes_by_reader[reader] = size
        self.bytes_used += size
        if self.bytes_used > self.bytes_max:
            self._relieve()

    def discard(self, reader: SlowReader) -> None:
        self.bytes_used -= self._bytes_by_reader.pop(reader, 0)

    def _relieve(self) -> None:
        for reader, size in tuple(self._bytes_by_reader.items()):
            if self.bytes_used <= self.bytes_max:
                return
            if size >= SMALL_ANSWER_BYTES:
                self.discard(reader)
                reader.cut_off("did not read its answers, which held too much memory")

"""The iteration over polled messages: which one the program works on, and when it counts as processed."""

from collections.abc import Sequence
from typing import Generic, Protocol

from zhumq.client.codec import Codec
from zhumq.client.expiry import ExpiredCounts
from zhumq.client.handling import InHand
from zhumq.client.message import K, Message, Unread, V


class Source(Protocol):
    """A source of messages: the partitions of a Kafka consumer group, or a subscription."""

    def poll(self, seconds: float) -> list[Message]: ...

    def on_reading(self, messages: Sequence[Message], index: int) -> None:
        """The program works on `messages[index]` and has not reached those after it."""

    @property
    def expired(self) -> ExpiredCounts: ...

    def close(self) -> None: ...


class Reading(Generic[V, K]):
    """The messages that were polled and not read yet, and the one that the program works on. It never waits."""

    def __init__(self, source: Source, codec: Codec[V, K], in_hand: InHand[V, K]) -> None:
        self._source = source
        self._codec = codec
        self._in_hand = in_hand
        self._unread = Unread(())

    def add(self, polled: list[Message]) -> None:
        """Read these next: the ones before have been read."""
        self._unread = Unread(polled)

    def next(self) -> Message[V, K] | None:
        """The next message that is not stale: the program works on it from now on. None: poll for more.

        Raises DecodeFailed; the next call goes on behind that message.
        """
        for each in self._unread:
            message = self._codec.accept(each)
            if message is not None:
                self._source.on_reading(self._unread.messages, self._unread.index - 1)
                return self._in_hand.take(message)
        return None

    def rest(self) -> list[Message[V, K]]:
        """All that is left to read, for a program that answers by itself; up to a message that cannot be decoded,
        for which the next call raises DecodeFailed."""
        return self._codec.accept_all(self._unread)

    def finish(self, error: BaseException | None = None) -> None:
        """The message in hand is processed; with an error, it is not."""
        if error is None:
            self._in_hand.finish()
        else:
            self._in_hand.abandon(error)

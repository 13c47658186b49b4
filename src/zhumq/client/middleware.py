"""Middleware: what a program has run around every message that it sends or handles."""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, Protocol

logger = logging.getLogger("zhumq.client")

HeaderPair = tuple[str, bytes | str | None]


class OutgoingMessage:
    """A message on its way to the broker, encoded. A middleware may change its headers."""

    __slots__ = ("headers", "key", "offset", "partition", "topic", "value")

    def __init__(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: list[HeaderPair],
        partition: int | None,
    ) -> None:
        self.topic = topic
        self.value = value
        self.key = key
        self.headers = headers
        self.partition = partition  # None: it is chosen later
        self.offset: int | None = None  # known when the message is acknowledged


class ReceivedMessage(Protocol):
    """What a message that arrived has, whether it is a Message or a Task. Key and value are decoded."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def key(self) -> Any: ...
    @property
    def value(self) -> Any: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...


class Middleware:
    """Runs around every send and every handling. Override what is needed; of several, the first is the outermost.

    >>> from contextlib import contextmanager
    >>> class Logged(Middleware):
    ...     @contextmanager
    ...     def around_handling(self, message):
    ...         print("begin", message.value)
    ...         yield
    ...         print("end", message.value)
    """

    def around_send(self, message: OutgoingMessage) -> AbstractContextManager[Any]:
        """Entered by `send`, before the message is queued; an error that it raises is raised there. Left when the message
        is acknowledged and has its offset, or with the error if it is not sent: in a thread of the client."""
        del message
        return nullcontext()

    def around_handling(self, message: ReceivedMessage) -> AbstractContextManager[Any]:
        """Entered before a handler is called, or a loop gets the message; left when the handler has returned or raised,
        or the loop asks for the next message or ends."""
        del message
        return nullcontext()


def begin_send(
    middleware: Sequence[Middleware], message: OutgoingMessage
) -> Callable[[BaseException | None], None]:
    """Enter all middleware. Returns what leaves it again."""
    with ExitStack() as entered:
        for each in middleware:
            entered.enter_context(each.around_send(message))
        leave = entered.pop_all()

    def end(error: BaseException | None) -> None:
        try:
            leave.__exit__(type(error) if error is not None else None, error, None)
        except BaseException as raised:
            # The message is sent or has failed, whatever its middleware thinks of it.
            if raised is not error:
                logger.exception("a middleware failed after a message to %r", message.topic)

    return end


def around_handling(middleware: Sequence[Middleware], message: ReceivedMessage) -> ExitStack:
    """Enter all middleware. Returns what leaves it again."""
    with ExitStack() as entered:
        for each in middleware:
            entered.enter_context(each.around_handling(message))
        return entered.pop_all()

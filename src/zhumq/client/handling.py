"""The message that a program works on: in a loop, or in a handler whose return is an ack and whose error a nack."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from typing import Any, Generic

from zhumq.client.message import K, Message, V
from zhumq.client.middleware import Middleware, around_handling
from zhumq.client.waiting import logger

Handler = Callable[[Message[V, K]], Awaitable[None] | None]


class InHand(Generic[V, K]):
    """The message that a loop works on, from the moment it gets it until it asks for the next one or ends."""

    def __init__(self, middleware: Sequence[Middleware], *, auto_ack: bool) -> None:
        self._middleware = middleware
        self._auto_ack = auto_ack
        self._around = ExitStack()
        self.message: Message[V, K] | None = None

    def take(self, message: Message[V, K]) -> Message[V, K]:
        """The loop works on this message from now on."""
        if self._middleware:
            self._around = around_handling(self._middleware, message)
        self.message = message
        return message

    def finish(self) -> None:
        """The message is processed: the loop asks for the next one, or the block has ended."""
        message, self.message = self.message, None
        if message is not None:
            self._around.close()
            if self._auto_ack:
                message.ack()

    def abandon(self, error: BaseException) -> None:
        """The block has ended with an error: the message counts as not processed."""
        message, self.message = self.message, None
        if message is not None:
            self._around.__exit__(type(error), error, error.__traceback__)


async def handle_message(
    handler: Handler[Any, Any], message: Message[Any, Any], middleware: Sequence[Middleware]
) -> None:
    """Call the handler, and answer the message, unless the handler has answered it."""
    try:
        with around_handling(middleware, message):
            result = handler(message)
            if result is not None:
                await result
    except Exception as error:
        logger.warning(
            "the handler failed for %s-%d@%d, delivery %d",
            message.topic,
            message.partition,
            message.offset,
            message.delivery_count,
            exc_info=error,
        )
        message.nack(f"{type(error).__name__}: {error}")
    else:
        message.ack()

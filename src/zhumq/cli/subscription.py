"""`zhumq consume --mode ...`: reads a point-to-point or publish-subscribe subscription, pulled or pushed."""

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from zhumq.cli.options import CommandFailed
from zhumq.client.consumer import Consumer
from zhumq.client.message import Message

WAIT_SECONDS = 0.2  # the delay until a rule to stop takes effect


class Mode(StrEnum):
    PTP = "ptp"
    PTP_SHARED = "ptp-shared"
    PSB = "psb"


class IsolationName(StrEnum):
    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRules:
    """When to stop; without a rule the command follows the topic until Ctrl-C."""

    messages_max: int | None
    timeout_seconds: float | None
    idle_seconds: float | None
    # The end offset of each partition when the command started; None: follow.
    end_offsets: dict[int, int] | None


class Progress:
    """Counts the printed messages, and checks the rules to stop."""

    def __init__(self, rules: StopRules) -> None:
        self.rules = rules
        self.printed = 0
        self._began = self._last = time.monotonic()

    def count(self, messages: int) -> None:
        self.printed += messages
        if messages:
            self._last = time.monotonic()

    def is_over(self) -> bool:
        """Whether any rule but that of the end offsets is met."""
        rules, now = self.rules, time.monotonic()
        return (
            (rules.messages_max is not None and self.printed >= rules.messages_max)
            or (rules.timeout_seconds is not None and now - self._began >= rules.timeout_seconds)
            or (rules.idle_seconds is not None and now - self._last >= rules.idle_seconds)
        )


def read(
    topics: Any,
    subscription: dict[str, Any],
    rules: StopRules,
    line_of: Callable[[Message], bytes],
    *,
    push: bool,
) -> int:
    """Print messages until a rule stops it. Returns their number. `subscription` is what a consumer takes."""
    progress = Progress(rules)
    missing = {partition: end for partition, end in (rules.end_offsets or {}).items() if end > 0}

    def is_over() -> bool:
        return progress.is_over() or (rules.end_offsets is not None and not missing)

    def take(messages: list[Message]) -> None:
        for message in messages:
            if is_over():
                message.release()
                continue
            sys.stdout.buffer.write(line_of(message))
            sys.stdout.buffer.flush()
            message.ack()  # after it is printed
            progress.count(1)
            if message.offset + 1 >= missing.get(message.partition, message.offset + 2):
                del missing[message.partition]

    async def read_pushed() -> None:
        # Imported here: a command without a mode needs no grpcio.
        from zhumq.client.push_consumer import PushConsumer  # noqa: PLC0415

        async with PushConsumer(topics, **subscription) as consumer:
            while not is_over():
                take(await consumer.poll(WAIT_SECONDS))

    try:
        if push:
            asyncio.run(read_pushed())
        else:
            with Consumer(topics, **subscription) as consumer:
                while not is_over():
                    take(consumer.poll(WAIT_SECONDS))
    except ValueError as error:  # an argument that the consumer refuses
        raise CommandFailed(str(error)) from error
    return progress.printed

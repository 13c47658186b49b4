"""`zhumq consume --mode ...`: reads a point-to-point or publish-subscribe subscription, pulled or pushed."""

import asyncio
import sys
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from zhumq.admin.offsets import Position
from zhumq.cli.messages import format_json_line
from zhumq.cli.options import CommandFailed
from zhumq.client.consumer import Consumer
from zhumq.client.message import Message

WAIT_SECONDS = 0.2  # the delay until a rule to stop takes effect


class Mode(StrEnum):
    PTP = "ptp"
    PTP_SHARED = "ptp-shared"
    PSB = "psb"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What to read, and when to stop."""

    topic: str
    mode: Mode
    push: bool
    group: str | None
    partition: int | None
    position: Position
    credits: int
    consumer: str
    resume: bool
    messages_max: int | None
    timeout_seconds: float | None
    idle_seconds: float | None
    # The current end offsets of the partitions, if the command stops there.
    end_offsets: dict[int, int] | None
    as_json: bool
    key_separator: bytes | None
    bootstrap: str


class Printer:
    """Prints messages, and checks the rules to stop."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._began = self._last = time.monotonic()
        self._missing = {
            partition: end for partition, end in (options.end_offsets or {}).items() if end > 0
        }
        self.printed = 0

    def enough(self) -> bool:
        options, now = self._options, time.monotonic()
        if options.messages_max is not None and self.printed >= options.messages_max:
            return True
        if options.timeout_seconds is not None and now - self._began >= options.timeout_seconds:
            return True
        if options.idle_seconds is not None and now - self._last >= options.idle_seconds:
            return True
        return options.end_offsets is not None and not self._missing

    def print(self, message: Message) -> None:
        """Print a message, and ack it after that."""
        output = sys.stdout.buffer
        output.write(_format(message, self._options))
        output.flush()
        message.ack()
        self.printed += 1
        self._last = time.monotonic()
        end = self._missing.get(message.partition)
        if end is not None and message.offset + 1 >= end:
            del self._missing[message.partition]


def read(options: ReadOptions) -> int:
    """Print messages until a rule stops it. Returns their number."""
    printer = Printer(options)
    try:
        if options.push:
            asyncio.run(_read_pushed(options, printer))
        else:
            _read_pulled(options, printer)
    except ValueError as error:  # an argument that the consumer refuses
        raise CommandFailed(str(error)) from error
    return printer.printed


def _read_pulled(options: ReadOptions, printer: Printer) -> None:
    with Consumer(_topics(options), **_subscription(options)) as consumer:
        while not printer.enough():
            for message in consumer.poll(WAIT_SECONDS):
                if printer.enough():
                    message.release()
                else:
                    printer.print(message)


async def _read_pushed(options: ReadOptions, printer: Printer) -> None:
    # Imported here: a command without a mode needs no grpcio.
    from zhumq.client.push_consumer import PushConsumer  # noqa: PLC0415

    async with PushConsumer(_topics(options), **_subscription(options)) as consumer:
        while not printer.enough():
            for message in await consumer.poll(WAIT_SECONDS):
                if printer.enough():
                    message.release()
                else:
                    printer.print(message)


def _subscription(options: ReadOptions) -> dict[str, Any]:
    """The consumer's arguments, the same for pull and push."""
    return {
        "group": options.group,
        "mode": options.mode.value,
        "bootstrap": options.bootstrap,
        "credits": options.credits,
        "consumer": options.consumer,
        "resume": options.resume,
        "auto_ack": False,
        **_start(options.position),
    }


def _topics(options: ReadOptions) -> Any:
    return options.topic if options.partition is None else {options.topic: [options.partition]}


def _start(position: Position) -> dict[str, Any]:
    if position.timestamp_ms is not None:
        return {"start_time_ms": position.timestamp_ms}
    return {"start": position.offset if position.offset is not None else position.edge}


def _format(message: Message, options: ReadOptions) -> bytes:
    if not options.as_json:
        line = (message.value or b"") + b"\n"
        separator = options.key_separator
        return line if separator is None else (message.key or b"") + separator + line
    return format_json_line(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        timestamp_ms=message.timestamp_ms if message.timestamp_ms >= 0 else None,
        key=message.key,
        value=message.value,
        headers=message.headers,
    )

"""`zhumq consume --mode ...`: read as a subscription, point-to-point or publish-subscribe, pulled or pushed."""

import asyncio
import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from zhumq.cli.messages import format_json_line
from zhumq.cli.options import CommandFailed
from zhumq.cli.positions import Position
from zhumq.client.consumer import Consumer
from zhumq.client.errors import ClientError
from zhumq.client.message import Message

WAIT_SECONDS = 0.2  # how long a rule to stop may go unnoticed


class Mode(StrEnum):
    PTP = "ptp"
    PTP_SHARED = "ptp-shared"
    PSB = "psb"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be read, and until when."""

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
    # Where each partition that is read ends now, if that is where to stop.
    end_offsets: dict[int, int] | None
    as_json: bool
    key_separator: bytes | None
    bootstrap: str


class Printer:
    """Prints messages, and knows when it is enough."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._began = self._last = time.monotonic()
        self._missing = {
            partition: end for partition, end in (wanted.end_offsets or {}).items() if end > 0
        }
        self.printed = 0

    def enough(self) -> bool:
        wanted, now = self._wanted, time.monotonic()
        if wanted.messages_max is not None and self.printed >= wanted.messages_max:
            return True
        if wanted.timeout_seconds is not None and now - self._began >= wanted.timeout_seconds:
            return True
        if wanted.idle_seconds is not None and now - self._last >= wanted.idle_seconds:
            return True
        return wanted.end_offsets is not None and not self._missing

    def print(self, message: Message) -> None:
        """Print it, and only then count it as processed."""
        output = sys.stdout.buffer
        output.write(_format(message, self._wanted))
        output.flush()
        message.ack()
        self.printed += 1
        self._last = time.monotonic()
        end = self._missing.get(message.partition)
        if end is not None and message.offset + 1 >= end:
            del self._missing[message.partition]


def read(wanted: Wanted) -> int:
    """Print what the subscription gives until a rule says stop; the number of messages."""
    printer = Printer(wanted)
    with client_errors():
        if wanted.push:
            asyncio.run(_read_pushed(wanted, printer))
        else:
            _read_pulled(wanted, printer)
    return printer.printed


@contextlib.contextmanager
def client_errors() -> Iterator[None]:
    """What the client library raises becomes the one line that a command says."""
    try:
        yield
    except (ClientError, ValueError) as error:
        raise CommandFailed(str(error)) from error


def _read_pulled(wanted: Wanted, printer: Printer) -> None:
    with Consumer(_topics(wanted), **_subscription(wanted)) as consumer:
        while not printer.enough():
            for message in consumer.poll(WAIT_SECONDS):
                if printer.enough():
                    message.release()
                else:
                    printer.print(message)


async def _read_pushed(wanted: Wanted, printer: Printer) -> None:
    # Imported here: a command without a mode needs no grpcio.
    from zhumq.client.push_consumer import PushConsumer  # noqa: PLC0415

    async with PushConsumer(_topics(wanted), **_subscription(wanted)) as consumer:
        while not printer.enough():
            for message in await consumer.poll(WAIT_SECONDS):
                if printer.enough():
                    message.release()
                else:
                    printer.print(message)


def _subscription(wanted: Wanted) -> dict[str, Any]:
    """What a consumer is told, whether it pulls or is pushed to."""
    return {
        "group": wanted.group,
        "mode": wanted.mode.value,
        "bootstrap": wanted.bootstrap,
        "credits": wanted.credits,
        "consumer": wanted.consumer,
        "resume": wanted.resume,
        "auto_ack": False,
        **_start(wanted.position),
    }


def _topics(wanted: Wanted) -> Any:
    return wanted.topic if wanted.partition is None else {wanted.topic: [wanted.partition]}


def _start(position: Position) -> dict[str, Any]:
    if position.timestamp_ms is not None:
        return {"start_time_ms": position.timestamp_ms}
    return {"start": position.offset if position.offset is not None else position.edge}


def _format(message: Message, wanted: Wanted) -> bytes:
    if not wanted.as_json:
        line = (message.value or b"") + b"\n"
        separator = wanted.key_separator
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

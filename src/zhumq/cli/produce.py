"""`zhumq produce`: send the lines of stdin as messages, as text or as JSON."""

import os
import stat
import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any

import typer
from confluent_kafka import KafkaError, Message, Producer
from rich.progress import BarColumn, DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

from zhumq.admin.errors import error_of, kafka_errors
from zhumq.cli import completion
from zhumq.cli.client import check_reachable, client_settings
from zhumq.cli.messages import OutgoingMessage, parse_json_line, parse_line
from zhumq.cli.options import (
    DEFAULT_BOOTSTRAP,
    INT32_MAX,
    BootstrapOption,
    CommandFailed,
    SecurityOption,
)
from zhumq.cli.output import print_note
from zhumq.cli.progress_bar import progress_bar

DELIVERY_TIMEOUT_MS = 30_000  # a message that is not acknowledged by then has failed
POLL_EVERY_MESSAGES = 1_000  # how often failures are checked and the bar is updated
QUEUE_WAIT_SECONDS = 0.02  # one wait for room in the full queue of librdkafka
FLUSH_STEP_SECONDS = 0.5  # so that Ctrl-C takes effect while the last messages are sent
MESSAGE_BYTES_MAX = 80 * 1024 * 1024  # the longest line with its overhead
LINE_BYTES_MAX = 64 * 1024 * 1024  # a stream without line ends must not fill the memory
PROGRESS_BYTES_MIN = 1024 * 1024  # a smaller file is sent before a bar would be seen


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    ALL = "all"
    LEADER = "1"
    NONE = "0"


app = typer.Typer()


@app.command()
def produce(
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC", help="The topic to send to.", autocompletion=completion.topics
        ),
    ],
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Lines are JSON: key, value, headers, partition, timestamp."),
    ] = False,
    key_separator: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="The separator between key and value in a line."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, max=INT32_MAX, help="Send everything to one partition."),
    ] = None,
    acks: Annotated[
        Acks,
        typer.Option(
            help="When a message counts as sent. all: on disk. 1: in the log. 0: at once."
        ),
    ] = Acks.ALL,
    compression: Annotated[Compression, typer.Option(help="How batches are compressed.")] = (
        Compression.NONE
    ),
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Send each line of stdin as a message."""
    if as_json and key_separator is not None:
        raise CommandFailed("--key-separator is for lines of text; JSON lines name their key")
    if key_separator == "":
        raise CommandFailed("--key-separator cannot be empty")
    check_reachable(bootstrap, security)
    if sys.stdin.isatty():
        print_note(f"Each line is a message to {topic}. Ctrl-D ends.")
    outbox = Outbox(
        topic,
        client_settings(bootstrap, security)
        | {
            "acks": acks.value,
            # With acks=all a retry cannot write a message twice.
            "enable.idempotence": acks is Acks.ALL,
            "compression.type": compression.value,
            "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
            # The limit is the topic's, not the client's.
            "message.max.bytes": MESSAGE_BYTES_MAX,
        },
        partition=partition,
    )
    separator = key_separator.encode() if key_separator is not None else None
    status = os.fstat(sys.stdin.fileno())
    is_large = stat.S_ISREG(status.st_mode) and status.st_size >= PROGRESS_BYTES_MIN
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with progress_bar(*columns, shown=is_large) as report:
        bytes_read = 0
        try:
            for number, line in enumerate(_lines(), 1):
                bytes_read += len(line)
                text = line.removesuffix(b"\r\n").removesuffix(b"\n")
                if as_json:
                    if text.strip():
                        outbox.send(parse_json_line(text, number))
                else:
                    outbox.send(parse_line(text, separator, number))
                if number % POLL_EVERY_MESSAGES == 0:
                    report(bytes_read, status.st_size)
        finally:
            # Lines before a bad line or a Ctrl-C are sent, not dropped.
            outbox.flush()
    print_note(f"sent {outbox.sent:,} messages to {topic}")


class Outbox:
    """A producer that stops at the first message that the broker did not acknowledge."""

    def __init__(
        self, topic: str, settings: dict[str, Any], *, partition: int | None = None
    ) -> None:
        self.sent = 0
        self._topic = topic
        self._partition = partition
        self._failed: KafkaError | None = None
        # A callback for each successful message would cost more than sending it.
        self._producer = Producer(settings | {"delivery.report.only.error": True})
        # At a terminal each line is sent at once, and a failure is reported at the next line.
        self._poll_every = 1 if sys.stdin.isatty() else POLL_EVERY_MESSAGES

    def send(self, message: OutgoingMessage) -> None:
        options: dict[str, Any] = {}
        partition = self._partition if self._partition is not None else message.partition
        if partition is not None:
            options["partition"] = partition
        if message.timestamp_ms is not None:
            options["timestamp"] = message.timestamp_ms
        if message.headers:
            options["headers"] = list(message.headers)
        with kafka_errors(f"send to {self._topic!r}"):
            while True:
                try:
                    self._producer.produce(
                        self._topic,
                        value=message.value,
                        key=message.key,
                        on_delivery=self._on_delivery,
                        **options,
                    )
                    break
                except BufferError:
                    self._producer.poll(QUEUE_WAIT_SECONDS)
                    self._raise_failure()
        self.sent += 1
        if self.sent % self._poll_every == 0:
            self._producer.poll(0)
            self._raise_failure()

    def flush(self) -> None:
        """Wait until every message is acknowledged or one has failed."""
        while self._producer.flush(FLUSH_STEP_SECONDS) and self._failed is None:
            pass
        self._raise_failure()

    def _on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None and self._failed is None:
            self._failed = error

    def _raise_failure(self) -> None:
        if self._failed is not None:
            raise error_of(f"send to {self._topic!r}", self._failed)


def _lines() -> Iterator[bytes]:
    source = sys.stdin.buffer
    while line := source.readline(LINE_BYTES_MAX + 1):
        if len(line) > LINE_BYTES_MAX:
            raise CommandFailed(f"a line is longer than {LINE_BYTES_MAX} bytes: is this text?")
        yield line

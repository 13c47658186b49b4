"""`zhumq consume`: print messages as they arrive, alone or as a member of a group."""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, Message, TopicPartition

from zhumq.admin.errors import error_of, kafka_errors
from zhumq.admin.offsets import EARLIEST, LATEST, resolve_offsets
from zhumq.admin.topics import topic_partitions
from zhumq.cli import completion
from zhumq.cli.client import check_reachable, client_settings, connect
from zhumq.cli.filter_option import parse_filter
from zhumq.cli.messages import format_json_line, format_line
from zhumq.cli.options import (
    DEFAULT_BOOTSTRAP,
    INT32_MAX,
    BootstrapOption,
    CommandFailed,
    SecurityOption,
)
from zhumq.cli.output import print_note
from zhumq.cli.positions import parse_position
from zhumq.cli.subscription import IsolationName, Mode, Progress, StopRules, read
from zhumq.client.message import Message as Delivered
from zhumq.client.security import ClientSecurity
from zhumq.model.isolation import Isolation

if TYPE_CHECKING:
    from zhumq.client.filtering import MessageTest

POLL_SECONDS = 0.2  # the delay until a Ctrl-C or a deadline takes effect
BATCH_MESSAGES_MAX = 1_000  # printed together, then flushed
LOST_SECONDS_MAX = 10.0  # longer than a restart of a broker takes
SOLE_READER_GROUP = "zhumq-cli"  # librdkafka needs a group id even if nothing is committed
LOST_CODES = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


app = typer.Typer()


@app.command()
def consume(
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC", help="The topic to read.", autocompletion=completion.topics
        ),
    ],
    group: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Share the work with the group and keep its offsets."),
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="earliest, latest, an offset, a time (2026-01-31T09:00:00Z) or @MILLISECONDS. "
            "In a group: where to begin when it has no offsets.",
        ),
    ] = "earliest",
    partition: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, max=INT32_MAX, help="Read only this partition."),
    ] = None,
    messages_max: Annotated[
        int | None, typer.Option("--max", metavar="N", min=1, help="Stop after N messages.")
    ] = None,
    timeout_seconds: Annotated[
        float | None,
        typer.Option("--timeout", metavar="SECONDS", min=0, help="Stop after this time."),
    ] = None,
    idle_seconds: Annotated[
        float | None,
        typer.Option(
            "--idle-exit", metavar="SECONDS", min=0, help="Stop after this time without a message."
        ),
    ] = None,
    at_end: Annotated[
        bool, typer.Option("--until-end", help="Stop at the current end of the topic.")
    ] = False,
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Print the key and this before the value.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
    mode: Annotated[
        Mode | None,
        typer.Option(
            help="Read as a subscription: ptp (the topic's one group, in order), ptp-shared (its"
            " consumers compete), psb (this group gets everything). Without --group, ptp joins the"
            " group that reads the topic."
        ),
    ] = None,
    push: Annotated[
        bool, typer.Option("--push", help="Let the broker push messages, instead of polling.")
    ] = False,
    credits_max: Annotated[
        int,
        typer.Option("--credits", metavar="N", help="With --mode: messages held at a time."),
    ] = 1_000,
    consumer_name: Annotated[
        str,
        typer.Option(
            "--consumer", metavar="NAME", help="With --mode: a name that outlives the connection."
        ),
    ] = "",
    resume: Annotated[
        bool, typer.Option("--resume", help="With --mode: resume a parked session.")
    ] = False,
    isolation: Annotated[
        IsolationName,
        typer.Option(help="read_uncommitted: also messages of open and of aborted transactions."),
    ] = IsolationName.READ_COMMITTED,
    message_filter: Annotated[
        str,
        typer.Option(
            "--filter",
            metavar="TEXT",
            help="Print only messages that pass: tags (`a || b`) or a condition (`key LIKE 'eu-%' AND"
            " value.total > 100`). With --mode the broker filters, else this command.",
        ),
    ] = "",
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Print messages as they arrive."""
    position = parse_position(start, option="--from")
    passes = parse_filter(message_filter)
    if group == "":
        raise CommandFailed("--group cannot be empty")
    if push and mode is None:
        mode = Mode.PSB if group is None else Mode.PTP
    if group is not None and mode is None and position.edge is None:
        raise CommandFailed(
            "in a group --from takes earliest or latest: "
            f"`zhumq group reset {group} --topic {topic} --to PLACE` moves the group"
        )
    if group is not None and mode is None and partition is not None:
        raise CommandFailed("--partition and --group need --mode: a Kafka group shares partitions")
    connection = connect(bootstrap, security)
    known = topic_partitions(connection, topic)
    level = Isolation.named(isolation)
    ends = resolve_offsets(connection, topic, known, LATEST, level) if at_end else None
    if at_end and mode is not None and mode is not Mode.PSB:
        raise CommandFailed(
            "--until-end is for one reader of everything: use --idle-exit in a group"
        )
    if partition is not None and partition not in known:
        raise CommandFailed(f"{topic!r} has no partition {partition}, only 0 to {len(known) - 1}")
    if ends is not None and partition is not None:
        ends = {partition: ends[partition]}
    rules = StopRules(
        messages_max=messages_max,
        timeout_seconds=timeout_seconds,
        idle_seconds=idle_seconds,
        end_offsets=ends,
    )
    separator = key_separator.encode() if key_separator is not None else None
    style: dict[str, Any] = {"as_json": as_json, "key_separator": separator}
    watch = BrokerWatch(bootstrap, security)
    settings = client_settings(bootstrap, security) | _settings(group, position.edge or "earliest")
    settings |= {"isolation.level": isolation.value, "error_cb": watch.on_error}
    if mode is not None:
        if ends is not None:
            earliest = resolve_offsets(connection, topic, ends, EARLIEST)
            rules = replace(
                rules, end_offsets=_message_ends(settings, topic, earliest, ends, passes)
            )
        begin = position.edge if position.offset is None else position.offset
        by_time = position.timestamp_ms is not None
        subscription = {
            "group": group,
            "mode": mode.value,
            "bootstrap": bootstrap,
            "security": security,
            "credits": credits_max,
            "consumer": consumer_name,
            "resume": resume,
            "isolation": isolation.value,
            "filter": message_filter,
            "auto_ack": False,
            **({"start_time_ms": position.timestamp_ms} if by_time else {"start": begin}),
        }
        printed = read(
            topic if partition is None else {topic: [partition]},
            subscription,
            rules,
            partial(_format_delivered, **style),
            push=push,
        )
        _report(printed, messages_max, topic)
        return
    with kafka_errors(f"read {topic!r}"):
        consumer = Consumer(settings)
        try:
            if group is None:
                chosen = known if partition is None else [partition]
                offsets = resolve_offsets(connection, topic, chosen, position, level)
                consumer.assign(
                    [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
                )
            else:
                consumer.subscribe([topic])
            line_of = partial(_format, **style)
            printed = _follow(consumer, rules, watch, line_of, passes, commits=group is not None)
        finally:
            consumer.close()
    _report(printed, messages_max, topic)


def _report(printed: int, messages_max: int | None, topic: str) -> None:
    if messages_max is not None and printed < messages_max:
        raise CommandFailed(f"only {printed} of {messages_max} messages arrived")
    print_note(f"read {printed:,} messages from {topic}")


def _settings(group: str | None, reset: str) -> dict[str, Any]:
    return {
        "group.id": group if group is not None else SOLE_READER_GROUP,
        "enable.auto.commit": group is not None,
        # An offset is stored after its message is printed, so a crash repeats messages and skips none.
        "enable.auto.offset.store": False,
        "auto.offset.reset": reset,
        "enable.partition.eof": True,
        # librdkafka's default of 1 s between two full queues would be most of a long read.
        "fetch.queue.backoff.ms": 5,
    }


def _follow(
    consumer: Consumer,
    rules: StopRules,
    watch: "BrokerWatch",
    line_of: Callable[[Message], bytes],
    passes: "MessageTest | None",
    *,
    commits: bool,
) -> int:
    """Print until a rule stops it. Returns the number of messages printed."""
    progress = Progress(rules)
    next_offsets: dict[int, int] = {}
    while True:
        room = BATCH_MESSAGES_MAX
        if rules.messages_max is not None:
            room = min(room, rules.messages_max - progress.printed)
        batch = _next_batch(consumer, room, next_offsets)
        watch.check()
        output = sys.stdout.buffer
        passing = batch if passes is None else [each for each in batch if passes(each)]
        for message in passing:
            output.write(line_of(message))
        output.flush()
        if commits:
            for message in batch:
                consumer.store_offsets(message)
        progress.count(len(passing))
        ends = rules.end_offsets
        if progress.is_over() or (ends is not None and _reached(consumer, ends, next_offsets)):
            return progress.printed


class BrokerWatch:
    """Detects a lost broker, where librdkafka would retry silently."""

    def __init__(self, bootstrap: str, security: ClientSecurity | None) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self._lost_at: float | None = None

    def on_error(self, error: KafkaError) -> None:
        if error.code() in LOST_CODES and self._lost_at is None:
            self._lost_at = time.monotonic()

    def check(self) -> None:
        """Raise CommandFailed if the broker has been lost for `LOST_SECONDS_MAX` and does not answer."""
        if self._lost_at is None or time.monotonic() - self._lost_at < LOST_SECONDS_MAX:
            return
        check_reachable(self._bootstrap, self._security)
        self._lost_at = None


def _reached(consumer: Consumer, end_offsets: dict[int, int], next_offsets: dict[int, int]) -> bool:
    """Whether every partition of this consumer has been read to its end offset."""
    held = [place.partition for place in consumer.assignment()]
    return bool(held) and all(
        next_offsets.get(number, -1) >= end_offsets.get(number, 0) for number in held
    )


def _message_ends(
    settings: dict[str, Any],
    topic: str,
    first_offsets: dict[int, int],
    end_offsets: dict[int, int],
    passes: "MessageTest | None",
) -> dict[int, int]:
    """The offset behind the last message before the end of each partition, 0 without one: markers, messages of
    aborted transactions and those that do not pass the filter, which no subscription delivers, may follow it."""
    found = dict.fromkeys(end_offsets, 0)
    consumer = Consumer(settings)
    try:
        for number, end_offset in end_offsets.items():
            next_offset = end_offset
            while next_offset > first_offsets[number] and not found[number]:
                # Mostly the last message is the last or the last but one in the log.
                next_offset -= max(2, 4 * (end_offset - next_offset))
                next_offset = max(next_offset, first_offsets[number])
                consumer.assign([TopicPartition(topic, number, next_offset)])
                read_to: dict[int, int] = {}
                while read_to.get(number, -1) < end_offset:
                    for message in _next_batch(consumer, BATCH_MESSAGES_MAX, read_to):
                        offset = message.offset()
                        assert offset is not None
                        if offset < end_offset and (passes is None or passes(message)):
                            found[number] = offset + 1
    finally:
        consumer.close()
    return found


def _next_batch(consumer: Consumer, room: int, next_offsets: dict[int, int]) -> list[Message]:
    """The messages that are there, or the first one within a short wait; updates `next_offsets`."""

    first = consumer.poll(POLL_SECONDS)
    if first is None:
        return []
    arrived = [first]
    if room > 1:
        arrived += consumer.consume(room - 1, timeout=0)
    batch = []
    for message in arrived:
        error, number, offset = message.error(), message.partition(), message.offset()
        if error is None:
            assert number is not None
            assert offset is not None
            next_offsets[number] = offset + 1
            batch.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            assert number is not None
            assert offset is not None
            next_offsets[number] = offset
        elif not error.retriable() and error.code() not in LOST_CODES:
            raise error_of(f"read {message.topic()!r}", error)
    return batch


def _format(message: Message, *, as_json: bool, key_separator: bytes | None) -> bytes:
    value, key = message.value(), message.key()
    if not as_json:
        return format_line(value, key, key_separator)
    headers: Any = message.headers() or ()
    kind, timestamp_ms = message.timestamp()
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return format_json_line(
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp_ms=None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        key=key,
        value=value,
        headers=headers,
    )


def _format_delivered(message: Delivered, *, as_json: bool, key_separator: bytes | None) -> bytes:
    if not as_json:
        return format_line(message.value, message.key, key_separator)
    return format_json_line(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        timestamp_ms=message.timestamp_ms if message.timestamp_ms >= 0 else None,
        key=message.key,
        value=message.value,
        headers=message.headers,
    )

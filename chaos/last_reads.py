"""The end of a run: a fresh client reads every partition from its beginning to its end."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from chaos.clients import FAST_RETRIES, ClientErrors, partition_name
from chaos.history import Action, Entry, Phase, Recorder
from chaos.messages import entry_of

RECORDS_MAX: Final = 2_000
POLL_SECONDS: Final = 0.5
ASK_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LastReads:
    """How far the last reader got."""

    high_watermarks: dict[str, int]  # of the partitions whose end was reached or is known
    unread: tuple[str, ...]  # the other partitions that should have been read


def read_everything(
    bootstrap: str,
    partitions: Sequence[tuple[str, int]],
    recorder: Recorder,
    client_errors: ClientErrors,
    *,
    only_ends: Sequence[tuple[str, int]] = (),
    isolation_level: str = "read_uncommitted",
    seconds_max: float,
) -> LastReads:
    """Read all partitions to the end, or until the deadline; of `only_ends` only look up the end."""
    deadline = time.monotonic() + seconds_max
    consumer = Consumer(
        {
            **FAST_RETRIES,
            "bootstrap.servers": bootstrap,
            "group.id": "chaos-last",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": isolation_level,
        }
    )
    process = recorder.new_process()
    try:
        ends = _ends(consumer, partitions, client_errors, deadline)
        names = [partition_name(*each) for each in ends]
        recorder.write(process, Phase.OK, Action.ASSIGN, [Entry(name, 0) for name in names])
        consumer.assign([TopicPartition(*each, 0) for each in ends])
        left = set(names)
        while left and time.monotonic() < deadline:
            gathered: list[Entry] = []
            for message in consumer.consume(RECORDS_MAX, POLL_SECONDS):
                error = message.error()
                if error is None:
                    gathered.append(entry_of(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(partition_name(message.topic() or "", message.partition() or 0))
                else:
                    client_errors.add(error, "last reader")
            if gathered:
                recorder.write(process, Phase.OK, Action.LAST_POLL, gathered)
        others = _ends(consumer, only_ends, client_errors, deadline)
    finally:
        consumer.close()
    read = {partition_name(*each): end for each, end in ends.items()}
    missing = [partition_name(*each) for each in partitions if each not in ends]
    known = {partition_name(*each): end for each, end in others.items()}
    return LastReads(
        high_watermarks=known | {name: end for name, end in read.items() if name not in left},
        unread=tuple(sorted([*missing, *left])),
    )


def _ends(
    consumer: Consumer,
    partitions: Sequence[tuple[str, int]],
    client_errors: ClientErrors,
    deadline: float,
) -> dict[tuple[str, int], int]:
    """The high watermark of every partition that has a leader before the deadline."""
    ends: dict[tuple[str, int], int] = {}
    for topic, partition in partitions:
        while (topic, partition) not in ends and time.monotonic() < deadline:
            try:
                known = consumer.get_watermark_offsets(
                    TopicPartition(topic, partition), ASK_SECONDS
                )
            except KafkaException as exception:
                client_errors.add(exception.args[0], "last reader")
                continue
            if known is not None:
                ends[topic, partition] = known[1]
    return ends

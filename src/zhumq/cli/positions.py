"""Where to begin in a topic: earliest, latest, an offset or a time, and the offsets that means."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from zhumq.cli.client import Cluster
from zhumq.cli.options import INT64_MAX, CommandFailed

DIGITS_MAX = 19  # of a number of 64 bits

EARLIEST = "earliest"
LATEST = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A place to begin. Exactly one of the three is set."""

    edge: str | None = None  # EARLIEST or LATEST
    offset: int | None = None
    timestamp_ms: int | None = None


def parse_position(text: str, *, option: str) -> Position:
    """Read earliest, latest, an offset, an ISO 8601 time, or @MILLISECONDS since 1970."""
    if text in (EARLIEST, LATEST):
        return Position(edge=text)
    digits = text.removeprefix("@")
    if digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX:
        number = min(int(digits), INT64_MAX)
        return Position(timestamp_ms=number) if text != digits else Position(offset=number)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CommandFailed(
            f"{option} wants earliest, latest, an offset, a time such as 2026-01-31T09:00:00Z, "
            f"or @MILLISECONDS, not {text!r}"
        ) from None
    # A time without a zone is meant as the person's own clock shows it.
    return Position(timestamp_ms=int(moment.astimezone().timestamp() * 1000))


def resolve_offsets(
    cluster: Cluster, topic: str, partitions: Iterable[int], position: Position
) -> dict[int, int]:
    """The offset of each partition that a position stands for, kept within what the log holds."""
    wanted = list(partitions)
    if position.edge == EARLIEST:
        return list_offsets(cluster, topic, wanted, OffsetSpec.earliest())
    latest = list_offsets(cluster, topic, wanted, OffsetSpec.latest())
    if position.edge == LATEST:
        return latest
    if position.timestamp_ms is not None:
        spec = OffsetSpec.for_timestamp(position.timestamp_ms)
        found = list_offsets(cluster, topic, wanted, spec)
        # -1: nothing is that new, so the next message to come is the first one meant.
        return {
            partition: offset if offset >= 0 else latest[partition]
            for partition, offset in found.items()
        }
    assert position.offset is not None
    earliest = list_offsets(cluster, topic, wanted, OffsetSpec.earliest())
    return {
        partition: min(max(position.offset, earliest[partition]), latest[partition])
        for partition in wanted
    }


def list_offsets(
    cluster: Cluster, topic: str, partitions: Iterable[int], spec: OffsetSpec
) -> dict[int, int]:
    """One offset per partition."""
    requests = {TopicPartition(topic, partition): spec for partition in partitions}
    if not requests:
        return {}

    def question(admin: AdminClient, seconds: float) -> dict[int, int]:
        futures = admin.list_offsets(requests, request_timeout=seconds)
        return {place.partition: future.result().offset for place, future in futures.items()}

    return cluster.ask(f"list the offsets of {topic!r}", question)

"""Start positions in a topic: earliest, latest, an offset or a time, resolved to offsets."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from zhumq.cli.client import Cluster
from zhumq.cli.options import INT64_MAX, CommandFailed

DIGITS_MAX = 19  # of a 64-bit number

EARLIEST = "earliest"
LATEST = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A start position. Exactly one field is set."""

    edge: str | None = None  # EARLIEST or LATEST
    offset: int | None = None
    timestamp_ms: int | None = None


def parse_position(text: str, *, option: str) -> Position:
    """Parse earliest, latest, an offset, an ISO 8601 time, or @MILLISECONDS since 1970."""
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
            f"{option} takes earliest, latest, an offset, a time such as 2026-01-31T09:00:00Z, "
            f"or @MILLISECONDS, not {text!r}"
        ) from None
    # A time without a zone is local time.
    return Position(timestamp_ms=int(moment.astimezone().timestamp() * 1000))


def resolve_offsets(
    cluster: Cluster, topic: str, partitions: Iterable[int], position: Position
) -> dict[int, int]:
    """The offset of the position in each partition, limited to the offsets of the log."""
    numbers = list(partitions)
    if position.edge == EARLIEST:
        return list_offsets(cluster, topic, numbers, OffsetSpec.earliest())
    latest = list_offsets(cluster, topic, numbers, OffsetSpec.latest())
    if position.edge == LATEST:
        return latest
    if position.timestamp_ms is not None:
        spec = OffsetSpec.for_timestamp(position.timestamp_ms)
        found = list_offsets(cluster, topic, numbers, spec)
        # -1: no message is that new, so the position is the end of the log.
        return {
            partition: offset if offset >= 0 else latest[partition]
            for partition, offset in found.items()
        }
    assert position.offset is not None
    earliest = list_offsets(cluster, topic, numbers, OffsetSpec.earliest())
    return {
        partition: min(max(position.offset, earliest[partition]), latest[partition])
        for partition in numbers
    }


def list_offsets(
    cluster: Cluster, topic: str, partitions: Iterable[int], spec: OffsetSpec
) -> dict[int, int]:
    """One offset per partition."""
    requests = {TopicPartition(topic, partition): spec for partition in partitions}
    if not requests:
        return {}

    def request(admin: AdminClient, seconds: float) -> dict[int, int]:
        futures = admin.list_offsets(requests, request_timeout=seconds)
        return {place.partition: future.result().offset for place, future in futures.items()}

    return cluster.ask(f"list the offsets of {topic!r}", request)

"""Deletes the oldest messages of a topic: up to a position, which is shown first."""

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import NotFound, Refused
from zhumq.admin.offsets import EARLIEST, Position, resolve_offsets
from zhumq.admin.settings import topic_settings
from zhumq.admin.topics import topic_partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class StartChange:
    """The earliest offset of a partition before and after messages are deleted."""

    partition: int
    before: int
    after: int

    @property
    def deleted(self) -> int:
        """How many messages that are."""
        return self.after - self.before


def plan_deletion(
    connection: ClusterConnection, topic: str, position: Position, *, partition: int | None = None
) -> list[StartChange]:
    """What deleting everything before a position would delete, in a topic or in one of its partitions. Nothing changes.
    Raises NotFound, and Refused for a topic whose messages are not deleted by age."""
    numbers = topic_partitions(connection, topic)
    if partition is not None:
        if partition not in numbers:
            raise NotFound(f"{topic!r} has no partition {partition}")
        numbers = [partition]
    _check_policy(connection, topic)
    before = resolve_offsets(connection, topic, numbers, EARLIEST)
    after = resolve_offsets(connection, topic, numbers, position)
    return [
        StartChange(
            partition=number, before=before[number], after=max(after[number], before[number])
        )
        for number in numbers
    ]


def delete_before(
    connection: ClusterConnection, topic: str, offsets: Mapping[int, int]
) -> list[StartChange]:
    """Delete the messages of partitions before these offsets. An offset that is deleted already deletes nothing. Raises
    NotFound and Refused."""
    known = topic_partitions(connection, topic)
    for number in offsets:
        if number not in known:
            raise NotFound(f"{topic!r} has no partition {number}")
    _check_policy(connection, topic)
    if not offsets:
        return []
    before = resolve_offsets(connection, topic, offsets, EARLIEST)
    asked = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]

    def request(admin: AdminClient, seconds: float) -> dict[int, int]:
        futures = admin.delete_records(asked, request_timeout=seconds)
        return {place.partition: each.result().low_watermark for place, each in futures.items()}

    # It may be repeated: what is deleted stays so.
    after = connection.ask_with(f"delete messages of {topic!r}", request)
    return [
        StartChange(partition=number, before=before[number], after=after[number])
        for number in sorted(after)
    ]


def _check_policy(connection: ClusterConnection, topic: str) -> None:
    """In a topic that is only compacted the newest message of each key is state, as in those of the brokers."""
    policy = topic_settings(connection, topic)["cleanup.policy"].value or ""
    if topic.startswith("__") or "delete" not in policy.split(","):
        raise Refused(
            f"the messages of {topic!r} are not deleted: cleanup.policy={policy}",
            "only topics whose policy has `delete` lose their oldest messages",
            code="POLICY_VIOLATION",
        )
